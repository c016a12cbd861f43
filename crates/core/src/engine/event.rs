//! Events: the decided facts that a journal holds.
//!
//! An event carries every result of a policy or an expression, so that replay evaluates neither. Its JSON is part of
//! the journal's format: fields are added with a default, never renamed or removed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AttemptEnd, AttemptId, BudgetGrant, Cost, EvidenceResult, InstanceIx, InstanceReused, Publication, RunStart,
    StepAt, StepReused, Verdict, Waitpoint,
};
use crate::{
    ids::SignalName,
    ir::rules::RunRulings,
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
        /// The hash of the workflow and of the workflows it calls.
        definition: ContentHash,
        parameters: Arc<Value>,
        #[serde(default, skip_serializing_if = "is_null")]
        env: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        publish: Vec<Publication>,
        /// The rulings of policies for the start of steps. They hold for the whole run.
        #[serde(default, skip_serializing_if = "RunRulings::is_empty")]
        rulings: RunRulings,
    },
    /// A lane, item, pass or call began. Its number is the next one.
    InstanceStarted {
        parent: StepAt,
        part: InstancePart,
        /// The input of a called workflow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Arc<Value>>,
        #[serde(default, skip_serializing_if = "is_null")]
        env: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// The instance starts nothing more.
    InstanceHalted {
        instance: InstanceIx,
        why: HaltReason,
        undo: bool,
    },
    InstanceEnded {
        instance: InstanceIx,
        end: InstanceEnd,
    },
    /// A part of a composite that ended in the run this one was forked from, and that is not run again.
    InstanceReused(Box<InstanceReused>),
    /// All dependencies are met and the step is to run.
    StepReady {
        at: StepAt,
    },
    /// The items of an each are known.
    StepExpanded {
        at: StepAt,
        items: Arc<Value>,
    },
    /// The timeout of the step expired.
    StepOverdue {
        at: StepAt,
    },
    /// A composite began to run the steps inside it.
    StepEntered {
        at: StepAt,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// A worker is to be started. The event is durable before the process exists.
    AttemptStarted {
        attempt: AttemptId,
        mode: AttemptMode,
        /// The input of the worker, if it differs from that of the previous attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Arc<AttemptInput>>,
        /// The deadline of the whole step; set with its first attempt.
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
        /// The agent that did the work, if it is not the one that the step names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The next action of the step, after an attempt or a hold.
    StepGoesOn {
        at: StepAt,
        next: NextAction,
    },
    /// A new attempt is due at this time.
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
        /// The number of different people who have to approve.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        quorum: u32,
        /// The action that follows when the step is released.
        next: NextAction,
    },
    /// A gate or a wait opened.
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
    /// The waitpoint was escalated to other approvers.
    Escalated {
        opening: Waitpoint,
        /// None: open as long as the run may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        approvers: Vec<Approver>,
    },
    /// One of several required approvals. The last one is recorded as `Decided`.
    Approved {
        opening: Waitpoint,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A gate or a hold was decided, by a person or by a timeout.
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
    /// A signal ended a wait. `kept`: the signal was one of the kept signals, and is removed from them.
    SignalTaken {
        opening: Waitpoint,
        name: SignalName,
        payload: Arc<Value>,
        kept: bool,
    },
    /// The outcome of a step and its effect.
    StepEnded {
        at: StepAt,
        outcome: StepOutcome,
        #[serde(default, skip_serializing_if = "is_null")]
        output: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ExecutionError>,
        effect: OutcomeEffect,
        /// The next step of the cursor, if the scope is routed and continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route: Option<CursorRoute>,
        /// The step that resolves the merge conflict of this one. The failure counts only if that step does not
        /// succeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settler: Option<u32>,
    },
    /// The end of a step in the run this one was forked from, applied to this run.
    StepReused(Box<StepReused>),
    CancelAsked {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A caller without permission tried to change the run. It has no effect.
    Tampered {
        by: String,
        what: String,
    },
    /// Completed steps are undone, in this order.
    UndoBegan {
        of: UndoWalk,
        targets: Vec<UndoTarget>,
        /// Steps that were interrupted or stopped and may have had an effect.
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
    /// The outcome of the run.
    RunDecided {
        status: RunStatus,
        #[serde(default, skip_serializing_if = "is_null")]
        output: Arc<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ExecutionError>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        degraded: bool,
        publish: Vec<Publication>,
        /// The time at which the run that retries this one is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<Timestamp>,
    },
    PublicationEnded {
        item: Publication,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// The run needs nothing more.
    Closed,
    Quarantined {
        message: String,
    },
}

/// The thing that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSubject {
    Run,
    /// The instance that the event creates; its number is the next one.
    NewInstance {
        parent: StepAt,
        part: InstancePart,
    },
    Instance(InstanceIx),
    Step(StepAt),
    Attempt(AttemptId),
    /// A gate, a wait or a hold; the event that opens it may be this one.
    Waitpoint(Waitpoint),
}

impl Event {
    /// Returns the thing that the event is about.
    pub fn subject(&self) -> EventSubject {
        match self {
            Event::RunStarted { .. }
            | Event::CancelAsked { .. }
            | Event::RunDecided { .. }
            | Event::PublicationEnded { .. }
            | Event::Closed
            | Event::Quarantined { .. }
            | Event::Tampered { .. }
            | Event::SignalKept { .. } => EventSubject::Run,
            Event::InstanceStarted { parent, part, .. } => EventSubject::NewInstance { parent: *parent, part: *part },
            Event::InstanceReused(reused) => EventSubject::NewInstance { parent: reused.parent, part: reused.part },
            Event::InstanceHalted { instance, .. } | Event::InstanceEnded { instance, .. } => {
                EventSubject::Instance(*instance)
            }
            Event::UndoBegan { of, .. } | Event::UndoEnded { of, .. } => match of {
                UndoWalk::Workflow(instance) => EventSubject::Instance(*instance),
                UndoWalk::Composite(at) => EventSubject::Step(*at),
            },
            Event::StepHeld { opening, .. }
            | Event::Opened { opening, .. }
            | Event::Escalated { opening, .. }
            | Event::Approved { opening, .. }
            | Event::Decided { opening, .. }
            | Event::SignalTaken { opening, .. } => EventSubject::Waitpoint(*opening),
            Event::AttemptStarted { attempt, .. }
            | Event::StopAsked { attempt, .. }
            | Event::AttemptEnded { attempt, .. } => EventSubject::Attempt(*attempt),
            Event::StepReady { at }
            | Event::StepExpanded { at, .. }
            | Event::StepOverdue { at }
            | Event::StepEntered { at, .. }
            | Event::StepGoesOn { at, .. }
            | Event::RetryScheduled { at, .. }
            | Event::StepEnded { at, .. }
            | Event::StepUndone { at, .. }
            | Event::UndoFailed { at, .. } => EventSubject::Step(*at),
            Event::StepReused(reused) => EventSubject::Step(reused.at),
        }
    }
}

pub(super) fn is_null(value: &Arc<Value>) -> bool {
    value.is_null()
}

/// The part of a composite that an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstancePart {
    Lane(u32),
    Item(u32),
    /// Counted from 1.
    Pass(u32),
    Call,
}

/// The reason why an instance starts nothing more.
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
    /// An enclosing instance was halted, or a sibling failed.
    Outer,
    /// The instance exceeded a limit.
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

/// The relation of an attempt to the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptMode {
    #[default]
    Fresh,
    /// The previous attempt failed, or the step was held.
    Again,
    /// The previous attempt was interrupted.
    Rerun,
    Resume,
    Restore,
}

/// The input of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptInput {
    pub inputs: Value,
    /// The evaluated instructions or arguments of the worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStopReason {
    /// The instance was halted.
    Halted,
    /// The timeout of the step expired.
    Timeout,
}

/// The next attempt of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextAction {
    pub role: super::AttemptRole,
    pub iteration: u32,
    pub mode: AttemptMode,
    /// The convergence stage, from 1.
    pub stage: u32,
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Succeeded,
    /// The check still reports incomplete after the last iteration, and the policy accepts that as an end.
    Incomplete,
    /// The check still reports incomplete after the last iteration, which is a failure; or it stalled.
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
    /// A dependency (this step) did not end in a way that satisfies it.
    Upstream(u32),
}

/// The next target of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CursorRoute {
    Step(u32),
    End,
}

/// An error, for people and for policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionError {
    pub class: ErrorClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
    /// The step that caused it, if that is inside the step that carries the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<StepAt>,
}

/// The group of steps that one walk undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoWalk {
    /// A workflow.
    Workflow(InstanceIx),
    /// The instances of a composite that is to be retried.
    Composite(StepAt),
}

/// A visit of a step that is to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoTarget {
    pub at: StepAt,
    pub visit: u32,
}
