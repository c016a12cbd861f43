//! AgentCore's words for each status.

use skein_core::ir::{RunStatus, StatusWords, StepStatus};

pub(super) fn status_words() -> StatusWords {
    StatusWords::from_tables(run_word, step_word)
        .with_failure_words("the workflow aborts", "the workflow is undone")
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Queued => "PENDING",
        RunStatus::Running | RunStatus::Waiting | RunStatus::Undoing => "RUNNING",
        RunStatus::Succeeded => "SUCCEEDED",
        RunStatus::Failed | RunStatus::Undone | RunStatus::UndoFailed => "FAILED",
        RunStatus::TimedOut => "TIMED_OUT",
        RunStatus::Cancelled => "CANCELLED",
    }
}

fn step_word(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending => "PENDING",
        StepStatus::Ready => "READY",
        StepStatus::Running | StepStatus::Waiting => "RUNNING",
        StepStatus::Checking => "CHECKING",
        StepStatus::Succeeded | StepStatus::Undone => "SUCCEEDED",
        StepStatus::Failed | StepStatus::TimedOut => "FAILED",
        StepStatus::Incomplete => "INCOMPLETE",
        StepStatus::Skipped => "SKIPPED",
        StepStatus::Cancelled => "CANCELLED",
    }
}
