//! Owns working a tree out to a value. Total: a value or an error, in bounded time and memory, whatever the
//! data.
//!
//! Text that comes from data is data: nothing here looks into it for expressions.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::ast::{CompareOp, Expr, Node, Piece, Root};
use super::bounds::{MAX_RESULT, MAX_VALUE_DEPTH};
use super::call;
use super::env::{Env, Lookup};
use super::fault::{EvalError, EvalErrorKind, type_name};
use super::meter::{Dry, Meter};
use super::ops;
use super::size::{Size, measure, text_bytes};
use super::span::Span;

impl Expr {
    /// The value, with its type.
    pub fn eval(&self, env: &dyn Env) -> Result<Value, EvalError> {
        let mut machine = Machine { env, meter: Meter::full() };
        Ok(machine.whole(self)?.0)
    }

    /// Whether the value counts as true: all do but null, false, zero and what is empty.
    pub fn test(&self, env: &dyn Env) -> Result<bool, EvalError> {
        let mut machine = Machine { env, meter: Meter::full() };
        Ok(ops::truthy(&*machine.node(self.node())?))
    }
}

/// One evaluation. Its recursion is bounded because every [`Expr`] is.
pub(super) struct Machine<'e> {
    env: &'e dyn Env,
    pub meter: Meter,
}

/// Values stay where they are until a result is made of them.
pub(super) type Val<'e> = Cow<'e, Value>;

impl<'e> Machine<'e> {
    /// A finished value and its size, for which parts are measured once, however deep they end up.
    fn whole(&mut self, expr: &'e Expr) -> Result<(Value, Size), EvalError> {
        let span = expr.node().span();
        let (value, size) = match expr.node() {
            Node::Object { fields, .. } => {
                self.visit(span)?;
                self.object(fields, span)?
            }
            Node::Array { items, .. } => {
                self.visit(span)?;
                self.array(items, span)?
            }
            node => {
                let value = self.node(node)?;
                let size = measure(&value, MAX_RESULT);
                let size = size.ok_or_else(|| EvalError::new(EvalErrorKind::TooLarge, span))?;
                within(size, span)?;
                (value.into_owned(), size)
            }
        };
        within(size, span)?;
        Ok((value, size))
    }

    fn object(&mut self, fields: &'e [(String, Expr)], span: Span) -> Result<(Value, Size), EvalError> {
        let mut made = Map::new();
        let mut size = Size { bytes: 2, depth: 0, values: 1 };
        for (key, expr) in fields {
            let (value, inner) = self.whole(expr).map_err(|error| error.under(key))?;
            let comma = usize::from(!made.is_empty());
            size = grown(size, inner, text_bytes(key) + 1 + comma, span)?;
            made.insert(key.clone(), value);
        }
        Ok((Value::Object(made), Size { depth: size.depth + 1, ..size }))
    }

    fn array(&mut self, items: &'e [Expr], span: Span) -> Result<(Value, Size), EvalError> {
        let mut made = Vec::with_capacity(items.len());
        let mut size = Size { bytes: 2, depth: 0, values: 1 };
        for (place, expr) in items.iter().enumerate() {
            let (value, inner) = self.whole(expr).map_err(|error| error.under(&place.to_string()))?;
            size = grown(size, inner, usize::from(place > 0), span)?;
            made.push(value);
        }
        Ok((Value::Array(made), Size { depth: size.depth + 1, ..size }))
    }

    pub fn node(&mut self, node: &'e Node) -> Result<Val<'e>, EvalError> {
        let span = node.span();
        self.visit(span)?;
        match node {
            Node::Literal { value, .. } => Ok(value.value()),
            Node::Ref { root, path, lenient_outputs, .. } => {
                self.reference(root, path, *lenient_outputs, span)
            }
            Node::Not { of, .. } => Ok(boolean(!ops::truthy(&*self.node(of)?))),
            Node::And { of, .. } => self.joined(of, false),
            Node::Or { of, .. } => self.joined(of, true),
            Node::Compare { by, left, right, .. } => self.compare(*by, left, right, span),
            Node::Cond { test, then, otherwise, .. } => {
                let holds = ops::truthy(&*self.node(test)?);
                self.node(if holds { then } else { otherwise })
            }
            Node::Call { function, args, .. } => call::call(self, *function, args, span),
            Node::Template { pieces, .. } => self.template(pieces, span),
            Node::Object { fields, .. } => Ok(Cow::Owned(self.object(fields, span)?.0)),
            Node::Array { items, .. } => Ok(Cow::Owned(self.array(items, span)?.0)),
        }
    }

    fn visit(&mut self, span: Span) -> Result<(), EvalError> {
        self.meter.node().map_err(|dry| out_of_fuel(dry, span))
    }

    fn reference(
        &mut self,
        root: &Root,
        path: &[String],
        lenient: bool,
        span: Span,
    ) -> Result<Val<'e>, EvalError> {
        let found = match self.env.lookup(root) {
            Lookup::Found(found) => found,
            Lookup::Absent => return Ok(Cow::Owned(Value::Null)),
            Lookup::NotYet => return Err(EvalError::new(EvalErrorKind::NotYet(root.clone()), span)),
        };
        let outputs = if lenient && found.get("outputs").is_some() { Some("outputs") } else { None };
        let mut names = outputs.into_iter().chain(path.iter().map(String::as_str));
        let reached = match found {
            Cow::Borrowed(value) => names.try_fold(value, ops::get).map(Cow::Borrowed),
            Cow::Owned(mut value) => names
                .try_fold(&mut value, |value, name| ops::get_mut(value, name))
                .map(|v| Cow::Owned(v.take())),
        };
        Ok(reached.unwrap_or(Cow::Owned(Value::Null)))
    }

    /// The first operand whose truth is `wanted`, or else the last; operands after it are not worked out.
    fn joined(&mut self, of: &'e [Node], wanted: bool) -> Result<Val<'e>, EvalError> {
        let mut value = boolean(!wanted);
        for operand in of {
            value = self.node(operand)?;
            if ops::truthy(&value) == wanted {
                break;
            }
        }
        Ok(value)
    }

    fn compare(
        &mut self,
        by: CompareOp,
        left: &'e Node,
        right: &'e Node,
        span: Span,
    ) -> Result<Val<'e>, EvalError> {
        let (left, right) = (self.node(left)?, self.node(right)?);
        let dry = |dry| out_of_fuel(dry, span);
        let order = match by {
            CompareOp::Eq | CompareOp::Ne => {
                let same = ops::equal(&left, &right, &mut self.meter).map_err(dry)?;
                return Ok(boolean(same == (by == CompareOp::Eq)));
            }
            _ => ops::order(&left, &right, &mut self.meter).map_err(dry)?,
        };
        let Some(order) = order else {
            let (left, right) = (type_name(&left), type_name(&right));
            return Err(EvalError::new(EvalErrorKind::Incomparable { sign: by.sign(), left, right }, span));
        };
        Ok(boolean(match by {
            CompareOp::Lt => order == Ordering::Less,
            CompareOp::Le => order != Ordering::Greater,
            CompareOp::Gt => order == Ordering::Greater,
            _ => order != Ordering::Less,
        }))
    }

    fn template(&mut self, pieces: &'e [Piece], span: Span) -> Result<Val<'e>, EvalError> {
        let mut text = String::new();
        for piece in pieces {
            let (words, span) = match piece {
                Piece::Text(words) => (Cow::Borrowed(words.as_str()), span),
                Piece::Node(node) => (self.spelled(node)?, node.span()),
            };
            self.meter.bytes(words.len()).map_err(|dry| out_of_fuel(dry, span))?;
            if text.len() + words.len() > MAX_RESULT {
                return Err(EvalError::new(EvalErrorKind::TooLarge, span));
            }
            text.push_str(&words);
        }
        Ok(Cow::Owned(Value::String(text)))
    }

    /// A value as text among other text: strings as they are, null as nothing, the rest as JSON.
    fn spelled(&mut self, node: &'e Node) -> Result<Cow<'e, str>, EvalError> {
        match self.node(node)? {
            Cow::Borrowed(Value::String(text)) => Ok(Cow::Borrowed(text)),
            Cow::Owned(Value::String(text)) => Ok(Cow::Owned(text)),
            value if value.is_null() => Ok(Cow::Borrowed("")),
            value => Ok(Cow::Owned(written(&value, &mut self.meter, node.span())?)),
        }
    }
}

/// Compact JSON, once it is known to fit and is paid for.
pub(super) fn written(value: &Value, meter: &mut Meter, span: Span) -> Result<String, EvalError> {
    let too_large = || EvalError::new(EvalErrorKind::TooLarge, span);
    let size = measure(value, MAX_RESULT).ok_or_else(too_large)?;
    within(size, span)?;
    meter
        .bytes(size.bytes)
        .and_then(|()| meter.elements(size.values))
        .map_err(|dry| out_of_fuel(dry, span))?;
    serde_json::to_string(value).map_err(|_| too_large())
}

fn within(size: Size, span: Span) -> Result<(), EvalError> {
    let kind = match size {
        Size { bytes, .. } if bytes > MAX_RESULT => EvalErrorKind::TooLarge,
        Size { depth, .. } if depth > MAX_VALUE_DEPTH => EvalErrorKind::TooDeep,
        _ => return Ok(()),
    };
    Err(EvalError::new(kind, span))
}

/// A container's size with one more member, checked at once so that nothing grows past the bound first.
fn grown(size: Size, member: Size, around: usize, span: Span) -> Result<Size, EvalError> {
    let grown = Size {
        bytes: size.bytes + member.bytes + around,
        depth: size.depth.max(member.depth),
        values: size.values + member.values,
    };
    within(grown, span)?;
    Ok(grown)
}

pub(super) fn boolean<'e>(truth: bool) -> Val<'e> {
    Cow::Owned(Value::Bool(truth))
}

pub(super) fn out_of_fuel(_: Dry, span: Span) -> EvalError {
    EvalError::new(EvalErrorKind::OutOfFuel, span)
}
