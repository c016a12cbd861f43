//! Owns the four functions. Does not know how their arguments were computed.

use std::borrow::Cow;

use serde_json::Value;

use super::ast::{ExprFunction, ExprNode};
use super::bounds::MAX_RESULT;
use super::eval::{EvalValue, ExprEvaluator, bool_value, out_of_fuel, write_json};
use super::eval_error::{EvalError, EvalErrorKind, type_name};
use super::meter::{FuelExhausted, FuelMeter};
use super::ops;
use super::span::ExprSpan;

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
        if ops::are_equal(item, wanted, meter)? {
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
    let value = serde_json::from_str(text)
        .map_err(|error| EvalError::new(EvalErrorKind::BadJson(error.to_string()), span))?;
    Ok(Cow::Owned(value))
}
