//! Owns what operators mean for values: truth, equality, order. Refuses to convert between types, and to
//! recurse.

use std::cmp::Ordering;

use serde_json::Value;

use super::meter::{FuelExhausted, FuelMeter};
use super::number;

/// Null, false, zero and everything empty are false.
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

/// Whether two values are the same: numbers by what they denote, objects in any order of keys.
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
                // Paid for before they are lined up, which takes memory.
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

/// Lines up the fields of two objects; false if one has a key that the other lacks.
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

/// The order of two numbers, or of two strings by their characters; nothing for anything else.
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

/// What one more name of a path leads to: a field, or with a decimal name an element.
pub(super) fn get_member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(parse_index(name)?),
        _ => None,
    }
}

/// As [`get`], where the value may be taken apart.
pub(super) fn get_member_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(fields) => fields.get_mut(name),
        Value::Array(items) => items.get_mut(parse_index(name)?),
        _ => None,
    }
}

/// The array place that a name writes, as JSON pointers write it: digits, no needless zero in front.
pub(super) fn parse_index(name: &str) -> Option<usize> {
    let plain = name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    name.parse().ok().filter(|_| plain)
}
