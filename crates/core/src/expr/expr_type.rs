//! Owns the static types of values, and the check of whether one fits another. Does not know expressions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

/// Maximum schema levels that are followed; anything deeper is [`ExprType::Any`].
const MAX_LEVELS: usize = 32;

/// Maximum alternatives that are told apart; a union of more is [`ExprType::Any`].
const MAX_ALTERNATIVES: usize = 16;

/// A set of values. Cheap to clone, since every expression of a workflow may refer to one large object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprType {
    /// Nothing is known.
    Any,
    Null,
    Bool,
    Int,
    /// Any number, including integers.
    Number,
    String,
    Array(Box<ExprType>),
    /// Known fields; `open` if there may be others. A field that may be absent may be null.
    Object {
        fields: Arc<BTreeMap<String, ExprType>>,
        open: bool,
    },
    /// Two or more of the others, never nested and never [`ExprType::Any`].
    OneOf(Vec<ExprType>),
}

/// The answer to whether a value fits, as far as it is known before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeFit {
    Yes,
    No,
    Unknown,
}

/// The coarse kinds of values in a type, as a set of bits.
pub(super) mod kind {
    pub const NULL: u8 = 1;
    pub const BOOL: u8 = 2;
    pub const NUMBER: u8 = 4;
    pub const STRING: u8 = 8;
    pub const ARRAY: u8 = 16;
    pub const OBJECT: u8 = 32;
    pub const ALL: u8 = 63;
}

impl ExprType {
    /// An object with unknown fields.
    pub fn any_object() -> ExprType {
        ExprType::Object { fields: Arc::default(), open: true }
    }

    /// Returns the type that a JSON Schema guarantees, from `type`, `enum`, `const`, `properties`, `required`,
    /// `additionalProperties` and `items`. Other keywords can only narrow it, and are ignored.
    pub fn from_schema(schema: &Value) -> ExprType {
        type_from_schema(schema, MAX_LEVELS)
    }

    /// Returns the type of a value.
    pub fn from_value(value: &Value) -> ExprType {
        type_from_value(value, MAX_LEVELS)
    }

    /// Returns the union of both types.
    pub fn union(self, other: ExprType) -> ExprType {
        if self == ExprType::Any || other == ExprType::Any {
            return ExprType::Any;
        }
        let mut all = self.alternatives().to_vec();
        for ty in other.alternatives() {
            if !all.contains(ty) {
                all.push(ty.clone());
            }
        }
        if all.contains(&ExprType::Number) {
            all.retain(|ty| *ty != ExprType::Int);
        }
        match all.len() {
            1 => all.swap_remove(0),
            n if n > MAX_ALTERNATIVES => ExprType::Any,
            _ => ExprType::OneOf(all),
        }
    }

    pub(super) fn alternatives(&self) -> &[ExprType] {
        match self {
            ExprType::OneOf(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    pub(super) fn kind_bits(&self) -> u8 {
        match self {
            ExprType::Any => kind::ALL,
            ExprType::Null => kind::NULL,
            ExprType::Bool => kind::BOOL,
            ExprType::Int | ExprType::Number => kind::NUMBER,
            ExprType::String => kind::STRING,
            ExprType::Array(_) => kind::ARRAY,
            ExprType::Object { .. } => kind::OBJECT,
            ExprType::OneOf(all) => all.iter().fold(0, |kinds, ty| kinds | ty.kind_bits()),
        }
    }

    /// Returns the fit of values of `given` to this type: yes if all fit, no if none does, otherwise unknown.
    pub fn accepts(&self, given: &ExprType) -> TypeFit {
        match (self, given) {
            (ExprType::Any, _) => TypeFit::Yes,
            (_, ExprType::Any) => TypeFit::Unknown,
            (_, ExprType::OneOf(all)) => all_fit(all.iter().map(|given| self.accepts(given))),
            (ExprType::OneOf(all), _) => any_fits(all.iter().map(|ty| ty.accepts(given))),
            (ExprType::Number, ExprType::Int) => TypeFit::Yes,
            (ExprType::Int, ExprType::Number) => TypeFit::Unknown,
            (ExprType::Array(wanted), ExprType::Array(given)) => match wanted.accepts(given) {
                // An empty array has no item that would not fit.
                TypeFit::No => TypeFit::Unknown,
                fit => fit,
            },
            (ExprType::Object { fields, open }, ExprType::Object { fields: given, open: more }) => {
                accepts_fields((fields, *open), (given, *more))
            }
            _ if self == given => TypeFit::Yes,
            _ => TypeFit::No,
        }
    }
}

type FieldTypes = BTreeMap<String, ExprType>;

fn accepts_fields((wanted, open): (&FieldTypes, bool), (given, more): (&FieldTypes, bool)) -> TypeFit {
    let mut fit = TypeFit::Yes;
    for (name, ty) in wanted {
        let one = match given.get(name) {
            Some(given) => ty.accepts(given),
            None if more => ty.accepts(&ExprType::Any),
            None => ty.accepts(&ExprType::Null),
        };
        match one {
            TypeFit::No => return TypeFit::No,
            TypeFit::Unknown => fit = TypeFit::Unknown,
            TypeFit::Yes => {}
        }
    }
    let surplus = more || given.keys().any(|name| !wanted.contains_key(name));
    if !open && surplus { TypeFit::Unknown } else { fit }
}

/// All must fit; yes and no together are unknown.
fn all_fit(fits: impl Iterator<Item = TypeFit>) -> TypeFit {
    fits.reduce(|a, b| if a == b { a } else { TypeFit::Unknown }).unwrap_or(TypeFit::Unknown)
}

/// At least one must fit.
fn any_fits(fits: impl Iterator<Item = TypeFit>) -> TypeFit {
    fits.reduce(|a, b| match (a, b) {
        (TypeFit::Yes, _) | (_, TypeFit::Yes) => TypeFit::Yes,
        (TypeFit::No, TypeFit::No) => TypeFit::No,
        _ => TypeFit::Unknown,
    })
    .unwrap_or(TypeFit::Unknown)
}

fn type_from_schema(schema: &Value, levels: usize) -> ExprType {
    if levels == 0 {
        return ExprType::Any;
    }
    if let Some(value) = schema.get("const") {
        return type_from_value(value, levels);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return union_all(values.iter().map(|value| type_from_value(value, levels)));
    }
    match schema.get("type") {
        Some(Value::String(name)) => type_from_keyword(name, schema, levels),
        Some(Value::Array(names)) => union_all(
            names
                .iter()
                .map(|name| name.as_str().map_or(ExprType::Any, |name| type_from_keyword(name, schema, levels))),
        ),
        _ => ExprType::Any,
    }
}

fn type_from_keyword(name: &str, schema: &Value, levels: usize) -> ExprType {
    match name {
        "null" => ExprType::Null,
        "boolean" => ExprType::Bool,
        "integer" => ExprType::Int,
        "number" => ExprType::Number,
        "string" => ExprType::String,
        "array" => {
            let items = schema.get("items").map_or(ExprType::Any, |items| type_from_schema(items, levels - 1));
            // Tuples give their first items other types.
            ExprType::Array(Box::new(if schema.get("prefixItems").is_some() { ExprType::Any } else { items }))
        }
        "object" => object_from_schema(schema, levels),
        _ => ExprType::Any,
    }
}

fn object_from_schema(schema: &Value, levels: usize) -> ExprType {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    let mut fields = BTreeMap::new();
    for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let ty = type_from_schema(schema, levels - 1);
        fields.insert(name.clone(), if required.contains(name.as_str()) { ty } else { ty.union(ExprType::Null) });
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    ExprType::Object { fields: Arc::new(fields), open: !closed || schema.get("patternProperties").is_some() }
}

fn type_from_value(value: &Value, levels: usize) -> ExprType {
    if levels == 0 {
        return ExprType::Any;
    }
    match value {
        Value::Null => ExprType::Null,
        Value::Bool(_) => ExprType::Bool,
        Value::Number(n) if n.is_f64() => ExprType::Number,
        Value::Number(_) => ExprType::Int,
        Value::String(_) => ExprType::String,
        Value::Array(items) => {
            ExprType::Array(Box::new(union_all(items.iter().map(|item| type_from_value(item, levels - 1)))))
        }
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| (name.clone(), type_from_value(value, levels - 1)));
            ExprType::Object { fields: Arc::new(fields.collect()), open: false }
        }
    }
}

/// Returns the union of all these types, or [`ExprType::Any`] if there are none.
pub(super) fn union_all(mut all: impl Iterator<Item = ExprType>) -> ExprType {
    let Some(mut ty) = all.next() else { return ExprType::Any };
    for other in all {
        if ty == ExprType::Any {
            break;
        }
        ty = ty.union(other);
    }
    ty
}

/// The type as messages name it.
impl std::fmt::Display for ExprType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ExprType::Any => "anything",
            ExprType::Null => "null",
            ExprType::Bool => "a boolean",
            ExprType::Int => "a whole number",
            ExprType::Number => "a number",
            ExprType::String => "a string",
            ExprType::Array(_) => "an array",
            ExprType::Object { .. } => "an object",
            ExprType::OneOf(all) => {
                let words: Vec<String> = all.iter().map(ExprType::to_string).collect();
                return f.write_str(&words.join(" or "));
            }
        })
    }
}
