//! Conditions of a run of IOA: they say whether all of its effects were rolled back, or only a part.

use serde::Serialize;
use skein_core::{ir::RunStatus, view::RunView};
use skein_dialects::Dialect;

/// A condition, as in the status of a resource of IOA.
#[derive(Debug, Serialize)]
pub struct RunCondition {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
    #[serde(rename = "lastTransitionTime")]
    pub last_transition: Option<String>,
}

/// Returns the conditions of a run; none in other formats.
pub fn run_conditions(view: &RunView) -> Vec<RunCondition> {
    let (kind, reason) = match view.status {
        _ if view.workflow.dialect != Dialect::Ioa.as_str() => return Vec::new(),
        RunStatus::Undone => ("RolledBack", "CompensationCompleted"),
        RunStatus::UndoFailed => ("PartialRollback", "CompensationFailed"),
        _ => return Vec::new(),
    };
    let last_transition = view.finished_at.clone();
    vec![RunCondition { kind, status: "True", reason, message: describe_undo(view), last_transition }]
}

/// Returns a text with the steps that were undone, and those that were not.
fn describe_undo(view: &RunView) -> String {
    let listed = |steps: &[String]| if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
    let undo = view.undo.clone().unwrap_or_default();
    match undo.not_undone.is_empty() {
        true => format!("undone: {}", listed(&undo.undone)),
        false => format!("undone: {}; not undone: {}", listed(&undo.undone), listed(&undo.not_undone)),
    }
}
