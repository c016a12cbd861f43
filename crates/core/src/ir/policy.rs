//! Policies as tables: what each outcome means, what is retried and when, what holds a step.
//!
//! Lowering fills these in. The engine looks them up and never asks why a row says what it says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ApprovalHold, ApprovalRuling, EscalationLevel, is_default};
use crate::{ids::StepId, limits, time::Millis};

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    Transient,
    RateLimit,
    Network,
    Service,
    /// An agent crashed or said something that cannot be used.
    AgentError,
    External,
    Timeout,
    /// An input, an output or a condition is not what was declared.
    Validation,
    NonRetryable,
    Governance,
    /// The host died under it.
    Interrupted,
    Fatal,
}

impl ErrorClass {
    pub const ALL: [ErrorClass; 12] = [
        ErrorClass::Transient,
        ErrorClass::RateLimit,
        ErrorClass::Network,
        ErrorClass::Service,
        ErrorClass::AgentError,
        ErrorClass::External,
        ErrorClass::Timeout,
        ErrorClass::Validation,
        ErrorClass::NonRetryable,
        ErrorClass::Governance,
        ErrorClass::Interrupted,
        ErrorClass::Fatal,
    ];

    /// Failures that another attempt may cure, taking too long included.
    pub const CURABLE: [ErrorClass; 7] = [
        ErrorClass::Transient,
        ErrorClass::RateLimit,
        ErrorClass::Network,
        ErrorClass::Service,
        ErrorClass::AgentError,
        ErrorClass::External,
        ErrorClass::Timeout,
    ];
}

/// Everything about a step that is not what it does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// Whether the timeout is for each attempt or for the step with all its attempts, checks and delays.
    #[serde(skip_serializing_if = "is_default")]
    pub timeout_per: TimeoutScope,
    /// Silence that ends an attempt, and how long the first sign of life may take. For the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<Millis>,
    #[serde(skip_serializing_if = "is_default")]
    pub retry: StepRetry,
    #[serde(skip_serializing_if = "is_default")]
    pub effects: OutcomeEffects,
    /// Failures that hold the step until someone or some time releases it, instead of failing it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub holds: BTreeMap<ErrorClass, HoldReason>,
    /// Asks a person before the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalHold>,
    /// Why it may not start at all: a failure of class governance before the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// Who may release a hold for governance, those first who are asked first. None: anyone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalation: Vec<EscalationLevel>,
    /// What was found about whether it may start, for people. The engine does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruling: Option<ApprovalRuling>,
    #[serde(skip_serializing_if = "is_default")]
    pub on_interrupted: OnInterrupted,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Whether a check or a delay before a retry keeps the step's place among those at work.
    #[serde(skip_serializing_if = "is_default")]
    pub keeps_slot: bool,
    /// The step of the same scope that settles it when what this one changed does not fit what others changed. It waits
    /// for this one to end, however that is, and is skipped where there is nothing to settle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<StepId>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutScope {
    #[default]
    Attempt,
    Step,
}

/// Which failures are tried again, how often and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepRetry {
    /// How many attempts there may be when the last ended with this class, the first included. A class that is
    /// not here is not retried.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attempts: BTreeMap<ErrorClass, u32>,
    /// Error codes that are never retried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub backoff: Backoff,
    /// Whether each iteration of a completion check begins with a full budget.
    #[serde(skip_serializing_if = "is_default")]
    pub fresh_per_iteration: bool,
}

impl StepRetry {
    /// The same number of attempts for each of these classes.
    pub fn for_classes(classes: &[ErrorClass], attempts: u32, backoff: Backoff) -> StepRetry {
        let attempts = classes.iter().map(|class| (*class, attempts)).collect();
        StepRetry { attempts, never: Vec::new(), backoff, fresh_per_iteration: false }
    }
}

/// How long to wait before the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    pub initial: Millis,
    pub growth: BackoffGrowth,
    pub max: Millis,
    /// Anything between nothing and the delay, chosen by a hash of run, step and attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackoffGrowth {
    Constant,
    Linear,
    /// Multiplied each time by this many thousandths.
    Exponential(u32),
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            initial: Millis::from_secs(1),
            growth: BackoffGrowth::Exponential(2_000),
            max: Millis::from_secs(30),
            jitter: false,
        }
    }
}

impl Backoff {
    /// The delay before the `n`th retry, counted from 1, without jitter. Never more than the maximum or a day.
    pub fn retry_delay(&self, n: u32) -> Millis {
        let max = self.max.0.min(limits::BACKOFF);
        let grown = match self.growth {
            BackoffGrowth::Constant => self.initial.0,
            BackoffGrowth::Linear => self.initial.0.saturating_mul(u64::from(n)),
            BackoffGrowth::Exponential(thousandths) => {
                let mut delay = u128::from(self.initial.0);
                for _ in 1..n {
                    delay = delay * u128::from(thousandths) / 1_000;
                    if delay == 0 || delay > u128::from(max) || thousandths == 1_000 {
                        break;
                    }
                }
                u64::try_from(delay).unwrap_or(u64::MAX)
            }
        };
        Millis(grown.min(max))
    }
}

/// What each outcome of a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutcomeEffects {
    pub succeeded: OutcomeEffect,
    /// Its check still said incomplete at the end, and that is an end.
    pub incomplete: OutcomeEffect,
    /// Its check still said incomplete at the end, and that is a failure; also a stall.
    pub exhausted: OutcomeEffect,
    pub failed: OutcomeEffect,
    /// Classes of failure that have an effect of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by_class: BTreeMap<ErrorClass, OutcomeEffect>,
    pub rejected: OutcomeEffect,
    pub timed_out: OutcomeEffect,
    pub skipped_by_condition: OutcomeEffect,
    pub skipped_by_upstream: OutcomeEffect,
}

impl Default for OutcomeEffects {
    /// The strictest: success goes on, any failure aborts, and what was skipped satisfies nobody.
    fn default() -> OutcomeEffects {
        OutcomeEffects {
            succeeded: OutcomeEffect::GO_ON,
            incomplete: OutcomeEffect::ABORT,
            exhausted: OutcomeEffect::ABORT,
            failed: OutcomeEffect::ABORT,
            failed_by_class: BTreeMap::new(),
            rejected: OutcomeEffect::ABORT,
            timed_out: OutcomeEffect::ABORT,
            skipped_by_condition: OutcomeEffect::BLOCK,
            skipped_by_upstream: OutcomeEffect::BLOCK,
        }
    }
}

/// What an outcome does to the rest of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeEffect {
    pub then: OutcomeAction,
    /// Whether the steps that depend on it may start.
    pub satisfies: bool,
    pub verdict: RunImpact,
    /// Whether the step is shown as skipped instead of failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub as_skipped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeAction {
    GoOn,
    /// The workflow stops.
    Abort,
    /// The workflow stops and undoes what was completed.
    Undo,
}

/// What an outcome makes of a workflow that reaches its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunImpact {
    #[default]
    Clean,
    /// It succeeds, and says that something failed.
    Degraded,
    Failed,
}

impl OutcomeEffect {
    pub const GO_ON: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::GoOn,
        satisfies: true,
        verdict: RunImpact::Clean,
        as_skipped: false,
    };
    pub const ABORT: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::Abort,
        satisfies: false,
        verdict: RunImpact::Failed,
        as_skipped: false,
    };
    pub const UNDO: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::Undo,
        satisfies: false,
        verdict: RunImpact::Failed,
        as_skipped: false,
    };
    /// A failure that does not stop what depends on it.
    pub const CONTINUE: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::GoOn,
        satisfies: true,
        verdict: RunImpact::Degraded,
        as_skipped: false,
    };
    /// A failure that counts as not having been there.
    pub const SKIP: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::GoOn,
        satisfies: true,
        verdict: RunImpact::Degraded,
        as_skipped: true,
    };
    /// A failure that stops only what depends on it, and fails the run in the end.
    pub const SKIP_DEPENDENTS: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::GoOn,
        satisfies: false,
        verdict: RunImpact::Failed,
        as_skipped: false,
    };
    /// What comes of two failures together.
    #[must_use]
    pub fn combine(self, other: OutcomeEffect) -> OutcomeEffect {
        OutcomeEffect {
            then: self.then.max(other.then),
            satisfies: self.satisfies && other.satisfies,
            verdict: self.verdict.max(other.verdict),
            as_skipped: self.as_skipped,
        }
    }

    /// No failure, and yet what depends on it cannot start.
    pub const BLOCK: OutcomeEffect = OutcomeEffect {
        then: OutcomeAction::GoOn,
        satisfies: false,
        verdict: RunImpact::Clean,
        as_skipped: false,
    };
}

/// Why a step is kept from starting or continuing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldReason {
    /// Its approval class asks for a person.
    Approval,
    Budget,
    /// Its check said that it cannot go on.
    Blocked,
    Governance,
    Interruption,
    Quota,
    Secret,
}

impl HoldReason {
    pub const ALL: [HoldReason; 7] = [
        HoldReason::Approval,
        HoldReason::Budget,
        HoldReason::Blocked,
        HoldReason::Governance,
        HoldReason::Interruption,
        HoldReason::Quota,
        HoldReason::Secret,
    ];
}

/// What happens to an attempt that the host died under.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInterrupted {
    /// Done again, and told so.
    #[default]
    Rerun,
    /// The worker's own session goes on.
    Resume,
    /// The workspace is put back, then done again.
    Restore,
    Ask,
    Fail,
}

/// What may be spent: money in millionths, tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    pub mode: BudgetMode,
}

impl Budget {
    /// Whether what was spent is all of it.
    pub fn is_spent(&self, tokens: u64, micro_usd: Option<u64>) -> bool {
        self.tokens.is_some_and(|most| tokens >= most)
            || self.micro_usd.is_some_and(|most| micro_usd.unwrap_or(0) >= most)
    }
}

/// What happens when it is spent and another attempt would start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMode {
    Warn,
    /// The step is held until a person releases it.
    Pause,
    /// The step fails.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_as_named_and_saturates() {
        let of = |growth| Backoff { initial: Millis(100), growth, max: Millis(1_000), jitter: false };
        let delays = |growth| (1..=5).map(|n| of(growth).retry_delay(n).0).collect::<Vec<_>>();
        assert_eq!(delays(BackoffGrowth::Constant), [100; 5]);
        assert_eq!(delays(BackoffGrowth::Linear), [100, 200, 300, 400, 500]);
        assert_eq!(delays(BackoffGrowth::Exponential(2_000)), [100, 200, 400, 800, 1_000]);
        assert_eq!(delays(BackoffGrowth::Exponential(1_500)), [100, 150, 225, 337, 505]);
    }

    #[test]
    fn an_hour_doubled_a_thousand_times_is_a_day() {
        let backoff = Backoff {
            initial: Millis::from_hours(1),
            growth: BackoffGrowth::Exponential(2_000),
            max: Millis(u64::MAX),
            jitter: false,
        };
        assert_eq!(backoff.retry_delay(1_000), Millis(limits::BACKOFF));
        assert_eq!(backoff.retry_delay(u32::MAX), Millis(limits::BACKOFF));
    }
}
