//! Names that must differ to every reader: to a person, and to a file system that folds case.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
};

use skein_core::expr::Span;
use unicode_normalization::UnicodeNormalization;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
};

/// Refuses names that look the same or fold to the same, and are not.
pub fn refuse_twins<'a>(names: impl Iterator<Item = (&'a str, Span)> + Clone, what: &str, sink: &mut Sink) {
    // Where folding changes none, no two fold to the same.
    if names.clone().all(|(name, _)| matches!(folded(name), Cow::Borrowed(_))) {
        return;
    }
    let mut seen: HashMap<Cow<'_, str>, (&str, Span)> = HashMap::new();
    for (name, span) in names {
        let (first, at) = *seen.entry(folded(name)).or_insert((name, span));
        if first != name {
            let message = format!("{what} `{name}` differs from `{first}` only in how it is written");
            let source = sink.source.clone();
            let diagnostic = Diagnostic::new(Code::TwinNames, &source, span, message);
            let hint = "on some file systems the two would be one";
            sink.push(diagnostic.also(at, "the other is here").hint(hint));
        }
    }
}

/// Refuses a name that is there twice, also where an alias is why. Says whether each is there once.
pub fn refuse_duplicates<'a>(
    names: impl Iterator<Item = (&'a str, Span)> + Clone,
    what: &str,
    sink: &mut Sink,
) -> bool {
    let mut seen: HashMap<&str, Span> = HashMap::with_capacity(names.clone().count());
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
                    first if first == span => diagnostic.label("it is here, and again by an alias"),
                    first => diagnostic.label("again here").also(first, "first here"),
                });
            }
        }
    }
    once
}

fn folded(name: &str) -> Cow<'_, str> {
    match name.is_ascii() {
        true if !name.bytes().any(|byte| byte.is_ascii_uppercase()) => name.into(),
        true => name.to_ascii_lowercase().into(),
        false => name.nfc().flat_map(char::to_lowercase).nfc().collect(),
    }
}
