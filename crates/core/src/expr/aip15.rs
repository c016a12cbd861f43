//! Owns how expressions are written in AIP-15 workflows: conditions, and `$` paths as values.
//!
//! | written | reads |
//! |---|---|
//! | `$input.x`, `$workflow.inputs.x` | the run's inputs |
//! | `$steps.ID.x` | that step's output |
//! | `$steps.ID.outputs.x` | the same, through a key `outputs` if the output has one |
//! | `$item.x`, `$index` | the surrounding map's element and its place |
//!
//! Refuses to know which steps exist and whether a map surrounds the text: [`Expr::reads`] tells the caller.

use serde_json::Value;

use super::ast::{Expr, Node, Part, Root};
use super::bounds::MAX_SOURCE;
use super::error::{ParseError, ParseErrorKind};
use super::lex::{Lexer, starts_name};
use super::names::{nowhere, reference, step, unknown};
use super::parse::{self, Dialect};
use super::span::Span;
use super::template::OPEN;
use super::token::{Path, Tok};
use super::walk::Reader;

const NAMESPACES: &[&str] = &["$input", "$workflow.inputs", "$steps", "$item", "$index"];

const DIALECT: Dialect =
    Dialect { dollar: true, digits: true, rich: false, chains: true, resolve, equated: |_, _| {} };

/// Reads a `when` or a `while`.
pub fn condition(text: &str) -> Result<Expr, ParseError> {
    let node = parse::expression(text, (0, text.len()), DIALECT)?;
    let span = node.span();
    Expr::checked(text.to_owned(), node).map_err(|error| ParseError::new(error, span))
}

/// Reads a step's `inputs`, a `result`, or any part of them.
///
/// A string that starts with `$` is one path, and one that starts with `$$` is text with one `$` less. An
/// object of exactly `kind: literal` and `value` stands for that value untouched. All else is literal, `${{`
/// included.
pub fn value(value: &Value) -> Result<Expr, ParseError> {
    Reader { string: &string, verbatim, guards_keys: false }.read(value)
}

fn verbatim(value: &Value) -> Option<&Value> {
    let fields = value.as_object().filter(|fields| fields.len() == 2)?;
    fields.get("value").filter(|_| fields.get("kind").is_some_and(|kind| kind == "literal"))
}

fn string(text: &str) -> Result<Expr, ParseError> {
    let plain = |text: &str| Expr::unchecked("", Node::Literal { span: Span::default(), value: text.into() });
    match text.strip_prefix('$') {
        None => Ok(plain(text)),
        Some(_) if text.starts_with(OPEN) => Ok(plain(text)),
        Some(escaped) if escaped.starts_with('$') => Ok(plain(escaped)),
        Some(name) => path(text, name),
    }
}

fn path(text: &str, name: &str) -> Result<Expr, ParseError> {
    let all = Span::new(0, text.len());
    let not_one_path = || ParseError::new(ParseErrorKind::NotOnePath, all);
    if text.len() > MAX_SOURCE {
        return Err(ParseError::new(ParseErrorKind::SourceTooLong(text.len()), all));
    }
    if !name.starts_with(starts_name) {
        return Err(not_one_path());
    }
    let token = Lexer::new(text, (0, text.len()), DIALECT.digits).next()?;
    match &token.tok {
        Tok::Path(path) if token.span == all => Ok(Expr::unchecked(text, resolve(path, all)?)),
        _ => Err(not_one_path()),
    }
}

fn resolve(path: &Path, span: Span) -> Result<Node, ParseError> {
    match (path.first.text.as_str(), path.nth(0)) {
        ("input", _) => Ok(reference(Root::Input, path, 0, span)),
        ("workflow", Some("inputs")) => Ok(reference(Root::Input, path, 1, span)),
        ("workflow", _) => Err(nowhere(path, "write `$workflow.inputs` and a name", span)),
        ("item", _) => Ok(reference(Root::Item, path, 0, span)),
        ("index", None) => Ok(reference(Root::Index, path, 0, span)),
        ("index", Some(_)) => Err(nowhere(path, "`$index` is a number and has no fields", span)),
        ("steps", None) => Err(nowhere(path, "write `$steps.`, a step's id and a name", span)),
        ("steps", Some(_)) => Ok(step_output(path, span)),
        _ => Err(unknown(path, NAMESPACES)),
    }
}

fn step_output(path: &Path, span: Span) -> Node {
    let lenient = path.nth(1) == Some("outputs");
    match step(Part::Output, path, if lenient { 2 } else { 1 }, span) {
        Node::Ref { span, root, path, .. } => Node::Ref { span, root, path, lenient_outputs: lenient },
        other => other,
    }
}
