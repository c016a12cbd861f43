//! Owns finding `${{ }}` in text, and turning a structured value into an expression, string by string. Leaves the
//! contents to the parser and a dialect.

use serde_json::Value;

use crate::{
    expr::{
        ast::{Expr, ExprNode, TemplatePiece},
        lex::ExprSpan,
        parse::{self, AFTER_CONDITION, ExprDialect, ExprParseError, ExprParseErrorKind},
        shape::{self, ExprShapeError},
    },
    limits::{EXPRESSION_NODES, EXPRESSION_TEXT, EXPRESSION_WIRE_DEPTH},
};

pub(super) const OPEN: &str = "${{";
const CLOSE: &str = "}}";

/// One part of a template.
enum TemplateStretch {
    Text(usize, usize),
    /// The whole `${{ }}`, and its inside.
    Hole {
        outer: (usize, usize),
        inner: (usize, usize),
    },
}

/// Parses a string that may contain expressions.
pub(super) fn parse_template(text: &str, dialect: ExprDialect) -> Result<Expr, ExprParseError> {
    let all = ExprSpan::new(0, text.len());
    if text.len() > EXPRESSION_TEXT {
        return Err(ExprParseError::new(ExprParseErrorKind::TextTooLong(text.len()), all));
    }
    if !text.contains(OPEN) {
        return finish_expr("", ExprNode::Literal { span: ExprSpan::default(), value: text.into() });
    }
    let stretches = split_stretches(text)?;
    if let Some(inner) = find_only_hole(text, &stretches) {
        return parse_window(text, inner, dialect);
    }
    let mut pieces = Vec::new();
    for stretch in stretches {
        pieces.push(match stretch {
            TemplateStretch::Text(from, to) => TemplatePiece::Text(text[from..to].to_owned()),
            TemplateStretch::Hole { inner, .. } => TemplatePiece::Node(parse::parse_expression(text, inner, dialect)?),
        });
    }
    finish_expr(text, ExprNode::Template { span: all, pieces })
}

/// Parses an expression that may, as a whole, be enclosed in `${{` and `}}`.
pub(super) fn parse_condition(text: &str, dialect: ExprDialect) -> Result<Expr, ExprParseError> {
    if !text.trim_start().starts_with(OPEN) {
        return parse_window(text, (0, text.len()), dialect);
    }
    let stretches = split_stretches(text)?;
    if let Some(inner) = find_only_hole(text, &stretches) {
        return parse_window(text, inner, dialect);
    }
    let start = stretches.iter().find_map(|stretch| match stretch {
        TemplateStretch::Hole { outer, .. } => Some(outer.1),
        TemplateStretch::Text(..) => None,
    });
    let found = "more text".to_owned();
    let kind = ExprParseErrorKind::Unexpected { expected: AFTER_CONDITION, found };
    Err(ExprParseError::new(kind, ExprSpan::new(start.unwrap_or(0), text.len())))
}

/// Parses an expression that fills the window `window` of `text`.
pub(super) fn parse_window(text: &str, window: (usize, usize), dialect: ExprDialect) -> Result<Expr, ExprParseError> {
    finish_expr(text, parse::parse_expression(text, window, dialect)?)
}

/// Parses a structured value; each of its strings may contain `${{ }}`.
pub(super) fn parse_value(value: &Value, dialect: ExprDialect) -> Result<Expr, ExprParseError> {
    let string = |text: &str| parse_template(text, dialect);
    ExprValueReader { string: &string, verbatim: |_| None, guards_keys: true }.read(value)
}

fn finish_expr(text: &str, node: ExprNode) -> Result<Expr, ExprParseError> {
    let span = node.span();
    Expr::new(text.to_owned(), node).map_err(|error| ExprParseError::new(error, span))
}

/// Returns the inside of the only `${{ }}`, if there are only blanks around it.
fn find_only_hole(text: &str, stretches: &[TemplateStretch]) -> Option<(usize, usize)> {
    let mut found = None;
    for stretch in stretches {
        match stretch {
            TemplateStretch::Text(from, to) if text[*from..*to].trim().is_empty() => {}
            TemplateStretch::Hole { inner, .. } if found.is_none() => found = Some(*inner),
            _ => return None,
        }
    }
    found
}

fn split_stretches(text: &str) -> Result<Vec<TemplateStretch>, ExprParseError> {
    let mut stretches = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find(OPEN) {
        let start = at + offset;
        if stretches.len() > 2 * EXPRESSION_NODES {
            return Err(ExprParseError::new(ExprShapeError::TooManyNodes, ExprSpan::new(0, text.len())));
        }
        if start > at {
            stretches.push(TemplateStretch::Text(at, start));
        }
        let inner = (start + OPEN.len(), find_hole_end(text, start)?);
        at = inner.1 + CLOSE.len();
        stretches.push(TemplateStretch::Hole { outer: (start, at), inner });
    }
    if at < text.len() {
        stretches.push(TemplateStretch::Text(at, text.len()));
    }
    Ok(stretches)
}

/// Returns the position of the `}}` that closes the `${{` at `start`. Braces within quotes do not count.
fn find_hole_end(text: &str, start: usize) -> Result<usize, ExprParseError> {
    let error = |kind, from, to| Err(ExprParseError::new(kind, ExprSpan::new(from, to)));
    let mut quote: Option<(usize, u8)> = None;
    let mut at = start + OPEN.len();
    // Comparing bytes is enough: all delimiters are ASCII, and no byte of a longer character is.
    while let Some(&byte) = text.as_bytes().get(at) {
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some((_, open)) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'\'' || byte == b'"' => quote = Some((at, byte)),
            None if text.as_bytes()[at..].starts_with(CLOSE.as_bytes()) => return Ok(at),
            None if text.as_bytes()[at..].starts_with(OPEN.as_bytes()) => {
                return error(ExprParseErrorKind::Nested, at, at + OPEN.len());
            }
            None => {}
        }
        at += 1;
    }
    match quote {
        // If a `}}` follows, a stray quote is likelier than a missing brace.
        Some((from, _)) if text[from..].contains(CLOSE) => {
            error(ExprParseErrorKind::UnterminatedString, from, text.len())
        }
        _ => error(ExprParseErrorKind::Unclosed, start, start + OPEN.len()),
    }
}

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
    pub(super) fn read(&self, value: &Value) -> Result<Expr, ExprParseError> {
        let expr = self.read_at(value, 0)?;
        shape::check_shape(&expr).map_err(|error| ExprParseError::new(error, ExprSpan::default()))?;
        Ok(expr)
    }

    fn read_at(&self, value: &Value, depth: usize) -> Result<Expr, ExprParseError> {
        if depth > EXPRESSION_WIRE_DEPTH {
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
