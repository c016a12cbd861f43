//! What AgentCore means where a source says nothing, and its closed sets of words.

use skein_core::{
    agents,
    ir::{Backoff, BackoffGrowth, ErrorClass, WorkerCapability},
    time::Millis,
};

pub(super) const CONTEXT_DIR: &str = "./context";
/// A step without a timeout, where the workflow's is longer.
pub(super) const STEP_TIMEOUT: Millis = Millis::from_hours(24);
/// A check may take this part of its step's time, and never less than the least.
pub(super) const CHECK_PART: u64 = 4;
pub(super) const CHECK_LEAST: Millis = Millis::from_secs(1);
pub(super) const STALL_THRESHOLD: u32 = 2;
pub(super) const MAX_STAGE: u32 = 3;
pub(super) const FAIL_ON_MAX_STAGE: bool = true;

/// Failures that another attempt may cure.
pub(super) const RETRIED: [ErrorClass; 7] = ErrorClass::CURABLE;

pub(super) const BACKOFF: Backoff = Backoff {
    initial: Millis::from_secs(1),
    growth: BackoffGrowth::Exponential(2_000),
    max: Millis::from_secs(30),
    jitter: true,
};

/// Who does a step.
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

/// Whether a step that is never complete lets the others go on.
pub(super) const ON_EXHAUSTED: &[(&str, bool)] = &[("abort", false), ("continue", true)];

/// Names that the context directory keeps for itself.
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
