//! Contracts: what a value must look like, said in JSON Schema.
//!
//! Owns the check of a value and the filling in of defaults. Refuses to fetch anything: a reference can only point
//! into the same schema.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A JSON Schema. The default accepts everything.
#[derive(Clone, Default)]
pub struct Schema(Option<Arc<Document>>);

struct Document {
    value: Value,
    compiled: OnceLock<Result<jsonschema::Validator, SchemaError>>,
}

/// Why a value is not what was declared, or why the declaration itself is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// `at` is a JSON pointer into the schema.
    #[error("the schema itself is wrong: {message}")]
    Schema { at: String, message: String },
    #[error("{}{message}", if at.is_empty() { String::new() } else { format!("at {at}: ") })]
    Value { at: String, message: String },
}

impl Schema {
    pub fn new(document: Value) -> Schema {
        Schema(Some(Arc::new(Document { value: document, compiled: OnceLock::new() })))
    }

    /// Whether there is anything to check.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn document(&self) -> Option<&Value> {
        self.0.as_deref().map(|document| &document.value)
    }

    /// The properties that it names, with the schema of each.
    pub fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.document().and_then(|d| d.get("properties")).and_then(Value::as_object).into_iter().flatten()
    }

    /// The schema of one property.
    pub fn property(&self, name: &str) -> Option<&Value> {
        self.document()?.get("properties")?.get(name)
    }

    /// The properties that must be there.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        let names = self.document().and_then(|d| d.get("required")).and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Whether it is surely a schema: it has only the commonest keywords, each as it must be. To make sure of others,
    /// the schema of schemas is needed, which takes longer than all else about a small workflow.
    pub(crate) fn is_plain(&self) -> bool {
        self.document().is_none_or(|document| is_plain(document, PLAIN_LEVELS))
    }

    /// Whether the schema is one.
    pub fn compile(&self) -> Result<(), SchemaError> {
        self.validator().map(|_| ())
    }

    fn validator(&self) -> Result<Option<&jsonschema::Validator>, SchemaError> {
        let Some(document) = &self.0 else { return Ok(None) };
        let compile = || jsonschema::options().build(&document.value).map_err(|error| wrong_schema(&error));
        match document.compiled.get_or_init(compile) {
            Ok(validator) => Ok(Some(validator)),
            Err(error) => Err(error.clone()),
        }
    }

    /// Whether the value is what was declared.
    pub fn check(&self, value: &Value) -> Result<(), SchemaError> {
        let Some(validator) = self.validator()? else { return Ok(()) };
        validator.validate(value).map_err(|error| wrong_value(&error))
    }

    /// All that is not as it was declared, as far as it is worth reading.
    pub fn check_all(&self, value: &Value) -> Vec<SchemaError> {
        const MOST: usize = 20;
        match self.validator() {
            Ok(None) => Vec::new(),
            Ok(Some(validator)) => {
                validator.iter_errors(value).take(MOST).map(|error| wrong_value(&error)).collect()
            }
            Err(error) => vec![error],
        }
    }

    /// An object of nothing but defaults; null where none is declared.
    pub fn defaults(&self) -> Value {
        let mut object = Value::Object(serde_json::Map::new());
        self.fill(&mut object);
        if object.as_object().is_some_and(serde_json::Map::is_empty) { Value::Null } else { object }
    }

    /// Puts in each property of an object that is missing and has a default.
    pub fn fill(&self, value: &mut Value) {
        let Some(object) = value.as_object_mut() else { return };
        for (name, property) in self.properties() {
            if let Some(default) = property.get("default")
                && !object.contains_key(name)
            {
                object.insert(name.clone(), default.clone());
            }
        }
    }
}

fn wrong_value(error: &jsonschema::ValidationError<'_>) -> SchemaError {
    SchemaError::Value { at: error.instance_path().to_string(), message: shortened(error.to_string()) }
}

/// How deep a plain schema may nest.
const PLAIN_LEVELS: usize = 16;

fn is_plain(schema: &Value, levels: usize) -> bool {
    let Some(keywords) = schema.as_object() else { return schema.is_boolean() };
    let inner = |schema: &Value| levels > 0 && is_plain(schema, levels - 1);
    keywords.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => {
            value.as_array().map_or_else(|| is_type(value), |types| !types.is_empty() && are_types(types))
        }
        "properties" => value.as_object().is_some_and(|properties| properties.values().all(inner)),
        "items" | "additionalProperties" => inner(value),
        "required" => value.as_array().is_some_and(|names| are_names(names)),
        "enum" => value.is_array(),
        "title" | "description" => value.is_string(),
        "default" | "const" => true,
        _ => false,
    })
}

fn is_type(name: &Value) -> bool {
    const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
    name.as_str().is_some_and(|name| TYPES.contains(&name))
}

/// Each once.
fn are_types(names: &[Value]) -> bool {
    names.iter().all(is_type) && are_names(names)
}

fn are_names(names: &[Value]) -> bool {
    let texts: BTreeSet<&str> = names.iter().filter_map(Value::as_str).collect();
    texts.len() == names.len()
}

/// The commonest mistake by far is a type that there is not.
fn wrong_schema(error: &jsonschema::ValidationError<'_>) -> SchemaError {
    let at = error.instance_path().to_string();
    let message = if at.ends_with("/type") {
        let found = shortened(error.instance().to_string());
        format!(
            "{found} is not a type, which is one of string, number, integer, boolean, object, array and null"
        )
    } else {
        shortened(error.to_string())
    };
    SchemaError::Schema { at, message }
}

/// A message that quotes a value can be as long as the value.
fn shortened(message: String) -> String {
    const MOST: usize = 300;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.document() {
            Some(document) => write!(f, "Schema({document})"),
            None => f.write_str("Schema(any)"),
        }
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.document() == other.document()
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Schema, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or_else(Schema::default, Schema::new))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_checked_and_the_place_is_named() {
        let schema = Schema::new(
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        );
        assert_eq!(schema.check(&json!({"n": 3})), Ok(()));
        assert_eq!(
            schema.check(&json!({"n": 3.5})).unwrap_err().to_string(),
            "at /n: 3.5 is not of type \"integer\""
        );
        assert_eq!(schema.check(&json!({})).unwrap_err().to_string(), "\"n\" is a required property");
    }

    #[test]
    fn defaults_fill_what_is_missing_and_only_that() {
        let schema = Schema::new(json!({"properties": {"a": {"default": 1}, "b": {"default": 2}, "c": {}}}));
        let mut value = json!({"a": null});
        schema.fill(&mut value);
        assert_eq!(value, json!({"a": null, "b": 2}));
        assert_eq!(schema.defaults(), json!({"a": 1, "b": 2}));
        assert_eq!(Schema::new(json!({"properties": {"c": {}}})).defaults(), Value::Null);
    }

    #[test]
    fn a_wrong_schema_is_an_error_and_a_missing_one_accepts_all() {
        assert!(matches!(Schema::new(json!({"type": "strin"})).compile(), Err(SchemaError::Schema { .. })));
        assert_eq!(Schema::default().check(&json!([1, "x"])), Ok(()));
    }

    #[test]
    fn what_is_plain_is_a_schema() {
        let parts = [
            json!(true),
            json!(1),
            json!("string"),
            json!("strin"),
            json!([]),
            json!(["a", "b"]),
            json!(["a", "a"]),
            json!(["string", "null"]),
            json!(["null", "null"]),
            json!(["a", 1]),
            json!({}),
            json!({"type": "integer"}),
            json!({"type": "int"}),
            json!({"a": {"type": ["object", "null"], "properties": {}}}),
            json!({"a": {"items": {"type": 1}}}),
        ];
        let keywords = ["type", "properties", "items", "additionalProperties", "required", "enum", "title"];
        let mut plain = 0;
        for keyword in keywords.into_iter().chain(["description", "default", "const", "$ref", "pattern"]) {
            for part in &parts {
                let schema = Schema::new(json!({ keyword: part }));
                if schema.is_plain() {
                    plain += 1;
                    assert_eq!(schema.compile(), Ok(()), "{schema:?}");
                }
            }
        }
        assert!(plain > 50, "{plain} are plain");
        assert!(!Schema::new(json!({"$ref": "#/x"})).is_plain());
    }

    #[test]
    fn it_serialises_as_the_document() {
        let schema = Schema::new(json!({"type": "string"}));
        assert_eq!(serde_json::to_value(&schema).unwrap(), json!({"type": "string"}));
        assert_eq!(serde_json::from_value::<Schema>(json!({"type": "string"})).unwrap(), schema);
    }
}
