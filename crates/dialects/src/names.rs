//! Names that must differ to every reader: to a person, and to a file system that folds case.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
};

use skein_core::expr::ExprSpan;
use unicode_normalization::UnicodeNormalization;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
};

/// Refuses names that look the same or fold to the same, and are not.
pub fn refuse_twins<'a>(
    names: impl Iterator<Item = (&'a str, ExprSpan)> + Clone,
    what: &str,
    sink: &mut DiagnosticSink,
) {
    // Where folding changes none, no two fold to the same.
    if names.clone().all(|(name, _)| matches!(fold_name(name), Cow::Borrowed(_))) {
        return;
    }
    let mut seen: HashMap<Cow<'_, str>, (&str, ExprSpan)> = HashMap::new();
    for (name, span) in names {
        let (first, at) = *seen.entry(fold_name(name)).or_insert((name, span));
        if first != name {
            let message = format!("{what} `{name}` differs from `{first}` only in how it is written");
            let source = sink.source.clone();
            let diagnostic = Diagnostic::new(Code::TwinNames, &source, span, message);
            let hint = "on some file systems the two would be one";
            sink.push(diagnostic.with_related(at, "the other is here").with_hint(hint));
        }
    }
}

/// Refuses a name that is there twice, also where an alias is why. Says whether each is there once.
pub fn refuse_duplicates<'a>(
    names: impl Iterator<Item = (&'a str, ExprSpan)> + Clone,
    what: &str,
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
                let message = format!("there is {what} `{name}` already");
                let diagnostic = Diagnostic::new(Code::DuplicateName, &sink.source.clone(), span, message);
                sink.push(match *first.get() {
                    first if first == span => diagnostic.with_label("it is here, and again by an alias"),
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
