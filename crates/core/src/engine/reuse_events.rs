//! Journal events for the results that a fork takes over from the original run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AttemptId, CursorRoute, Event, ExecutionError, HaltReason, InstanceEnd, InstancePart, StepAt,
    StepOutcome, event::is_null,
};
use crate::{ir::OutcomeEffect, time::Timestamp};

/// An instance of the original run. It takes the next number, and it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceReused {
    pub parent: StepAt,
    pub part: InstancePart,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "is_null")]
    pub env: Arc<Value>,
    /// The reason why it was halted, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<HaltReason>,
    pub end: InstanceEnd,
}

/// The end of a step in the original run. It follows the instances of the same visit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepReused {
    pub at: StepAt,
    pub outcome: StepOutcome,
    #[serde(default, skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExecutionError>,
    pub effect: OutcomeEffect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<CursorRoute>,
    /// The step that resolved its merge conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settler: Option<u32>,
    /// The last main attempt, with its id in this run; its artifacts are stored under that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The number of attempts up to this end, over all iterations and visits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The items of an each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Arc<Value>>,
    /// The person who decided the gate or the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    pub ended: Timestamp,
}

/// A result that a fork takes over from the original run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReusedResult {
    Instance(Box<InstanceReused>),
    Step(Box<StepReused>),
}

impl From<ReusedResult> for Event {
    fn from(reused: ReusedResult) -> Event {
        match reused {
            ReusedResult::Instance(instance) => Event::InstanceReused(instance),
            ReusedResult::Step(step) => Event::StepReused(step),
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
