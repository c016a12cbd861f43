//! Converts contracts to JSON Schema.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use skein_core::ir::Schema;

use crate::swdl::syntax::{SwdlDeclaration, SwdlInput};

/// Returns the schema of a run's parameters.
pub(super) fn parameters_schema(declared: &[SwdlDeclaration<'_>]) -> Schema {
    Schema::new(object_schema(declared, |declared| declared.ty.map_or_else(|| json!({}), |ty| ty.to_schema())))
}

/// Returns the schema of a stage's outputs. All stages without outputs share one schema.
pub(super) fn outputs_schema(declared: Option<&[SwdlDeclaration<'_>]>) -> Schema {
    static NOTHING: LazyLock<Schema> = LazyLock::new(|| Schema::new(outputs_json(Some(&[]))));
    match declared {
        Some([]) => NOTHING.clone(),
        declared => Schema::new(outputs_json(declared)),
    }
}

/// Returns the schema of a stage's outputs. A stage without declared outputs may return nothing, and no output of it
/// can be read.
pub(super) fn outputs_json(declared: Option<&[SwdlDeclaration<'_>]>) -> Value {
    let Some(declared) = declared else { return json!({}) };
    if declared.is_empty() {
        return json!({"type": ["object", "null"], "properties": {}});
    }
    object_schema(declared, |declared| match declared.ty {
        // An optional output may be null.
        Some(ty) if !declared.required && declared.default.is_none() => ty.to_nullable_schema(),
        Some(ty) => ty.to_schema(),
        None => json!({}),
    })
}

/// Returns the schema of a list with the outputs of each item.
pub(super) fn list_schema(items: Value) -> Schema {
    Schema::new(json!({"type": "array", "items": items}))
}

pub(super) fn input_schema(input: &SwdlInput<'_>) -> Schema {
    let Some(ty) = input.ty else { return Schema::default() };
    let mut schema = ty.to_schema();
    add_description(&mut schema, input.description);
    Schema::new(schema)
}

/// Returns the schema of a decision at a gate.
pub(super) fn decision_schema() -> Schema {
    let text = json!({"type": ["string", "null"]});
    Schema::new(json!({"type": "object", "properties": {
        "decision": {"type": "string"}, "reason": text.clone(), "approver": text,
    }}))
}

fn object_schema(declared: &[SwdlDeclaration<'_>], of: impl Fn(&SwdlDeclaration<'_>) -> Value) -> Value {
    let mut properties = Map::new();
    for declared in declared {
        let mut schema = of(declared);
        add_description(&mut schema, declared.description);
        if let (Some(default), Some(schema)) = (declared.default, schema.as_object_mut()) {
            schema.insert("default".to_owned(), default.node.to_json());
        }
        properties.insert(declared.name.to_owned(), schema);
    }
    let required: Vec<&str> =
        declared.iter().filter(|declared| declared.required).map(|declared| declared.name).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn add_description(schema: &mut Value, description: Option<&str>) {
    if let (Some(text), Some(schema)) = (description, schema.as_object_mut()) {
        schema.insert("description".to_owned(), Value::from(text.trim_end()));
    }
}
