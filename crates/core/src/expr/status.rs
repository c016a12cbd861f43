//! Owns the words for a stage's status in SWDL expressions, and their other spellings. Knows no state
//! machine.

use super::ast::{Node, Part, Root};
use super::constant::Constant;
use crate::closest::{closest, or_did_you_mean};

const WORDS: &[&str] =
    &["pending", "running", "success", "failed", "skipped", "timed_out", "cancelled", "waiting_for_approval"];

/// Makes a status word that is compared with a status the canonical one: existing files say `completed` too.
pub(super) fn normalise(left: &mut Node, right: &mut Node) {
    let word = if is_status(left) {
        right
    } else if is_status(right) {
        left
    } else {
        return;
    };
    if let Node::Literal { value: Constant::Text(word), .. } = word {
        *word = canonical(word).into();
    }
}

fn is_status(node: &Node) -> bool {
    match node {
        Node::Ref { root: Root::Step { part: Part::Status, .. }, .. } => true,
        Node::Ref { root: Root::Run, path, .. } => path.len() == 1 && path[0] == "status",
        _ => false,
    }
}

fn canonical(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "completed" => "success".to_owned(),
        known if WORDS.contains(&known) => lower,
        _ => word.to_owned(),
    }
}

/// What is worth saying about a comparison of a status with a word, given how the word was written.
pub(super) fn remark(left: &Node, right: &Node, written: impl Fn(&Node) -> Option<String>) -> Option<String> {
    let word = [(left, right), (right, left)].into_iter().find(|(status, _)| is_status(status))?.1;
    let Node::Literal { value: Constant::Text(meant), .. } = word else { return None };
    if !WORDS.contains(&&**meant) {
        let near = or_did_you_mean(closest(meant, WORDS.iter().copied()));
        return Some(format!("`{meant}` is not a status; statuses are {}{near}", WORDS.join(", ")));
    }
    let written = written(word)?;
    let plain = written.trim_matches(['\'', '"']);
    (plain != &**meant).then(|| format!("`{plain}` is read as `{meant}`"))
}
