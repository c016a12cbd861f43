//! AIP-15's constants and tables: defaults, ranges, retried error classes, and the words for each status. Items that a
//! reader of WORKFLOW.md files also needs are public.

use std::ops::RangeInclusive;

use crate::{
    ids::StepId,
    ir::{
        ErrorClass, OutcomeEffect, OutcomeEffects, RunStatus, StatusWords, StepStatus, UndoFailurePolicy, UndoPolicy,
    },
    limits,
    time::Millis,
};

pub(super) const DIALECT: &str = "aip15";
/// The target that ends a list of steps.
pub const END: &str = "$end";
/// A step with this name replaces the built-in escalation.
pub const ESCALATE: &str = "escalate";

pub(super) const WORKFLOW_TIMEOUT: Millis = Millis(600_000);
pub(super) const TOOL_TIMEOUT: Millis = Millis(30_000);
pub(super) const MAX_STEPS: u32 = 100;
pub(super) const MAP_PARALLELISM: u32 = limits::PARALLELISM_DEFAULT;
pub(super) const BACKOFF_INITIAL: Millis = Millis(1_000);
/// Each delay is twice the previous one, in thousandths.
pub(super) const BACKOFF_GROWTH: u32 = 2_000;
const ID_LENGTH: RangeInclusive<usize> = 2..=64;
/// A description of valid ids, for messages.
pub const ID_FORM: &str = "2 to 64 lowercase letters, digits and dashes; a letter first, no dash at the end";

/// Error classes that another attempt may fix.
pub(super) const RETRIED: [ErrorClass; 7] = ErrorClass::CURABLE;

/// Any failure undoes the completed steps.
pub(super) fn default_effects() -> OutcomeEffects {
    OutcomeEffects {
        incomplete: OutcomeEffect::UNDO,
        exhausted: OutcomeEffect::UNDO,
        failed: OutcomeEffect::UNDO,
        rejected: OutcomeEffect::UNDO,
        timed_out: OutcomeEffect::UNDO,
        ..OutcomeEffects::default()
    }
}

/// The workflow's timeout and a cancel also undo the completed steps. If one undo step fails, the others still run.
pub(super) fn default_undo_policy() -> UndoPolicy {
    UndoPolicy { on_timeout: true, on_cancel: true, failed_step: false, if_one_fails: UndoFailurePolicy::GoOn }
}

pub(super) fn status_words() -> StatusWords {
    StatusWords::from_tables(run_word, step_word).with_failure_words("the workflow fails", "the workflow compensates")
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "pending",
        RunStatus::Running => "running",
        RunStatus::Waiting => "suspended",
        RunStatus::Undoing => "compensating",
        RunStatus::Succeeded => "completed",
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Undone | RunStatus::UndoFailed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending | StepStatus::Ready => "pending",
        StepStatus::Running | StepStatus::Checking => "running",
        StepStatus::Waiting => "suspended",
        StepStatus::Succeeded => "completed",
        StepStatus::Failed | StepStatus::Incomplete | StepStatus::TimedOut => "failed",
        StepStatus::Skipped => "skipped",
        StepStatus::Cancelled => "cancelled",
        StepStatus::Undone => "compensated",
    }
}

/// Returns the id of the approval gate before a step that is not a tool step. Step ids have no dots, so no other step
/// has this id.
pub fn approval_gate_id(step: &StepId) -> Option<StepId> {
    StepId::new(format!("{step}.approval")).ok()
}

/// True if the text is 2 to 64 lowercase letters, digits and dashes, starts with a letter and does not end with a dash.
pub fn is_valid_id(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ID_LENGTH.contains(&text.len())
        && text.chars().all(allowed)
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kebab_case_from_2_to_64() {
        for good in ["ab", "fetch-page", "a1", &"x".repeat(64)] {
            assert!(is_valid_id(good), "{good}");
        }
        for bad in ["a", "Ab", "1a", "a-", "a_b", "a b", "é1", "", &"x".repeat(65)] {
            assert!(!is_valid_id(bad), "{bad}");
        }
    }
}
