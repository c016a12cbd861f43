//! Owns finding `${{ }}` in text. Leaves their contents to the parser.

use super::ast::{Expr, ExprNode, TemplatePiece};
use super::bounds::{MAX_NODES, MAX_TEXT};
use super::lex::ExprSpan;
use super::parse::{self, ExprDialect};
use super::parse_error::{AFTER_CONDITION, ExprParseError, ExprParseErrorKind};
use super::shape::ExprShapeError;

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
    if text.len() > MAX_TEXT {
        return Err(ExprParseError::new(ExprParseErrorKind::TextTooLong(text.len()), all));
    }
    if !text.contains(OPEN) {
        return finish_expr("", ExprNode::Literal { span: ExprSpan::default(), value: text.into() });
    }
    let stretches = split_stretches(text)?;
    if let Some(inner) = find_only_hole(text, &stretches) {
        return finish_expr(text, parse::parse_expression(text, inner, dialect)?);
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
        return finish_expr(text, parse::parse_expression(text, (0, text.len()), dialect)?);
    }
    let stretches = split_stretches(text)?;
    if let Some(inner) = find_only_hole(text, &stretches) {
        return finish_expr(text, parse::parse_expression(text, inner, dialect)?);
    }
    let start = stretches.iter().find_map(|stretch| match stretch {
        TemplateStretch::Hole { outer, .. } => Some(outer.1),
        TemplateStretch::Text(..) => None,
    });
    let found = "more text".to_owned();
    let kind = ExprParseErrorKind::Unexpected { expected: AFTER_CONDITION, found };
    Err(ExprParseError::new(kind, ExprSpan::new(start.unwrap_or(0), text.len())))
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
        if stretches.len() > 2 * MAX_NODES {
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
