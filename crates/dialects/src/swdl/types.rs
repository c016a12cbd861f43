//! The types of SWDL's contracts, as JSON Schema.

use serde_json::{Value, json};
use skein_core::suggest::find_closest_name;

use super::defaults::{ARTIFACTS, CONTEXT_MODULE};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::FieldValue,
};

/// The maximum depth of nested arrays.
const DEPTH: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BaseType {
    Plain(&'static str),
    ArtifactRef,
    MemoryItem,
    ContextModule,
}

const BASES: &[(&str, BaseType)] = &[
    ("string", BaseType::Plain("string")),
    ("number", BaseType::Plain("number")),
    ("integer", BaseType::Plain("integer")),
    ("boolean", BaseType::Plain("boolean")),
    ("object", BaseType::Plain("object")),
    ("artifact_ref", BaseType::ArtifactRef),
    ("memory_item", BaseType::MemoryItem),
    ("context_module", BaseType::ContextModule),
];

/// A type: a base type, nested in arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContractType {
    base: BaseType,
    arrays: usize,
}

impl ContractType {
    /// Reads a type. Reports an invalid one.
    pub fn read(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<ContractType> {
        let text = given.read_non_empty_text(sink)?.value;
        let (base, arrays) = split_arrays(text);
        let found = BASES.iter().find(|(name, _)| *name == base).filter(|_| arrays <= DEPTH);
        if let Some((_, base)) = found {
            return Some(ContractType { base: *base, arrays });
        }
        let message = format!("there is no type `{text}`");
        let diagnostic =
            Diagnostic::new(Code::UnknownWord, given.node.source(), given.node.first_line_span(), message);
        let names = || BASES.iter().map(|(name, _)| *name);
        sink.push(match find_closest_name(base, names()) {
            _ if arrays > DEPTH => diagnostic.with_hint(format!("arrays nest at most {DEPTH} deep")),
            _ if base == "array" => {
                diagnostic.with_hint("give the type of its items, such as `array<string>`")
            }
            Some(near) => {
                let meant = text.replacen(base, near, 1);
                let diagnostic = diagnostic.with_hint(format!("did you mean `{meant}`?"));
                // Angle brackets are safer in quotes.
                match arrays {
                    0 => diagnostic.with_word_fix(given.span(), &meant),
                    _ => diagnostic.with_fix(given.span(), format!("\"{meant}\"")),
                }
            }
            None => {
                let all: Vec<String> = names().map(|name| format!("`{name}`")).collect();
                diagnostic.with_hint(format!("types are {}, and `array<…>` of any", all.join(", ")))
            }
        });
        None
    }

    /// True if a text is a type.
    pub fn is_type(text: &str) -> bool {
        let (base, arrays) = split_arrays(text);
        arrays <= DEPTH && BASES.iter().any(|(name, _)| *name == base)
    }

    /// Returns the type in the notation of the source.
    pub fn name(self) -> String {
        let base = BASES.iter().find(|(_, base)| *base == self.base).map_or("", |(name, _)| name);
        format!("{}{base}{}", "array<".repeat(self.arrays), ">".repeat(self.arrays))
    }

    /// Returns the schema of its values.
    pub fn to_schema(self) -> Value {
        let base = match self.base {
            BaseType::Plain(name) => json!({"type": name}),
            BaseType::ArtifactRef => {
                json!({"type": "string", "pattern": format!("^({}):.+$", ARTIFACTS.join("|"))})
            }
            BaseType::MemoryItem => json!({"type": "string", "minLength": 1}),
            BaseType::ContextModule => json!({"type": "string", "pattern": format!("^{CONTEXT_MODULE}:.+$")}),
        };
        (0..self.arrays).fold(base, |items, _| json!({"type": "array", "items": items}))
    }

    /// Returns the schema of its values or null.
    pub fn to_nullable_schema(self) -> Value {
        let mut schema = self.to_schema();
        if let Some(of) = schema.get_mut("type") {
            *of = json!([of.take(), "null"]);
        }
        schema
    }
}

/// Returns the base type, and the number of arrays around it.
fn split_arrays(text: &str) -> (&str, usize) {
    let mut base = text.trim();
    let mut arrays = 0;
    while let Some(item) = base.strip_prefix("array<").and_then(|rest| rest.strip_suffix('>')) {
        base = item.trim();
        arrays += 1;
    }
    (base, arrays)
}
