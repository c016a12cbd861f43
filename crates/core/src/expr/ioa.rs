//! Owns how expressions are written in IOA workflows: trigger conditions, and the values of `x-skein.input`.
//!
//! | written | reads |
//! |---|---|
//! | `payload.x`, `trigger.x`, `x` | the trigger's payload |
//! | `steps.NAME.output.x` | that step's output |
//!
//! Refuses to know which steps exist: [`Expr::reads`] tells the caller.

use serde_json::Value;

use super::ast::{Expr, Node, Part, Root};
use super::error::ParseError;
use super::names::{nowhere, reference, step};
use super::parse::{self, Dialect};
use super::span::Span;
use super::template;
use super::token::Path;
use super::walk::Reader;

const WANTS_OUTPUT: &str = "write `steps.`, a step's name, then `.output`";

/// Conditions have the operators of AIP-15.
const CONDITION: Dialect =
    Dialect { dollar: false, digits: true, rich: false, chains: true, resolve, equated: |_, _| {} };

/// Values are Skein's own addition, with all of its operators and functions.
const TEMPLATE: Dialect =
    Dialect { dollar: false, digits: true, rich: true, chains: false, resolve, equated: |_, _| {} };

/// Reads a trigger's `condition`.
pub fn condition(text: &str) -> Result<Expr, ParseError> {
    let node = parse::expression(text, (0, text.len()), CONDITION)?;
    let span = node.span();
    Expr::checked(text.to_owned(), node).map_err(|error| ParseError::new(error, span))
}

/// Reads a structured value, each string of which may have `${{ }}` in it.
pub fn value(value: &Value) -> Result<Expr, ParseError> {
    let string = |text: &str| template::parse(text, TEMPLATE);
    Reader { string: &string, verbatim: |_| None, guards_keys: true }.read(value)
}

fn resolve(path: &Path, span: Span) -> Result<Node, ParseError> {
    match (path.first.text.as_str(), path.nth(1)) {
        ("payload" | "trigger", _) => Ok(reference(Root::Input, path, 0, span)),
        ("steps", Some("output")) => Ok(step(Part::Output, path, 2, span)),
        ("steps", _) => Err(nowhere(path, WANTS_OUTPUT, span)),
        (bare, _) => {
            let path = std::iter::once(bare.to_owned()).chain(path.tail(0)).collect();
            Ok(Node::Ref { span, root: Root::Input, path, lenient_outputs: false })
        }
    }
}
