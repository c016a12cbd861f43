//! Owns the four functions. Knows nothing of how their arguments came about.

use std::borrow::Cow;

use serde_json::Value;

use super::ast::{Function, Node};
use super::bounds::MAX_RESULT;
use super::eval::{Machine, Val, boolean, out_of_fuel, written};
use super::fault::{EvalError, EvalErrorKind, type_name};
use super::meter::{Dry, Meter};
use super::ops;
use super::span::Span;

/// Works out the arguments, then the call; `span` is the whole call's.
pub(super) fn call<'e>(
    machine: &mut Machine<'e>,
    function: Function,
    args: &'e [Node],
    span: Span,
) -> Result<Val<'e>, EvalError> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(machine.node(arg)?);
    }
    let meter = &mut machine.meter;
    let wrong = |place: usize, takes| {
        let given = values.get(place).map_or("nothing", |value| type_name(value));
        let kind = EvalErrorKind::WrongArgument { function: function.name(), takes, given };
        EvalError::new(kind, args.get(place).map_or(span, Node::span))
    };
    let dry = |dry: Dry| out_of_fuel(dry, span);
    let values: Vec<&Value> = values.iter().map(|value| &**value).collect();
    match (function, values.as_slice()) {
        (Function::Length, [value]) => {
            let length = length(value, meter).map_err(dry)?;
            let length = length.ok_or_else(|| wrong(0, "a string, an array or an object"))?;
            Ok(Cow::Owned(Value::from(length)))
        }
        (Function::Contains, [Value::String(all), Value::String(part)]) => {
            meter.bytes(all.len() + part.len()).map_err(dry)?;
            Ok(boolean(all.contains(part.as_str())))
        }
        (Function::Contains, [Value::String(_), _]) => Err(wrong(1, "a string to look for in a string")),
        (Function::Contains, [Value::Array(items), item]) => {
            Ok(boolean(has(items, item, meter).map_err(dry)?))
        }
        (Function::ToJson, [value]) => Ok(Cow::Owned(Value::String(written(value, meter, span)?))),
        (Function::FromJson, [Value::String(text)]) => parsed(text, meter, span),
        (Function::FromJson, _) => Err(wrong(0, "a string")),
        _ => Err(wrong(0, "a string or an array to look in")),
    }
}

fn length(value: &Value, meter: &mut Meter) -> Result<Option<usize>, Dry> {
    Ok(match value {
        Value::String(text) => {
            meter.bytes(text.len())?;
            Some(text.chars().count())
        }
        Value::Array(items) => Some(items.len()),
        Value::Object(fields) => Some(fields.len()),
        _ => None,
    })
}

fn has(items: &[Value], wanted: &Value, meter: &mut Meter) -> Result<bool, Dry> {
    for item in items {
        if ops::equal(item, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Values in JSON cost what this many of its bytes do: making one takes far longer than reading its text.
const VALUE: usize = 32;

/// Reads JSON, paid for by its length and by how many values it can hold at most.
fn parsed<'e>(text: &str, meter: &mut Meter, span: Span) -> Result<Val<'e>, EvalError> {
    if text.len() > MAX_RESULT {
        return Err(EvalError::new(EvalErrorKind::TooLarge, span));
    }
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    meter.bytes(text.len() + VALUE * values).map_err(|dry| out_of_fuel(dry, span))?;
    let value = serde_json::from_str(text)
        .map_err(|error| EvalError::new(EvalErrorKind::BadJson(error.to_string()), span))?;
    Ok(Cow::Owned(value))
}
