//! Expressions of generated workflows (conditions, lists, bindings and literals), and the values that many workflows
//! share: names, schemas compiled once, and expressions parsed once.
//!
//! Owns the rules for readable values. Reads only what the plan's check accepts: declared inputs, steps that come
//! before, and items inside an each.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15, swdl},
    ids::StepId,
    ir::{InputBinding, Schema},
};

use crate::generate::{WorkflowGenerator, scope::ReadableScope};

impl WorkflowGenerator {
    /// Draws a condition that is true or false, and sometimes an error.
    pub(super) fn draw_condition(&mut self, readable: &ReadableScope) -> Expr {
        if self.rng.chance_percent(4) {
            return parse_condition("$input.none < 3".into());
        }
        if self.rng.chance_percent(6) {
            return self.draw_status_condition(readable);
        }
        let one = self.draw_comparison(readable);
        let text = match self.rng.next_below(8) {
            0 => format!("!({one})"),
            1 => format!("{one} && {}", self.draw_comparison(readable)),
            2 => format!("{one} || {}", self.draw_comparison(readable)),
            _ => one,
        };
        parse_condition(text)
    }

    /// Draws a condition that is usually true, so that the guarded step usually runs.
    pub(super) fn draw_likely_condition(&mut self, readable: &ReadableScope) -> Expr {
        match self.rng.next_below(4) {
            0 => parse_condition("$input.n >= 1".into()),
            1 => parse_condition("$input.n < 4".into()),
            _ => self.draw_condition(readable),
        }
    }

    fn draw_status_condition(&mut self, readable: &ReadableScope) -> Expr {
        let word = *self.rng.pick(&["succeeded", "success", "failed", "skipped"]);
        match readable.pick_step(&mut self.rng) {
            Some(seen) => parse_status_condition(format!("stages.{}.status == '{word}'", seen.id)),
            None => parse_status_condition("env.LEVEL == 2".into()),
        }
    }

    fn draw_comparison(&mut self, readable: &ReadableScope) -> String {
        let n = self.rng.next_below(4);
        let sign = *self.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
        let equal = *self.rng.pick(&["==", "!="]);
        if readable.item && self.rng.chance_percent(45) {
            return match self.rng.next_below(3) {
                0 => format!("$index {sign} {n}"),
                1 => format!("$item {equal} {n}"),
                _ => format!("$item {sign} {n}"),
            };
        }
        let seen = if self.rng.chance_percent(65) { readable.pick_step(&mut self.rng) } else { None };
        match seen.map(|seen| (seen.id.clone(), seen.gives)) {
            Some((id, StepOutputShape::Fields)) => match self.rng.next_below(6) {
                0 => format!("$steps.{id}.flag"),
                1 => format!("!$steps.{id}.flag"),
                2 => format!("$steps.{id}.word {equal} 'a'"),
                // Without equality, so that a missing number is sometimes an error.
                3 => format!("$steps.{id}.n {sign} {n}"),
                _ => format!("$steps.{id}.n {equal} {n}"),
            },
            Some((id, StepOutputShape::Decision)) => format!("$steps.{id}.decision {equal} 'approve'"),
            Some((id, StepOutputShape::Signal)) => format!("$steps.{id}.eventPayload.n {equal} {n}"),
            Some((id, StepOutputShape::Whole)) => format!("$steps.{id} {equal} null"),
            Some((_, StepOutputShape::Nothing)) | None => match self.rng.next_below(4) {
                0 => "$input.flag".into(),
                1 => format!("$input.word {equal} 'b'"),
                _ => format!("$input.n {sign} {n}"),
            },
        }
    }

    /// Draws a value for a binding.
    fn draw_value(&mut self, readable: &ReadableScope) -> Value {
        if readable.item && self.rng.chance_percent(40) {
            return json!(self.rng.pick(&["$item", "$index"]));
        }
        let seen = if self.rng.chance_percent(60) { readable.pick_step(&mut self.rng) } else { None };
        match seen.map(|seen| (seen.id.clone(), seen.gives)) {
            Some((id, StepOutputShape::Fields)) => {
                json!(format!("$steps.{id}.{}", self.rng.pick(&["n", "word", "list"])))
            }
            Some((id, StepOutputShape::Whole | StepOutputShape::Decision | StepOutputShape::Signal)) => {
                json!(format!("$steps.{id}"))
            }
            Some((_, StepOutputShape::Nothing)) | None => match self.rng.next_below(5) {
                0 => json!("$input.n"),
                1 => json!("$input.word"),
                2 => json!("$input.none"),
                3 => json!(self.rng.next_below(5)),
                _ => json!({"a": "$input.n", "b": ["$input.flag", 2]}),
            },
        }
    }

    pub(super) fn draw_bindings(&mut self, readable: &ReadableScope) -> Vec<InputBinding> {
        let count = if self.rng.chance_percent(40) { self.rng.next_below(3) } else { 0 };
        (0..count)
            .map(|n| {
                let given = self.draw_value(readable);
                let mut binding = InputBinding {
                    name: format!("in{n}").into(),
                    value: parse_value(&given),
                    schema: Default::default(),
                    required: self.rng.chance_percent(20),
                };
                if self.rng.chance_percent(10) {
                    binding.schema = shared_schema(*self.rng.pick(&[INTEGER, INTEGER, BOOLEAN]));
                }
                binding
            })
            .collect()
    }

    /// Draws the inputs of a called workflow: usually valid ones.
    pub(super) fn draw_call_bindings(&mut self) -> Vec<InputBinding> {
        let n = match self.rng.next_below(12) {
            // The type of this input is known only in a run.
            0 => json!("$input.odd"),
            1..6 => json!("$input.n"),
            _ => json!(self.rng.next_below(4)),
        };
        let bind = |name: &str, value: Value| InputBinding::new(name, parse_value(&value));
        let mut bindings = vec![bind("n", n)];
        if self.rng.chance_percent(40) {
            bindings.push(bind("flag", json!(self.rng.chance_percent(50))));
        }
        bindings
    }

    /// Draws the list of an each: literal lists, input lists, and sometimes a value that is not a list.
    pub(super) fn draw_list(&mut self) -> Expr {
        match self.rng.next_below(10) {
            0 => parse_value(&json!("$input.odd")),
            1..5 => parse_value(&json!("$input.list")),
            _ => {
                let length = self.rng.next_below(5);
                let items: Vec<Value> = (0..length).map(|_| json!(self.rng.next_below(4))).collect();
                parse_value(&Value::Array(items))
            }
        }
    }
}

/// The shape of a step's output, as its readers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOutputShape {
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
pub(super) fn nth_step_id(n: usize) -> StepId {
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
pub(super) fn parse_condition(text: String) -> Expr {
    parse_cached(text, |text| {
        aip15::parse_condition(text).unwrap_or_else(|e| panic!("generated condition `{text}`: {e}"))
    })
}

/// Parses a condition in the syntax that has statuses and `env`.
fn parse_status_condition(text: String) -> Expr {
    parse_cached(text, |text| {
        swdl::parse_condition(text, swdl::SwdlExprScope::FanOut)
            .unwrap_or_else(|e| panic!("generated condition `{text}`: {e}"))
    })
}

/// Parses a value in which strings that start with `$` are paths.
pub(super) fn parse_value(value: &Value) -> Expr {
    parse_cached(value.to_string(), |_| {
        aip15::parse_value(value).unwrap_or_else(|e| panic!("generated value {value}: {e}"))
    })
}

/// Indices of the schemas in the pool.
pub(super) const ANY_FIELDS: usize = 0;
pub(super) const NEEDS_N: usize = 1;
pub(super) const DEFAULTS: usize = 2;
pub(super) const INTEGER: usize = 3;
const BOOLEAN: usize = 4;
pub(super) const PARAMETERS: usize = 5;
pub(super) const CALLED: usize = 6;
pub(super) const OBJECT: usize = 7;

pub(super) fn shared_schema(n: usize) -> Schema {
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
