//! What has been decided: the facts a journal holds.
//!
//! An event carries everything that policy or expression decided, so that replay evaluates neither. Its JSON is part
//! of the journal's format: fields are added with a default, never renamed or removed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AttemptEnd, AttemptId, BudgetGrant, Cost, EvidenceResult, InstanceIx, InstanceReused, Publication,
    RunStart, StepAt, StepReused, Verdict, Waitpoint,
};
use crate::{
    ids::SignalName,
    ir::{Approver, ErrorClass, HoldReason, OutcomeEffect, RunStatus, is_one, one},
    plan::ContentHash,
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The root instance exists.
    RunStarted {
        start: Box<RunStart>,
        /// The hash of the workflow and what it calls.
        definition: ContentHash,
        parameters: Arc<Value>,
        #[serde(default, skip_serializing_if = "is_null")]
        env: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        publish: Vec<Publication>,
    },
    /// A lane, item, pass or call began. Its number is the next one.
    InstanceStarted {
        parent: StepAt,
        part: InstancePart,
        /// What a called workflow is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Arc<Value>>,
        #[serde(default, skip_serializing_if = "is_null")]
        env: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// Nothing more starts in it.
    InstanceHalted {
        instance: InstanceIx,
        why: HaltReason,
        undo: bool,
    },
    InstanceEnded {
        instance: InstanceIx,
        end: InstanceEnd,
    },
    /// A part of a composite that another run came to the end of, and this one does not begin again.
    InstanceReused(Box<InstanceReused>),
    /// All that it waits for is there, and it is to be done.
    StepReady {
        at: StepAt,
    },
    /// Its items are known.
    StepExpanded {
        at: StepAt,
        items: Arc<Value>,
    },
    /// The step's own time is up.
    StepOverdue {
        at: StepAt,
    },
    /// A composite is at work inside.
    StepEntered {
        at: StepAt,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// A worker is to be started. Durable before the process exists.
    AttemptStarted {
        attempt: AttemptId,
        mode: AttemptMode,
        /// What the worker is given, where it is not what the attempt before it was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Arc<AttemptInput>>,
        /// When the step's own time is up; set with its first attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// A worker is to be stopped.
    StopAsked {
        attempt: AttemptId,
        why: AttemptStopReason,
    },
    AttemptEnded {
        attempt: AttemptId,
        end: AttemptEnd,
        #[serde(default, skip_serializing_if = "Cost::is_zero")]
        cost: Cost,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        proofs: Vec<EvidenceResult>,
        /// Who did it, where that was not who the step names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// What the step does next, after an attempt or a hold.
    StepGoesOn {
        at: StepAt,
        next: NextAction,
    },
    /// A new attempt when the time comes.
    RetryScheduled {
        at: StepAt,
        due: Timestamp,
        error: ExecutionError,
    },
    StepHeld {
        at: StepAt,
        opening: Waitpoint,
        reason: HoldReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        message: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvers: Vec<Approver>,
        /// How many different people have to approve.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        quorum: u32,
        /// What it goes on with when it is released.
        next: NextAction,
    },
    /// A gate or a wait is open.
    Opened {
        at: StepAt,
        opening: Waitpoint,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvers: Vec<Approver>,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        quorum: u32,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        #[serde(default, skip_serializing_if = "is_null")]
        shows: Arc<Value>,
    },
    /// Others are asked now.
    Escalated {
        opening: Waitpoint,
        /// None: for as long as the run may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        approvers: Vec<Approver>,
    },
    /// One of several people who have to approve did. The last one's word is what decides.
    Approved {
        opening: Waitpoint,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A gate or a hold was answered, by a person or by its time.
    Decided {
        opening: Waitpoint,
        decision: Verdict,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The budgets that an approval renews.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        grants: Vec<BudgetGrant>,
    },
    SignalKept {
        name: SignalName,
        payload: Arc<Value>,
    },
    /// A signal ended a wait. `kept`: it had been waiting, and is gone now.
    SignalTaken {
        opening: Waitpoint,
        name: SignalName,
        payload: Arc<Value>,
        kept: bool,
    },
    /// How a step ended, and what that does.
    StepEnded {
        at: StepAt,
        outcome: StepOutcome,
        #[serde(default, skip_serializing_if = "is_null")]
        output: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ExecutionError>,
        effect: OutcomeEffect,
        /// Where the cursor goes, in a routed scope that goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route: Option<CursorRoute>,
        /// The step that settles what this one could not merge. Its failure counts only if that one does not succeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settler: Option<u32>,
    },
    /// How a step ended in another run, as if it had in this one.
    StepReused(Box<StepReused>),
    CancelAsked {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Someone who may not tried to say something. It changes nothing.
    Tampered {
        by: String,
        what: String,
    },
    /// What was completed is taken back, in this order.
    UndoBegan {
        of: UndoWalk,
        targets: Vec<UndoTarget>,
        /// Steps that were cut off and may have had an effect.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        uncertain: Vec<StepAt>,
    },
    StepUndone {
        at: StepAt,
        visit: u32,
    },
    UndoFailed {
        at: StepAt,
        visit: u32,
        error: ExecutionError,
    },
    UndoEnded {
        of: UndoWalk,
        clean: bool,
    },
    /// How the run ended.
    RunDecided {
        status: RunStatus,
        #[serde(default, skip_serializing_if = "is_null")]
        output: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ExecutionError>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        degraded: bool,
        publish: Vec<Publication>,
        /// When the run that retries this one is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<Timestamp>,
    },
    PublicationEnded {
        item: Publication,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// Nothing is wanted any more.
    Closed,
    Quarantined {
        message: String,
    },
}

pub(super) fn is_null(value: &Arc<Value>) -> bool {
    value.is_null()
}

/// Which part of a composite an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstancePart {
    Lane(u32),
    Item(u32),
    /// Counted from 1.
    Pass(u32),
    Call,
}

/// Why an instance starts nothing more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HaltReason {
    /// A step failed, and its effect is to abort or undo.
    Failed {
        step: u32,
    },
    TimedOut,
    Cancelled {
        by: String,
    },
    /// What is around it stopped, or a sibling failed.
    Outer,
    /// The instance broke a limit.
    Limit {
        error: ExecutionError,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceEnd {
    pub status: RunStatus,
    #[serde(default, skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExecutionError>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
}

/// How an attempt relates to the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptMode {
    Fresh,
    /// The one before it failed, or it was held.
    Again,
    /// The one before it was interrupted.
    Rerun,
    Resume,
    Restore,
}

/// What a worker is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptInput {
    pub inputs: Value,
    /// The worker's instructions or arguments, filled in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStopReason {
    /// Its instance was halted.
    Halted,
    /// The step's own time is up.
    Timeout,
}

/// What a step does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextAction {
    pub role: super::AttemptRole,
    pub iteration: u32,
    pub mode: AttemptMode,
    /// The convergence stage, from 1.
    pub stage: u32,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Succeeded,
    /// Its check still said incomplete, and that is an end.
    Incomplete,
    /// Its check still said incomplete, and that is a failure; or it stalled.
    Exhausted,
    Failed(ErrorClass),
    Rejected,
    Skipped(SkipReason),
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    Condition,
    /// This step, on which it depends, did not satisfy it.
    Upstream(u32),
}

/// Where a cursor goes, in JSON a number or null for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CursorRoute {
    Step(u32),
    End,
}

/// What went wrong, for people and for policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionError {
    pub class: ErrorClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
    /// The step it began at, when that is inside the one that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<StepAt>,
}

/// What is undone together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoWalk {
    /// A workflow.
    Workflow(InstanceIx),
    /// The instances of a composite that is to be tried again.
    Composite(StepAt),
}

/// A visit of a step that is to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoTarget {
    pub at: StepAt,
    pub visit: u32,
}
