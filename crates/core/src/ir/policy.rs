//! Policies as tables: the effect of each outcome, retries, holds and approvals.
//!
//! Lowering fills these in. The engine looks them up and never asks for the reason of a row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Approver, is_default};
use crate::{ids::StepId, limits, time::Millis};

listed_enum! {
    /// The class of a failure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorClass {
        Transient,
        RateLimit,
        Network,
        Service,
        /// An agent crashed, or its output cannot be used.
        AgentError,
        External,
        Timeout,
        /// An input, an output or a condition does not match its declaration.
        Validation,
        NonRetryable,
        Governance,
        /// The host died during the attempt.
        Interrupted,
        Fatal,
    }
}

impl ErrorClass {
    /// Failures that another attempt may fix, including timeouts.
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

/// The settings of a step that do not depend on its kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// The scope of the timeout: each attempt, or the step with all its attempts, checks and delays.
    #[serde(skip_serializing_if = "is_default")]
    pub timeout_per: TimeoutScope,
    /// Maximum time without activity in an attempt; `start_timeout` is the maximum time to the first activity. For the
    /// host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<Millis>,
    #[serde(skip_serializing_if = "is_default")]
    pub retry: StepRetry,
    #[serde(skip_serializing_if = "is_default")]
    pub effects: OutcomeEffects,
    /// Failures that hold the step until a person or a timer releases it, instead of failing it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub holds: BTreeMap<ErrorClass, HoldReason>,
    /// The approval that is required before the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalHold>,
    /// The reason why the step may not start: it fails with class governance before the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// The approvers who may release a governance hold, in the order in which they are asked. Empty: anyone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalation: Vec<EscalationLevel>,
    /// The approval rule that was found, for people. The engine does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruling: Option<ApprovalRuling>,
    #[serde(skip_serializing_if = "is_default")]
    pub on_interrupted: OnInterrupted,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// True if the step keeps its slot among the running steps during a check or a delay before a retry.
    #[serde(skip_serializing_if = "is_default")]
    pub keeps_slot: bool,
    /// The conflict resolver: the step of the same scope that resolves conflicts between this step's changes and those
    /// of others. It waits for this step to end, with any outcome, and is skipped if there is no conflict.
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

/// The failures that are retried, the number of attempts and the delays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepRetry {
    /// The maximum number of attempts, including the first, if the last one ended with this class. A class that is
    /// missing here is not retried.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attempts: BTreeMap<ErrorClass, u32>,
    /// Error codes that are never retried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub backoff: Backoff,
    /// True if each iteration of a completion check starts with the full number of attempts.
    #[serde(skip_serializing_if = "is_default")]
    pub fresh_per_iteration: bool,
}

impl StepRetry {
    /// Creates a retry policy with the same number of attempts for each of these classes.
    pub fn for_classes(classes: &[ErrorClass], attempts: u32, backoff: Backoff) -> StepRetry {
        let attempts = classes.iter().map(|class| (*class, attempts)).collect();
        StepRetry { attempts, never: Vec::new(), backoff, fresh_per_iteration: false }
    }
}

/// The delay before the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    pub initial: Millis,
    pub growth: BackoffGrowth,
    pub max: Millis,
    /// True to choose a delay between zero and the full delay, by a hash of run, step and attempt.
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
    /// Returns the delay before the `n`th retry, counted from 1, without jitter. Never more than the maximum or a day.
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

/// The effect of each outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutcomeEffects {
    pub succeeded: OutcomeEffect,
    /// The last check still reported incomplete, and that counts as an end.
    pub incomplete: OutcomeEffect,
    /// The last check still reported incomplete, and that counts as a failure; also a stall.
    pub exhausted: OutcomeEffect,
    pub failed: OutcomeEffect,
    /// Failure classes that have an effect of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by_class: BTreeMap<ErrorClass, OutcomeEffect>,
    pub rejected: OutcomeEffect,
    pub timed_out: OutcomeEffect,
    pub skipped_by_condition: OutcomeEffect,
    pub skipped_by_upstream: OutcomeEffect,
}

impl Default for OutcomeEffects {
    /// The strictest effects: success continues, any failure aborts, and a skipped step satisfies no dependency.
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

/// The effect of an outcome on the rest of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeEffect {
    pub then: OutcomeAction,
    /// True if the steps that depend on it may start.
    pub satisfies: bool,
    pub verdict: RunImpact,
    /// True if the step is shown as skipped instead of failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub as_skipped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeAction {
    GoOn,
    /// The workflow stops.
    Abort,
    /// The workflow stops and undoes the completed steps.
    Undo,
}

/// The effect of an outcome on the result of a workflow that reaches its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunImpact {
    #[default]
    Clean,
    /// The workflow succeeds, but reports that something failed.
    Degraded,
    Failed,
}

impl OutcomeEffect {
    pub const GO_ON: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::GoOn, satisfies: true, verdict: RunImpact::Clean, as_skipped: false };
    pub const ABORT: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::Abort, satisfies: false, verdict: RunImpact::Failed, as_skipped: false };
    pub const UNDO: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::Undo, satisfies: false, verdict: RunImpact::Failed, as_skipped: false };
    /// A failure that does not stop dependent steps.
    pub const CONTINUE: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::GoOn, satisfies: true, verdict: RunImpact::Degraded, as_skipped: false };
    /// A failure that counts as if the step were skipped.
    pub const SKIP: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::GoOn, satisfies: true, verdict: RunImpact::Degraded, as_skipped: true };
    /// A failure that stops only dependent steps, and fails the run in the end.
    pub const SKIP_DEPENDENTS: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::GoOn, satisfies: false, verdict: RunImpact::Failed, as_skipped: false };
    /// Returns the combined effect of two failures.
    #[must_use]
    pub fn combine(self, other: OutcomeEffect) -> OutcomeEffect {
        OutcomeEffect {
            then: self.then.max(other.then),
            satisfies: self.satisfies && other.satisfies,
            verdict: self.verdict.max(other.verdict),
            as_skipped: self.as_skipped,
        }
    }

    /// No failure, but dependent steps cannot start.
    pub const BLOCK: OutcomeEffect =
        OutcomeEffect { then: OutcomeAction::GoOn, satisfies: false, verdict: RunImpact::Clean, as_skipped: false };
}

listed_enum! {
    /// The reason why a step is kept from starting or continuing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum HoldReason {
        /// Its approval class requires a person.
        Approval,
        Budget,
        /// Its check reported that the step cannot continue.
        Blocked,
        Governance,
        Interruption,
        Quota,
        Secret,
    }
}

/// The handling of an attempt during which the host died.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInterrupted {
    /// Runs the attempt again and tells the worker so.
    #[default]
    Rerun,
    /// Continues the worker's own session.
    Resume,
    /// Restores the workspace, then runs the attempt again.
    Restore,
    Ask,
    Fail,
}

/// A limit on spending: money in millionths, and tokens.
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
    /// True if the budget is used up.
    pub fn is_spent(&self, tokens: u64, micro_usd: Option<u64>) -> bool {
        self.tokens.is_some_and(|most| tokens >= most)
            || self.micro_usd.is_some_and(|most| micro_usd.unwrap_or(0) >= most)
    }
}

/// The action when the budget is used up and another attempt would start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMode {
    Warn,
    /// The step is held until a person releases it.
    Pause,
    /// The step fails.
    Stop,
}

/// The approval that is required before a step starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalHold {
    /// Empty: anyone. For an escalation, the approvers of the step's levels apply instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// The number of different people who must approve. A single rejection rejects.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// The reason for the hold; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// True for a governance hold, which the approvers of the step's levels release.
    #[serde(default, skip_serializing_if = "is_default")]
    pub escalates: bool,
}

impl Default for ApprovalHold {
    fn default() -> ApprovalHold {
        ApprovalHold { approvers: Vec::new(), quorum: 1, message: String::new(), escalates: false }
    }
}

impl ApprovalHold {
    /// Creates a hold that any one of these approvers can release.
    pub fn with_approvers(approvers: Vec<Approver>) -> ApprovalHold {
        ApprovalHold { approvers, ..ApprovalHold::default() }
    }

    pub fn reason(&self) -> HoldReason {
        if self.escalates { HoldReason::Governance } else { HoldReason::Approval }
    }
}

/// The approvers that are asked about a governance hold, and the time before the next level is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationLevel {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// Afterwards the next level is asked; after the last level, the step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
}

/// The approval rule that applies to the start of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRuling {
    /// The class, such as `on-mutate` or `policy:payments`.
    pub class: String,
    /// The source of the rule, such as `the step` or `skein.toml`.
    pub from: String,
    pub why: String,
    /// A policy that is named but not defined. A run cannot start with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The default quorum.
pub(crate) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(crate) fn is_one(quorum: &u32) -> bool {
    *quorum == 1
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
