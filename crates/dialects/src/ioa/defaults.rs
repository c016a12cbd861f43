//! IOA's default values, its closed sets of words, and its words for states.

use skein_core::{
    ir::{Backoff, BackoffGrowth, ErrorClass, RunStatus, StatusWords, StepStatus},
    time::Millis,
};

pub(super) const API_VERSIONS: &[(&str, ())] = &[("ioa.dev/v0.2", ())];
pub(super) const KIND: &str = "Workflow";
/// The start of the action of a gate.
pub(super) const GATE: &str = "GATE:";
/// The maximum number of steps that the format recommends.
pub(super) const STEPS_ADVISED: usize = 10;

pub(super) const INITIAL_DELAY: Millis = Millis::from_secs(1);
pub(super) const MAX_DELAY: Millis = Millis::from_secs(60);
pub(super) const DOUBLING: BackoffGrowth = BackoffGrowth::Exponential(2_000);

/// The classes of failure that another attempt may resolve. Timeouts, invalid values and denials by a policy are not
/// among them.
pub(super) const RETRIED: [ErrorClass; 6] = [
    ErrorClass::Transient,
    ErrorClass::RateLimit,
    ErrorClass::Network,
    ErrorClass::Service,
    ErrorClass::AgentError,
    ErrorClass::External,
];

/// The number of runs under `failurePolicy: retry`: a failed run is followed by one more.
pub(super) const RUNS: u32 = 2;
pub(super) const RUN_BACKOFF: Backoff =
    Backoff { initial: INITIAL_DELAY, growth: BackoffGrowth::Constant, max: MAX_DELAY, jitter: false };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoaOnFailure {
    Abort,
    Skip,
    Compensate,
}

pub(super) const ON_FAILURE: &[(&str, IoaOnFailure)] =
    &[("abort", IoaOnFailure::Abort), ("skip", IoaOnFailure::Skip), ("compensate", IoaOnFailure::Compensate)];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum IoaFailurePolicy {
    Compensate,
    Retry,
    #[default]
    Abort,
}

pub(super) const FAILURE_POLICY: &[(&str, IoaFailurePolicy)] = &[
    ("compensate", IoaFailurePolicy::Compensate),
    ("retry", IoaFailurePolicy::Retry),
    ("abort", IoaFailurePolicy::Abort),
];

pub(super) const BACKOFF: &[(&str, BackoffGrowth)] =
    &[("constant", BackoffGrowth::Constant), ("linear", BackoffGrowth::Linear), ("exponential", DOUBLING)];

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
        StepStatus::Failed | StepStatus::Incomplete | StepStatus::TimedOut | StepStatus::Cancelled => "failed",
    }
}
