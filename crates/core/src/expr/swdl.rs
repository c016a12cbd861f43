//! Owns the expression syntax of SWDL workflows: `${{ }}` in strings, conditions, and the words for a
//! stage's status.
//!
//! | written | reads |
//! |---|---|
//! | `parameters.x` | the run's parameters |
//! | `stages.ID.outputs.x`, `.status`, `.summary` | another stage |
//! | `context.x`, `env.X`, `run.x`, `workflow.x` | host bindings, declared environment, the run, its definition |
//! | `item.x`, `index` | the element of the surrounding fan-out and its index |
//!
//! Does not know which stages and parameters exist: [`Expr::reads`] lists the references for the caller to check.

use serde_json::Value;

use super::{
    ast::{Expr, ExprNode, ReferenceRoot, StepProperty},
    lex::{DottedPath, ExprSpan, LiteralValue},
    parse::{
        ExprDialect, ExprParseError, ExprParseErrorKind, bad_path_error, build_reference, build_step_reference,
        unknown_name_error,
    },
    template,
};
use crate::suggest::{find_closest_name, or_did_you_mean};

/// The scope that the text is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwdlExprScope {
    /// Not inside a repetition.
    Stage,
    /// A fan-out, whose element is `item`.
    FanOut,
}

const NAMESPACES: &[&str] = &["parameters", "stages", "context", "env", "run", "workflow", "item"];

const STATUS_HAS_NO_FIELDS: &str = "a status is one word and has no fields";
const SUMMARY_HAS_NO_FIELDS: &str = "a summary is text and has no fields";
const WANTS_PART: &str = "write `stages.`, a stage's id, then `.outputs`, `.status` or `.summary`";

fn dialect_for_scope(scope: SwdlExprScope) -> ExprDialect {
    let resolve = match scope {
        SwdlExprScope::Stage => resolve_in_stage,
        SwdlExprScope::FanOut => resolve,
    };
    ExprDialect { dollar: false, digits: false, rich: true, chains: false, resolve, equated: normalise_status_words }
}

/// Parses a string that may contain `${{ }}`.
///
/// A string that is one `${{ }}`, apart from blanks, evaluates to that expression's value with its type. Text around
/// it, or a second one, makes the result a string.
pub fn parse_template(text: &str, scope: SwdlExprScope) -> Result<Expr, ExprParseError> {
    template::parse_template(text, dialect_for_scope(scope))
}

/// Parses a structured value; each of its strings is a template as in [`parse_template`].
pub fn parse_value(value: &Value, scope: SwdlExprScope) -> Result<Expr, ExprParseError> {
    template::parse_value(value, dialect_for_scope(scope))
}

/// Parses a `condition`, with or without `${{ }}` around it.
pub fn parse_condition(text: &str, scope: SwdlExprScope) -> Result<Expr, ExprParseError> {
    template::parse_condition(text, dialect_for_scope(scope))
}

fn resolve_in_stage(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    match path.first.text.as_str() {
        name @ ("item" | "index") => {
            Err(ExprParseError::new(ExprParseErrorKind::OutsideFanOut(name.to_owned()), path.first.span))
        }
        _ => resolve(path, span),
    }
}

fn resolve(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    let root = match path.first.text.as_str() {
        "parameters" => ReferenceRoot::Input,
        "context" => ReferenceRoot::Context,
        "env" => ReferenceRoot::Env,
        "run" => ReferenceRoot::Run,
        "workflow" => ReferenceRoot::Workflow,
        "item" => ReferenceRoot::Item,
        "index" if path.rest.is_empty() => ReferenceRoot::Index,
        "index" => return Err(bad_path_error(path, "`index` is a number and has no fields", span)),
        "stages" => return resolve_stage(path, span),
        _ => return Err(unknown_name_error(path, NAMESPACES)),
    };
    Ok(build_reference(root, path, 0, span))
}

fn resolve_stage(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    match (path.nth_name(1), path.nth_name(2)) {
        (Some("outputs"), _) => Ok(build_step_reference(StepProperty::Output, path, 2, span)),
        (Some("status"), None) => Ok(build_step_reference(StepProperty::Status, path, 2, span)),
        (Some("summary"), None) => Ok(build_step_reference(StepProperty::Summary, path, 2, span)),
        (Some("status"), _) => Err(bad_path_error(path, STATUS_HAS_NO_FIELDS, span)),
        (Some("summary"), _) => Err(bad_path_error(path, SUMMARY_HAS_NO_FIELDS, span)),
        _ => Err(bad_path_error(path, WANTS_PART, span)),
    }
}

const WORDS: &[&str] =
    &["pending", "running", "success", "failed", "skipped", "timed_out", "cancelled", "waiting_for_approval"];

/// Replaces a status word that is compared with a status by the canonical word: existing files also use `completed`.
fn normalise_status_words(left: &mut ExprNode, right: &mut ExprNode) {
    let word = if is_status(left) {
        right
    } else if is_status(right) {
        left
    } else {
        return;
    };
    if let ExprNode::Literal { value: LiteralValue::Text(word), .. } = word {
        *word = canonical_word(word).into();
    }
}

fn is_status(node: &ExprNode) -> bool {
    match node {
        ExprNode::Ref { root: ReferenceRoot::Step { part: StepProperty::Status, .. }, .. } => true,
        ExprNode::Ref { root: ReferenceRoot::Run, path, .. } => path.len() == 1 && path[0] == "status",
        _ => false,
    }
}

fn canonical_word(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "completed" => "success".to_owned(),
        known if WORDS.contains(&known) => lower,
        _ => word.to_owned(),
    }
}

/// Returns a remark about a comparison of a status with a word, given the word's spelling in the source.
pub(super) fn status_remark(
    left: &ExprNode,
    right: &ExprNode,
    written: impl Fn(&ExprNode) -> Option<String>,
) -> Option<String> {
    let word = [(left, right), (right, left)].into_iter().find(|(status, _)| is_status(status))?.1;
    let ExprNode::Literal { value: LiteralValue::Text(meant), .. } = word else { return None };
    if !WORDS.contains(&&**meant) {
        let near = or_did_you_mean(find_closest_name(meant, WORDS.iter().copied()));
        return Some(format!("`{meant}` is not a status; statuses are {}{near}", WORDS.join(", ")));
    }
    let written = written(word)?;
    let plain = written.trim_matches(['\'', '"']);
    (plain != &**meant).then(|| format!("`{plain}` is read as `{meant}`"))
}
