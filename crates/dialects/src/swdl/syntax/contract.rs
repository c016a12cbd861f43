//! Contracts: the parameters of a workflow, and the inputs and outputs of a stage.

use skein_core::ir::Schema;

use super::{check_name, read_bool, read_text};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue},
    swdl::{defaults, types::ContractType},
    yaml::YamlField,
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
    what: &str,
    sink: &mut DiagnosticSink,
) -> Option<Vec<YamlField<'a>>> {
    let Some(given) = given else { return Some(Vec::new()) };
    let fields = given.node.fields().map(Iterator::collect);
    if fields.is_none() {
        sink.push(given.diagnose_type(format!("a mapping of {what} by name")));
    }
    fields
}

/// Opens a declaration. A bare type is a common mistake and gets a fix.
fn read_declaration<'a>(
    field: YamlField<'a>,
    what: &'static str,
    sink: &mut DiagnosticSink,
) -> Option<FieldReader<'a>> {
    let Some(text) = field.value.raw_text().filter(|text| ContractType::is_type(text)) else {
        return FieldReader::from_field(field, what, sink);
    };
    let message = format!("{what} is a mapping of fields, found the text `{text}`");
    let whole = field.value.wrap_in_key("type");
    let diagnostic =
        Diagnostic::new(Code::WrongType, field.value.source(), field.value.first_line_span(), message);
    sink.push(diagnostic.with_hint(format!("write `{whole}`")).with_fix(field.value.span(), whole));
    None
}

impl<'a> SwdlDeclaration<'a> {
    /// Reads parameters. None if the declarations are unknown.
    pub fn read_parameters(
        given: Option<FieldValue<'a>>,
        sink: &mut DiagnosticSink,
    ) -> Option<Vec<SwdlDeclaration<'a>>> {
        let entries = read_entries(given, "parameters", sink)?.into_iter();
        let required = defaults::PARAMETER_REQUIRED;
        Some(
            entries.filter_map(|field| SwdlDeclaration::read(field, "a parameter", required, sink)).collect(),
        )
    }

    pub fn read_outputs(
        given: Option<FieldValue<'a>>,
        sink: &mut DiagnosticSink,
    ) -> Option<Vec<SwdlDeclaration<'a>>> {
        let entries = read_entries(given, "outputs", sink)?.into_iter();
        let required = defaults::OUTPUT_REQUIRED;
        Some(entries.filter_map(|field| SwdlDeclaration::read(field, "an output", required, sink)).collect())
    }

    fn read(
        field: YamlField<'a>,
        what: &'static str,
        required: bool,
        sink: &mut DiagnosticSink,
    ) -> Option<SwdlDeclaration<'a>> {
        let named = check_name(field, what, sink);
        let Some(mut fields) = read_declaration(field, what, sink) else {
            // It counts as declared, so that its readers get no follow-up errors.
            let (name, description) = (field.key, None);
            return named.then_some(SwdlDeclaration {
                name,
                ty: None,
                required: false,
                default: None,
                description,
            });
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
        sink.push(Diagnostic::new(
            Code::WrongType,
            given.node.source(),
            given.node.first_line_span(),
            message,
        ));
    }
}

impl<'a> SwdlInput<'a> {
    pub fn read_all(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<SwdlInput<'a>> {
        let entries = read_entries(given, "inputs", sink).unwrap_or_default().into_iter();
        entries.filter_map(|field| SwdlInput::read(field, sink)).collect()
    }

    fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<SwdlInput<'a>> {
        let named = check_name(field, "an input", sink);
        let mut fields = FieldReader::from_field(field, "an input", sink)?;
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
