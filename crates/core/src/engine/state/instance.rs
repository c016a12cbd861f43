//! The state of a scope instance and of its steps: the queue, the visits that can be undone, the phase of each step,
//! the details of its present visit, and its waitpoints.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    engine::{
        AttemptId, AttemptInput, AttemptMode, AttemptRole, AttemptStopReason, Cost, CursorRoute, EvidenceResult,
        ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart, NextAction, StepAt, StepOutcome, Waitpoint,
        event::is_null, state::null, transitions::StepPhase,
    },
    ir::{Approver, ErrorClass, HoldReason, OutcomeEffect, RunImpact, StepStatus, is_default},
    plan::{ContentHash, ScopeIx},
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceState {
    pub scope: ScopeIx,
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent: Option<StepAt>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub part: Option<InstancePart>,
    /// The instance of the workflow it belongs to: itself for a run's root and for a call.
    pub home: InstanceIx,
    pub phase: InstancePhase,
    pub steps: Vec<StepState>,
    /// The input of the workflow, and its `env`. Only in a home.
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub input: Arc<Value>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub env: Arc<Value>,
    /// Instances that belong to this workflow, including itself. Only in a home.
    #[serde(default, skip_serializing_if = "is_default")]
    pub members: Vec<InstanceIx>,
    /// The number of step executions of the workflow. Only in a home.
    #[serde(default, skip_serializing_if = "is_default")]
    pub executed: u32,
    /// The number of steps that have not ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub open: u32,
    /// The number of steps that are neither pending nor ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub live: u32,
    /// The number of slots in use, and the steps that wait for a slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slots: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue: BTreeSet<u32>,
    pub verdict: RunImpact,
    /// The first failure that counts against the instance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub error: Option<ExecutionError>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub last_output: Arc<Value>,
    /// The next target of the cursor after the last step that ended. Only in a routed scope.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cursor: Option<CursorRoute>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub completed: Vec<CompletedVisit>,
    /// True if the halt requires completed steps to be undone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo_asked: bool,
    /// True if an undo in it failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stuck: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deadline: Option<Timestamp>,
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InstancePhase {
    Going,
    /// Nothing more starts. `undo`: completed steps are undone when nothing is live.
    Halted {
        why: HaltReason,
        undo: bool,
    },
    Undoing {
        why: HaltReason,
    },
    Ended {
        why: Option<HaltReason>,
        end: InstanceEnd,
    },
}

/// A visit of a step that can be undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletedVisit {
    pub step: u32,
    pub visit: u32,
    /// Its position among all completions of the run.
    pub order: u64,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
}

impl InstanceState {
    pub fn is_going(&self) -> bool {
        matches!(self.phase, InstancePhase::Going)
    }

    pub fn end(&self) -> Option<&InstanceEnd> {
        match &self.phase {
            InstancePhase::Ended { end, .. } => Some(end),
            _ => None,
        }
    }

    /// The reason why it was halted, if it was.
    pub fn halt_reason(&self) -> Option<&HaltReason> {
        match &self.phase {
            InstancePhase::Going => None,
            InstancePhase::Halted { why, .. } | InstancePhase::Undoing { why } => Some(why),
            InstancePhase::Ended { why, .. } => why.as_ref(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepState {
    pub phase: StepPhase,
    /// The number of dependencies that are not met yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unmet: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub slot: bool,
    /// The number of visits so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub visit: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Option<StepOutcome>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub effect: Option<OutcomeEffect>,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
    /// Details of the present visit; only steps that were reached have them. Shared between copies of the state until
    /// one of them changes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more: Option<Arc<VisitState>>,
}

/// The present visit of a step, and totals over all visits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VisitState {
    #[serde(skip_serializing_if = "is_first")]
    pub next: NextAction,
    /// The attempt in flight.
    #[serde(skip_serializing_if = "is_default")]
    pub live: Option<AttemptId>,
    /// The highest attempt number so far of this iteration, by role.
    #[serde(skip_serializing_if = "is_default")]
    pub attempts: [u32; 4],
    /// The number of failures that count against the retry limit.
    #[serde(skip_serializing_if = "is_default")]
    pub tries: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub interruptions: u32,
    /// The number of times an undo walk reached the step.
    #[serde(skip_serializing_if = "is_default")]
    pub undo_turns: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub undecided: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub stall: Option<(ContentHash, u32)>,
    #[serde(skip_serializing_if = "is_default")]
    pub given: Option<Arc<AttemptInput>>,
    /// The output of the last successful main attempt, before the step itself has succeeded.
    #[serde(skip_serializing_if = "is_null")]
    pub result: Arc<Value>,
    #[serde(skip_serializing_if = "is_default")]
    pub opening: Option<Waitpoint>,
    #[serde(skip_serializing_if = "is_default")]
    pub deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default")]
    pub due: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default")]
    pub stopping: Option<AttemptStopReason>,
    #[serde(skip_serializing_if = "is_default")]
    pub held: Option<HoldReason>,
    #[serde(skip_serializing_if = "is_default")]
    pub items: Option<Arc<Value>>,
    #[serde(skip_serializing_if = "is_default")]
    pub children: Vec<InstanceIx>,
    #[serde(skip_serializing_if = "is_default")]
    pub open_children: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub child_error: Option<ExecutionError>,
    #[serde(skip_serializing_if = "is_default")]
    pub failed_children: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub error: Option<ExecutionError>,
    /// The error of the last undo, if it failed.
    #[serde(skip_serializing_if = "is_default")]
    pub undo_error: Option<ExecutionError>,
    #[serde(skip_serializing_if = "is_default")]
    pub summary: Option<String>,
    /// The results of checking its evidence after the last attempt.
    #[serde(skip_serializing_if = "is_default")]
    pub proofs: Vec<EvidenceResult>,
    #[serde(skip_serializing_if = "is_default")]
    pub cost: Cost,
    /// The cost of everything inside it.
    #[serde(skip_serializing_if = "is_default")]
    pub inside: Cost,
    #[serde(skip_serializing_if = "is_default")]
    pub total_attempts: u32,
    /// True if the last attempt did its work, but its changes could not be merged.
    #[serde(skip_serializing_if = "is_default")]
    pub unmerged: bool,
    /// The step that resolves its merge conflict.
    #[serde(skip_serializing_if = "is_default")]
    pub settler: Option<u32>,
    /// True if this visit was taken over from another run.
    #[serde(skip_serializing_if = "is_default")]
    pub reused: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub ready: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default")]
    pub started: Option<Timestamp>,
    #[serde(skip_serializing_if = "is_default")]
    pub ended: Option<Timestamp>,
}

impl NextAction {
    pub const FIRST: NextAction =
        NextAction { role: AttemptRole::Main, iteration: 1, mode: AttemptMode::Fresh, stage: 1 };
}

impl Default for VisitState {
    fn default() -> VisitState {
        VisitState {
            next: NextAction::FIRST,
            live: None,
            attempts: [0; 4],
            tries: 0,
            interruptions: 0,
            undo_turns: 0,
            undecided: 0,
            stall: None,
            given: None,
            result: null(),
            opening: None,
            deadline: None,
            due: None,
            stopping: None,
            held: None,
            items: None,
            children: Vec::new(),
            open_children: 0,
            child_error: None,
            failed_children: 0,
            error: None,
            undo_error: None,
            summary: None,
            proofs: Vec::new(),
            cost: Cost::default(),
            inside: Cost::default(),
            total_attempts: 0,
            unmerged: false,
            settler: None,
            reused: false,
            ready: None,
            started: None,
            ended: None,
        }
    }
}

fn is_first(next: &NextAction) -> bool {
    *next == NextAction::FIRST
}

impl StepState {
    /// Returns the status of a step that has ended.
    pub(super) fn end_status(&self) -> StepStatus {
        if self.effect.is_some_and(|effect| effect.as_skipped) {
            return StepStatus::Skipped;
        }
        match self.outcome {
            Some(StepOutcome::Succeeded) => StepStatus::Succeeded,
            Some(StepOutcome::Incomplete) => StepStatus::Incomplete,
            Some(StepOutcome::Failed(ErrorClass::Timeout)) => StepStatus::TimedOut,
            Some(StepOutcome::Failed(_) | StepOutcome::Exhausted | StepOutcome::Rejected) => StepStatus::Failed,
            Some(StepOutcome::Skipped(_)) => StepStatus::Skipped,
            Some(StepOutcome::Cancelled) => StepStatus::Cancelled,
            None => StepStatus::Pending,
        }
    }
}

/// A gate, a wait or a hold, which waits for a decision or a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitpointState {
    pub at: StepAt,
    pub kind: WaitpointKind,
    pub approvers: Vec<Approver>,
    /// The number of different people who have to approve; `approvals` lists those who did so far.
    pub quorum: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<(String, Timestamp)>,
    pub message: String,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub shows: Arc<Value>,
    pub deadline: Option<Timestamp>,
    /// The number of escalations.
    pub escalations: u32,
    pub opened: Timestamp,
    /// The person who decided, and the time.
    pub decided: Option<(String, Timestamp)>,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitpointKind {
    Gate,
    Wait,
    Hold(HoldReason),
}
