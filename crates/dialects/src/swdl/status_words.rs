//! SWDL's words for each status.

use skein_core::ir::{RunStatus, StatusWords, StepStatus};

pub(super) fn status_words() -> StatusWords {
    StatusWords::from_tables(run_word, step_word)
        .with_failure_words("`on_failure` is `halt`", "`on_failure` is `rollback`")
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "pending",
        RunStatus::Running => "running",
        RunStatus::Waiting => "waiting_for_approval",
        RunStatus::Undoing => "rolling_back",
        RunStatus::Succeeded => "success",
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::Undone | RunStatus::UndoFailed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending | StepStatus::Ready => "pending",
        StepStatus::Running | StepStatus::Checking => "running",
        StepStatus::Waiting => "waiting_for_approval",
        StepStatus::Succeeded | StepStatus::Undone => "success",
        StepStatus::Failed | StepStatus::Incomplete => "failed",
        StepStatus::TimedOut => "timed_out",
        StepStatus::Skipped => "skipped",
        StepStatus::Cancelled => "cancelled",
    }
}
