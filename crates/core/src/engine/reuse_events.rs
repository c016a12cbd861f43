//! What a run takes over from the one that it was forked from, as its journal holds it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AttemptId, CursorRoute, Event, ExecutionError, HaltReason, InstanceEnd, InstancePart, StepAt,
    StepOutcome, event::is_null,
};
use crate::{ir::OutcomeEffect, time::Timestamp};

/// An instance of the run that this one was forked from. Its number is the next one, and it is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceReused {
    pub parent: StepAt,
    pub part: InstancePart,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "is_null")]
    pub env: Arc<Value>,
    /// Why it started nothing more, if it was halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<HaltReason>,
    pub end: InstanceEnd,
}

/// A result of the run that this one was forked from. Comes after the instances of the same visit.
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
    /// The step that settled what it could not merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settler: Option<u32>,
    /// The last attempt at its work, under its name in this run: what it gave is kept under that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// How many attempts it had by then, over all iterations and visits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The items of an each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Arc<Value>>,
    /// Who decided at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    pub ended: Timestamp,
}

/// What a run takes over from another.
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
