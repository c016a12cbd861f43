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
        let report = |hint: String, sink: &mut Sink| {
            let message = format!("there is no type `{text}`");
            let diagnostic =
                Diagnostic::new(Code::UnknownWord, given.node.source(), given.node.mark(), message);
            sink.push(diagnostic.hint(hint));
            None
        };
        let mut inner = text.trim();
        let mut arrays = 0;
        while let Some(item) = inner.strip_prefix("array<").and_then(|rest| rest.strip_suffix('>')) {
            inner = item.trim();
            arrays += 1;
            if arrays > DEPTH {
                return report(format!("arrays nest at most {DEPTH} deep"), sink);
            }
        }
        let names = || BASES.iter().map(|(name, _)| *name);
        match BASES.iter().find(|(name, _)| *name == inner) {
            Some((_, base)) => Some(Type { base: *base, arrays }),
            None if inner == "array" => report("say of what, such as `array<string>`".to_owned(), sink),
            None => match closest(inner, names()) {
                Some(near) => report(format!("did you mean `{}`?", text.replacen(inner, near, 1)), sink),
                None => {
                    let all: Vec<String> = names().map(|name| format!("`{name}`")).collect();
                    report(format!("types are {}, and `array<…>` of any", all.join(", ")), sink)
                }
            },
        }
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
