//! Owns how expressions are written in what Skein adds to AgentCore workflows: the values that a step is given and that a
//! workflow gives. The format itself has none.
//!
//! | written | reads |
//! |---|---|
//! | `input.x` | what the workflow was given |
//! | `steps.NAME.output.x` | that step's output |
//!
//! Refuses to know which steps exist: [`Expr::reads`] tells the caller.

use serde_json::Value;

use super::ast::{Expr, Node, Part, Root};
use super::error::ParseError;
use super::names::{nowhere, reference, step, unknown};
use super::parse::Dialect;
use super::span::Span;
use super::template;
use super::token::Path;
use super::walk::Reader;

const WANTS_OUTPUT: &str = "write `steps.`, a step's name, then `.output`";

const TEMPLATE: Dialect =
    Dialect { dollar: false, digits: true, rich: true, chains: false, resolve, equated: |_, _| {} };

/// Reads a structured value, each string of which may have `${{ }}` in it.
pub fn value(value: &Value) -> Result<Expr, ParseError> {
    let string = |text: &str| template::parse(text, TEMPLATE);
    Reader { string: &string, verbatim: |_| None, guards_keys: true }.read(value)
}

fn resolve(path: &Path, span: Span) -> Result<Node, ParseError> {
    match (path.first.text.as_str(), path.nth(1)) {
        ("input", _) => Ok(reference(Root::Input, path, 0, span)),
        ("steps", Some("output")) => Ok(step(Part::Output, path, 2, span)),
        ("steps", _) => Err(nowhere(path, WANTS_OUTPUT, span)),
        _ => Err(unknown(path, &["input", "steps"])),
    }
}
