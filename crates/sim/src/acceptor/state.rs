//! What is noted of a run: instances, steps, openings and walks, as plain data.

use std::collections::BTreeMap;

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptRole, AttemptStopReason, Cost, CursorRoute, ExecutionError, HaltReason,
        InstanceEnd, InstanceIx, InstancePart, StepAt, StepOutcome, UndoTarget, Verdict, Waitpoint,
    },
    ir::{ErrorClass, HoldReason, OutcomeEffect, RunImpact},
    plan::ScopeIx,
    time::Timestamp,
};

/// An instance.
#[derive(Debug)]
pub struct AcceptorInstance {
    pub scope: ScopeIx,
    pub parent: Option<StepAt>,
    pub part: Option<InstancePart>,
    /// The instance of the workflow that it belongs to.
    pub home: InstanceIx,
    pub item: Option<(Value, u32)>,
    pub deadline: Option<Timestamp>,
    pub halts: Vec<HaltReason>,
    pub undo_asked: bool,
    /// A step ended with an effect that halts it; nothing may start before that is said.
    pub must_halt: Option<u32>,
    pub began_undo: bool,
    pub ended: Option<InstanceEnd>,
    pub steps: Vec<AcceptorStep>,
    /// In a routed scope, where the cursor is.
    pub cursor: Option<CursorRoute>,
    pub last_output: Value,
    /// The worst verdict of its steps so far.
    pub worst: RunImpact,
    /// When it ended, in events.
    pub ended_as: u64,
    /// Only in a home.
    pub input: Value,
    pub env: Value,
    pub executed: u32,
}

/// Where a visit of a step is.
#[derive(Debug, Clone, PartialEq)]
pub enum AcceptorStepPhase {
    /// It has not arrived.
    Pending,
    /// It may start, or go on.
    Ready,
    /// An attempt is in flight.
    Working,
    /// An attempt ended, and what follows has not been said.
    Between,
    Retrying(Timestamp),
    Held(Waitpoint),
    Open(Waitpoint),
    /// A composite, inside.
    Inside,
    Over,
}

/// A step of an instance.
#[derive(Debug)]
pub struct AcceptorStep {
    pub at: AcceptorStepPhase,
    pub visit: u32,
    pub slot: bool,
    pub live: Option<AttemptId>,
    /// A hold was released, and it has not been said how the step goes on.
    pub released: bool,
    pub stop: Option<AttemptStopReason>,
    /// Attempts of this iteration by role.
    pub numbers: BTreeMap<AttemptRole, u32>,
    pub role: AttemptRole,
    pub iteration: u32,
    pub tries: u32,
    pub retries: u32,
    pub interruptions: u32,
    pub undecided: u32,
    pub stall: (Option<Vec<String>>, u32, u32),
    pub approved: bool,
    pub given: bool,
    pub deadline: Option<Timestamp>,
    pub overdue: bool,
    /// What may follow the attempt or the hold that just ended.
    pub may: Vec<AllowedFollowUp>,
    pub result: Value,
    /// The last finding was that a person is needed.
    pub blocked: bool,
    pub decided: Option<(Verdict, String, Option<String>)>,
    pub signal: Option<(Value, Value)>,
    pub items: Option<Value>,
    /// The instances of the present try of a composite.
    pub children: Vec<InstanceIx>,
    pub outcome: Option<StepOutcome>,
    pub effect: Option<OutcomeEffect>,
    pub output: Value,
    pub error: Option<ExecutionError>,
    /// Its last attempt was done, and did not fit.
    pub unmerged: bool,
    /// What it could not merge goes to this step.
    pub settler: Option<u32>,
    pub spent: Cost,
    pub completed: Vec<AcceptorCompletion>,
    /// It was cut off while an attempt was in flight.
    pub cut_off: bool,
}

/// A visit that succeeded, and its place among all that did.
#[derive(Debug, Clone)]
pub struct AcceptorCompletion {
    pub visit: u32,
    pub order: u64,
    pub undone: bool,
}

/// Something that may follow.
#[derive(Debug, Clone, PartialEq)]
pub enum AllowedFollowUp {
    Retry { class: ErrorClass, not_before: Option<Timestamp> },
    Hold { reason: HoldReason, until: Option<Timestamp> },
    GoOn { role: AttemptRole, iteration: u32 },
    End(StepOutcome),
}

/// Something that waits for an answer.
#[derive(Debug)]
pub struct AcceptorWaitpoint {
    pub number: Waitpoint,
    pub at: StepAt,
    pub what: AcceptorWaitpointKind,
    /// What a hold goes on with.
    pub next: Option<(AttemptRole, u32)>,
    pub deadline: Option<Timestamp>,
    pub escalated: usize,
    /// How many different people have to approve, and who did.
    pub quorum: u32,
    pub approvals: Vec<String>,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptorWaitpointKind {
    Gate,
    Wait,
    Hold(HoldReason),
}

/// A walk over what is undone.
#[derive(Debug)]
pub struct AcceptorWalk {
    pub targets: Vec<UndoTarget>,
    /// How many of them are behind it.
    pub done: usize,
    pub failed: bool,
    pub attempts: u32,
    pub tries: u32,
    pub interruptions: u32,
    pub live: Option<AttemptId>,
    pub last: Option<AttemptEnd>,
    /// It was said that it goes on, and it has not.
    pub goes_on: bool,
    pub due: Option<Timestamp>,
    pub over: bool,
}

impl AcceptorStep {
    pub fn new() -> AcceptorStep {
        AcceptorStep {
            at: AcceptorStepPhase::Pending,
            visit: 0,
            slot: false,
            live: None,
            stop: None,
            numbers: BTreeMap::new(),
            role: AttemptRole::Main,
            iteration: 1,
            tries: 0,
            retries: 0,
            interruptions: 0,
            undecided: 0,
            stall: (None, 0, 1),
            approved: false,
            given: false,
            deadline: None,
            overdue: false,
            may: Vec::new(),
            result: Value::Null,
            blocked: false,
            decided: None,
            signal: None,
            items: None,
            released: false,
            children: Vec::new(),
            outcome: None,
            effect: None,
            output: Value::Null,
            error: None,
            unmerged: false,
            settler: None,
            spent: Cost::default(),
            completed: Vec::new(),
            cut_off: false,
        }
    }

    /// A new visit; what earlier ones left for readers stays.
    pub fn start_visit(&mut self) {
        let kept = AcceptorStep::new();
        let before = std::mem::replace(self, kept);
        self.visit = before.visit + 1;
        self.at = AcceptorStepPhase::Ready;
        self.outcome = before.outcome;
        self.effect = before.effect;
        self.output = before.output;
        self.spent = before.spent;
        self.completed = before.completed;
        self.children = Vec::new();
    }

    pub fn is_live(&self) -> bool {
        !matches!(self.at, AcceptorStepPhase::Pending | AcceptorStepPhase::Over)
    }

    /// It is ready, or was, and has not done anything.
    pub fn is_unstarted(&self) -> bool {
        self.at == AcceptorStepPhase::Pending
            || (self.at == AcceptorStepPhase::Ready && !self.given && self.children.is_empty())
    }
}

impl AcceptorInstance {
    pub fn new(scope: ScopeIx, home: InstanceIx, steps: usize) -> AcceptorInstance {
        AcceptorInstance {
            scope,
            parent: None,
            part: None,
            home,
            item: None,
            deadline: None,
            halts: Vec::new(),
            undo_asked: false,
            must_halt: None,
            began_undo: false,
            ended: None,
            steps: (0..steps).map(|_| AcceptorStep::new()).collect(),
            cursor: None,
            last_output: Value::Null,
            worst: RunImpact::Clean,
            ended_as: 0,
            input: Value::Null,
            env: Value::Null,
            executed: 0,
        }
    }

    pub fn is_halted(&self) -> bool {
        !self.halts.is_empty()
    }
}
