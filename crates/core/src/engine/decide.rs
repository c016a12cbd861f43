//! Decides the events that follow from one input, to a fixpoint.
//!
//! Owns the order in which consequences are computed: first the input, then the consequences of each event, then as
//! many starts as were granted. Each event is applied as soon as it is decided. The rules themselves are in `verbs`.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use super::{
    CursorRoute, Event, ExecutionError, HaltReason, InstanceIx, Refusal, RunInput, SkipReason, StepAt, StepOutcome,
    TimedInput, UndoWalk, apply, code,
    scope_env::ScopeEnv,
    state::{InstancePhase, RunPhase, RunState, null},
    transitions::StepPhase,
};
use crate::{
    ir::{ErrorClass, OutcomeAction, OutcomeEffect, Step},
    limits,
    plan::{Plan, RouteTargetIx, ScopeEntry},
    time::Timestamp,
};

/// Decides the events of an input and folds them into the state one by one. A refused input changes nothing.
pub fn decide(plan: &Plan, state: &mut RunState, timed: &TimedInput, events: &mut Vec<Event>) -> Result<(), Refusal> {
    let (agenda, arriving) = (VecDeque::new(), BTreeSet::new());
    let (now, grant) = (timed.at, timed.grant);
    let mut decision = DecideContext { plan, state, now, grant, events, agenda, arriving };
    decision.handle_input(&timed.input)?;
    decision.run_to_fixpoint();
    decision.enforce_event_limit();
    Ok(())
}

/// A decision in progress.
pub(super) struct DecideContext<'a> {
    pub plan: &'a Plan,
    pub state: &'a mut RunState,
    pub now: Timestamp,
    /// The number of workers that may still be started.
    pub grant: u32,
    pub events: &'a mut Vec<Event>,
    agenda: VecDeque<PendingConsequence>,
    /// Steps that may arrive, in declaration order, regardless of the order in which their dependencies ended.
    arriving: BTreeSet<StepAt>,
}

/// A consequence that has not been computed yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum PendingConsequence {
    StepEnded(StepAt),
    InstanceEnded(InstanceIx),
    /// Checks if an instance has nothing left to do.
    Settle(InstanceIx),
    Walk(UndoWalk),
}

impl<'a> DecideContext<'a> {
    fn handle_input(&mut self, input: &RunInput) -> Result<(), Refusal> {
        if let Some(message) = &self.state.quarantine {
            return Err(Refusal::Quarantined { message: message.clone() });
        }
        match (self.state.phase, input) {
            (RunPhase::New, RunInput::Start(start)) => self.start_run(start),
            (RunPhase::New, RunInput::Fork { start, reused }) => self.fork_run(start, reused),
            (RunPhase::New, RunInput::Break { .. }) => {}
            (RunPhase::New, _) => return Err(Refusal::NotStarted),
            (_, RunInput::Start(_) | RunInput::Fork { .. }) => return Err(Refusal::AlreadyStarted),
            _ => {}
        }
        match input {
            RunInput::Start(_) | RunInput::Fork { .. } | RunInput::Capacity => {}
            RunInput::Recover => self.recover_attempts(),
            RunInput::Finished { attempt, report } => self.finish_attempt(*attempt, report)?,
            RunInput::Decide { opening, decision, by, reason } => {
                self.answer_waitpoint(*opening, *decision, by, reason.as_deref())?
            }
            RunInput::Signal { name, payload, to } => self.deliver_signal(name, payload, *to)?,
            RunInput::Hold { step, reason, until, message } => self.hold_ready_step(*step, *reason, *until, message)?,
            RunInput::Wake => self.fire_deadlines(),
            RunInput::Cancel { by, reason } => self.cancel_run(by, reason.as_deref())?,
            RunInput::Published { item, failed } => self.record_publication(*item, failed.as_deref())?,
            RunInput::RetryUndo { .. } => self.retry_undo()?,
            RunInput::Tampered { by, what } => self.record_tampering(by, what)?,
            RunInput::Break { message } => self.emit(Event::Quarantined { message: message.clone() }),
        }
        Ok(())
    }

    /// Alternates between computing consequences and starting the next step or undo, until neither is possible.
    fn run_to_fixpoint(&mut self) {
        loop {
            self.follow_consequences();
            if let Some(at) = self.state.entering.first().copied() {
                self.enter_composite(at);
            } else if self.grant > 0 && !self.state.undoable.is_empty() {
                let of = *self.state.undoable.first().expect("it is not empty");
                self.start_undo_attempt(of);
            } else if self.grant > 0 && !self.state.ready.is_empty() {
                let at = *self.state.ready.first().expect("it is not empty");
                self.start_attempt(at);
            } else {
                return;
            }
        }
    }

    /// Computes consequences until none is left.
    pub(super) fn follow_consequences(&mut self) {
        loop {
            match self.agenda.pop_front() {
                Some(PendingConsequence::StepEnded(at)) => self.handle_step_end(at),
                Some(PendingConsequence::InstanceEnded(ix)) => match self.state.instance(ix).parent {
                    Some(parent) => self.handle_child_end(parent, ix),
                    None => self.decide_run_end(),
                },
                Some(PendingConsequence::Settle(ix)) => self.finish_idle_instance(ix),
                Some(PendingConsequence::Walk(of)) => self.continue_undo_walk(of),
                None => match self.arriving.pop_first() {
                    Some(at) => self.arrive_at_step(at),
                    None => return,
                },
            }
        }
    }

    /// Halts a run that has reached the maximum number of events.
    fn enforce_event_limit(&mut self) {
        let root_goes = self.state.instances.first().is_some_and(|root| root.is_going());
        if self.state.events < limits::EVENTS || !root_goes {
            return;
        }
        let message = format!("the run has {} events; the limit is {}", self.state.events, limits::EVENTS);
        let error = ExecutionError::new(ErrorClass::NonRetryable, code::TOO_MANY_EVENTS, message);
        self.halt_over_limit(InstanceIx::ROOT, error);
        self.run_to_fixpoint();
    }

    pub(super) fn emit(&mut self, event: Event) {
        apply(self.plan, self.state, self.now, &event);
        self.events.push(event);
    }

    pub(super) fn defer_consequence(&mut self, todo: PendingConsequence) {
        self.agenda.push_back(todo);
    }

    /// Queues the arrival at a step until all pending consequences are computed.
    pub(super) fn defer_arrival(&mut self, at: StepAt) {
        self.arriving.insert(at);
    }

    pub(super) fn scope_entry(&self, ix: InstanceIx) -> &'a ScopeEntry {
        self.plan.definition.scope(self.state.instance(ix).scope)
    }

    pub(super) fn step(&self, at: StepAt) -> &'a Step {
        self.scope_entry(at.0).step(at.1)
    }

    pub(super) fn env(&self, ix: InstanceIx) -> ScopeEnv<'_> {
        ScopeEnv::new(self.plan, self.state, ix)
    }

    /// Ends a step with the effect that its policy defines for the outcome.
    pub(super) fn end_step(&mut self, at: StepAt, end: StepEnd) {
        let (end, effect, settler) = self.determine_effect(at, end);
        let entry = self.scope_entry(at.0);
        let goes = self.state.instance(at.0).is_going() && effect.then == OutcomeAction::GoOn;
        let route = (entry.is_routed() && goes).then(|| match (effect.satisfies, end.route) {
            (false, _) => CursorRoute::End,
            (true, Some(route)) => route,
            (true, None) => entry.next[at.1 as usize].into(),
        });
        let StepEnd { outcome, mut output, error, .. } = end;
        let failed = matches!(outcome, StepOutcome::Failed(_) | StepOutcome::Exhausted);
        if failed && effect.satisfies && output.is_null() {
            // Dependents continue with the declared default outputs.
            output = Arc::new(self.step(at).outputs.default_object());
        }
        self.emit(Event::StepEnded { at, outcome, output, error, effect, route, settler });
        if effect.then == OutcomeAction::GoOn || !self.state.instance(at.0).is_going() {
            return self.defer_consequence(PendingConsequence::StepEnded(at));
        }
        // The halt is immediate, so that no other step arrives in between.
        let undo = effect.then == OutcomeAction::Undo && self.state.instance(at.0).home == at.0;
        self.halt_instance(at.0, HaltReason::Failed { step: at.1 }, undo);
    }

    pub(super) fn fail_step(&mut self, at: StepAt, error: ExecutionError) {
        self.end_step(
            at,
            StepEnd { error: Some(error.clone()), ..StepEnd::from_outcome(StepOutcome::Failed(error.class)) },
        );
    }

    /// Applies the end of a step to its instance and its dependents.
    fn handle_step_end(&mut self, at: StepAt) {
        if !self.state.instance(at.0).is_going() {
            return self.defer_consequence(PendingConsequence::Settle(at.0));
        }
        let Some(effect) = self.state.step(at).effect else { return };
        if self.scope_entry(at.0).is_routed() { self.move_cursor(at) } else { self.notify_dependents(at, effect) }
    }

    fn notify_dependents(&mut self, at: StepAt, effect: OutcomeEffect) {
        for dependent in self.scope_entry(at.0).dependents(at.1) {
            let dependent = StepAt(at.0, *dependent);
            let step = self.state.step(dependent);
            if step.phase != StepPhase::Pending {
                continue;
            }
            // A conflict resolver that ended in this loop may have halted the instance.
            if !self.state.instance(at.0).is_going() {
                return self.defer_consequence(PendingConsequence::Settle(at.0));
            }
            let settles = self.scope_entry(at.0).conflict_resolver(at.1) == Some(dependent.1);
            if !effect.satisfies && !settles {
                self.end_step(dependent, StepEnd::from_outcome(StepOutcome::Skipped(SkipReason::Upstream(at.1))));
            } else if step.unmet == 0 {
                self.defer_arrival(dependent);
            }
        }
        if self.state.instance(at.0).open == 0 {
            self.defer_consequence(PendingConsequence::Settle(at.0));
        }
    }

    fn finish_idle_instance(&mut self, ix: InstanceIx) {
        let instance = self.state.instance(ix);
        match &instance.phase {
            InstancePhase::Going if instance.open == 0 => self.complete_instance(ix),
            InstancePhase::Halted { undo, .. } if instance.live == 0 => {
                if *undo {
                    self.begin_undo(ix)
                } else {
                    self.end_halted(ix)
                }
            }
            _ => {}
        }
    }
}

/// The end of a step before its policy is applied.
#[derive(Debug)]
pub(super) struct StepEnd {
    pub outcome: StepOutcome,
    pub output: Arc<Value>,
    pub error: Option<ExecutionError>,
    pub route: Option<CursorRoute>,
}

impl StepEnd {
    pub(super) fn from_outcome(outcome: StepOutcome) -> StepEnd {
        StepEnd { outcome, output: null(), error: None, route: None }
    }

    pub(super) fn from_output(output: Arc<Value>) -> StepEnd {
        StepEnd { output, ..StepEnd::from_outcome(StepOutcome::Succeeded) }
    }
}

/// Returns the effect that the policy of a step defines for an outcome.
pub(super) fn policy_effect(step: &Step, outcome: StepOutcome) -> OutcomeEffect {
    let effects = &step.policy.effects;
    match outcome {
        StepOutcome::Succeeded => effects.succeeded,
        StepOutcome::Incomplete => effects.incomplete,
        StepOutcome::Exhausted => effects.exhausted,
        StepOutcome::Rejected => effects.rejected,
        StepOutcome::Failed(class) => match effects.failed_by_class.get(&class) {
            Some(effect) => *effect,
            None if class == ErrorClass::Timeout => effects.timed_out,
            None => effects.failed,
        },
        StepOutcome::Skipped(SkipReason::Condition) => effects.skipped_by_condition,
        StepOutcome::Skipped(SkipReason::Upstream(_)) => effects.skipped_by_upstream,
        StepOutcome::Cancelled => OutcomeEffect::BLOCK,
    }
}

impl ExecutionError {
    pub fn new(class: ErrorClass, code: &str, message: impl Into<String>) -> ExecutionError {
        ExecutionError { class, code: Some(code.to_owned()), message: message.into(), origin: None }
    }

    /// Creates the error of an input, an output or a condition that does not match its declaration.
    pub(super) fn invalid(code: &str, message: impl Into<String>) -> ExecutionError {
        ExecutionError::new(ErrorClass::Validation, code, message)
    }

    /// Creates an error that no other attempt would fix.
    pub(super) fn non_retryable(code: &str, message: impl Into<String>) -> ExecutionError {
        ExecutionError::new(ErrorClass::NonRetryable, code, message)
    }

    pub(super) fn timeout(message: impl Into<String>) -> ExecutionError {
        ExecutionError::new(ErrorClass::Timeout, code::TIMEOUT, message)
    }
}

impl From<RouteTargetIx> for CursorRoute {
    fn from(next: RouteTargetIx) -> CursorRoute {
        match next {
            RouteTargetIx::Step(step) => CursorRoute::Step(step),
            RouteTargetIx::End => CursorRoute::End,
        }
    }
}
