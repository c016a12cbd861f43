//! AIP-15's policies for a step or a workflow: approval, risk, cost and retry.

use super::aip15;
use crate::{
    ir::rules::ApprovalCondition,
    ir::{Backoff, BackoffGrowth, RunRetry, StepRetry},
    limits,
    time::Millis,
};

/// The condition under which a step needs approval before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ApprovalClass {
    Auto,
    Always,
    OnMutate,
    /// As the tool declares.
    #[default]
    PerStep,
    /// As the referenced policy says.
    Policy(String),
}

impl ApprovalClass {
    pub fn word(&self) -> String {
        match self {
            ApprovalClass::Auto => "auto".to_owned(),
            ApprovalClass::Always => "always".to_owned(),
            ApprovalClass::OnMutate => "on-mutate".to_owned(),
            ApprovalClass::PerStep => "per-step".to_owned(),
            ApprovalClass::Policy(reference) => format!("policy:{reference}"),
        }
    }
}

impl From<ApprovalClass> for ApprovalCondition {
    fn from(class: ApprovalClass) -> ApprovalCondition {
        match class {
            ApprovalClass::Auto => ApprovalCondition::Auto,
            ApprovalClass::PerStep => ApprovalCondition::PerStep,
            ApprovalClass::OnMutate => ApprovalCondition::OnMutate,
            ApprovalClass::Always => ApprovalCondition::Always,
            ApprovalClass::Policy(name) => ApprovalCondition::Policy(name),
        }
    }
}

/// The harm that a step or workflow could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RiskLevel {
    ReadOnly = 0,
    ScopedWrites = 1,
    ExternalEffects = 2,
    Irreversible = 3,
}

/// The expected cost of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostClass {
    Trivial,
    #[default]
    Metered,
    Expensive,
}

impl CostClass {
    pub(super) fn word(self) -> &'static str {
        match self {
            CostClass::Trivial => "trivial",
            CostClass::Metered => "metered",
            CostClass::Expensive => "expensive",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackoffKind {
    Fixed,
    #[default]
    Exponential,
}

/// The number of attempts and the delays between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryDefinition {
    /// All attempts, including the first.
    pub max_attempts: u32,
    pub backoff: BackoffKind,
    /// None: one second.
    pub initial_ms: Option<u64>,
}

impl RetryDefinition {
    pub fn fixed(max_attempts: u32) -> RetryDefinition {
        RetryDefinition { max_attempts, backoff: BackoffKind::Fixed, initial_ms: None }
    }

    pub fn exponential(max_attempts: u32) -> RetryDefinition {
        RetryDefinition { max_attempts, backoff: BackoffKind::Exponential, initial_ms: None }
    }

    #[must_use]
    pub fn with_initial_ms(mut self, initial_ms: u64) -> RetryDefinition {
        self.initial_ms = Some(initial_ms);
        self
    }

    fn to_backoff(&self) -> Backoff {
        Backoff {
            initial: self.initial_ms.map_or(aip15::BACKOFF_INITIAL, Millis),
            growth: match self.backoff {
                BackoffKind::Fixed => BackoffGrowth::Constant,
                BackoffKind::Exponential => BackoffGrowth::Exponential(aip15::BACKOFF_GROWTH),
            },
            max: Millis(limits::BACKOFF),
            jitter: false,
        }
    }

    pub(super) fn to_step_retry(&self) -> StepRetry {
        StepRetry::for_classes(&aip15::RETRIED, self.max_attempts, self.to_backoff())
    }

    pub(super) fn to_run_retry(&self) -> RunRetry {
        RunRetry { attempts: self.max_attempts, backoff: self.to_backoff(), on_timeout: false }
    }
}
