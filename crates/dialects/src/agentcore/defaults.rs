//! AgentCore's default values and its closed sets of words.

use skein_core::{
    agents,
    ir::{Backoff, BackoffGrowth, ErrorClass, WorkerCapability},
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
pub(super) const RESERVED_STEPS: &[&str] = &[
    "_subworkflows",
    "_workflow",
    "_workflow.json",
    "_meta.json",
    "_resolved.json",
    "_convergence",
    "_management",
];
pub(super) const RESERVED_ARTIFACTS: &[&str] =
    &["_meta.json", "_resolved.json", "_convergence", "_stall", "_management", "_subworkflows"];
