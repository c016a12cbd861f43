//! Names: of steps that a step depends on, and of environment variables. Checks that names are distinct to a person, and on
//! a file system that ignores case.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
};

use skein_core::{expr::ExprSpan, ids::StepId, reserved_variables};
use unicode_normalization::UnicodeNormalization;

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{FieldValue, Spanned},
    source::yaml::YamlNode,
};

/// Refuses different names that are equal after case folding and Unicode normalization.
pub(crate) fn refuse_twins<'a>(
    names: impl Iterator<Item = (&'a str, ExprSpan)> + Clone,
    subject: &str,
    sink: &mut DiagnosticSink,
) {
    // If folding changes no name, no two are equal after it.
    if names.clone().all(|(name, _)| matches!(fold_name(name), Cow::Borrowed(_))) {
        return;
    }
    let mut seen: HashMap<Cow<'_, str>, (&str, ExprSpan)> = HashMap::new();
    for (name, span) in names {
        let (first, at) = *seen.entry(fold_name(name)).or_insert((name, span));
        if first != name {
            let message = format!("{subject} `{name}` differs from `{first}` only in case or Unicode form");
            let source = sink.source.clone();
            let diagnostic = Diagnostic::new(Code::TwinNames, &source, span, message);
            let hint = "on some file systems they are the same name";
            sink.push(diagnostic.with_related(at, "the other is here").with_hint(hint));
        }
    }
}

/// Refuses a duplicate name, also one that comes from an alias. Returns true if there is none.
pub(crate) fn refuse_duplicates<'a>(
    names: impl Iterator<Item = (&'a str, ExprSpan)> + Clone,
    subject: &str,
    sink: &mut DiagnosticSink,
) -> bool {
    let mut seen: HashMap<&str, ExprSpan> = HashMap::with_capacity(names.clone().count());
    let mut once = true;
    for (name, span) in names {
        match seen.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(span);
            }
            Entry::Occupied(first) => {
                once = false;
                let message = format!("there is {subject} `{name}` already");
                let diagnostic = Diagnostic::new(Code::DuplicateName, &sink.source.clone(), span, message);
                sink.push(match *first.get() {
                    first if first == span => diagnostic.with_label("repeated by an alias"),
                    first => diagnostic.with_label("again here").with_related(first, "first here"),
                });
            }
        }
    }
    once
}

fn fold_name(name: &str) -> Cow<'_, str> {
    match name.is_ascii() {
        true if !name.bytes().any(|byte| byte.is_ascii_uppercase()) => name.into(),
        true => name.to_ascii_lowercase().into(),
        false => name.nfc().flat_map(char::to_lowercase).nfc().collect(),
    }
}

/// Checks that a source may set a variable of this name. Otherwise reports the reason.
pub(crate) fn check_variable(name: &str, node: YamlNode<'_>, span: ExprSpan, sink: &mut DiagnosticSink) -> bool {
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(starts) || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let message = format!("`{name}` cannot be the name of an environment variable");
        let hint = "names are letters, digits and `_`, and do not start with a digit";
        sink.push(Diagnostic::new(Code::BadName, node.source(), span, message).with_hint(hint));
        return false;
    }
    let Some(why) = reserved_variables::reservation_reason(name) else { return true };
    let message = format!("a workflow may not set `{name}`: {why}");
    let hint = "set it in the environment of Skein and list it in `pass_env` of skein.toml, or use another name";
    sink.push(Diagnostic::new(Code::ReservedVariable, node.source(), span, message).with_hint(hint));
    false
}

/// Reads the dependencies of a step, without duplicates.
pub(crate) fn read_dependencies(given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink) -> Vec<Spanned<StepId>> {
    let Some(given) = given else { return Vec::new() };
    let items = given.read_word_list(sink);
    let mut names: Vec<Spanned<StepId>> =
        items.filter_map(|item| item.read_name(|text| StepId::new(text), sink)).collect();
    if names.len() < 2 {
        return names;
    }
    let places: Vec<_> = names.iter().map(|name| (name.span, &name.value)).collect();
    if warn_duplicates(&places, given.name, sink) {
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.value.clone()));
    }
    names
}

/// Warns of duplicates in a list. Returns true if there are any.
pub(crate) fn warn_duplicates<T: Ord>(items: &[(ExprSpan, T)], list: &str, sink: &mut DiagnosticSink) -> bool {
    let mut seen = BTreeMap::new();
    for (span, item) in items {
        if let Some(first) = seen.insert(item, *span) {
            let message = format!("`{list}` contains this twice");
            let diagnostic = Diagnostic::new(Code::IgnoredField, &sink.source.clone(), *span, message);
            sink.push(diagnostic.with_related(first, "first here"));
        }
    }
    seen.len() < items.len()
}
