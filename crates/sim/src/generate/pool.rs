//! Values that many generated workflows share: names, schemas compiled once, and expressions parsed once.
//!
//! Owns the caches that make generation cheap. Makes no decisions.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15, swdl},
    ids::StepId,
    ir::Schema,
};

/// The shape of a step's output, as its readers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutputShape {
    /// `{n, flag, word, list}`; fields that are not required may be missing.
    Fields,
    /// `{decision, reason, approver}`.
    Decision,
    /// `{eventName, eventPayload}`.
    Signal,
    /// A value without known fields.
    Whole,
    Nothing,
}

thread_local! {
    static EXPRS: RefCell<BTreeMap<String, Expr>> = const { RefCell::new(BTreeMap::new()) };
    static NAMES: RefCell<Vec<StepId>> = const { RefCell::new(Vec::new()) };
    static SCHEMAS: Vec<Schema> = compile_schemas();
}

/// The `n`th step id.
pub fn nth_step_id(n: usize) -> StepId {
    NAMES.with_borrow_mut(|names| {
        while names.len() <= n {
            names.push(StepId::new(format!("s{}", names.len())).expect("a letter and a number are a name"));
        }
        names[n].clone()
    })
}

fn parse_cached(key: String, parse: impl FnOnce(&str) -> Expr) -> Expr {
    EXPRS.with_borrow_mut(|cache| {
        if let Some(expr) = cache.get(&key) {
            return expr.clone();
        }
        let expr = parse(&key);
        cache.insert(key, expr.clone());
        expr
    })
}

/// Parses a condition or path in the syntax that uses `$`.
pub fn parse_condition(text: String) -> Expr {
    parse_cached(text, |text| {
        aip15::parse_condition(text).unwrap_or_else(|e| panic!("generated condition `{text}`: {e}"))
    })
}

/// Parses a condition in the syntax that has statuses and `env`.
pub fn parse_status_condition(text: String) -> Expr {
    parse_cached(text, |text| {
        swdl::parse_condition(text, swdl::SwdlExprScope::FanOut)
            .unwrap_or_else(|e| panic!("generated condition `{text}`: {e}"))
    })
}

/// Parses a value in which strings that start with `$` are paths.
pub fn parse_value(value: &Value) -> Expr {
    parse_cached(value.to_string(), |_| {
        aip15::parse_value(value).unwrap_or_else(|e| panic!("generated value {value}: {e}"))
    })
}

/// Indices of the schemas in the pool.
pub const ANY_FIELDS: usize = 0;
pub const NEEDS_N: usize = 1;
pub const DEFAULTS: usize = 2;
pub const INTEGER: usize = 3;
pub const BOOLEAN: usize = 4;
pub const PARAMETERS: usize = 5;
pub const CALLED: usize = 6;
pub const OBJECT: usize = 7;

pub fn shared_schema(n: usize) -> Schema {
    SCHEMAS.with(|schemas| schemas[n].clone())
}

fn compile_schemas() -> Vec<Schema> {
    let fields = json!({"n": {"type": "integer"}, "flag": {"type": "boolean"}, "word": {"type": "string"},
        "list": {"type": "array"}});
    let documents = [
        json!({"type": "object", "properties": fields}),
        json!({"type": "object", "properties": fields, "required": ["n"]}),
        json!({"type": "object", "properties": {"n": {"type": "integer"}, "flag": {"type": "boolean"},
            "word": {"type": "string", "default": "none"}, "list": {"type": "array", "default": [1]}}}),
        json!({"type": "integer"}),
        json!({"type": "boolean"}),
        json!({"type": "object", "properties": {"n": {"type": "integer"}, "flag": {"type": "boolean"},
            "word": {"type": "string", "default": "a"}, "list": {"type": "array"}, "odd": {}, "none": {}},
            "required": ["n", "flag"]}),
        json!({"type": "object", "properties": {"n": {"type": "integer"}, "flag": {"type": "boolean", "default": false},
            "word": {"type": "string", "default": "b"}, "list": {"type": "array", "default": [1, 2]}, "odd": {},
            "none": {}}, "required": ["n"]}),
        json!({"type": "object"}),
    ];
    let schemas: Vec<Schema> = documents.into_iter().map(Schema::new).collect();
    // Clones of a compiled schema share the validator.
    schemas.iter().for_each(|schema| schema.compile().expect("the pool's schemas are schemas"));
    schemas
}
