//! Owns the words for a stage's status in SWDL expressions, and their other spellings. Does not know the state machine.

use super::ast::{ExprNode, ReferenceRoot, StepProperty};
use super::literal_value::LiteralValue;
use crate::suggest::{find_closest_name, or_did_you_mean};

const WORDS: &[&str] =
    &["pending", "running", "success", "failed", "skipped", "timed_out", "cancelled", "waiting_for_approval"];

/// Replaces a status word that is compared with a status by the canonical word: existing files also use `completed`.
pub(super) fn normalise_status_words(left: &mut ExprNode, right: &mut ExprNode) {
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
