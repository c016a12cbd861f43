//! Words that several views share.

use crate::{
    engine::{Outcome, Role, Skip},
    ir::{Approver, ErrorClass, HoldReason, KindName},
};

pub(super) fn kind(kind: KindName) -> &'static str {
    match kind {
        KindName::Work => "work",
        KindName::Gate => "gate",
        KindName::Wait => "wait",
        KindName::Branch => "branch",
        KindName::Parallel => "parallel",
        KindName::Each => "each",
        KindName::Loop => "loop",
        KindName::Call => "call",
    }
}

/// What a step is held for, after "held for".
pub(super) fn hold(reason: HoldReason) -> &'static str {
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

/// Who may decide.
pub(super) fn people(approvers: &[Approver]) -> Vec<String> {
    let one = |approver: &Approver| match approver {
        Approver::Role(role) => format!("the role {role}"),
        Approver::User(user) => user.clone(),
    };
    approvers.iter().map(one).collect()
}

/// "`a`, `b` or `c`".
pub(super) fn quoted(names: &[String], last: &str) -> String {
    list(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>(), last)
}

/// "a, b or c".
pub(super) fn list(names: &[String], last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

/// How a step ended, after "which" or its name.
pub(super) fn ended(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Incomplete => "stayed incomplete",
        Outcome::Exhausted => "was not completed in all its iterations",
        Outcome::Failed(ErrorClass::Timeout) => "timed out",
        Outcome::Failed(_) => "failed",
        Outcome::Rejected => "was rejected",
        Outcome::Skipped(Skip::Condition | Skip::Upstream(_)) => "was skipped",
        Outcome::Cancelled => "was cancelled",
    }
}

/// Whose attempt, before "started" or "failed".
pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Main => "attempt",
        Role::Check => "check",
        Role::Summary => "summary",
        Role::Undo => "undo",
    }
}
