//! Contracts: the parameters of a workflow, the inputs and outputs of a stage, and their types.

use serde_json::{Value, json};
use skein_core::{ir::Schema, suggest::find_closest_name};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue},
    source::yaml::YamlField,
    swdl::{
        defaults::{self, ARTIFACTS, CONTEXT_MODULE},
        syntax::{check_name, read_bool, read_text},
    },
};

/// A parameter or an output.
#[derive(Debug)]
pub(in crate::swdl) struct SwdlDeclaration<'a> {
    pub name: &'a str,
    /// None if it is invalid; that has been reported.
    pub ty: Option<ContractType>,
    pub required: bool,
    pub default: Option<FieldValue<'a>>,
    pub description: Option<&'a str>,
}

#[derive(Debug)]
pub(in crate::swdl) struct SwdlInput<'a> {
    pub name: &'a str,
    pub ty: Option<ContractType>,
    pub source: Option<FieldValue<'a>>,
    pub required: bool,
    pub description: Option<&'a str>,
}

/// Reads the entries of a mapping by name. Reports another type and returns None.
fn read_entries<'a>(
    given: Option<FieldValue<'a>>,
    subject: &str,
    sink: &mut DiagnosticSink,
) -> Option<Vec<YamlField<'a>>> {
    let Some(given) = given else { return Some(Vec::new()) };
    let fields = given.node.fields().map(Iterator::collect);
    if fields.is_none() {
        sink.push(given.diagnose_type(format!("a mapping of {subject} by name")));
    }
    fields
}

const DECLARATION_FIELDS: &[&str] = &["type", "required", "default", "description"];

/// Opens a declaration. A bare type is a common mistake and gets a fix.
fn read_declaration<'a>(
    field: YamlField<'a>,
    subject: &'static str,
    sink: &mut DiagnosticSink,
) -> Option<FieldReader<'a>> {
    let Some(text) = field.value.raw_text().filter(|text| ContractType::is_type(text)) else {
        return FieldReader::from_field(field, subject, DECLARATION_FIELDS, sink);
    };
    let message = format!("{subject} is a mapping of fields, found the text `{text}`");
    let whole = field.value.wrap_in_key("type");
    let diagnostic = Diagnostic::new(Code::WrongType, field.value.source(), field.value.first_line_span(), message);
    sink.push(diagnostic.with_hint(format!("write `{whole}`")).with_fix(field.value.span(), whole));
    None
}

impl<'a> SwdlDeclaration<'a> {
    /// Reads parameters. None if the declarations are unknown.
    pub(crate) fn read_parameters(
        given: Option<FieldValue<'a>>,
        sink: &mut DiagnosticSink,
    ) -> Option<Vec<SwdlDeclaration<'a>>> {
        let entries = read_entries(given, "parameters", sink)?.into_iter();
        let required = defaults::PARAMETER_REQUIRED;
        Some(entries.filter_map(|field| SwdlDeclaration::read(field, "a parameter", required, sink)).collect())
    }

    pub(crate) fn read_outputs(
        given: Option<FieldValue<'a>>,
        sink: &mut DiagnosticSink,
    ) -> Option<Vec<SwdlDeclaration<'a>>> {
        let entries = read_entries(given, "outputs", sink)?.into_iter();
        let required = defaults::OUTPUT_REQUIRED;
        Some(entries.filter_map(|field| SwdlDeclaration::read(field, "an output", required, sink)).collect())
    }

    fn read(
        field: YamlField<'a>,
        subject: &'static str,
        required: bool,
        sink: &mut DiagnosticSink,
    ) -> Option<SwdlDeclaration<'a>> {
        let named = check_name(field, subject, sink);
        let Some(mut fields) = read_declaration(field, subject, sink) else {
            // It counts as declared, so that its readers get no follow-up errors.
            let (name, description) = (field.key, None);
            return named.then_some(SwdlDeclaration { name, ty: None, required: false, default: None, description });
        };
        let declared = SwdlDeclaration {
            name: field.key,
            ty: fields.required("type", sink).and_then(|given| ContractType::read(given, sink)),
            required: read_bool(fields.optional("required"), sink).unwrap_or(required),
            default: fields.optional("default"),
            description: read_text(fields.optional("description"), sink),
        };
        fields.finish(sink);
        if let (Some(ty), Some(default)) = (declared.ty, declared.default) {
            check_default(ty, default, sink);
        }
        named.then_some(declared)
    }
}

/// Checks that a default has the declared type.
fn check_default(ty: ContractType, given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    if let Err(error) = Schema::new(ty.to_schema()).check(&given.node.to_json()) {
        let message = format!("`default` is not of the type `{}`: {error}", ty.name());
        sink.push(given.diagnose(Code::WrongType, message));
    }
}

const INPUT_FIELDS: &[&str] = &["type", "source", "required", "description"];

impl<'a> SwdlInput<'a> {
    pub(crate) fn read_all(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<SwdlInput<'a>> {
        let entries = read_entries(given, "inputs", sink).unwrap_or_default().into_iter();
        entries.filter_map(|field| SwdlInput::read(field, sink)).collect()
    }

    fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<SwdlInput<'a>> {
        let named = check_name(field, "an input", sink);
        let mut fields = FieldReader::from_field(field, "an input", INPUT_FIELDS, sink)?;
        let input = SwdlInput {
            name: field.key,
            ty: fields.required("type", sink).and_then(|given| ContractType::read(given, sink)),
            source: fields.required("source", sink),
            required: read_bool(fields.optional("required"), sink).unwrap_or(defaults::INPUT_REQUIRED),
            description: read_text(fields.optional("description"), sink),
        };
        fields.finish(sink);
        named.then_some(input)
    }
}

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
pub(in crate::swdl) struct ContractType {
    base: BaseType,
    arrays: usize,
}

impl ContractType {
    /// Reads a type. Reports an invalid one.
    pub(crate) fn read(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<ContractType> {
        let text = given.read_non_empty_text(sink)?.value;
        let (base, arrays) = split_arrays(text);
        let found = BASES.iter().find(|(name, _)| *name == base).filter(|_| arrays <= DEPTH);
        if let Some((_, base)) = found {
            return Some(ContractType { base: *base, arrays });
        }
        let message = format!("there is no type `{text}`");
        let diagnostic = given.diagnose(Code::UnknownWord, message);
        let names = || BASES.iter().map(|(name, _)| *name);
        sink.push(match find_closest_name(base, names()) {
            _ if arrays > DEPTH => diagnostic.with_hint(format!("arrays nest at most {DEPTH} deep")),
            _ if base == "array" => diagnostic.with_hint("give the type of its items, such as `array<string>`"),
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
    pub(crate) fn is_type(text: &str) -> bool {
        let (base, arrays) = split_arrays(text);
        arrays <= DEPTH && BASES.iter().any(|(name, _)| *name == base)
    }

    /// Returns the type in the notation of the source.
    pub(crate) fn name(self) -> String {
        let base = BASES.iter().find(|(_, base)| *base == self.base).map_or("", |(name, _)| name);
        format!("{}{base}{}", "array<".repeat(self.arrays), ">".repeat(self.arrays))
    }

    /// Returns the schema of its values.
    pub(crate) fn to_schema(self) -> Value {
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
    pub(crate) fn to_nullable_schema(self) -> Value {
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
