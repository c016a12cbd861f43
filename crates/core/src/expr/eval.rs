//! Owns the evaluation of a tree to a value: the operators and functions, the interface to the environment, errors and
//! fuel. Evaluation is total: it returns a value or an error, in bounded time and memory, for any data. Text from data
//! is data: it is never searched for expressions. Does not convert between types.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    expr::{
        ast::{self, CompareOp, Expr, ExprFunction, ExprNode, ReferenceRoot, StepProperty, TemplatePiece},
        lex::{self, ExprSpan},
        shape::{JsonSize, measure_json, text_bytes},
    },
    limits::{EXPRESSION_FUEL, EXPRESSION_RESULT, VALUE_DEPTH},
};

/// The source of the values of references.
pub trait ExprEnv {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_>;
}

/// The result of looking up the root of a reference.
#[derive(Clone, Debug, PartialEq)]
pub enum RootLookup<'a> {
    Found(Cow<'a, Value>),
    /// The root has no value and will have none; it reads as null.
    Absent,
    /// The root may have a value later, so no answer would be correct now.
    NotYet,
}

impl Expr {
    /// Evaluates the expression to a value and keeps its type.
    pub fn eval(&self, env: &dyn ExprEnv) -> Result<Value, EvalError> {
        let mut machine = ExprEvaluator { env, meter: FuelMeter::new() };
        Ok(machine.eval_whole(self)?.0)
    }

    /// Evaluates the expression to true if its value is truthy: not null, false, zero or empty.
    pub fn eval_bool(&self, env: &dyn ExprEnv) -> Result<bool, EvalError> {
        let mut machine = ExprEvaluator { env, meter: FuelMeter::new() };
        Ok(is_truthy(&*machine.eval_node(self.node())?))
    }
}

/// One evaluation. Its recursion is bounded because every [`Expr`] is.
struct ExprEvaluator<'e> {
    env: &'e dyn ExprEnv,
    pub meter: FuelMeter,
}

/// A value that is borrowed until a result is built from it.
type EvalValue<'e> = Cow<'e, Value>;

impl<'e> ExprEvaluator<'e> {
    /// Returns a finished value and its size. Each part is measured once, however deep it ends up.
    fn eval_whole(&mut self, expr: &'e Expr) -> Result<(Value, JsonSize), EvalError> {
        let span = expr.node().span();
        let (value, size) = match expr.node() {
            ExprNode::Object { fields, .. } => {
                self.charge_visit(span)?;
                self.eval_object(fields, span)?
            }
            ExprNode::Array { items, .. } => {
                self.charge_visit(span)?;
                self.eval_array(items, span)?
            }
            node => {
                let value = self.eval_node(node)?;
                let size = measure_json(&value, EXPRESSION_RESULT);
                let size = size.ok_or_else(|| EvalError::new(EvalErrorKind::TooLarge, span))?;
                check_size(size, span)?;
                (value.into_owned(), size)
            }
        };
        check_size(size, span)?;
        Ok((value, size))
    }

    fn eval_object(&mut self, fields: &'e [(String, Expr)], span: ExprSpan) -> Result<(Value, JsonSize), EvalError> {
        let mut made = Map::new();
        let mut size = JsonSize { bytes: 2, depth: 0, values: 1 };
        for (key, expr) in fields {
            let (value, inner) = self.eval_whole(expr).map_err(|error| error.prefix_pointer(key))?;
            let comma = usize::from(!made.is_empty());
            size = grow_size(size, inner, text_bytes(key) + 1 + comma, span)?;
            made.insert(key.clone(), value);
        }
        Ok((Value::Object(made), JsonSize { depth: size.depth + 1, ..size }))
    }

    fn eval_array(&mut self, items: &'e [Expr], span: ExprSpan) -> Result<(Value, JsonSize), EvalError> {
        let mut made = Vec::with_capacity(items.len());
        let mut size = JsonSize { bytes: 2, depth: 0, values: 1 };
        for (place, expr) in items.iter().enumerate() {
            let (value, inner) = self.eval_whole(expr).map_err(|error| error.prefix_pointer(&place.to_string()))?;
            size = grow_size(size, inner, usize::from(place > 0), span)?;
            made.push(value);
        }
        Ok((Value::Array(made), JsonSize { depth: size.depth + 1, ..size }))
    }

    fn eval_node(&mut self, node: &'e ExprNode) -> Result<EvalValue<'e>, EvalError> {
        let span = node.span();
        self.charge_visit(span)?;
        match node {
            ExprNode::Literal { value, .. } => Ok(value.to_value()),
            ExprNode::Ref { root, path, lenient_outputs, .. } => {
                self.eval_reference(root, path, *lenient_outputs, span)
            }
            ExprNode::Not { of, .. } => Ok(bool_value(!is_truthy(&*self.eval_node(of)?))),
            ExprNode::And { of, .. } => self.eval_logical(of, false),
            ExprNode::Or { of, .. } => self.eval_logical(of, true),
            ExprNode::Compare { by, left, right, .. } => self.eval_comparison(*by, left, right, span),
            ExprNode::Cond { test, then, otherwise, .. } => {
                let holds = is_truthy(&*self.eval_node(test)?);
                self.eval_node(if holds { then } else { otherwise })
            }
            ExprNode::Call { function, args, .. } => eval_call(self, *function, args, span),
            ExprNode::Template { pieces, .. } => self.eval_template(pieces, span),
            ExprNode::Object { fields, .. } => Ok(Cow::Owned(self.eval_object(fields, span)?.0)),
            ExprNode::Array { items, .. } => Ok(Cow::Owned(self.eval_array(items, span)?.0)),
        }
    }

    fn charge_visit(&mut self, span: ExprSpan) -> Result<(), EvalError> {
        self.meter.spend_node().map_err(|dry| out_of_fuel(dry, span))
    }

    fn eval_reference(
        &mut self,
        root: &ReferenceRoot,
        path: &[String],
        lenient: bool,
        span: ExprSpan,
    ) -> Result<EvalValue<'e>, EvalError> {
        let found = match self.env.lookup(root) {
            RootLookup::Found(found) => found,
            RootLookup::Absent => return Ok(Cow::Owned(Value::Null)),
            RootLookup::NotYet => return Err(EvalError::new(EvalErrorKind::NotYet(root.clone()), span)),
        };
        let outputs = if lenient && found.get("outputs").is_some() { Some("outputs") } else { None };
        let mut names = outputs.into_iter().chain(path.iter().map(String::as_str));
        let reached = match found {
            Cow::Borrowed(value) => names.try_fold(value, get_member).map(Cow::Borrowed),
            Cow::Owned(mut value) => {
                names.try_fold(&mut value, |value, name| get_member_mut(value, name)).map(|v| Cow::Owned(v.take()))
            }
        };
        Ok(reached.unwrap_or(Cow::Owned(Value::Null)))
    }

    /// Returns the first operand whose truth is `wanted`, or else the last. Later operands are not evaluated.
    fn eval_logical(&mut self, of: &'e [ExprNode], wanted: bool) -> Result<EvalValue<'e>, EvalError> {
        let mut value = bool_value(!wanted);
        for operand in of {
            value = self.eval_node(operand)?;
            if is_truthy(&value) == wanted {
                break;
            }
        }
        Ok(value)
    }

    fn eval_comparison(
        &mut self,
        by: CompareOp,
        left: &'e ExprNode,
        right: &'e ExprNode,
        span: ExprSpan,
    ) -> Result<EvalValue<'e>, EvalError> {
        let (left, right) = (self.eval_node(left)?, self.eval_node(right)?);
        let dry = |dry| out_of_fuel(dry, span);
        let order = match by {
            CompareOp::Eq | CompareOp::Ne => {
                let same = are_equal(&left, &right, &mut self.meter).map_err(dry)?;
                return Ok(bool_value(same == (by == CompareOp::Eq)));
            }
            _ => order_values(&left, &right, &mut self.meter).map_err(dry)?,
        };
        let Some(order) = order else {
            let (left, right) = (type_name(&left), type_name(&right));
            return Err(EvalError::new(EvalErrorKind::Incomparable { sign: by.sign(), left, right }, span));
        };
        Ok(bool_value(match by {
            CompareOp::Lt => order == Ordering::Less,
            CompareOp::Le => order != Ordering::Greater,
            CompareOp::Gt => order == Ordering::Greater,
            _ => order != Ordering::Less,
        }))
    }

    fn eval_template(&mut self, pieces: &'e [TemplatePiece], span: ExprSpan) -> Result<EvalValue<'e>, EvalError> {
        let mut text = String::new();
        for piece in pieces {
            let (words, span) = match piece {
                TemplatePiece::Text(words) => (Cow::Borrowed(words.as_str()), span),
                TemplatePiece::Node(node) => (self.eval_to_text(node)?, node.span()),
            };
            self.meter.spend_bytes(words.len()).map_err(|dry| out_of_fuel(dry, span))?;
            if text.len() + words.len() > EXPRESSION_RESULT {
                return Err(EvalError::new(EvalErrorKind::TooLarge, span));
            }
            text.push_str(&words);
        }
        Ok(Cow::Owned(Value::String(text)))
    }

    /// Returns a value as text within a template: strings as they are, null as nothing, the rest as JSON.
    fn eval_to_text(&mut self, node: &'e ExprNode) -> Result<Cow<'e, str>, EvalError> {
        match self.eval_node(node)? {
            Cow::Borrowed(Value::String(text)) => Ok(Cow::Borrowed(text)),
            Cow::Owned(Value::String(text)) => Ok(Cow::Owned(text)),
            value if value.is_null() => Ok(Cow::Borrowed("")),
            value => Ok(Cow::Owned(write_json(&value, &mut self.meter, node.span())?)),
        }
    }
}

/// Returns compact JSON, after checking that it fits and charging for it.
fn write_json(value: &Value, meter: &mut FuelMeter, span: ExprSpan) -> Result<String, EvalError> {
    let too_large = || EvalError::new(EvalErrorKind::TooLarge, span);
    let size = measure_json(value, EXPRESSION_RESULT).ok_or_else(too_large)?;
    check_size(size, span)?;
    meter
        .spend_bytes(size.bytes)
        .and_then(|()| meter.spend_elements(size.values))
        .map_err(|dry| out_of_fuel(dry, span))?;
    serde_json::to_string(value).map_err(|_| too_large())
}

fn check_size(size: JsonSize, span: ExprSpan) -> Result<(), EvalError> {
    let kind = match size {
        JsonSize { bytes, .. } if bytes > EXPRESSION_RESULT => EvalErrorKind::TooLarge,
        JsonSize { depth, .. } if depth > VALUE_DEPTH => EvalErrorKind::TooDeep,
        _ => return Ok(()),
    };
    Err(EvalError::new(kind, span))
}

/// Returns a container's size with one more member. Checked at once, so that nothing grows past the bound first.
fn grow_size(size: JsonSize, member: JsonSize, around: usize, span: ExprSpan) -> Result<JsonSize, EvalError> {
    let grown = JsonSize {
        bytes: size.bytes + member.bytes + around,
        depth: size.depth.max(member.depth),
        values: size.values + member.values,
    };
    check_size(grown, span)?;
    Ok(grown)
}

fn bool_value<'e>(truth: bool) -> EvalValue<'e> {
    Cow::Owned(Value::Bool(truth))
}

fn out_of_fuel(_: FuelExhausted, span: ExprSpan) -> EvalError {
    EvalError::new(EvalErrorKind::OutOfFuel, span)
}

/// The reason why an expression has no value, and its location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct EvalError {
    pub kind: EvalErrorKind,
    /// The span within the source of the expression that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that expression within the value being built; empty for the whole.
    pub at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvalErrorKind {
    #[error("{0} is not known yet")]
    NotYet(ReferenceRoot),
    #[error("`{sign}` orders two numbers or two strings, not {left} and {right}")]
    Incomparable { sign: &'static str, left: &'static str, right: &'static str },
    #[error("`{function}` takes {takes}, not {given}")]
    WrongArgument { function: &'static str, takes: &'static str, given: &'static str },
    #[error("`fromJSON` was given text that is not JSON: {0}")]
    BadJson(String),
    #[error("the value is larger than {EXPRESSION_RESULT} bytes")]
    TooLarge,
    #[error("the value nests more than {VALUE_DEPTH} deep")]
    TooDeep,
    #[error("the evaluation takes more than {EXPRESSION_FUEL} steps")]
    OutOfFuel,
}

impl EvalError {
    fn new(kind: EvalErrorKind, span: ExprSpan) -> Self {
        EvalError { kind, span, at: String::new() }
    }

    /// Returns the same error with `segment` prepended to its pointer.
    fn prefix_pointer(mut self, segment: &str) -> Self {
        self.at = ast::prepend_segment(segment, &self.at);
        self
    }

    /// True if the same expression may have a value later.
    pub fn is_not_yet(&self) -> bool {
        matches!(self.kind, EvalErrorKind::NotYet(_))
    }
}

/// Returns the type of a value, as messages name it.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl std::fmt::Display for ReferenceRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self {
            ReferenceRoot::Input => "the input",
            ReferenceRoot::Item => "the item",
            ReferenceRoot::Index => "the item's index",
            ReferenceRoot::Context => "the context",
            ReferenceRoot::Env => "the environment",
            ReferenceRoot::Run => "the run",
            ReferenceRoot::Workflow => "the workflow",
            ReferenceRoot::Step { id, part } => {
                let part = match part {
                    StepProperty::Output => "output",
                    StepProperty::Status => "status",
                    StepProperty::Summary => "summary",
                };
                return write!(f, "the {part} of `{id}`");
            }
        };
        f.write_str(word)
    }
}

/// Fractions per unit of fuel, so that a long string costs more than a short one without rounding up.
const UNIT: u64 = 256;

/// Cost of visiting an element of an array or object, in bytes.
const ELEMENT: u64 = 16;

/// No fuel is left.
#[derive(Debug, PartialEq)]
struct FuelExhausted;

#[derive(Debug)]
struct FuelMeter {
    left: u64,
}

impl FuelMeter {
    pub(crate) fn new() -> Self {
        FuelMeter { left: EXPRESSION_FUEL * UNIT }
    }

    fn spend(&mut self, cost: u64) -> Result<(), FuelExhausted> {
        self.left = self.left.checked_sub(cost).ok_or(FuelExhausted)?;
        Ok(())
    }

    /// Charges for one node of the tree.
    fn spend_node(&mut self) -> Result<(), FuelExhausted> {
        self.spend(UNIT)
    }

    /// Charges for reading or writing this many bytes of text: one unit for 256 bytes.
    fn spend_bytes(&mut self, n: usize) -> Result<(), FuelExhausted> {
        self.spend(n as u64)
    }

    /// Charges for visiting this many values.
    fn spend_elements(&mut self, n: usize) -> Result<(), FuelExhausted> {
        self.spend(ELEMENT.saturating_mul(n as u64))
    }
}

/// True unless the value is null, false, zero or empty.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => !lex::is_zero(n),
        Value::String(s) => !s.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// True if two values are equal: numbers by value, objects in any order of keys.
fn are_equal(a: &Value, b: &Value, meter: &mut FuelMeter) -> Result<bool, FuelExhausted> {
    let mut todo = vec![(a, b)];
    meter.spend_elements(1)?;
    while let Some(pair) = todo.pop() {
        let same = match pair {
            (Value::Number(a), Value::Number(b)) => lex::compare_numbers(a, b) == Ordering::Equal,
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

/// Pairs the fields of two objects. Returns false if one has a key that the other lacks.
fn pair_fields<'a>(
    a: &'a Map<String, Value>,
    b: &'a Map<String, Value>,
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
fn order_values(a: &Value, b: &Value, meter: &mut FuelMeter) -> Result<Option<Ordering>, FuelExhausted> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(Some(lex::compare_numbers(a, b))),
        (Value::String(a), Value::String(b)) => {
            meter.spend_bytes(a.len().min(b.len()))?;
            Ok(Some(a.cmp(b)))
        }
        _ => Ok(None),
    }
}

/// Returns the member for one more name of a path: a field, or an element if the name is decimal.
fn get_member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(parse_index(name)?),
        _ => None,
    }
}

/// Like [`get_member`], but mutable, so that the value can be taken.
fn get_member_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
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
fn eval_call<'e>(
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
    if text.len() > EXPRESSION_RESULT {
        return Err(EvalError::new(EvalErrorKind::TooLarge, span));
    }
    let values = text.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    meter.spend_bytes(text.len() + VALUE * values).map_err(|dry| out_of_fuel(dry, span))?;
    let value =
        serde_json::from_str(text).map_err(|error| EvalError::new(EvalErrorKind::BadJson(error.to_string()), span))?;
    Ok(Cow::Owned(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_exactly_the_fuel() {
        let mut meter = FuelMeter::new();
        for _ in 0..EXPRESSION_FUEL - 1 {
            meter.spend_node().unwrap();
        }
        meter.spend_bytes(255).unwrap();
        assert_eq!(meter.spend_bytes(2), Err(FuelExhausted));
        meter.spend_bytes(1).unwrap();
        assert_eq!(meter.spend_node(), Err(FuelExhausted));
    }
}
