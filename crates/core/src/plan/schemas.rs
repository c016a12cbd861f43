//! Check that every schema is valid, and lookups of the properties that a schema declares.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    definition::WorkflowEntry,
    problem::{FieldPath, PlanField, PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    survey::PlanSurvey,
};
use crate::ir::{Schema, SchemaError};

pub(super) fn check_schemas(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    // Many steps often declare the same schema.
    let mut fine: BTreeSet<String> = BTreeSet::new();
    let mut plain: Option<*const Value> = None;
    let mut compile = |schema: &Schema, at: &dyn Fn() -> ProblemLocation| {
        let Some(document) = schema.document() else { return };
        // Very often it is the same document, which steps share.
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
                at.field = at.field.pointer(inside);
            }
            problems.push(PlanProblem::new(ProblemCode::BadSchema, at, error.to_string()));
        } else {
            fine.insert(text);
        }
    };
    for entry in &survey.definition.workflows {
        let WorkflowEntry { workflow, root, .. } = entry;
        compile(&workflow.inputs, &|| survey.scope_location(*root, PlanField::Inputs));
        for (name, file) in &workflow.files_out {
            compile(&file.schema, &|| {
                let path = FieldPath::from(PlanField::FilesOut).name(name);
                survey.scope_location(*root, path.field(PlanField::Schema))
            });
        }
    }
    for (ix, entry) in survey.scopes() {
        compile(&entry.scope.outputs, &|| survey.scope_location(ix, PlanField::Outputs));
    }
    for (ix, i, step) in survey.steps() {
        compile(&step.outputs, &|| survey.step_location(ix, i, PlanField::Outputs));
        for input in &step.inputs {
            compile(&input.schema, &|| survey.step_location(ix, i, input_path(PlanField::Inputs.into(), &input.name)));
        }
        for input in step.undo.iter().flat_map(|undo| &undo.inputs) {
            compile(&input.schema, &|| {
                survey.step_location(ix, i, input_path([PlanField::Undo, PlanField::Inputs].into(), &input.name))
            });
        }
    }
}

/// Returns the path to the schema of an input.
fn input_path(inputs: FieldPath, name: &str) -> FieldPath {
    inputs.name(name).field(PlanField::Schema)
}

/// The declaration of a property by a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyDeclaration {
    /// It is declared, or no property is.
    Yes,
    /// Other properties are declared, and this one is neither declared nor forbidden.
    Nothing,
    /// It is allowed as an additional property.
    Allowed,
    Forbidden,
}

/// Keywords that can declare properties in ways that are not followed here.
const OPEN: [&str; 10] =
    ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas", "not", "enum"];

pub(super) fn find_declaration(schema: &Schema, property: &str) -> PropertyDeclaration {
    let Some(document) = schema.document() else { return PropertyDeclaration::Yes };
    let Some(properties) = document.get("properties").and_then(Value::as_object) else {
        return PropertyDeclaration::Yes;
    };
    if properties.contains_key(property) || OPEN.iter().any(|keyword| document.get(keyword).is_some()) {
        return PropertyDeclaration::Yes;
    }
    match document.get("additionalProperties") {
        None => PropertyDeclaration::Nothing,
        Some(Value::Bool(false)) => PropertyDeclaration::Forbidden,
        Some(_) => PropertyDeclaration::Allowed,
    }
}

/// True if a parameter is neither declared nor allowed. A schema that lists some parameters and is silent about others
/// is assumed to list all: a typo is likelier than an undeclared name. Names that start with `_` are the host's.
pub(super) fn is_unknown_parameter(schema: &Schema, name: &str) -> bool {
    match find_declaration(schema, name) {
        PropertyDeclaration::Forbidden => true,
        PropertyDeclaration::Nothing => !name.starts_with('_'),
        PropertyDeclaration::Yes | PropertyDeclaration::Allowed => false,
    }
}

/// Returns the names of the declared properties.
pub(super) fn declared_names(schema: &Schema) -> impl Iterator<Item = &str> {
    schema.properties().map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_says_about_a_name() {
        let says = |document: Value| find_declaration(&Schema::new(document), "x");
        assert_eq!(says(json!({})), PropertyDeclaration::Yes);
        assert_eq!(says(json!(true)), PropertyDeclaration::Yes);
        assert_eq!(says(json!({"properties": {"x": {}}, "additionalProperties": false})), PropertyDeclaration::Yes);
        assert_eq!(says(json!({"properties": {"y": {}}})), PropertyDeclaration::Nothing);
        assert_eq!(says(json!({"properties": {"y": {}}, "additionalProperties": {}})), PropertyDeclaration::Allowed);
        assert_eq!(
            says(json!({"properties": {"y": {}}, "additionalProperties": false})),
            PropertyDeclaration::Forbidden
        );
        assert_eq!(
            says(json!({"properties": {"y": {}}, "allOf": [], "additionalProperties": false})),
            PropertyDeclaration::Yes
        );
    }
}
