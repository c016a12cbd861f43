//! Values of the AIP-15 language as they are written: JSON, in which a text that starts with `$` is a path.
//!
//! Owns the warning about expressions inside a text, which are not evaluated. Does not parse paths: the expression
//! language does.

use serde_json::Value;
use skein_core::expr::ExprSpan;

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::FieldValue,
    source::yaml::{YamlNode, YamlScalar},
};

/// The start of an expression in other languages. `PATHS` holds the starts of a path in this one.
const TEMPLATE: &str = "${{";
const PATHS: &[&str] = &["$input.", "$workflow.inputs.", "$steps.", "$item."];

/// The maximum length of a template that a message shows.
const SHOWN: usize = 60;

/// Reads a value of a step's inputs, a result or an artifact.
pub(super) fn read_value(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Value {
    let mut todo = vec![given.node];
    while let Some(node) = todo.pop() {
        if is_literal(node) {
            continue;
        }
        if let Some(YamlScalar::Text(text)) = node.scalar() {
            // A `$` at the start begins a path or escapes one.
            let path_from = usize::from(text.starts_with('$'));
            warn_unfilled(node, text, path_from, sink);
        }
        todo.extend(node.items().into_iter().flatten());
        todo.extend(node.fields().into_iter().flatten().map(|field| field.value));
    }
    given.node.to_json()
}

/// Reads a text in which no expressions are evaluated.
pub(super) fn read_plain_text<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    warn_unfilled(given.node, text, 0, sink);
    Some(text)
}

/// True for `{kind: literal, value: …}`, whose value is taken literally.
fn is_literal(node: YamlNode<'_>) -> bool {
    let is_two = node.fields().is_some_and(|fields| fields.len() == 2);
    let kind = node.get("kind").and_then(YamlNode::raw_text);
    is_two && kind == Some("literal") && node.get("value").is_some()
}

/// Returns the length of the path at the start of a text: names and dots, ending with a name.
fn path_length(text: &str) -> usize {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '$' | '.' | '_' | '-');
    let end = text.find(|c| !allowed(c)).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', '-']).len()
}

fn warn_unfilled(node: YamlNode<'_>, text: &str, path_from: usize, sink: &mut DiagnosticSink) {
    let after = text.get(path_from..).unwrap_or_default();
    let path = PATHS.iter().filter_map(|path| after.find(path)).min().map(|at| at + path_from);
    let Some(start) = [text.find(TEMPLATE), path].into_iter().flatten().min() else { return };
    let found = &text[start..];
    let length = match found.find("}}") {
        _ if !found.starts_with(TEMPLATE) => path_length(found),
        Some(end) if end <= SHOWN => end + "}}".len(),
        _ => TEMPLATE.len(),
    };
    let span = node.locate_part(ExprSpan::new(start, start + length));
    let shown = &found[..length];
    let message = format!("`{shown}` stays literal: expressions inside a text are not evaluated");
    let hint = "a path must be the whole value, such as `$input.name` or `$steps.id.name`; to build a text, use a \
                step";
    sink.push(Diagnostic::new(Code::StaysText, node.source(), span, message).with_hint(hint));
}
