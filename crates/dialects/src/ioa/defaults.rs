//! What IOA means where a source says nothing, and its closed sets of words.

use skein_core::{
    ir::{Backoff, BackoffGrowth, ErrorClass},
    time::Millis,
};

pub(super) const API_VERSIONS: &[(&str, ())] = &[("ioa.dev/v0.2", ())];
pub(super) const KIND: &str = "Workflow";
/// How the action of a step begins that waits for a person.
pub(super) const GATE: &str = "GATE:";
/// The format asks for no more steps than this.
pub(super) const STEPS_ADVISED: usize = 10;

pub(super) const INITIAL_DELAY: Millis = Millis::from_secs(1);
pub(super) const MAX_DELAY: Millis = Millis::from_secs(60);
pub(super) const DOUBLING: BackoffGrowth = BackoffGrowth::Exponential(2_000);

/// Failures that another attempt may cure. A timeout, a wrong value and a policy that says no are none.
pub(super) const RETRIED: [ErrorClass; 6] = [
    ErrorClass::Transient,
    ErrorClass::RateLimit,
    ErrorClass::Network,
    ErrorClass::Service,
    ErrorClass::AgentError,
    ErrorClass::External,
];

/// Under `failurePolicy: retry` a run that failed is followed by one more.
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
