//! IOA's default values and its closed sets of words.

use skein_core::{
    ir::{Backoff, BackoffGrowth, ErrorClass},
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
