//! Owns the semantics of operators: truth, equality, order. Does not convert between types, and does not recurse.

use std::cmp::Ordering;

use serde_json::Value;

use super::meter::{FuelExhausted, FuelMeter};
use super::number;

/// True unless the value is null, false, zero or empty.
pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => !number::is_zero(n),
        Value::String(s) => !s.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// True if two values are equal: numbers by value, objects in any order of keys.
pub(super) fn are_equal(a: &Value, b: &Value, meter: &mut FuelMeter) -> Result<bool, FuelExhausted> {
    let mut todo = vec![(a, b)];
    meter.spend_elements(1)?;
    while let Some(pair) = todo.pop() {
        let same = match pair {
            (Value::Number(a), Value::Number(b)) => number::compare_numbers(a, b) == Ordering::Equal,
            (Value::String(a), Value::String(b)) => {
                meter.spend_bytes(a.len().min(b.len()))?;
                a == b
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                // Charged before they are paired, which takes memory.
                meter.spend_elements(a.len())?;
                todo.extend(a.iter().zip(b));
                true
            }
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                meter.spend_elements(a.len())?;
                pair_fields(a, b, &mut todo, meter)?
            }
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
            (a, b) => a == b,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

type ObjectFields = serde_json::Map<String, Value>;

/// Pairs the fields of two objects. Returns false if one has a key that the other lacks.
fn pair_fields<'a>(
    a: &'a ObjectFields,
    b: &'a ObjectFields,
    todo: &mut Vec<(&'a Value, &'a Value)>,
    meter: &mut FuelMeter,
) -> Result<bool, FuelExhausted> {
    for (key, value) in a {
        meter.spend_bytes(key.len())?;
        match b.get(key) {
            Some(other) => todo.push((value, other)),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns the order of two numbers, or of two strings by their characters; none for anything else.
pub(super) fn order_values(
    a: &Value,
    b: &Value,
    meter: &mut FuelMeter,
) -> Result<Option<Ordering>, FuelExhausted> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(Some(number::compare_numbers(a, b))),
        (Value::String(a), Value::String(b)) => {
            meter.spend_bytes(a.len().min(b.len()))?;
            Ok(Some(a.cmp(b)))
        }
        _ => Ok(None),
    }
}

/// Returns the member for one more name of a path: a field, or an element if the name is decimal.
pub(super) fn get_member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(parse_index(name)?),
        _ => None,
    }
}

/// Like [`get_member`], but mutable, so that the value can be taken.
pub(super) fn get_member_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(fields) => fields.get_mut(name),
        Value::Array(items) => items.get_mut(parse_index(name)?),
        _ => None,
    }
}

/// Parses a name as an array index as in JSON pointers: digits without a needless leading zero.
pub(super) fn parse_index(name: &str) -> Option<usize> {
    let plain = name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|_| plain)
}
