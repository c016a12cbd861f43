//! The types of SWDL's contracts, as JSON Schema.

use serde_json::{Value, json};
use skein_core::closest::closest;

use super::defaults::{ARTIFACTS, CONTEXT_MODULE};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::Given,
};

/// Arrays in arrays.
const DEPTH: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Plain(&'static str),
    ArtifactRef,
    MemoryItem,
    ContextModule,
}

const BASES: &[(&str, Base)] = &[
    ("string", Base::Plain("string")),
    ("number", Base::Plain("number")),
    ("integer", Base::Plain("integer")),
    ("boolean", Base::Plain("boolean")),
    ("object", Base::Plain("object")),
    ("artifact_ref", Base::ArtifactRef),
    ("memory_item", Base::MemoryItem),
    ("context_module", Base::ContextModule),
];

/// A type: one of the words, in as many arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type {
    base: Base,
    arrays: usize,
}

impl Type {
    /// Reads a type; what is none is reported.
    pub fn read(given: Given<'_>, sink: &mut Sink) -> Option<Type> {
        let text = given.words(sink)?.value;
        let (base, arrays) = parts(text);
        let found = BASES.iter().find(|(name, _)| *name == base).filter(|_| arrays <= DEPTH);
        if let Some((_, base)) = found {
            return Some(Type { base: *base, arrays });
        }
        let message = format!("there is no type `{text}`");
        let diagnostic = Diagnostic::new(Code::UnknownWord, given.node.source(), given.node.mark(), message);
        let names = || BASES.iter().map(|(name, _)| *name);
        sink.push(match closest(base, names()) {
            _ if arrays > DEPTH => diagnostic.hint(format!("arrays nest at most {DEPTH} deep")),
            _ if base == "array" => diagnostic.hint("say of what, such as `array<string>`"),
            Some(near) => {
                let meant = text.replacen(base, near, 1);
                let diagnostic = diagnostic.hint(format!("did you mean `{meant}`?"));
                // Angle brackets are safer in quotes.
                match arrays {
                    0 => diagnostic.fix_word(given.span(), &meant),
                    _ => diagnostic.fix(given.span(), format!("\"{meant}\"")),
                }
            }
            None => {
                let all: Vec<String> = names().map(|name| format!("`{name}`")).collect();
                diagnostic.hint(format!("types are {}, and `array<…>` of any", all.join(", ")))
            }
        });
        None
    }

    /// Whether a text is one.
    pub fn is_type(text: &str) -> bool {
        let (base, arrays) = parts(text);
        arrays <= DEPTH && BASES.iter().any(|(name, _)| *name == base)
    }

    /// As it is written.
    pub fn name(self) -> String {
        let base = BASES.iter().find(|(_, base)| *base == self.base).map_or("", |(name, _)| name);
        format!("{}{base}{}", "array<".repeat(self.arrays), ">".repeat(self.arrays))
    }

    /// What its values look like.
    pub fn schema(self) -> Value {
        let base = match self.base {
            Base::Plain(name) => json!({"type": name}),
            Base::ArtifactRef => {
                json!({"type": "string", "pattern": format!("^({}):.+$", ARTIFACTS.join("|"))})
            }
            Base::MemoryItem => json!({"type": "string", "minLength": 1}),
            Base::ContextModule => json!({"type": "string", "pattern": format!("^{CONTEXT_MODULE}:.+$")}),
        };
        (0..self.arrays).fold(base, |items, _| json!({"type": "array", "items": items}))
    }

    /// The same, or null.
    pub fn or_null(self) -> Value {
        let mut schema = self.schema();
        if let Some(of) = schema.get_mut("type") {
            *of = json!([of.take(), "null"]);
        }
        schema
    }
}

/// What is in the arrays, and how many of them there are.
fn parts(text: &str) -> (&str, usize) {
    let mut base = text.trim();
    let mut arrays = 0;
    while let Some(item) = base.strip_prefix("array<").and_then(|rest| rest.strip_suffix('>')) {
        base = item.trim();
        arrays += 1;
    }
    (base, arrays)
}
