//! Schemas: the declared shape of a value, in JSON Schema.
//!
//! Owns checking a value and filling in defaults. Fetches nothing: a reference can only point into the same schema.
//! Each check has a budget of steps (`limits::SCHEMA_STEPS`), because schemas and values come from sources, workers and
//! servers, and a check runs on the thread that drives all runs of the process.

mod expansion;
mod metered_json;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
};

use jsonschema::{
    PatternOptions,
    error::{TypeKind, ValidationErrorKind},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use self::{
    expansion::{ExpansionError, PreparedSchema},
    metered_json::{BudgetExceeded, MatchCosts, MeteredJson, MeteredNode, run_within_budget},
};
use crate::limits;

/// A JSON Schema. The default accepts everything.
#[derive(Clone, Default)]
pub struct Schema(Option<Arc<SchemaDocument>>);

struct SchemaDocument {
    value: Value,
    compiled: OnceLock<Result<CompiledSchema, SchemaError>>,
}

/// A validator that counts its steps.
struct CompiledSchema {
    validator: jsonschema::Validator<MeteredJson>,
    costs: MatchCosts,
    /// The levels of subschemas for each level of a value, if these must be bounded.
    levels: Option<usize>,
}

impl CompiledSchema {
    fn compile(document: &Value) -> Result<CompiledSchema, SchemaError> {
        let PreparedSchema { document, costs, levels } =
            expansion::prepare_schema(document).map_err(|ExpansionError(why)| SchemaError::Schema {
                at: String::new(),
                message: format!("schema too expensive to check: {why}"),
            })?;
        let patterns = PatternOptions::fancy_regex().backtrack_limit(limits::SCHEMA_BACKTRACKS);
        let options = jsonschema::options_for::<MeteredJson>().with_pattern_options(patterns);
        let validator = options.build(&document).map_err(|error| to_schema_error(&error))?;
        Ok(CompiledSchema { validator, costs, levels })
    }

    fn accepts_value(&self, value: &Value) -> Result<bool, BudgetExceeded> {
        run_within_budget(limits::SCHEMA_STEPS, self.costs, || self.validator.is_valid(MeteredNode(value)))
    }

    /// Returns the first faults of a value, at most `most`. Describing faults takes longer than detecting one, so a
    /// value is refused even if no budget is left to say why.
    fn find_faults(&self, value: &Value, most: usize) -> Vec<SchemaError> {
        let steps = limits::SCHEMA_STEPS;
        let fault = |message| vec![SchemaError::Value { at: String::new(), message }];
        if let Some(levels) = self.levels
            && value_levels(value).saturating_mul(levels) > limits::SCHEMA_STACK
        {
            let most = limits::SCHEMA_STACK;
            return fault(format!(
                "schema too expensive to check: the value nests too deep for it, more than {most} levels of subschemas"
            ));
        }
        match self.accepts_value(value) {
            Ok(true) => return Vec::new(),
            Ok(false) => {}
            Err(BudgetExceeded) => {
                return fault(format!("schema too expensive to check: more than {steps} steps"));
            }
        }
        let found = run_within_budget(steps, self.costs, || match most {
            1 => self.validator.validate(MeteredNode(value)).err().iter().map(to_value_error).collect(),
            most => {
                let errors = self.validator.iter_errors(MeteredNode(value));
                errors.take(most).map(|error| to_value_error(&error)).collect::<Vec<_>>()
            }
        });
        found.unwrap_or_else(|BudgetExceeded| {
            fault(format!(
                "the value does not match the schema; schema too expensive to check in detail: more than {steps} steps"
            ))
        })
    }
}

/// The reason why a value does not match its schema, or why the schema itself is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// `at` is a JSON pointer into the schema.
    #[error("invalid schema: {message}")]
    Schema { at: String, message: String },
    #[error("{}{message}", if at.is_empty() { String::new() } else { format!("at {at}: ") })]
    Value { at: String, message: String },
}

impl Schema {
    pub fn new(document: Value) -> Schema {
        Schema(Some(Arc::new(SchemaDocument { value: document, compiled: OnceLock::new() })))
    }

    /// True if there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn document(&self) -> Option<&Value> {
        self.0.as_deref().map(|document| &document.value)
    }

    /// The properties that it declares, with the schema of each.
    pub fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.document().and_then(|d| d.get("properties")).and_then(Value::as_object).into_iter().flatten()
    }

    /// The schema of one property.
    pub fn property(&self, name: &str) -> Option<&Value> {
        self.document()?.get("properties")?.get(name)
    }

    /// The names of the required properties.
    pub fn required_properties(&self) -> impl Iterator<Item = &str> {
        let names = self.document().and_then(|d| d.get("required")).and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    }

    /// True if this is certainly a valid schema: it has only the most common keywords, each in a valid form. Checking
    /// others needs the meta-schema, which takes longer than everything else about a small workflow.
    pub(crate) fn is_plain(&self) -> bool {
        self.document().is_none_or(|document| is_plain(document, PLAIN_LEVELS))
    }

    /// Checks that the schema is valid.
    pub fn compile(&self) -> Result<(), SchemaError> {
        self.compiled_schema().map(|_| ())
    }

    fn compiled_schema(&self) -> Result<Option<&CompiledSchema>, SchemaError> {
        let Some(document) = &self.0 else { return Ok(None) };
        match document.compiled.get_or_init(|| CompiledSchema::compile(&document.value)) {
            Ok(compiled) => Ok(Some(compiled)),
            Err(error) => Err(error.clone()),
        }
    }

    /// Checks that the value matches the schema, within a budget of steps.
    pub fn check(&self, value: &Value) -> Result<(), SchemaError> {
        let Some(compiled) = self.compiled_schema()? else { return Ok(()) };
        compiled.find_faults(value, 1).into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns all mismatches, up to a number that is worth reading.
    pub fn check_all(&self, value: &Value) -> Vec<SchemaError> {
        const MOST: usize = 20;
        match self.compiled_schema() {
            Ok(None) => Vec::new(),
            Ok(Some(compiled)) => compiled.find_faults(value, MOST),
            Err(error) => vec![error],
        }
    }

    /// Returns an object of the defaults only; null if none is declared.
    pub fn default_object(&self) -> Value {
        let mut object = Value::Object(serde_json::Map::new());
        self.fill_defaults(&mut object);
        if object.as_object().is_some_and(serde_json::Map::is_empty) { Value::Null } else { object }
    }

    /// Completes an output. Null becomes an empty object if an object with properties is declared, and missing
    /// properties take their defaults.
    pub fn complete_output(&self, value: &mut Value) {
        let is_object = self.document().is_some_and(|schema| schema["type"] == "object");
        if value.is_null() && is_object && self.properties().next().is_some() {
            *value = Value::Object(serde_json::Map::new());
        }
        self.fill_defaults(value);
    }

    /// Adds each property of an object that is missing and has a default.
    pub fn fill_defaults(&self, value: &mut Value) {
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

fn to_value_error(error: &jsonschema::ValidationError<'_>) -> SchemaError {
    let message = match error.kind() {
        ValidationErrorKind::Type { kind } => {
            format!("expected {}, found {}", describe_expected_types(kind), describe_found_value(error.instance()))
        }
        ValidationErrorKind::Required { property } => {
            format!("the required property `{}` is missing", property.as_str().unwrap_or_default())
        }
        // The message may quote a part of the schema, which was prepared.
        _ => expansion::remove_preparation(&error.to_string()),
    };
    SchemaError::Value { at: error.instance_path().to_string(), message: shorten_message(message) }
}

/// Describes the types that a schema expects.
fn describe_expected_types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => add_article(one.as_str()),
        TypeKind::Multiple(several) => {
            let names: Vec<String> = several.iter().map(|one| add_article(one.as_str())).collect();
            names.join(" or ")
        }
    }
}

/// Describes a value: a scalar as it is, anything else by its type.
fn describe_found_value(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => scalar.to_string(),
    }
}

fn add_article(name: &str) -> String {
    match name {
        "null" => "null".to_owned(),
        name if name.starts_with(['a', 'i', 'o']) => format!("an {name}"),
        name => format!("a {name}"),
    }
}

/// Returns the levels of a value; a scalar has one. Does not recurse.
pub(crate) fn value_levels(value: &Value) -> usize {
    let (mut todo, mut deepest) = (vec![(value, 1)], 0);
    while let Some((value, depth)) = todo.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => todo.extend(members.values().map(|member| (member, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// Maximum nesting of a plain schema.
const PLAIN_LEVELS: usize = 16;

fn is_plain(schema: &Value, levels: usize) -> bool {
    let Some(keywords) = schema.as_object() else { return schema.is_boolean() };
    let inner = |schema: &Value| levels > 0 && is_plain(schema, levels - 1);
    keywords.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => value.as_array().map_or_else(|| is_type(value), |types| !types.is_empty() && are_types(types)),
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
    name.as_str().is_some_and(|name| expansion::ALL_TYPES.contains(&name))
}

/// True if all are types, without duplicates.
fn are_types(names: &[Value]) -> bool {
    names.iter().all(is_type) && are_names(names)
}

fn are_names(names: &[Value]) -> bool {
    let texts: BTreeSet<&str> = names.iter().filter_map(Value::as_str).collect();
    texts.len() == names.len()
}

/// Converts an error in a schema. The most common mistake by far is an unknown type.
fn to_schema_error(error: &jsonschema::ValidationError<'_>) -> SchemaError {
    let at = error.instance_path().to_string();
    let message = if at.ends_with("/type") {
        let found = shorten_message(expansion::remove_preparation(&error.instance().to_string()));
        format!("{found} is not a type; the types are string, number, integer, boolean, object, array and null")
    } else {
        shorten_message(expansion::remove_preparation(&error.to_string()))
    };
    SchemaError::Schema { at, message }
}

/// Shortens a message, since one that quotes a value can be as long as the value.
fn shorten_message(message: String) -> String {
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
        let schema =
            Schema::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}));
        assert_eq!(schema.check(&json!({"n": 3})), Ok(()));
        assert_eq!(schema.check(&json!({"n": 3.5})).unwrap_err().to_string(), "at /n: expected an integer, found 3.5");
        assert_eq!(schema.check(&json!({})).unwrap_err().to_string(), "the required property `n` is missing");
    }

    #[test]
    fn defaults_fill_what_is_missing_and_only_that() {
        let schema = Schema::new(json!({"properties": {"a": {"default": 1}, "b": {"default": 2}, "c": {}}}));
        let mut value = json!({"a": null});
        schema.fill_defaults(&mut value);
        assert_eq!(value, json!({"a": null, "b": 2}));
        assert_eq!(schema.default_object(), json!({"a": 1, "b": 2}));
        assert_eq!(Schema::new(json!({"properties": {"c": {}}})).default_object(), Value::Null);
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

    /// A value that nests itself in `a`, this many levels deep.
    fn nested(levels: usize, innermost: Value) -> Value {
        (0..levels).fold(innermost, |inner, _| json!({"a": inner}))
    }

    // The core has no clock; a test of the duration needs one.
    #[allow(clippy::disallowed_methods, clippy::disallowed_types)]
    fn seconds(schema: &Value, value: &Value) -> (Result<(), SchemaError>, f64) {
        let begun = std::time::Instant::now();
        let checked = Schema::new(schema.clone()).check(value);
        let all = Schema::new(schema.clone()).check_all(value);
        assert_eq!(all.is_empty(), checked.is_ok(), "{all:?}");
        (checked, begun.elapsed().as_secs_f64())
    }

    /// A schema with an error at the bottom.
    fn deep_schema(draft: &str, keyword: &str) -> Value {
        let inner = |inner: Value| if keyword == "dependencies" { json!({"x": inner}) } else { inner };
        let mut schema = (0..60).fold(json!({"type": 1}), |schema, _| json!({keyword: inner(schema)}));
        schema["$schema"] = json!(draft);
        schema
    }

    fn expensive_schemas() -> Vec<(&'static str, Value, Value)> {
        let recursive = |keyword: &str| {
            let arm =
                |name: &str| json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/t"}}, "required": [name]});
            json!({"$defs": {"t": {keyword: [arm("x"), arm("y")]}}, "$ref": "#/$defs/t"})
        };
        let doubling = |last: Value| {
            let mut defs = serde_json::Map::new();
            for n in 0..20 {
                let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
                defs.insert(format!("d{n}"), json!({"allOf": [next, next]}));
            }
            defs.insert("d20".to_owned(), last);
            json!({"$defs": defs, "$ref": "#/$defs/d0"})
        };
        let conditional = json!({"$defs": {"t": {
            "if": {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["q"]},
            "then": {"properties": {"a": {"$ref": "#/$defs/t"}}},
            "else": {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["x"]}}}, "$ref": "#/$defs/t"});
        let negated = json!({"$defs": {"t": {"properties": {"a": {"not": {"$ref": "#/$defs/t"}}},
            "not": {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["x"]}}}, "$ref": "#/$defs/t"});
        let dependent = json!({"$defs": {"t": {"dependentSchemas": {"a": {"anyOf": [
            {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["x"]},
            {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["y"]}]}}}}, "$ref": "#/$defs/t"});
        let dynamic = json!({"$dynamicAnchor": "t", "oneOf": [
            {"properties": {"a": {"$dynamicRef": "#t"}}, "required": ["x"]},
            {"properties": {"a": {"$dynamicRef": "#t"}}, "required": ["y"]}]});
        let unevaluated = json!({"$defs": {"t": {"anyOf": [
            {"properties": {"a": {"$ref": "#/$defs/t"}}}, {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["y"]}],
            "unevaluatedProperties": false}}, "$ref": "#/$defs/t"});
        let contained = json!({"$defs": {"t": {"anyOf": [{"contains": {"$ref": "#/$defs/t"}, "minItems": 2},
            {"contains": {"$ref": "#/$defs/t"}, "maxItems": 0}]}}, "$ref": "#/$defs/t"});
        let lists = (0..60).fold(json!([]), |inner, _| json!([inner]));
        let unusual_place = json!({"$ref": "#/x/y", "x": {"y": {"oneOf": [
            {"properties": {"a": {"$ref": "#/x/y"}}, "required": ["x"]},
            {"properties": {"a": {"$ref": "#/x/y"}}, "required": ["y"]}]}}});
        let many_patterns: serde_json::Map<String, Value> =
            (0..5_000).map(|n| (format!("^k{n}[0-9]"), json!({"type": "integer"}))).collect();
        let many_members: serde_json::Map<String, Value> =
            (0..20_000).map(|n| (format!("member-{n}"), json!(n))).collect();
        let same = (0..100_000).map(|n| json!({"n": n % 50_000})).collect::<Value>();
        let text = "ab".repeat(500_000);
        let many = (0..3_000).map(|n| json!({"type": "object", "required": [n.to_string()]})).collect::<Value>();
        let chain = {
            let link = |n: usize| (format!("c{n}"), json!({"not": {"$ref": format!("#/$defs/c{}", n + 1)}}));
            let mut defs: serde_json::Map<String, Value> = (0..20_000).map(link).collect();
            defs.insert("c20000".to_owned(), json!(true));
            json!({"$defs": defs, "$ref": "#/$defs/c0"})
        };
        vec![
            ("anyOf", recursive("anyOf"), nested(60, json!({}))),
            ("oneOf", recursive("oneOf"), nested(60, json!({}))),
            ("allOf", recursive("allOf"), nested(60, json!({}))),
            ("doubling", doubling(json!({"type": "string"})), json!(1)),
            ("doubling to a boolean", doubling(json!(true)), json!(1)),
            ("doubling to false", doubling(json!(false)), json!(1)),
            ("if", conditional, nested(60, json!({}))),
            ("not", negated, nested(60, json!({}))),
            ("dependentSchemas", dependent, nested(60, json!({}))),
            ("$dynamicRef", dynamic, nested(60, json!({}))),
            ("unevaluatedProperties", unevaluated, nested(60, json!({}))),
            ("contains", contained, lists),
            ("an unusual place", unusual_place, nested(60, json!({}))),
            ("backtracking", json!({"pattern": "^(?=(a|b|ab)*$)(a|b|ab)*(?!x)c$"}), json!("ab".repeat(5_000))),
            ("backreferences", json!({"pattern": r"^(.*)(.*)(.*)\1\2\3x$"}), json!("ab".repeat(10_000))),
            ("many states", json!({"pattern": "[ab]*a[ab]{1000}c"}), json!(text)),
            ("huge states", json!({"pattern": "((a{1000}){1000}){1000}"}), json!("a")),
            ("many patterns", json!({"patternProperties": many_patterns}), json!(many_members)),
            ("uniqueItems", json!({"uniqueItems": true}), same),
            ("many alternatives", json!({"items": {"anyOf": many}}), json!(vec![1; 100_000])),
            ("a long chain", chain, json!(1)),
            ("a deep schema of draft 7", deep_schema("http://json-schema.org/draft-07/schema#", "items"), json!([])),
            (
                "a deep schema of draft 4",
                deep_schema("http://json-schema.org/draft-04/schema#", "additionalItems"),
                json!([]),
            ),
            ("a deep schema", deep_schema("https://json-schema.org/draft/2020-12/schema", "not"), json!([])),
            (
                "a deep schema of dependencies",
                deep_schema("http://json-schema.org/draft-07/schema#", "dependencies"),
                json!([]),
            ),
            (
                "format regex",
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"format": "regex"}}),
                json!(vec!["((a{500}){500})"; 50_000]),
            ),
        ]
    }

    /// Deep values and schemas are checked on the stack of an ordinary thread.
    #[test]
    #[allow(clippy::disallowed_types)]
    fn the_deepest_schema_and_value_fit_on_the_stack() {
        let link = |n: usize| (format!("c{n}"), json!({"allOf": [{"$ref": format!("#/$defs/c{}", n + 1)}]}));
        let levels = limits::SCHEMA_LEVELS / 2 - 1;
        let mut defs: serde_json::Map<String, Value> = (0..levels).map(link).collect();
        defs.insert(format!("c{levels}"), json!({"properties": {"a": {"$ref": "#/$defs/c0"}}, "required": ["a"]}));
        let schema = json!({"$defs": defs, "$ref": "#/$defs/c0"});
        let levels = limits::SCHEMA_STACK / limits::SCHEMA_LEVELS - 2;
        let (most, schema) = (2 << 20, Schema::new(schema));
        let refused = schema.check(&nested(127, json!({}))).unwrap_err();
        assert!(refused.to_string().contains("nests too deep"), "{refused}");
        let value = nested(levels, json!({}));
        let check = move || schema.check_all(&value);
        let checked = std::thread::Builder::new().stack_size(most).spawn(check).unwrap().join().unwrap();
        assert_eq!(checked.len(), 1, "{checked:?}");
        assert!(checked[0].to_string().contains("the required property `a` is missing"), "{checked:?}");
    }

    #[test]
    fn values_of_ordinary_size_are_checked() {
        let numbers = Schema::new(json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}));
        assert_eq!(numbers.check(&(0..100_000).collect::<Value>()), Ok(()));
        let twice = numbers.check(&json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1]));
        assert!(twice.is_err(), "{twice:?}");
        let named = json!({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]{2,9}-[0-9]{1,9}$"},
            "kind": {"enum": ["a", "b", "c"]}, "when": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}},
            "required": ["id", "kind"], "additionalProperties": false});
        let one = |n: u32| json!({"id": format!("row-{n}"), "kind": "b", "when": "2026-01-02"});
        let rows: Value = (0..20_000).map(one).collect();
        assert_eq!(Schema::new(json!({"items": named})).check(&rows), Ok(()));
        let text = Schema::new(json!({"type": "string", "pattern": r"^[^\x00]*$", "maxLength": 2_000_000}));
        assert_eq!(text.check(&json!("x".repeat(1_000_000))), Ok(()));
        let tree = json!({"$defs": {"node": {"anyOf": [
            {"type": "object", "properties": {"op": {"const": "num"}, "value": {"type": "number"}}, "required": ["op", "value"], "additionalProperties": false},
            {"type": "object", "properties": {"op": {"const": "neg"}, "of": {"$ref": "#/$defs/node"}}, "required": ["op", "of"], "additionalProperties": false},
            {"type": "object", "properties": {"op": {"const": "add"}, "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}},
             "required": ["op", "left", "right"], "additionalProperties": false}]}}, "$ref": "#/$defs/node"});
        let leaf = json!({"op": "num", "value": 1});
        let sum = (0..10).fold(leaf, |inner, _| json!({"op": "add", "left": inner.clone(), "right": inner}));
        assert_eq!(Schema::new(tree).check(&sum), Ok(()));
    }

    /// Counting steps changes no result: `1` and `1.0` are equal, and references and keywords keep their meaning.
    #[test]
    fn schemas_mean_what_they_mean_without_a_budget() {
        let values = [
            json!(null),
            json!(true),
            json!(0),
            json!(1),
            json!(1.0),
            json!(1.5),
            json!(-3),
            json!("a"),
            json!("abc"),
            json!([]),
            json!([1, 1.0]),
            json!([1, 2, "x"]),
            json!({}),
            json!({"a": 1}),
            json!({"a": {"a": "x"}}),
            json!({"b": [1, 2]}),
            json!([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]),
            json!([[1], [1]]),
            json!([-0.0, 0]),
        ];
        let schemas = [
            json!({"uniqueItems": true}),
            json!({"const": 1}),
            json!({"enum": [[1, 1], {"a": 1.0}, "a"]}),
            json!({"type": "integer"}),
            json!({"type": ["string", "null"]}),
            json!({"minLength": 2}),
            json!({"not": {}}),
            json!({"$ref": "#"}),
            json!({"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"a": {"$ref": "#/$defs/t"}}, "minProperties": 1}}}),
            json!({"propertyNames": {"pattern": "^a"}}),
            json!({"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false}),
            json!({"contains": {"const": 1}, "minContains": 2}),
            json!({"prefixItems": [{"type": "integer"}], "items": false}),
            json!({"properties": {"a": true}, "unevaluatedProperties": false}),
            json!({"if": {"type": "object"}, "then": {"required": ["a"]}}),
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"multipleOf": 0.5}),
            json!({"minimum": 1, "exclusiveMaximum": 1.5}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"x": {"type": "string"}}, "items": {"$ref": "#/definitions/x", "type": "integer"}}),
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}),
            json!({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false}),
            json!({"unevaluatedItems": false, "prefixItems": [true]}),
            json!(true),
            json!(false),
            json!({"$anchor": "me", "items": {"$ref": "#me"}, "type": ["array", "integer"]}),
        ];
        for schema in schemas {
            let plain = jsonschema::options().build(&schema).unwrap();
            for value in &values {
                let checked = Schema::new(schema.clone()).check(value);
                assert_eq!(checked.is_ok(), plain.is_valid(value), "{schema} {value}: {checked:?}");
                let said = plain.validate(value).map_err(|error| to_value_error(&error));
                assert_eq!(checked, said, "{schema} {value}");
            }
        }
    }

    #[test]
    fn no_schema_takes_long_to_check() {
        // A test build is ten times slower than a release build.
        const MOST: f64 = 20.0;
        for (name, schema, value) in expensive_schemas() {
            let (checked, took) = seconds(&schema, &value);
            assert!(took < MOST, "{name} takes {took} s: {checked:?}");
        }
    }

    #[test]
    fn it_serialises_as_the_document() {
        let schema = Schema::new(json!({"type": "string"}));
        assert_eq!(serde_json::to_value(&schema).unwrap(), json!({"type": "string"}));
        assert_eq!(serde_json::from_value::<Schema>(json!({"type": "string"})).unwrap(), schema);
    }
}
