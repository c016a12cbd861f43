//! Owns what is known of a value before there is one, and whether it fits. Knows no expression.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

/// How deep a schema is followed; what lies below is [`Ty::Any`].
const MAX_LEVELS: usize = 32;

/// How many alternatives are told apart before giving up on them.
const MAX_ALTERNATIVES: usize = 16;

/// A set of values. Cheap to clone: every expression of a workflow may refer to one large object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ty {
    /// Nothing is known.
    Any,
    Null,
    Bool,
    Int,
    /// Any number, whole ones included.
    Number,
    String,
    Array(Box<Ty>),
    /// Known fields; `open` if there may be others. A field that may be absent may be null.
    Object {
        fields: Arc<BTreeMap<String, Ty>>,
        open: bool,
    },
    /// Two or more of the others, never nested and never [`Ty::Any`].
    OneOf(Vec<Ty>),
}

/// Whether a value is acceptable, as far as can be told beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
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

impl Ty {
    /// An object with unknown fields.
    pub fn any_object() -> Ty {
        Ty::Object { fields: Arc::default(), open: true }
    }

    /// What a JSON Schema promises, from `type`, `enum`, `const`, `properties`, `required`,
    /// `additionalProperties` and `items`. Everything else in it can only narrow, and is left out.
    pub fn of_schema(schema: &Value) -> Ty {
        of_schema(schema, MAX_LEVELS)
    }

    /// The type that a value has.
    pub fn of_value(value: &Value) -> Ty {
        of_value(value, MAX_LEVELS)
    }

    /// Either.
    pub fn or(self, other: Ty) -> Ty {
        if self == Ty::Any || other == Ty::Any {
            return Ty::Any;
        }
        let mut all = self.alternatives().to_vec();
        for ty in other.alternatives() {
            if !all.contains(ty) {
                all.push(ty.clone());
            }
        }
        if all.contains(&Ty::Number) {
            all.retain(|ty| *ty != Ty::Int);
        }
        match all.len() {
            1 => all.swap_remove(0),
            n if n > MAX_ALTERNATIVES => Ty::Any,
            _ => Ty::OneOf(all),
        }
    }

    pub(super) fn alternatives(&self) -> &[Ty] {
        match self {
            Ty::OneOf(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    pub(super) fn kinds(&self) -> u8 {
        match self {
            Ty::Any => kind::ALL,
            Ty::Null => kind::NULL,
            Ty::Bool => kind::BOOL,
            Ty::Int | Ty::Number => kind::NUMBER,
            Ty::String => kind::STRING,
            Ty::Array(_) => kind::ARRAY,
            Ty::Object { .. } => kind::OBJECT,
            Ty::OneOf(all) => all.iter().fold(0, |kinds, ty| kinds | ty.kinds()),
        }
    }

    /// Whether values of `given` are values of this type: all of them, none, or that cannot be told.
    pub fn accepts(&self, given: &Ty) -> Fit {
        match (self, given) {
            (Ty::Any, _) => Fit::Yes,
            (_, Ty::Any) => Fit::Unknown,
            (_, Ty::OneOf(all)) => every(all.iter().map(|given| self.accepts(given))),
            (Ty::OneOf(all), _) => some(all.iter().map(|ty| ty.accepts(given))),
            (Ty::Number, Ty::Int) => Fit::Yes,
            (Ty::Int, Ty::Number) => Fit::Unknown,
            (Ty::Array(wanted), Ty::Array(given)) => match wanted.accepts(given) {
                // An empty array has no item that would not fit.
                Fit::No => Fit::Unknown,
                fit => fit,
            },
            (Ty::Object { fields, open }, Ty::Object { fields: given, open: more }) => {
                accepts_fields((fields, *open), (given, *more))
            }
            _ if self == given => Fit::Yes,
            _ => Fit::No,
        }
    }
}

type Fields = BTreeMap<String, Ty>;

fn accepts_fields((wanted, open): (&Fields, bool), (given, more): (&Fields, bool)) -> Fit {
    let mut fit = Fit::Yes;
    for (name, ty) in wanted {
        let one = match given.get(name) {
            Some(given) => ty.accepts(given),
            None if more => ty.accepts(&Ty::Any),
            None => ty.accepts(&Ty::Null),
        };
        match one {
            Fit::No => return Fit::No,
            Fit::Unknown => fit = Fit::Unknown,
            Fit::Yes => {}
        }
    }
    let surplus = more || given.keys().any(|name| !wanted.contains_key(name));
    if !open && surplus { Fit::Unknown } else { fit }
}

/// All must fit; yes and no together are unknown.
fn every(fits: impl Iterator<Item = Fit>) -> Fit {
    fits.reduce(|a, b| if a == b { a } else { Fit::Unknown }).unwrap_or(Fit::Unknown)
}

/// One must fit.
fn some(fits: impl Iterator<Item = Fit>) -> Fit {
    fits.reduce(|a, b| match (a, b) {
        (Fit::Yes, _) | (_, Fit::Yes) => Fit::Yes,
        (Fit::No, Fit::No) => Fit::No,
        _ => Fit::Unknown,
    })
    .unwrap_or(Fit::Unknown)
}

fn of_schema(schema: &Value, levels: usize) -> Ty {
    if levels == 0 {
        return Ty::Any;
    }
    if let Some(value) = schema.get("const") {
        return of_value(value, levels);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return one_of(values.iter().map(|value| of_value(value, levels)));
    }
    match schema.get("type") {
        Some(Value::String(name)) => of_type(name, schema, levels),
        Some(Value::Array(names)) => one_of(
            names.iter().map(|name| name.as_str().map_or(Ty::Any, |name| of_type(name, schema, levels))),
        ),
        _ => Ty::Any,
    }
}

fn of_type(name: &str, schema: &Value, levels: usize) -> Ty {
    match name {
        "null" => Ty::Null,
        "boolean" => Ty::Bool,
        "integer" => Ty::Int,
        "number" => Ty::Number,
        "string" => Ty::String,
        "array" => {
            let items = schema.get("items").map_or(Ty::Any, |items| of_schema(items, levels - 1));
            // Tuples give their first places other types.
            Ty::Array(Box::new(if schema.get("prefixItems").is_some() { Ty::Any } else { items }))
        }
        "object" => object_of_schema(schema, levels),
        _ => Ty::Any,
    }
}

fn object_of_schema(schema: &Value, levels: usize) -> Ty {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    let mut fields = BTreeMap::new();
    for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let ty = of_schema(schema, levels - 1);
        fields.insert(name.clone(), if required.contains(name.as_str()) { ty } else { ty.or(Ty::Null) });
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    Ty::Object { fields: Arc::new(fields), open: !closed || schema.get("patternProperties").is_some() }
}

fn of_value(value: &Value, levels: usize) -> Ty {
    if levels == 0 {
        return Ty::Any;
    }
    match value {
        Value::Null => Ty::Null,
        Value::Bool(_) => Ty::Bool,
        Value::Number(n) if n.is_f64() => Ty::Number,
        Value::Number(_) => Ty::Int,
        Value::String(_) => Ty::String,
        Value::Array(items) => {
            Ty::Array(Box::new(one_of(items.iter().map(|item| of_value(item, levels - 1)))))
        }
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| (name.clone(), of_value(value, levels - 1)));
            Ty::Object { fields: Arc::new(fields.collect()), open: false }
        }
    }
}

/// Any of these; of none of them nothing is known.
pub(super) fn one_of(mut all: impl Iterator<Item = Ty>) -> Ty {
    let Some(mut ty) = all.next() else { return Ty::Any };
    for other in all {
        if ty == Ty::Any {
            break;
        }
        ty = ty.or(other);
    }
    ty
}

/// As messages say it.
impl std::fmt::Display for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Ty::Any => "anything",
            Ty::Null => "null",
            Ty::Bool => "a boolean",
            Ty::Int => "a whole number",
            Ty::Number => "a number",
            Ty::String => "a string",
            Ty::Array(_) => "an array",
            Ty::Object { .. } => "an object",
            Ty::OneOf(all) => {
                let words: Vec<String> = all.iter().map(Ty::to_string).collect();
                return f.write_str(&words.join(" or "));
            }
        })
    }
}
