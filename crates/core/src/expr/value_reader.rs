//! Owns turning a structured value into an expression, string by string. Leaves each string to a dialect.

use serde_json::Value;

use super::ast::{Expr, ExprNode};
use super::bounds::MAX_WIRE_DEPTH;
use super::lex::ExprSpan;
use super::parse_error::{ExprParseError, ExprParseErrorKind};
use super::shape::{self, ExprShapeError};
use super::template::OPEN;

/// A dialect's rules for reading the parts of a value.
#[derive(Clone, Copy)]
pub(super) struct ExprValueReader<'a> {
    pub string: &'a dyn Fn(&str) -> Result<Expr, ExprParseError>,
    /// Returns the value that an object stands for unchanged, if it is marked as literal.
    pub verbatim: fn(&Value) -> Option<&Value>,
    /// True if keys that contain expressions are refused.
    pub guards_keys: bool,
}

impl ExprValueReader<'_> {
    /// Reads all of `value`. Parts that need no evaluation become literals, however large.
    pub fn read(&self, value: &Value) -> Result<Expr, ExprParseError> {
        let expr = self.read_at(value, 0)?;
        shape::check_shape(&expr).map_err(|error| ExprParseError::new(error, ExprSpan::default()))?;
        Ok(expr)
    }

    fn read_at(&self, value: &Value, depth: usize) -> Result<Expr, ExprParseError> {
        if depth > MAX_WIRE_DEPTH {
            return Err(ExprParseError::new(ExprShapeError::NestedTooDeep, ExprSpan::default()));
        }
        if let Some(value) = (self.verbatim)(value) {
            return Ok(unchecked_expr(literal_node(value.clone())));
        }
        match value {
            Value::String(text) => (self.string)(text),
            Value::Array(items) => self.read_array(items, depth + 1),
            Value::Object(fields) => self.read_object(fields, depth + 1),
            scalar => Ok(unchecked_expr(literal_node(scalar.clone()))),
        }
    }

    fn read_array(&self, values: &[Value], depth: usize) -> Result<Expr, ExprParseError> {
        let mut items = Vec::with_capacity(values.len());
        for (place, value) in values.iter().enumerate() {
            items.push(self.read_at(value, depth).map_err(|error| error.prefix_pointer(&place.to_string()))?);
        }
        if items.iter().any(|item| item.as_literal().is_none()) {
            return Ok(unchecked_expr(ExprNode::Array { span: ExprSpan::default(), items }));
        }
        Ok(unchecked_expr(literal_node(items.into_iter().filter_map(into_literal).collect())))
    }

    fn read_object(&self, map: &serde_json::Map<String, Value>, depth: usize) -> Result<Expr, ExprParseError> {
        let mut fields = Vec::with_capacity(map.len());
        for (key, value) in map {
            if self.guards_keys
                && let Some(at) = key.find(OPEN)
            {
                let kind = ExprParseErrorKind::ExpressionInKey(key.clone());
                return Err(ExprParseError::new(kind, ExprSpan::new(at, key.len())).prefix_pointer(key));
            }
            let expr = self.read_at(value, depth).map_err(|error| error.prefix_pointer(key))?;
            fields.push((key.clone(), expr));
        }
        if fields.iter().any(|(_, expr)| expr.as_literal().is_none()) {
            return Ok(unchecked_expr(ExprNode::Object { span: ExprSpan::default(), fields }));
        }
        let values = fields.into_iter().filter_map(|(key, expr)| Some((key, into_literal(expr)?)));
        Ok(unchecked_expr(literal_node(values.collect())))
    }
}

fn literal_node(value: Value) -> ExprNode {
    ExprNode::Literal { span: ExprSpan::default(), value: value.into() }
}

fn into_literal(expr: Expr) -> Option<Value> {
    match expr.into_parts().node {
        ExprNode::Literal { value, .. } => Some(value.into()),
        _ => None,
    }
}

/// Builds a part of an expression that is checked once, as a whole.
fn unchecked_expr(node: ExprNode) -> Expr {
    Expr::new_unchecked("", node)
}
