//! Owns the semantics of operators and functions: truth, equality, order, calls. Does not convert between types.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::Value;

use super::{
    ast::{ExprFunction, ExprNode},
    bounds::MAX_RESULT,
    eval::{
        EvalError, EvalErrorKind, EvalValue, ExprEvaluator, FuelExhausted, FuelMeter, bool_value, out_of_fuel,
        type_name, write_json,
    },
    lex::ExprSpan,
    literal,
};

/// True unless the value is null, false, zero or empty.
pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => !literal::is_zero(n),
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
            (Value::Number(a), Value::Number(b)) => literal::compare_numbers(a, b) == Ordering::Equal,
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
pub(super) fn order_values(a: &Value, b: &Value, meter: &mut FuelMeter) -> Result<Option<Ordering>, FuelExhausted> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(Some(literal::compare_numbers(a, b))),
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

/// Evaluates the arguments, then the call. `span` is the span of the whole call.
pub(super) fn eval_call<'e>(
    machine: &mut ExprEvaluator<'e>,
    function: ExprFunction,
    args: &'e [ExprNode],
    span: ExprSpan,
) -> Result<EvalValue<'e>, EvalError> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(machine.eval_node(arg)?);
    }
    let meter = &mut machine.meter;
    let wrong = |place: usize, takes| {
        let given = values.get(place).map_or("nothing", |value| type_name(value));
        let kind = EvalErrorKind::WrongArgument { function: function.name(), takes, given };
        EvalError::new(kind, args.get(place).map_or(span, ExprNode::span))
    };
    let dry = |dry: FuelExhausted| out_of_fuel(dry, span);
    let values: Vec<&Value> = values.iter().map(|value| &**value).collect();
    match (function, values.as_slice()) {
        (ExprFunction::Length, [value]) => {
            let length = value_length(value, meter).map_err(dry)?;
            let length = length.ok_or_else(|| wrong(0, "a string, an array or an object"))?;
            Ok(Cow::Owned(Value::from(length)))
        }
        (ExprFunction::Contains, [Value::String(all), Value::String(part)]) => {
            meter.spend_bytes(all.len() + part.len()).map_err(dry)?;
            Ok(bool_value(all.contains(part.as_str())))
        }
        (ExprFunction::Contains, [Value::String(_), _]) => Err(wrong(1, "a string to look for in a string")),
        (ExprFunction::Contains, [Value::Array(items), item]) => {
            Ok(bool_value(contains_item(items, item, meter).map_err(dry)?))
        }
        (ExprFunction::ToJson, [value]) => Ok(Cow::Owned(Value::String(write_json(value, meter, span)?))),
        (ExprFunction::FromJson, [Value::String(text)]) => parse_json(text, meter, span),
        (ExprFunction::FromJson, _) => Err(wrong(0, "a string")),
        _ => Err(wrong(0, "a string or an array to look in")),
    }
}

fn value_length(value: &Value, meter: &mut FuelMeter) -> Result<Option<usize>, FuelExhausted> {
    Ok(match value {
        Value::String(text) => {
            meter.spend_bytes(text.len())?;
            Some(text.chars().count())
        }
        Value::Array(items) => Some(items.len()),
        Value::Object(fields) => Some(fields.len()),
        _ => None,
    })
}

fn contains_item(items: &[Value], wanted: &Value, meter: &mut FuelMeter) -> Result<bool, FuelExhausted> {
    for item in items {
        if are_equal(item, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Cost of one value in JSON, in bytes: creating a value takes far longer than reading its text.
const VALUE: usize = 32;

/// Parses JSON. Charges for its length and for the maximum number of values that it can hold.
fn parse_json<'e>(text: &str, meter: &mut FuelMeter, span: ExprSpan) -> Result<EvalValue<'e>, EvalError> {
    if text.len() > MAX_RESULT {
        return Err(EvalError::new(EvalErrorKind::TooLarge, span));
    }
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    meter.spend_bytes(text.len() + VALUE * values).map_err(|dry| out_of_fuel(dry, span))?;
    let value =
        serde_json::from_str(text).map_err(|error| EvalError::new(EvalErrorKind::BadJson(error.to_string()), span))?;
    Ok(Cow::Owned(value))
}
