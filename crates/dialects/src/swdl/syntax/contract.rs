//! Contracts: the parameters of a workflow, what a stage is given and what it gives.

use skein_core::ir::Schema;

use super::{check_name, flag, text};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    swdl::{defaults, types::Type},
    yaml::Field,
};

/// A parameter or an output.
#[derive(Debug)]
pub(in crate::swdl) struct Declared<'a> {
    pub name: &'a str,
    /// None if it has been reported.
    pub ty: Option<Type>,
    pub required: bool,
    pub default: Option<Given<'a>>,
    pub description: Option<&'a str>,
}

#[derive(Debug)]
pub(in crate::swdl) struct Input<'a> {
    pub name: &'a str,
    pub ty: Option<Type>,
    pub source: Option<Given<'a>>,
    pub required: bool,
    pub description: Option<&'a str>,
}

/// The entries of a mapping by name; none if it is something else, which is reported.
fn entries<'a>(given: Option<Given<'a>>, what: &str, sink: &mut Sink) -> Option<Vec<Field<'a>>> {
    let Some(given) = given else { return Some(Vec::new()) };
    let fields = given.node.fields().map(Iterator::collect);
    if fields.is_none() {
        sink.push(given.wrong(format!("a mapping of {what} by name")));
    }
    fields
}

/// The fields of a declaration. A type alone is not enough, and is easily written.
fn declaration<'a>(field: Field<'a>, what: &'static str, sink: &mut Sink) -> Option<Fields<'a>> {
    let Some(text) = field.value.raw().filter(|text| Type::is_type(text)) else {
        return Fields::under(field, what, sink);
    };
    let message = format!("{what} is a mapping of fields, found the text `{text}`");
    let whole = field.value.under("type");
    let diagnostic = Diagnostic::new(Code::WrongType, field.value.source(), field.value.mark(), message);
    sink.push(diagnostic.hint(format!("write `{whole}`")).fix(field.value.span(), whole));
    None
}

impl<'a> Declared<'a> {
    /// None if nothing can be said about what is declared.
    pub fn parameters(given: Option<Given<'a>>, sink: &mut Sink) -> Option<Vec<Declared<'a>>> {
        let entries = entries(given, "parameters", sink)?.into_iter();
        let required = defaults::PARAMETER_REQUIRED;
        Some(entries.filter_map(|field| Declared::read(field, "a parameter", required, sink)).collect())
    }

    pub fn outputs(given: Option<Given<'a>>, sink: &mut Sink) -> Option<Vec<Declared<'a>>> {
        let entries = entries(given, "outputs", sink)?.into_iter();
        let required = defaults::OUTPUT_REQUIRED;
        Some(entries.filter_map(|field| Declared::read(field, "an output", required, sink)).collect())
    }

    fn read(field: Field<'a>, what: &'static str, required: bool, sink: &mut Sink) -> Option<Declared<'a>> {
        let named = check_name(field, what, sink);
        let Some(mut fields) = declaration(field, what, sink) else {
            // It is declared, whatever it is, so that nothing is said about who reads it.
            let (name, description) = (field.key, None);
            return named.then_some(Declared { name, ty: None, required: false, default: None, description });
        };
        let declared = Declared {
            name: field.key,
            ty: fields.required("type", sink).and_then(|given| Type::read(given, sink)),
            required: flag(fields.optional("required"), sink).unwrap_or(required),
            default: fields.optional("default"),
            description: text(fields.optional("description"), sink),
        };
        fields.finish(sink);
        if let (Some(ty), Some(default)) = (declared.ty, declared.default) {
            check_default(ty, default, sink);
        }
        named.then_some(declared)
    }
}

/// A default is a value of its own type.
fn check_default(ty: Type, given: Given<'_>, sink: &mut Sink) {
    if let Err(error) = Schema::new(ty.schema()).check(&given.node.json()) {
        let message = format!("`default` is not of the type `{}`: {error}", ty.name());
        sink.push(Diagnostic::new(Code::WrongType, given.node.source(), given.node.mark(), message));
    }
}

impl<'a> Input<'a> {
    pub fn all(given: Option<Given<'a>>, sink: &mut Sink) -> Vec<Input<'a>> {
        let entries = entries(given, "inputs", sink).unwrap_or_default().into_iter();
        entries.filter_map(|field| Input::read(field, sink)).collect()
    }

    fn read(field: Field<'a>, sink: &mut Sink) -> Option<Input<'a>> {
        let named = check_name(field, "an input", sink);
        let mut fields = Fields::under(field, "an input", sink)?;
        let input = Input {
            name: field.key,
            ty: fields.required("type", sink).and_then(|given| Type::read(given, sink)),
            source: fields.required("source", sink),
            required: flag(fields.optional("required"), sink).unwrap_or(defaults::INPUT_REQUIRED),
            description: text(fields.optional("description"), sink),
        };
        fields.finish(sink);
        named.then_some(input)
    }
}
