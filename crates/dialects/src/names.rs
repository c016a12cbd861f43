//! Checks that names are distinct: to a person, and on a file system that ignores case.

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

/// Refuses different names that are equal after case folding and Unicode normalization.
pub fn refuse_twins<'a>(
    names: impl Iterator<Item = (&'a str, ExprSpan)> + Clone,
    what: &str,
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
            let message = format!("{what} `{name}` differs from `{first}` only in case or Unicode form");
            let source = sink.source.clone();
            let diagnostic = Diagnostic::new(Code::TwinNames, &source, span, message);
            let hint = "on some file systems they are the same name";
            sink.push(diagnostic.with_related(at, "the other is here").with_hint(hint));
        }
    }
}

/// Refuses a duplicate name, also one that comes from an alias. Returns true if there is none.
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
