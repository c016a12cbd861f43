//! The acceptor's bookkeeping of a run as plain data (instances, steps, waitpoints and undo walks), and the values that
//! expressions read from it.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptRole, AttemptStopReason, Cost, CursorRoute, ExecutionError, HaltReason,
        InstanceEnd, InstanceIx, InstancePart, SkipReason, StepAt, StepOutcome, UndoTarget, Verdict, Waitpoint,
    },
    expr::{EvalError, Expr, ExprEnv, ReferenceRoot, RootLookup, StepProperty},
    ir::{ErrorClass, HoldReason, OutcomeEffect, RunImpact, StepStatus},
    plan::{Plan, RelativeStepPath, ScopeEntry, ScopeIx},
    time::Timestamp,
};

use crate::acceptor::{Acceptor, RuleResult};

/// An instance of a scope.
#[derive(Debug, Default)]
pub(super) struct AcceptorInstance {
    pub scope: ScopeIx,
    pub parent: Option<StepAt>,
    pub part: Option<InstancePart>,
    /// The root instance of the workflow that this instance belongs to.
    pub home: InstanceIx,
    pub item: Option<(Value, u32)>,
    pub deadline: Option<Timestamp>,
    pub halts: Vec<HaltReason>,
    pub undo_asked: bool,
    /// The step whose effect halts this instance; nothing may start before the halt event.
    pub must_halt: Option<u32>,
    pub began_undo: bool,
    pub ended: Option<InstanceEnd>,
    pub steps: Vec<AcceptorStep>,
    /// The position of the cursor, in a routed scope.
    pub cursor: Option<CursorRoute>,
    pub last_output: Value,
    /// The worst impact of its steps so far.
    pub worst: RunImpact,
    /// The number of events when it ended.
    pub ended_as: u64,
    /// Set only in the root instance of a workflow.
    pub input: Value,
    pub env: Value,
    pub executed: u32,
}

/// The phase of a step's visit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum AcceptorStepPhase {
    /// The step has not arrived.
    #[default]
    Pending,
    /// The step may start or continue.
    Ready,
    /// An attempt is in flight.
    Working,
    /// An attempt ended, and no event has stated what follows.
    Between,
    Retrying(Timestamp),
    Held(Waitpoint),
    Open(Waitpoint),
    /// A composite whose inner instances run.
    Inside,
    Over,
}

/// A step of an instance.
#[derive(Debug, Default)]
pub(super) struct AcceptorStep {
    pub at: AcceptorStepPhase,
    pub visit: u32,
    pub slot: bool,
    pub live: Option<AttemptId>,
    /// A hold was released, and no event has stated how the step continues.
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
    /// The actions that may follow the attempt or the hold that just ended.
    pub may: Vec<AllowedFollowUp>,
    pub result: Value,
    /// True if the last finding was that a person is needed.
    pub blocked: bool,
    pub decided: Option<(Verdict, String, Option<String>)>,
    pub signal: Option<(Value, Value)>,
    pub items: Option<Value>,
    /// The instances of the current try of a composite.
    pub children: Vec<InstanceIx>,
    pub outcome: Option<StepOutcome>,
    pub effect: Option<OutcomeEffect>,
    pub output: Value,
    pub error: Option<ExecutionError>,
    /// True if its last attempt finished but could not be merged.
    pub unmerged: bool,
    /// The step that resolves its merge conflict.
    pub settler: Option<u32>,
    pub spent: Cost,
    pub completed: Vec<AcceptorCompletion>,
    /// True if the step was interrupted while an attempt was in flight.
    pub cut_off: bool,
}

/// A visit that succeeded, and its position among all successful visits.
#[derive(Debug, Clone)]
pub(super) struct AcceptorCompletion {
    pub visit: u32,
    pub order: u64,
    pub undone: bool,
}

/// An action that may follow.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AllowedFollowUp {
    Retry { class: ErrorClass, not_before: Option<Timestamp> },
    Hold { reason: HoldReason, until: Option<Timestamp> },
    GoOn { role: AttemptRole, iteration: u32 },
    End(StepOutcome),
}

/// A gate, wait or hold.
#[derive(Debug)]
pub(super) struct AcceptorWaitpoint {
    pub number: Waitpoint,
    pub at: StepAt,
    pub what: AcceptorWaitpointKind,
    /// The role and iteration with which a hold continues.
    pub next: Option<(AttemptRole, u32)>,
    pub deadline: Option<Timestamp>,
    pub escalated: usize,
    /// The number of different people who have to approve; `approvals` lists those who did.
    pub quorum: u32,
    pub approvals: Vec<String>,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptorWaitpointKind {
    Gate,
    Wait,
    Hold(HoldReason),
}

/// An undo walk.
#[derive(Debug, Default)]
pub(super) struct AcceptorWalk {
    pub targets: Vec<UndoTarget>,
    /// The number of targets that the walk has handled.
    pub done: usize,
    pub failed: bool,
    pub attempts: u32,
    pub tries: u32,
    pub interruptions: u32,
    pub live: Option<AttemptId>,
    pub last: Option<AttemptEnd>,
    /// A `StepGoesOn` event was seen, and the next attempt has not started.
    pub goes_on: bool,
    pub due: Option<Timestamp>,
    pub over: bool,
}

impl AcceptorStep {
    pub(super) fn new() -> AcceptorStep {
        AcceptorStep { iteration: 1, stall: (None, 0, 1), ..AcceptorStep::default() }
    }

    /// Starts a new visit and keeps the values of earlier visits that expressions can read.
    pub(super) fn start_visit(&mut self) {
        let before = std::mem::replace(self, AcceptorStep::new());
        self.visit = before.visit + 1;
        self.at = AcceptorStepPhase::Ready;
        self.outcome = before.outcome;
        self.effect = before.effect;
        self.output = before.output;
        self.spent = before.spent;
        self.completed = before.completed;
    }

    pub(super) fn is_live(&self) -> bool {
        !matches!(self.at, AcceptorStepPhase::Pending | AcceptorStepPhase::Over)
    }

    /// True if the step has not arrived, or is ready and has done nothing.
    pub(super) fn is_unstarted(&self) -> bool {
        self.at == AcceptorStepPhase::Pending
            || (self.at == AcceptorStepPhase::Ready && !self.given && self.children.is_empty())
    }
}

impl AcceptorInstance {
    pub(super) fn new(plan: &Plan, scope: ScopeIx, home: InstanceIx) -> AcceptorInstance {
        let entry = plan.definition.scope(scope);
        let steps = entry.scope.steps.iter().map(|_| AcceptorStep::new()).collect();
        let cursor = entry.is_routed().then_some(CursorRoute::Step(entry.start));
        AcceptorInstance { scope, home, steps, cursor, ..AcceptorInstance::default() }
    }

    pub(super) fn is_halted(&self) -> bool {
        !self.halts.is_empty()
    }
}

struct AcceptorEnv<'a> {
    book: &'a Acceptor,
    instance: InstanceIx,
}

impl Acceptor {
    pub(super) fn instance(&self, ix: InstanceIx) -> RuleResult<&AcceptorInstance> {
        self.instances.get(ix.0 as usize).ok_or_else(|| format!("there is no instance {}", ix.0).into())
    }

    pub(super) fn instance_mut(&mut self, ix: InstanceIx) -> RuleResult<&mut AcceptorInstance> {
        self.instances.get_mut(ix.0 as usize).ok_or_else(|| format!("there is no instance {}", ix.0).into())
    }

    pub(super) fn scope_entry(&self, ix: InstanceIx) -> &ScopeEntry {
        self.plan.definition.scope(self.instances[ix.0 as usize].scope)
    }

    pub(super) fn step_definition(&self, at: StepAt) -> RuleResult<&skein_core::ir::Step> {
        self.step_state(at)?;
        Ok(self.scope_entry(at.0).step(at.1))
    }

    pub(super) fn step_state(&self, StepAt(ix, step): StepAt) -> RuleResult<&AcceptorStep> {
        self.instance(ix)?.steps.get(step as usize).ok_or_else(|| format!("there is no step {step} in {}", ix.0).into())
    }

    pub(super) fn step_state_mut(&mut self, StepAt(ix, step): StepAt) -> RuleResult<&mut AcceptorStep> {
        let found = self.instance_mut(ix)?.steps.get_mut(step as usize);
        found.ok_or_else(|| format!("there is no step {step} in {}", ix.0).into())
    }

    pub(super) fn evaluate_expr(&self, instance: InstanceIx, expr: &Expr) -> Result<Value, EvalError> {
        expr.eval(&AcceptorEnv { book: self, instance })
    }

    pub(super) fn evaluate_condition(&self, instance: InstanceIx, expr: &Expr) -> Result<bool, EvalError> {
        expr.eval_bool(&AcceptorEnv { book: self, instance })
    }

    /// The enclosing instance in the same workflow.
    fn outer_instance(&self, ix: InstanceIx) -> Option<InstanceIx> {
        let inst = &self.instances[ix.0 as usize];
        if inst.home == ix { None } else { inst.parent.map(|parent| parent.0) }
    }
}

impl ExprEnv for AcceptorEnv<'_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        let home = &self.book.instances[self.book.instances[self.instance.0 as usize].home.0 as usize];
        match root {
            ReferenceRoot::Input => RootLookup::Found(Cow::Borrowed(&home.input)),
            ReferenceRoot::Env => RootLookup::Found(Cow::Borrowed(&home.env)),
            ReferenceRoot::Item => {
                self.enclosing_item().map_or(RootLookup::Absent, |(item, _)| found_value(item.clone()))
            }
            ReferenceRoot::Index => {
                self.enclosing_item().map_or(RootLookup::Absent, |(_, index)| found_value((*index).into()))
            }
            ReferenceRoot::Context => {
                self.book.start.as_ref().map_or(RootLookup::Absent, |start| found_value(start.context.clone()))
            }
            ReferenceRoot::Step { id, part } => self.lookup_step(id, *part),
            ReferenceRoot::Run | ReferenceRoot::Workflow => RootLookup::Absent,
        }
    }
}

fn found_value(value: Value) -> RootLookup<'static> {
    RootLookup::Found(Cow::Owned(value))
}

impl AcceptorEnv<'_> {
    fn enclosing_item(&self) -> Option<&(Value, u32)> {
        let mut at = Some(self.instance);
        while let Some(ix) = at {
            if let Some(item) = &self.book.instances[ix.0 as usize].item {
                return Some(item);
            }
            at = self.book.outer_instance(ix);
        }
        None
    }

    fn lookup_step(&self, id: &str, part: StepProperty) -> RootLookup<'static> {
        let scope = self.book.instances[self.instance.0 as usize].scope;
        let Some(place) = self.book.plan.definition.locate_step(scope, id) else { return RootLookup::Absent };
        let mut ix = self.instance;
        for _ in 0..place.up {
            match self.book.outer_instance(ix) {
                Some(outer) => ix = outer,
                None => return RootLookup::Absent,
            }
        }
        match self.descend(ix, &place) {
            Ok(ix) => self.read_part(ix, place.step, part),
            Err(lookup) => lookup,
        }
    }

    fn descend(&self, mut ix: InstanceIx, place: &RelativeStepPath) -> Result<InstanceIx, RootLookup<'static>> {
        for (step, which) in &place.down {
            let holder = &self.book.instances[ix.0 as usize].steps[*step as usize];
            let lane = |ix: &&InstanceIx| match self.book.instances[ix.0 as usize].part {
                Some(InstancePart::Lane(lane)) => lane == *which,
                _ => true,
            };
            ix = match holder.children.iter().rev().find(lane) {
                Some(ix) => *ix,
                None if holder.is_live() => return Err(RootLookup::NotYet),
                None => return Err(RootLookup::Absent),
            };
        }
        Ok(ix)
    }

    fn read_part(&self, ix: InstanceIx, step: u32, part: StepProperty) -> RootLookup<'static> {
        let st = &self.book.instances[ix.0 as usize].steps[step as usize];
        let inst = &self.book.instances[ix.0 as usize];
        let words = &self.book.plan.definition.workflow_containing(inst.scope).workflow.words;
        let Some(outcome) = st.outcome else {
            // A step that was never reached in an ended instance reads as skipped.
            let skipped = part == StepProperty::Status && inst.ended.is_some();
            return if skipped {
                found_value(words.step_word(StepStatus::Skipped, false).into())
            } else {
                RootLookup::Absent
            };
        };
        match part {
            StepProperty::Output => found_value(st.output.clone()),
            StepProperty::Status => {
                let own = st.effect.is_some_and(|effect| effect.as_skipped) && outcome != StepOutcome::Succeeded;
                let status = if own { StepStatus::Skipped } else { shown_status(outcome) };
                found_value(words.step_word(status, own).into())
            }
            StepProperty::Summary => RootLookup::Absent,
        }
    }
}

fn shown_status(outcome: StepOutcome) -> StepStatus {
    match outcome {
        StepOutcome::Succeeded => StepStatus::Succeeded,
        StepOutcome::Incomplete => StepStatus::Incomplete,
        StepOutcome::Failed(ErrorClass::Timeout) => StepStatus::TimedOut,
        StepOutcome::Exhausted | StepOutcome::Failed(_) | StepOutcome::Rejected => StepStatus::Failed,
        StepOutcome::Skipped(SkipReason::Condition | SkipReason::Upstream(_)) => StepStatus::Skipped,
        StepOutcome::Cancelled => StepStatus::Cancelled,
    }
}
