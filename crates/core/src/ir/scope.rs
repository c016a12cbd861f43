//! Scopes: steps that belong together, their order, and the policies they share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Backoff, Schema, Step, is_default};
use crate::{expr::Expr, ids::StepId, time::Millis};

/// Steps and their order. A run is an instance of its workflow's scope; a lane of a parallel step, an item, a pass of a
/// loop and a call are instances of theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepScope {
    #[serde(default, skip_serializing_if = "is_default")]
    pub shape: ScopeShape,
    pub steps: Vec<Arc<Step>>,
    /// The number of its steps that may run at once. None: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Wall-clock time from the start of the instance to its end, undo excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// The number of step executions that the workflow may have, including items and passes, without retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// The effect of an aborting failure on the running steps.
    #[serde(default, skip_serializing_if = "is_default")]
    pub siblings: SiblingPolicy,
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo: UndoPolicy,
    /// Retry of the whole run; only at the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RunRetry>,
    /// The result of an instance. None: the output of the last step in a routed scope, nothing in a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Expr>,
    /// The schema of the result.
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

/// The order in which the steps of a scope run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScopeShape {
    /// Each step waits for all of its dependencies.
    #[default]
    Graph,
    /// One cursor starts at a step and follows `next`, arms and decisions.
    Routed {
        /// None: the first step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<StepId>,
        /// True if the cursor may come back to a step, bounded by `max_steps`.
        #[serde(default, skip_serializing_if = "is_default")]
        cycles: bool,
    },
}

/// The target of a cursor.
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
    /// Running steps are stopped.
    #[default]
    Cancel,
    /// Running steps finish; nothing new starts.
    Drain,
}

/// The events after which the completed steps of a workflow are undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UndoPolicy {
    #[serde(skip_serializing_if = "is_default")]
    pub on_timeout: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub on_cancel: bool,
    /// True if the step whose failure started the undo is undone too.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_step: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub if_one_fails: UndoFailurePolicy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoFailurePolicy {
    /// Continue with the others.
    #[default]
    GoOn,
    /// Leave the others as they are.
    Stop,
}

/// Retry of a whole run, as a new run that is linked to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRetry {
    /// The maximum number of runs, including the first.
    pub attempts: u32,
    pub backoff: Backoff,
    /// True if a run that timed out is retried.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: bool,
}
