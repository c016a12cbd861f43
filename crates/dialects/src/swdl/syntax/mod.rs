//! SWDL's syntax: reads and checks each field by itself. Does not know their meaning together.

mod context;
mod contract;
mod policy;
mod stage;
mod workflow;

use skein_core::time::Millis;

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{DurationUnits, FieldValue},
    source::yaml::YamlField,
};
pub(super) use context::{MemoryDef, StageContext};
use context::{STAGE_CONTEXT_FIELDS, WORKFLOW_CONTEXT_FIELDS};
pub(super) use contract::{SwdlDeclaration, SwdlInput};
pub(super) use policy::{RetryDef, StagePolicy};
pub(super) use stage::{GateDef, SwdlAgentTask, SwdlCall, SwdlStage, SwdlStageKind};
pub(super) use workflow::{HookDef, SwdlWorkflow};

/// The maximum length of an id. A step of a fan-out has a longer id than its stage.
const ID_MOST: usize = 128;

/// True if a name is not a path: it is looked up in folders of the project and must not lead elsewhere.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

fn read_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    given.and_then(|given| given.read_text(sink)).map(|text| text.value)
}

fn read_non_empty_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    given.and_then(|given| given.read_non_empty_text(sink)).map(|text| text.value)
}

fn read_bool(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<bool> {
    given.and_then(|given| given.read_bool(sink)).map(|flag| flag.value)
}

fn read_duration(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Option<Millis> {
    given.and_then(|given| given.read_duration(DurationUnits::UpToDays, sink)).map(|length| length.value)
}

/// Reads a text without expressions. Values of a run must not determine workers, tools or approvers.
fn read_plain_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let given = given?;
    let text = given.read_non_empty_text(sink)?.value;
    if !text.contains("${{") {
        return Some(text);
    }
    let message = format!("`{}` cannot contain an expression", given.name);
    let diagnostic = given.diagnose(Code::BadExpression, message);
    sink.push(diagnostic.with_hint("write a literal value"));
    None
}

/// Reads a list of texts without expressions.
fn read_plain_texts<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<&'a str> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    items.into_iter().filter_map(|item| read_plain_text(Some(item), sink)).collect()
}

/// Reads an id in kebab case. Reports another form with a suggestion.
fn read_id<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let given = given?;
    let text = given.read_non_empty_text(sink)?.value;
    if is_kebab(text) {
        return Some(text);
    }
    let message = format!("`{text}` cannot be an id");
    let hint =
        format!("ids are at most {ID_MOST} lower case letters, digits and single dashes, and start with a letter");
    let diagnostic = given.diagnose(Code::BadName, message);
    sink.push(match to_kebab(text) {
        Some(meant) => diagnostic.with_hint(format!("{hint}; `{meant}` would do")).with_word_fix(given.span(), &meant),
        None => diagnostic.with_hint(hint),
    });
    None
}

fn is_kebab(text: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= ID_MOST && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split('-').all(part)
}

/// Returns the id that was probably meant.
fn to_kebab(text: &str) -> Option<String> {
    let spaced = text.replace(['_', ' ', '.'], "-").to_ascii_lowercase();
    is_kebab(&spaced).then_some(spaced)
}

/// True if an expression can refer to it after a dot.
fn is_name(text: &str) -> bool {
    text.len() <= ID_MOST
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Refuses a key that no expression could refer to.
fn check_name(field: YamlField<'_>, subject: &str, sink: &mut DiagnosticSink) -> bool {
    if is_name(field.key) {
        return true;
    }
    let message = format!("`{}` cannot be the name of {subject}", field.key);
    let hint = format!("names are at most {ID_MOST} letters, digits, `_` and `-`, and start with a letter or `_`");
    let diagnostic = Diagnostic::new(Code::BadName, field.value.source(), field.key_span, message);
    sink.push(diagnostic.with_hint(hint));
    false
}
