//! SWDL as it is written: its fields, each read and checked by itself. Refuses to know what they mean together.

mod context;
mod contract;
mod hooks;
mod policy;
mod stage;
mod workflow;

pub(super) use context::{MemoryDef, StageContext};
pub(super) use contract::{Declared, Input};
pub(super) use hooks::HookDef;
pub(super) use policy::{RetryDef, StagePolicy};
pub(super) use stage::{Asked, Called, Does, GateDef, Stage};
pub(super) use workflow::Workflow;

use skein_core::time::Millis;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    read::Given,
    yaml::Field,
};

/// Longer ids are of no use to people, and one of a fan-out's steps is longer than its stage's.
const ID_MOST: usize = 128;

/// Whether a name is no path: it is looked up in folders of the project, and leads nowhere else.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

fn text<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    given.and_then(|given| given.text(sink)).map(|text| text.value)
}

fn words<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    given.and_then(|given| given.words(sink)).map(|text| text.value)
}

fn flag(given: Option<Given<'_>>, sink: &mut Sink) -> Option<bool> {
    given.and_then(|given| given.flag(sink)).map(|flag| flag.value)
}

fn length(given: Option<Given<'_>>, sink: &mut Sink) -> Option<Millis> {
    given.and_then(|given| given.duration(Units::UpToDays, sink)).map(|length| length.value)
}

/// Text that is taken as it is. What a run works out does not decide who does something, with what, or who is asked.
fn plain<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    let given = given?;
    let text = given.words(sink)?.value;
    if !text.contains("${{") {
        return Some(text);
    }
    let message = format!("`{}` cannot have an expression in it", given.name);
    let diagnostic = Diagnostic::new(Code::BadExpression, given.node.source(), given.node.mark(), message);
    sink.push(diagnostic.hint("write it out"));
    None
}

/// The items of a list, each as it is.
fn plains<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Vec<&'a str> {
    let items = given.and_then(|given| given.list(sink)).unwrap_or_default();
    items.into_iter().filter_map(|item| plain(Some(item), sink)).collect()
}

/// An id in kebab case. What is none is reported with what it could be.
fn id<'a>(given: Option<Given<'a>>, sink: &mut Sink) -> Option<&'a str> {
    let given = given?;
    let text = given.words(sink)?.value;
    if is_kebab(text) {
        return Some(text);
    }
    let message = format!("`{text}` cannot be an id");
    let hint = format!(
        "ids are at most {ID_MOST} lower case letters, digits and single dashes, and start with a letter"
    );
    let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message);
    sink.push(match kebab(text) {
        Some(meant) => diagnostic.hint(format!("{hint}; `{meant}` would do")).fix_word(given.span(), &meant),
        None => diagnostic.hint(hint),
    });
    None
}

fn is_kebab(text: &str) -> bool {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.len() <= ID_MOST && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split('-').all(part)
}

/// What a text was probably meant to be, if it can be told.
fn kebab(text: &str) -> Option<String> {
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
fn check_name(field: Field<'_>, what: &str, sink: &mut Sink) -> bool {
    if is_name(field.key) {
        return true;
    }
    let message = format!("`{}` cannot be the name of {what}", field.key);
    let hint =
        format!("names are at most {ID_MOST} letters, digits, `_` and `-`, and start with a letter or `_`");
    let diagnostic = Diagnostic::new(Code::BadName, field.value.source(), field.key_span, message);
    sink.push(diagnostic.hint(hint));
    false
}
