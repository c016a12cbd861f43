//! What AgentCore means where a source says nothing, and its closed sets of words.

use skein_core::{
    agents,
    ir::{Backoff, Capability, ErrorClass, Growth},
    time::Millis,
};

pub(super) const CONTEXT_DIR: &str = "./context";
/// A step without a timeout, where the workflow's is longer.
pub(super) const STEP_TIMEOUT: Millis = Millis::hours(24);
/// A check may take this part of its step's time, and never less than the least.
pub(super) const CHECK_PART: u64 = 4;
pub(super) const CHECK_LEAST: Millis = Millis::seconds(1);
pub(super) const STALL_THRESHOLD: u32 = 2;
pub(super) const MAX_STAGE: u32 = 3;
pub(super) const FAIL_ON_MAX_STAGE: bool = true;

/// Failures that another attempt may cure.
pub(super) const RETRIED: [ErrorClass; 7] = ErrorClass::CURABLE;

pub(super) const BACKOFF: Backoff = Backoff {
    initial: Millis::seconds(1),
    growth: Growth::Exponential(2_000),
    max: Millis::seconds(30),
    jitter: true,
};

/// Who does a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerKind {
    Agent(&'static str),
    Custom,
}

pub(super) fn workers() -> Vec<(&'static str, WorkerKind)> {
    let agents = agents::KNOWN.iter().map(|agent| (agent.word, WorkerKind::Agent(agent.word)));
    agents.chain([("CUSTOM", WorkerKind::Custom)]).collect()
}

pub(super) const CAPABILITIES: &[(&str, Capability)] = &[
    ("READ", Capability::Read),
    ("EDIT", Capability::Edit),
    ("RUN_TESTS", Capability::RunTests),
    ("RUN_COMMANDS", Capability::RunCommands),
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OnFailure {
    Retry,
    Continue,
    #[default]
    Abort,
}

pub(super) const ON_FAILURE: &[(&str, OnFailure)] =
    &[("retry", OnFailure::Retry), ("continue", OnFailure::Continue), ("abort", OnFailure::Abort)];

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
