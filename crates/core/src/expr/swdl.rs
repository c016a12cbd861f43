//! Owns how expressions are written in SWDL workflows: `${{ }}` in strings, and conditions.
//!
//! | written | reads |
//! |---|---|
//! | `parameters.x` | the run's parameters |
//! | `stages.ID.outputs.x`, `.status`, `.summary` | another stage |
//! | `context.x`, `env.X`, `run.x`, `workflow.x` | what the host bound, the declared environment, the run, its definition |
//! | `item.x`, `index` | the element of the surrounding fan-out and its place |
//!
//! Refuses to know which stages and parameters exist: [`Expr::reads`] tells the caller.

use serde_json::Value;

use super::ast::{Expr, Node, Part, Root};
use super::error::{ParseError, ParseErrorKind};
use super::names::{nowhere, reference, step, unknown};
use super::parse::Dialect;
use super::span::Span;
use super::status;
use super::template;
use super::token::Path;
use super::walk::Reader;

/// What surrounds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing that repeats.
    Stage,
    /// A fan-out, whose element is `item`.
    FanOut,
}

const NAMESPACES: &[&str] = &["parameters", "stages", "context", "env", "run", "workflow", "item"];

const STATUS_HAS_NO_FIELDS: &str = "a status is one word and has no fields";
const SUMMARY_HAS_NO_FIELDS: &str = "a summary is text and has no fields";
const WANTS_PART: &str = "write `stages.`, a stage's id, then `.outputs`, `.status` or `.summary`";

fn dialect(scope: Scope) -> Dialect {
    let resolve = match scope {
        Scope::Stage => resolve_in_stage,
        Scope::FanOut => resolve,
    };
    Dialect { dollar: false, digits: false, rich: true, chains: false, resolve, equated: status::normalise }
}

/// Reads a string that may have `${{ }}` in it.
///
/// A string that is one `${{ }}`, blanks aside, gives that expression's value with its type; text around it,
/// or a second one, makes the result a string.
pub fn template(text: &str, scope: Scope) -> Result<Expr, ParseError> {
    template::parse(text, dialect(scope))
}

/// Reads a structured value, each string of which is a [`template`].
pub fn value(value: &Value, scope: Scope) -> Result<Expr, ParseError> {
    let string = |text: &str| template(text, scope);
    Reader { string: &string, verbatim: |_| None, guards_keys: true }.read(value)
}

/// Reads a `condition`, with or without `${{ }}` around it.
pub fn condition(text: &str, scope: Scope) -> Result<Expr, ParseError> {
    template::condition(text, dialect(scope))
}

fn resolve_in_stage(path: &Path, span: Span) -> Result<Node, ParseError> {
    match path.first.text.as_str() {
        name @ ("item" | "index") => {
            Err(ParseError::new(ParseErrorKind::OutsideFanOut(name.to_owned()), path.first.span))
        }
        _ => resolve(path, span),
    }
}

fn resolve(path: &Path, span: Span) -> Result<Node, ParseError> {
    let root = match path.first.text.as_str() {
        "parameters" => Root::Input,
        "context" => Root::Context,
        "env" => Root::Env,
        "run" => Root::Run,
        "workflow" => Root::Workflow,
        "item" => Root::Item,
        "index" if path.rest.is_empty() => Root::Index,
        "index" => return Err(nowhere(path, "`index` is a number and has no fields", span)),
        "stages" => return stage(path, span),
        _ => return Err(unknown(path, NAMESPACES)),
    };
    Ok(reference(root, path, 0, span))
}

fn stage(path: &Path, span: Span) -> Result<Node, ParseError> {
    match (path.nth(1), path.nth(2)) {
        (Some("outputs"), _) => Ok(step(Part::Output, path, 2, span)),
        (Some("status"), None) => Ok(step(Part::Status, path, 2, span)),
        (Some("summary"), None) => Ok(step(Part::Summary, path, 2, span)),
        (Some("status"), _) => Err(nowhere(path, STATUS_HAS_NO_FIELDS, span)),
        (Some("summary"), _) => Err(nowhere(path, SUMMARY_HAS_NO_FIELDS, span)),
        _ => Err(nowhere(path, WANTS_PART, span)),
    }
}
