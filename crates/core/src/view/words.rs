//! Phrases that several views share.

use crate::{
    engine::{AttemptRole, SkipReason, StepOutcome},
    ir::{Approver, ErrorClass, HoldReason},
};

/// Returns the phrase that follows "held for".
pub(super) fn hold_phrase(reason: HoldReason) -> &'static str {
    match reason {
        HoldReason::Approval => "approval",
        HoldReason::Budget => "budget",
        HoldReason::Blocked => "a person, because its check found it blocked",
        HoldReason::Governance => "governance",
        HoldReason::Interruption => "a person, because it was interrupted",
        HoldReason::Quota => "quota",
        HoldReason::Secret => "a secret",
    }
}

/// Formats the people who may decide.
pub(super) fn approver_names(approvers: &[Approver]) -> Vec<String> {
    let one = |approver: &Approver| match approver {
        Approver::Role(role) => format!("the role {role}"),
        Approver::User(user) => user.clone(),
    };
    approvers.iter().map(one).collect()
}

/// Joins quoted names: "`a`, `b` or `c`".
pub(super) fn join_quoted(names: &[String], last: &str) -> String {
    join_list(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>(), last)
}

/// Joins names: "a, b or c".
pub(super) fn join_list(names: &[String], last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

/// Returns the phrase for an outcome that follows "which" or the name of the step.
pub(super) fn outcome_phrase(outcome: StepOutcome) -> &'static str {
    match outcome {
        StepOutcome::Succeeded => "succeeded",
        StepOutcome::Incomplete => "stayed incomplete",
        StepOutcome::Exhausted => "was not completed in all its iterations",
        StepOutcome::Failed(ErrorClass::Timeout) => "timed out",
        StepOutcome::Failed(_) => "failed",
        StepOutcome::Rejected => "was rejected",
        StepOutcome::Skipped(SkipReason::Condition | SkipReason::Upstream(_)) => "was skipped",
        StepOutcome::Cancelled => "was cancelled",
    }
}

/// Returns the word for an attempt that precedes "started" or "failed".
pub(super) fn role_word(role: AttemptRole) -> &'static str {
    match role {
        AttemptRole::Main => "attempt",
        AttemptRole::Check => "check",
        AttemptRole::Summary => "summary",
        AttemptRole::Undo => "undo",
    }
}

/// Formats a status for people.
pub fn status_word(status: &str) -> String {
    status.replace('_', " ")
}
