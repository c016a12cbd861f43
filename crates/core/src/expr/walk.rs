//! Owns turning a structured value into an expression, string by string. Leaves each string to a surface.

use serde_json::Value;

use super::ast::{Expr, Node};
use super::bounds::MAX_WIRE_DEPTH;
use super::error::{ParseError, ParseErrorKind};
use super::shape::{self, ShapeError};
use super::span::Span;
use super::template::OPEN;

/// How a surface reads the parts of a value.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub string: &'a dyn Fn(&str) -> Result<Expr, ParseError>,
    /// The value that an object stands for as it is, if it says so.
    pub verbatim: fn(&Value) -> Option<&Value>,
    /// Whether keys are looked at for expressions that somebody hoped would work.
    pub guards_keys: bool,
}

impl Reader<'_> {
    /// Reads all of `value`. What needs no evaluation becomes a literal, however large.
    pub fn read(&self, value: &Value) -> Result<Expr, ParseError> {
        let expr = self.read_at(value, 0)?;
        shape::check(&expr).map_err(|error| ParseError::new(error, Span::default()))?;
        Ok(expr)
    }

    fn read_at(&self, value: &Value, depth: usize) -> Result<Expr, ParseError> {
        if depth > MAX_WIRE_DEPTH {
            return Err(ParseError::new(ShapeError::NestedTooDeep, Span::default()));
        }
        if let Some(value) = (self.verbatim)(value) {
            return Ok(unchecked(literal(value.clone())));
        }
        match value {
            Value::String(text) => (self.string)(text),
            Value::Array(items) => self.read_array(items, depth + 1),
            Value::Object(fields) => self.read_object(fields, depth + 1),
            scalar => Ok(unchecked(literal(scalar.clone()))),
        }
    }

    fn read_array(&self, values: &[Value], depth: usize) -> Result<Expr, ParseError> {
        let mut items = Vec::with_capacity(values.len());
        for (place, value) in values.iter().enumerate() {
            items.push(self.read_at(value, depth).map_err(|error| error.under(&place.to_string()))?);
        }
        if items.iter().any(|item| item.as_literal().is_none()) {
            return Ok(unchecked(Node::Array { span: Span::default(), items }));
        }
        Ok(unchecked(literal(items.into_iter().filter_map(into_literal).collect())))
    }

    fn read_object(&self, map: &serde_json::Map<String, Value>, depth: usize) -> Result<Expr, ParseError> {
        let mut fields = Vec::with_capacity(map.len());
        for (key, value) in map {
            if self.guards_keys
                && let Some(at) = key.find(OPEN)
            {
                let kind = ParseErrorKind::ExpressionInKey(key.clone());
                return Err(ParseError::new(kind, Span::new(at, key.len())).under(key));
            }
            let expr = self.read_at(value, depth).map_err(|error| error.under(key))?;
            fields.push((key.clone(), expr));
        }
        if fields.iter().any(|(_, expr)| expr.as_literal().is_none()) {
            return Ok(unchecked(Node::Object { span: Span::default(), fields }));
        }
        let values = fields.into_iter().filter_map(|(key, expr)| Some((key, into_literal(expr)?)));
        Ok(unchecked(literal(values.collect())))
    }
}

fn literal(value: Value) -> Node {
    Node::Literal { span: Span::default(), value: value.into() }
}

fn into_literal(expr: Expr) -> Option<Value> {
    match expr.into_parts().node {
        Node::Literal { value, .. } => Some(value.into()),
        _ => None,
    }
}

/// Part of something that is checked once, as a whole.
fn unchecked(node: Node) -> Expr {
    Expr::unchecked("", node)
}
