//! Owns finding `${{ }}` in text. Leaves what is between them to the parser.

use super::ast::{Expr, Node, Piece};
use super::bounds::{MAX_NODES, MAX_TEXT};
use super::error::{AFTER_CONDITION, ParseError, ParseErrorKind};
use super::parse::{self, Dialect};
use super::shape::ShapeError;
use super::span::Span;

pub(super) const OPEN: &str = "${{";
const CLOSE: &str = "}}";

/// One stretch of a template.
enum Stretch {
    Text(usize, usize),
    /// The whole `${{ }}`, and its inside.
    Hole {
        outer: (usize, usize),
        inner: (usize, usize),
    },
}

/// Reads a string that may have expressions in it.
pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Expr, ParseError> {
    let all = Span::new(0, text.len());
    if text.len() > MAX_TEXT {
        return Err(ParseError::new(ParseErrorKind::TextTooLong(text.len()), all));
    }
    if !text.contains(OPEN) {
        return finish("", Node::Literal { span: Span::default(), value: text.into() });
    }
    let stretches = scan(text)?;
    if let Some(inner) = only_hole(text, &stretches) {
        return finish(text, parse::expression(text, inner, dialect)?);
    }
    let mut pieces = Vec::new();
    for stretch in stretches {
        pieces.push(match stretch {
            Stretch::Text(from, to) => Piece::Text(text[from..to].to_owned()),
            Stretch::Hole { inner, .. } => Piece::Node(parse::expression(text, inner, dialect)?),
        });
    }
    finish(text, Node::Template { span: all, pieces })
}

/// Reads an expression that may, as a whole, stand between `${{` and `}}`.
pub(super) fn condition(text: &str, dialect: Dialect) -> Result<Expr, ParseError> {
    if !text.trim_start().starts_with(OPEN) {
        return finish(text, parse::expression(text, (0, text.len()), dialect)?);
    }
    let stretches = scan(text)?;
    if let Some(inner) = only_hole(text, &stretches) {
        return finish(text, parse::expression(text, inner, dialect)?);
    }
    let start = stretches.iter().find_map(|stretch| match stretch {
        Stretch::Hole { outer, .. } => Some(outer.1),
        Stretch::Text(..) => None,
    });
    let found = "more text".to_owned();
    let kind = ParseErrorKind::Unexpected { expected: AFTER_CONDITION, found };
    Err(ParseError::new(kind, Span::new(start.unwrap_or(0), text.len())))
}

fn finish(text: &str, node: Node) -> Result<Expr, ParseError> {
    let span = node.span();
    Expr::checked(text.to_owned(), node).map_err(|error| ParseError::new(error, span))
}

/// The inside of the only `${{ }}`, if there is nothing but blanks around it.
fn only_hole(text: &str, stretches: &[Stretch]) -> Option<(usize, usize)> {
    let mut found = None;
    for stretch in stretches {
        match stretch {
            Stretch::Text(from, to) if text[*from..*to].trim().is_empty() => {}
            Stretch::Hole { inner, .. } if found.is_none() => found = Some(*inner),
            _ => return None,
        }
    }
    found
}

fn scan(text: &str) -> Result<Vec<Stretch>, ParseError> {
    let mut stretches = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find(OPEN) {
        let start = at + offset;
        if stretches.len() > 2 * MAX_NODES {
            return Err(ParseError::new(ShapeError::TooManyNodes, Span::new(0, text.len())));
        }
        if start > at {
            stretches.push(Stretch::Text(at, start));
        }
        let inner = (start + OPEN.len(), hole_end(text, start)?);
        at = inner.1 + CLOSE.len();
        stretches.push(Stretch::Hole { outer: (start, at), inner });
    }
    if at < text.len() {
        stretches.push(Stretch::Text(at, text.len()));
    }
    Ok(stretches)
}

/// Where the `}}` lies that closes the `${{` at `start`; braces within quotes close nothing.
fn hole_end(text: &str, start: usize) -> Result<usize, ParseError> {
    let error = |kind, from, to| Err(ParseError::new(kind, Span::new(from, to)));
    let mut quote: Option<(usize, u8)> = None;
    let mut at = start + OPEN.len();
    // Bytes will do: everything looked for is ASCII, and no part of a longer character is.
    while let Some(&byte) = text.as_bytes().get(at) {
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some((_, open)) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'\'' || byte == b'"' => quote = Some((at, byte)),
            None if text.as_bytes()[at..].starts_with(CLOSE.as_bytes()) => return Ok(at),
            None if text.as_bytes()[at..].starts_with(OPEN.as_bytes()) => {
                return error(ParseErrorKind::Nested, at, at + OPEN.len());
            }
            None => {}
        }
        at += 1;
    }
    match quote {
        // With a `}}` after it, a stray quote is likelier than a missing brace.
        Some((from, _)) if text[from..].contains(CLOSE) => {
            error(ParseErrorKind::UnterminatedString, from, text.len())
        }
        _ => error(ParseErrorKind::Unclosed, start, start + OPEN.len()),
    }
}
