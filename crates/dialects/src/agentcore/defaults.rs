//! AgentCore's default values, its closed sets of words, and its words for states.

use skein_core::{
    agents,
    ir::{Backoff, BackoffGrowth, ErrorClass, RunStatus, StatusWords, StepStatus, WorkerCapability},
    time::Millis,
};

pub(super) const CONTEXT_DIR: &str = "./context";
/// The timeout of a step that sets none, if the workflow's timeout is longer.
pub(super) const STEP_TIMEOUT: Millis = Millis::from_hours(24);
/// A check's default timeout is the step's timeout divided by this number, but at least `CHECK_LEAST`.
pub(super) const CHECK_PART: u64 = 4;
pub(super) const CHECK_LEAST: Millis = Millis::from_secs(1);
pub(super) const STALL_THRESHOLD: u32 = 2;
pub(super) const MAX_STAGE: u32 = 3;
pub(super) const FAIL_ON_MAX_STAGE: bool = true;

/// The classes of failure that another attempt may resolve.
pub(super) const RETRIED: [ErrorClass; 7] = ErrorClass::CURABLE;

pub(super) const BACKOFF: Backoff = Backoff {
    initial: Millis::from_secs(1),
    growth: BackoffGrowth::Exponential(2_000),
    max: Millis::from_secs(30),
    jitter: true,
};

/// The worker of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentCoreWorkerKind {
    Agent(&'static str),
    Custom,
}

pub(super) fn worker_kinds() -> Vec<(&'static str, AgentCoreWorkerKind)> {
    let agents = agents::KNOWN.iter().map(|agent| (agent.word, AgentCoreWorkerKind::Agent(agent.word)));
    agents.chain([("CUSTOM", AgentCoreWorkerKind::Custom)]).collect()
}

pub(super) const CAPABILITIES: &[(&str, WorkerCapability)] = &[
    ("READ", WorkerCapability::Read),
    ("EDIT", WorkerCapability::Edit),
    ("RUN_TESTS", WorkerCapability::RunTests),
    ("RUN_COMMANDS", WorkerCapability::RunCommands),
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum AgentCoreOnFailure {
    Retry,
    Continue,
    #[default]
    Abort,
}

pub(super) const ON_FAILURE: &[(&str, AgentCoreOnFailure)] = &[
    ("retry", AgentCoreOnFailure::Retry),
    ("continue", AgentCoreOnFailure::Continue),
    ("abort", AgentCoreOnFailure::Abort),
];

/// The words of `on_iterations_exhausted`. True if an incomplete step lets the steps after it continue.
pub(super) const ON_EXHAUSTED: &[(&str, bool)] = &[("abort", false), ("continue", true)];

/// Step names that are reserved for files of the context directory.
pub(super) const RESERVED_STEPS: &[&str] =
    &["_subworkflows", "_workflow", "_workflow.json", "_meta.json", "_resolved.json", "_convergence", "_management"];
pub(super) const RESERVED_ARTIFACTS: &[&str] =
    &["_meta.json", "_resolved.json", "_convergence", "_stall", "_management", "_subworkflows"];

pub(super) fn status_words() -> StatusWords {
    StatusWords::from_tables(run_word, step_word).with_failure_words("the workflow aborts", "the workflow is undone")
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
