//! SWDL as it is written: its fields, each read and checked by itself. Refuses to know what they mean together.

mod context;
mod contract;
mod hooks;
mod policy;
mod stage;
mod workflow;

pub(super) use context::{MemoryDef, StageContext};
pub(super) use contract::{SwdlDeclaration, SwdlInput};
pub(super) use hooks::HookDef;
pub(super) use policy::{RetryDef, StagePolicy};
pub(super) use stage::{GateDef, SwdlAgentTask, SwdlCall, SwdlStage, SwdlStageKind};
pub(super) use workflow::SwdlWorkflow;

use skein_core::time::Millis;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    duration::DurationUnits,
    fields::FieldValue,
    yaml::YamlField,
};

/// Longer ids are of no use to people, and one of a fan-out's steps is longer than its stage's.
const ID_MOST: usize = 128;

/// Whether a name is no path: it is looked up in folders of the project, and leads nowhere else.
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

/// Text that is taken as it is. What a run works out does not decide who does something, with what, or who is asked.
fn read_plain_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let given = given?;
    let text = given.read_non_empty_text(sink)?.value;
    if !text.contains("${{") {
        return Some(text);
    }
    let message = format!("`{}` cannot have an expression in it", given.name);
    let diagnostic =
        Diagnostic::new(Code::BadExpression, given.node.source(), given.node.first_line_span(), message);
    sink.push(diagnostic.with_hint("write it out"));
    None
}

/// The items of a list, each as it is.
fn read_plain_texts<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<&'a str> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    items.into_iter().filter_map(|item| read_plain_text(Some(item), sink)).collect()
}

/// An id in kebab case. What is none is reported with what it could be.
fn read_id<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let given = given?;
    let text = given.read_non_empty_text(sink)?.value;
    if is_kebab(text) {
        return Some(text);
    }
    let message = format!("`{text}` cannot be an id");
    let hint = format!(
        "ids are at most {ID_MOST} lower case letters, digits and single dashes, and start with a letter"
    );
    let diagnostic =
        Diagnostic::new(Code::BadName, given.node.source(), given.node.first_line_span(), message);
    sink.push(match to_kebab(text) {
        Some(meant) => {
            diagnostic.with_hint(format!("{hint}; `{meant}` would do")).with_word_fix(given.span(), &meant)
        }
        None => diagnostic.with_hint(hint),
    });
    None
}

fn is_kebab(text: &str) -> bool {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= ID_MOST && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split('-').all(part)
}

/// What a text was probably meant to be, if it can be told.
fn to_kebab(text: &str) -> Option<String> {
    let spaced = text.replace(['_', ' ', '.'], "-").to_ascii_lowercase();
    is_kebab(&spaced).then_some(spaced)
}

/// Whether an expression can say it after a dot.
fn is_name(text: &str) -> bool {
    text.len() <= ID_MOST
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Refuses a key that no expression could name.
fn check_name(field: YamlField<'_>, what: &str, sink: &mut DiagnosticSink) -> bool {
    if is_name(field.key) {
        return true;
    }
    let message = format!("`{}` cannot be the name of {what}", field.key);
    let hint =
        format!("names are at most {ID_MOST} letters, digits, `_` and `-`, and start with a letter or `_`");
    let diagnostic = Diagnostic::new(Code::BadName, field.value.source(), field.key_span, message);
    sink.push(diagnostic.with_hint(hint));
    false
}
