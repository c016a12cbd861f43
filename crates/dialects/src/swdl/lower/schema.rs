//! Contracts as JSON Schema.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use skein_core::ir::Schema;

use crate::swdl::syntax::{Declared, Input};

/// What a run is given.
pub(super) fn parameters(declared: &[Declared<'_>]) -> Schema {
    Schema::new(object(declared, |declared| declared.ty.map_or_else(|| json!({}), |ty| ty.schema())))
}

/// What a stage gives, as most stages do: one schema for all that declare nothing.
pub(super) fn given(declared: Option<&[Declared<'_>]>) -> Schema {
    static NOTHING: LazyLock<Schema> = LazyLock::new(|| Schema::new(outputs(Some(&[]))));
    match declared {
        Some([]) => NOTHING.clone(),
        declared => Schema::new(outputs(declared)),
    }
}

/// What a stage gives. One that declares nothing may give nothing, and nothing of it can be read.
pub(super) fn outputs(declared: Option<&[Declared<'_>]>) -> Value {
    let Some(declared) = declared else { return json!({}) };
    if declared.is_empty() {
        return json!({"type": ["object", "null"], "properties": {}});
    }
    object(declared, |declared| match declared.ty {
        // One that may be missing may say so.
        Some(ty) if !declared.required && declared.default.is_none() => ty.or_null(),
        Some(ty) => ty.schema(),
        None => json!({}),
    })
}

/// A list of what each item gives.
pub(super) fn list(items: Value) -> Schema {
    Schema::new(json!({"type": "array", "items": items}))
}

pub(super) fn input(input: &Input<'_>) -> Schema {
    let Some(ty) = input.ty else { return Schema::default() };
    let mut schema = ty.schema();
    describe(&mut schema, input.description);
    Schema::new(schema)
}

/// What people decide at a gate.
pub(super) fn decision() -> Schema {
    let text = json!({"type": ["string", "null"]});
    Schema::new(json!({"type": "object", "properties": {
        "decision": {"type": "string"}, "reason": text.clone(), "approver": text,
    }}))
}

fn object(declared: &[Declared<'_>], of: impl Fn(&Declared<'_>) -> Value) -> Value {
    let mut properties = Map::new();
    for declared in declared {
        let mut schema = of(declared);
        describe(&mut schema, declared.description);
        if let (Some(default), Some(schema)) = (declared.default, schema.as_object_mut()) {
            schema.insert("default".to_owned(), default.node.json());
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

fn describe(schema: &mut Value, description: Option<&str>) {
    if let (Some(text), Some(schema)) = (description, schema.as_object_mut()) {
        schema.insert("description".to_owned(), Value::from(text.trim_end()));
    }
}
