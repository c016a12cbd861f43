//! Whether every schema is one, and what a schema says about the names of an object.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    definition::WorkflowEntry,
    problem::{At, Problem, ProblemCode, Problems},
    survey::Survey,
};
use crate::ir::{Schema, SchemaError};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    // Many steps often declare the same.
    let mut fine: BTreeSet<String> = BTreeSet::new();
    let mut plain: Option<*const Value> = None;
    let mut compile = |schema: &Schema, at: &dyn Fn() -> At| {
        let Some(document) = schema.document() else { return };
        // Very often the very same, which steps share.
        if plain == Some(std::ptr::from_ref(document)) {
            return;
        }
        if schema.is_plain() {
            plain = Some(document);
            return;
        }
        let text = document.to_string();
        if fine.contains(&text) {
            return;
        }
        if let Err(error) = schema.compile() {
            let mut at = at();
            if let SchemaError::Schema { at: inside, .. } = &error {
                at.field.push_str(&inside.replace('/', "."));
            }
            problems.push(Problem::new(ProblemCode::BadSchema, at, error.to_string()));
        } else {
            fine.insert(text);
        }
    };
    for entry in &survey.definition.workflows {
        let WorkflowEntry { workflow, root, .. } = entry;
        compile(&workflow.inputs, &|| survey.at_scope(*root, "inputs"));
        for (name, file) in &workflow.files_out {
            compile(&file.schema, &|| survey.at_scope(*root, &format!("files_out.{name}.schema")));
        }
    }
    for (ix, entry) in survey.scopes() {
        compile(&entry.scope.outputs, &|| survey.at_scope(ix, "outputs"));
    }
    for (ix, i, step) in survey.steps() {
        compile(&step.outputs, &|| survey.at(ix, i, "outputs"));
        for input in &step.inputs {
            compile(&input.schema, &|| survey.at(ix, i, format!("inputs.{}.schema", input.name)));
        }
        for input in step.undo.iter().flat_map(|undo| &undo.inputs) {
            compile(&input.schema, &|| survey.at(ix, i, format!("undo.inputs.{}.schema", input.name)));
        }
    }
}

/// What a schema says about a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// It is declared, or nothing is.
    Yes,
    /// Others are declared, and this one is neither declared nor forbidden.
    Nothing,
    /// It is allowed as one of those that are not declared.
    Allowed,
    Forbidden,
}

/// Keywords that can declare properties in ways that are not followed here.
const OPEN: [&str; 10] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "patternProperties",
    "dependentSchemas",
    "not",
    "enum",
];

pub(super) fn says(schema: &Schema, property: &str) -> Says {
    let Some(document) = schema.document() else { return Says::Yes };
    let Some(properties) = document.get("properties").and_then(Value::as_object) else { return Says::Yes };
    if properties.contains_key(property) || OPEN.iter().any(|keyword| document.get(keyword).is_some()) {
        return Says::Yes;
    }
    match document.get("additionalProperties") {
        None => Says::Nothing,
        Some(Value::Bool(false)) => Says::Forbidden,
        Some(_) => Says::Allowed,
    }
}

/// Whether a parameter is neither declared nor allowed. A schema that lists some and is silent about others is taken
/// to list all: a wrong name is likelier than one that nobody wrote down. Names that start with `_` are the host's.
pub(super) fn is_unknown_parameter(schema: &Schema, name: &str) -> bool {
    match says(schema, name) {
        Says::Forbidden => true,
        Says::Nothing => !name.starts_with('_'),
        Says::Yes | Says::Allowed => false,
    }
}

/// The names of the properties it declares.
pub(super) fn names(schema: &Schema) -> impl Iterator<Item = &str> {
    schema.properties().map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_says_about_a_name() {
        let says = |document: Value| says(&Schema::new(document), "x");
        assert_eq!(says(json!({})), Says::Yes);
        assert_eq!(says(json!(true)), Says::Yes);
        assert_eq!(says(json!({"properties": {"x": {}}, "additionalProperties": false})), Says::Yes);
        assert_eq!(says(json!({"properties": {"y": {}}})), Says::Nothing);
        assert_eq!(says(json!({"properties": {"y": {}}, "additionalProperties": {}})), Says::Allowed);
        assert_eq!(says(json!({"properties": {"y": {}}, "additionalProperties": false})), Says::Forbidden);
        assert_eq!(
            says(json!({"properties": {"y": {}}, "allOf": [], "additionalProperties": false})),
            Says::Yes
        );
    }
}
