//! Scopes: steps that belong together, how they follow one another, and the policies they share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Backoff, Schema, Step, is_default};
use crate::{expr::Expr, ids::StepId, time::Millis};

/// Steps and how they follow one another. A run is an instance of its workflow's scope; a lane of a parallel step,
/// an item, a pass of a loop and a call are instances of theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepScope {
    #[serde(default, skip_serializing_if = "is_default")]
    pub shape: ScopeShape,
    pub steps: Vec<Arc<Step>>,
    /// How many of its steps may be at work at once; none: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Wall-clock time from the start of the instance to its end, undo excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// How many step executions the workflow may have, items and passes included, retries not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// What an aborting failure does to the steps that are at work.
    #[serde(default, skip_serializing_if = "is_default")]
    pub siblings: SiblingPolicy,
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo: UndoPolicy,
    /// Retry of the whole run; only at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RunRetry>,
    /// What an instance gives. None: what the last step gave in a routed scope, nothing in a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Expr>,
    /// What the result must look like.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outputs: Schema,
}

impl StepScope {
    pub fn new(shape: ScopeShape, steps: impl IntoIterator<Item: Into<Arc<Step>>>) -> StepScope {
        StepScope {
            shape,
            steps: steps.into_iter().map(Into::into).collect(),
            concurrency: None,
            timeout: None,
            max_steps: None,
            siblings: SiblingPolicy::default(),
            undo: UndoPolicy::default(),
            retry: None,
            result: None,
            outputs: Schema::default(),
        }
    }
}

/// How the steps of a scope follow one another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScopeShape {
    /// Each step waits for all of its dependencies.
    #[default]
    Graph,
    /// One cursor starts somewhere and follows `next`, arms and decisions.
    Routed {
        /// None: the first step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<StepId>,
        /// Whether the cursor may come back to a step, bounded by `max_steps`.
        #[serde(default, skip_serializing_if = "is_default")]
        cycles: bool,
    },
}

/// Where a cursor goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTarget {
    Step(StepId),
    /// The end of this scope: of the run, the lane, the item or the pass.
    End,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiblingPolicy {
    /// Told to stop.
    #[default]
    Cancel,
    /// Left to finish; nothing new starts.
    Drain,
}

/// When the completed steps of a workflow are undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UndoPolicy {
    #[serde(skip_serializing_if = "is_default")]
    pub on_timeout: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub on_cancel: bool,
    /// Whether the step whose failure began it is undone too.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_step: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub if_one_fails: UndoFailurePolicy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoFailurePolicy {
    /// Go on with the others.
    #[default]
    GoOn,
    /// Leave the others as they are.
    Stop,
}

/// Retry of a whole run, as a new run that is linked to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRetry {
    /// How many runs there may be, the first included.
    pub attempts: u32,
    pub backoff: Backoff,
    /// Whether a run that timed out is retried.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: bool,
}
