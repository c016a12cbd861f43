//! Owns the evaluation of a tree to a value. Evaluation is total: it returns a value or an error, in bounded time and
//! memory, for any data.
//!
//! Text from data is data: it is never searched for expressions.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::ast::{CompareOp, Expr, ExprNode, ReferenceRoot, TemplatePiece};
use super::bounds::{MAX_RESULT, MAX_VALUE_DEPTH};
use super::env::{ExprEnv, RootLookup};
use super::eval_error::{EvalError, EvalErrorKind, type_name};
use super::functions;
use super::meter::{FuelExhausted, FuelMeter};
use super::ops;
use super::size::{JsonSize, measure_json, text_bytes};
use super::span::ExprSpan;

impl Expr {
    /// Evaluates the expression to a value and keeps its type.
    pub fn eval(&self, env: &dyn ExprEnv) -> Result<Value, EvalError> {
        let mut machine = ExprEvaluator { env, meter: FuelMeter::new() };
        Ok(machine.eval_whole(self)?.0)
    }

    /// Evaluates the expression to true if its value is truthy: not null, false, zero or empty.
    pub fn eval_bool(&self, env: &dyn ExprEnv) -> Result<bool, EvalError> {
        let mut machine = ExprEvaluator { env, meter: FuelMeter::new() };
        Ok(ops::is_truthy(&*machine.eval_node(self.node())?))
    }
}

/// One evaluation. Its recursion is bounded because every [`Expr`] is.
pub(super) struct ExprEvaluator<'e> {
    env: &'e dyn ExprEnv,
    pub meter: FuelMeter,
}

/// A value that is borrowed until a result is built from it.
pub(super) type EvalValue<'e> = Cow<'e, Value>;

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
                let size = measure_json(&value, MAX_RESULT);
                let size = size.ok_or_else(|| EvalError::new(EvalErrorKind::TooLarge, span))?;
                check_size(size, span)?;
                (value.into_owned(), size)
            }
        };
        check_size(size, span)?;
        Ok((value, size))
    }

    fn eval_object(
        &mut self,
        fields: &'e [(String, Expr)],
        span: ExprSpan,
    ) -> Result<(Value, JsonSize), EvalError> {
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
            let (value, inner) =
                self.eval_whole(expr).map_err(|error| error.prefix_pointer(&place.to_string()))?;
            size = grow_size(size, inner, usize::from(place > 0), span)?;
            made.push(value);
        }
        Ok((Value::Array(made), JsonSize { depth: size.depth + 1, ..size }))
    }

    pub fn eval_node(&mut self, node: &'e ExprNode) -> Result<EvalValue<'e>, EvalError> {
        let span = node.span();
        self.charge_visit(span)?;
        match node {
            ExprNode::Literal { value, .. } => Ok(value.to_value()),
            ExprNode::Ref { root, path, lenient_outputs, .. } => {
                self.eval_reference(root, path, *lenient_outputs, span)
            }
            ExprNode::Not { of, .. } => Ok(bool_value(!ops::is_truthy(&*self.eval_node(of)?))),
            ExprNode::And { of, .. } => self.eval_logical(of, false),
            ExprNode::Or { of, .. } => self.eval_logical(of, true),
            ExprNode::Compare { by, left, right, .. } => self.eval_comparison(*by, left, right, span),
            ExprNode::Cond { test, then, otherwise, .. } => {
                let holds = ops::is_truthy(&*self.eval_node(test)?);
                self.eval_node(if holds { then } else { otherwise })
            }
            ExprNode::Call { function, args, .. } => functions::eval_call(self, *function, args, span),
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
            Cow::Borrowed(value) => names.try_fold(value, ops::get_member).map(Cow::Borrowed),
            Cow::Owned(mut value) => names
                .try_fold(&mut value, |value, name| ops::get_member_mut(value, name))
                .map(|v| Cow::Owned(v.take())),
        };
        Ok(reached.unwrap_or(Cow::Owned(Value::Null)))
    }

    /// Returns the first operand whose truth is `wanted`, or else the last. Later operands are not evaluated.
    fn eval_logical(&mut self, of: &'e [ExprNode], wanted: bool) -> Result<EvalValue<'e>, EvalError> {
        let mut value = bool_value(!wanted);
        for operand in of {
            value = self.eval_node(operand)?;
            if ops::is_truthy(&value) == wanted {
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
                let same = ops::are_equal(&left, &right, &mut self.meter).map_err(dry)?;
                return Ok(bool_value(same == (by == CompareOp::Eq)));
            }
            _ => ops::order_values(&left, &right, &mut self.meter).map_err(dry)?,
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

    fn eval_template(
        &mut self,
        pieces: &'e [TemplatePiece],
        span: ExprSpan,
    ) -> Result<EvalValue<'e>, EvalError> {
        let mut text = String::new();
        for piece in pieces {
            let (words, span) = match piece {
                TemplatePiece::Text(words) => (Cow::Borrowed(words.as_str()), span),
                TemplatePiece::Node(node) => (self.eval_to_text(node)?, node.span()),
            };
            self.meter.spend_bytes(words.len()).map_err(|dry| out_of_fuel(dry, span))?;
            if text.len() + words.len() > MAX_RESULT {
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
pub(super) fn write_json(value: &Value, meter: &mut FuelMeter, span: ExprSpan) -> Result<String, EvalError> {
    let too_large = || EvalError::new(EvalErrorKind::TooLarge, span);
    let size = measure_json(value, MAX_RESULT).ok_or_else(too_large)?;
    check_size(size, span)?;
    meter
        .spend_bytes(size.bytes)
        .and_then(|()| meter.spend_elements(size.values))
        .map_err(|dry| out_of_fuel(dry, span))?;
    serde_json::to_string(value).map_err(|_| too_large())
}

fn check_size(size: JsonSize, span: ExprSpan) -> Result<(), EvalError> {
    let kind = match size {
        JsonSize { bytes, .. } if bytes > MAX_RESULT => EvalErrorKind::TooLarge,
        JsonSize { depth, .. } if depth > MAX_VALUE_DEPTH => EvalErrorKind::TooDeep,
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

pub(super) fn bool_value<'e>(truth: bool) -> EvalValue<'e> {
    Cow::Owned(Value::Bool(truth))
}

pub(super) fn out_of_fuel(_: FuelExhausted, span: ExprSpan) -> EvalError {
    EvalError::new(EvalErrorKind::OutOfFuel, span)
}
