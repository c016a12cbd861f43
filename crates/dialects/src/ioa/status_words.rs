//! IOA's words for each status.

use skein_core::ir::{RunStatus, StatusWords, StepStatus};

pub(super) fn status_words() -> StatusWords {
    let words = StatusWords::from_tables(run_word, step_word)
        .with_failure_words("the workflow aborts", "the workflow compensates");
    StatusWords { skipped_by_own_failure: Some("skipped".to_owned()), ..words }
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "queued",
        RunStatus::Running => "executing",
        RunStatus::Waiting => "blocked",
        RunStatus::Undoing => "compensating",
        // A completed rollback is shown as a condition of its own.
        RunStatus::Succeeded | RunStatus::Undone => "completed",
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Cancelled | RunStatus::UndoFailed => "failed",
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        // A step that never started because of others is still pending.
        StepStatus::Pending | StepStatus::Ready | StepStatus::Skipped => "pending",
        StepStatus::Running | StepStatus::Checking | StepStatus::Waiting => "running",
        StepStatus::Succeeded | StepStatus::Undone => "completed",
        StepStatus::Failed | StepStatus::Incomplete | StepStatus::TimedOut | StepStatus::Cancelled => {
            "failed"
        }
    }
}
