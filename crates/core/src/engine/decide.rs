//! What an input means for a run, to a fixpoint.
//!
//! Owns the order in which consequences are worked out: first the input, then whatever follows from each event, then
//! as many starts as were granted. Each event is applied as it is decided. The rules themselves are in `verbs`.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Error, Event, Halt, Input, InstanceIx, Outcome, Refusal, Route, Skip, StepAt, Stimulus, Walk, apply,
    code,
    scope_env::ScopeEnv,
    state::{InstancePhase, RunPhase, RunState, null},
    transitions::Phase,
};
use crate::{
    ir::{Effect, ErrorClass, Step, Then},
    limits,
    plan::{Plan, ScopeEntry},
    time::Time,
};

/// Decides what a stimulus means and folds it into the state, event by event. A refusal changes nothing.
pub fn decide(
    plan: &Plan,
    state: &mut RunState,
    stimulus: &Stimulus,
    events: &mut Vec<Event>,
) -> Result<(), Refusal> {
    let (agenda, arriving) = (VecDeque::new(), BTreeSet::new());
    let (now, grant) = (stimulus.at, stimulus.grant);
    let mut decision = Decision { plan, state, now, grant, events, agenda, arriving };
    decision.input(&stimulus.input)?;
    decision.settle();
    decision.limit();
    Ok(())
}

/// A decision in the making.
pub(super) struct Decision<'a> {
    pub plan: &'a Plan,
    pub state: &'a mut RunState,
    pub now: Time,
    /// How many workers may still be started.
    pub grant: u32,
    pub events: &'a mut Vec<Event>,
    agenda: VecDeque<Todo>,
    /// Steps that may arrive, in order of declaration whichever end let them.
    arriving: BTreeSet<StepAt>,
}

/// A consequence that has not been worked out yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Todo {
    StepEnded(StepAt),
    InstanceEnded(InstanceIx),
    /// An instance may have nothing left to do.
    Settle(InstanceIx),
    Walk(Walk),
}

impl<'a> Decision<'a> {
    fn input(&mut self, input: &Input) -> Result<(), Refusal> {
        if let Some(message) = &self.state.quarantine {
            return Err(Refusal::Quarantined { message: message.clone() });
        }
        match (self.state.phase, input) {
            (RunPhase::New, Input::Start(start)) => self.start_run(start),
            (RunPhase::New, Input::Fork { start, reused }) => self.fork_run(start, reused),
            (RunPhase::New, Input::Break { .. }) => {}
            (RunPhase::New, _) => return Err(Refusal::NotStarted),
            (_, Input::Start(_) | Input::Fork { .. }) => return Err(Refusal::AlreadyStarted),
            _ => {}
        }
        match input {
            Input::Start(_) | Input::Fork { .. } | Input::Capacity => {}
            Input::Recover => self.recover(),
            Input::Finished { attempt, report } => self.finished(*attempt, report)?,
            Input::Decide { opening, decision, by, reason } => {
                self.answer(*opening, *decision, by, reason.as_deref())?
            }
            Input::Signal { name, payload, to } => self.signal(name, payload, *to)?,
            Input::Hold { step, reason, until, message } => {
                self.hold_ready(*step, *reason, *until, message)?
            }
            Input::Wake => self.wake(),
            Input::Cancel { by, reason } => self.cancel(by, reason.as_deref())?,
            Input::Published { item, failed } => self.published(*item, failed.as_deref())?,
            Input::RetryUndo { .. } => self.retry_undo()?,
            Input::Tampered { by, what } => self.tampered(by, what)?,
            Input::Break { message } => self.emit(Event::Quarantined { message: message.clone() }),
        }
        Ok(())
    }

    /// Works out consequences until there are none, then starts what may be started, and again.
    fn settle(&mut self) {
        loop {
            self.follow();
            if let Some(at) = self.state.entering.first().copied() {
                self.enter(at);
            } else if self.grant > 0 && !self.state.undoable.is_empty() {
                let of = *self.state.undoable.first().expect("it is not empty");
                self.start_undo(of);
            } else if self.grant > 0 && !self.state.ready.is_empty() {
                let at = *self.state.ready.first().expect("it is not empty");
                self.start_attempt(at);
            } else {
                return;
            }
        }
    }

    /// Works out consequences until there are none.
    pub fn follow(&mut self) {
        loop {
            match self.agenda.pop_front() {
                Some(Todo::StepEnded(at)) => self.step_over(at),
                Some(Todo::InstanceEnded(ix)) => match self.state.instance(ix).parent {
                    Some(parent) => self.child_over(parent, ix),
                    None => self.run_over(),
                },
                Some(Todo::Settle(ix)) => self.settle_instance(ix),
                Some(Todo::Walk(of)) => self.walk_on(of),
                None => match self.arriving.pop_first() {
                    Some(at) => self.arrive(at),
                    None => return,
                },
            }
        }
    }

    /// A run that has become too long ends.
    fn limit(&mut self) {
        let root_goes = self.state.instances.first().is_some_and(|root| root.is_going());
        if self.state.events < limits::EVENTS || !root_goes {
            return;
        }
        let message = format!("the run has {} events, and {} is the most", self.state.events, limits::EVENTS);
        let error = Error::new(ErrorClass::NonRetryable, code::TOO_MANY_EVENTS, message);
        self.break_off(InstanceIx::ROOT, error);
        self.settle();
    }

    pub fn emit(&mut self, event: Event) {
        apply(self.plan, self.state, self.now, &event);
        self.events.push(event);
    }

    pub fn later(&mut self, todo: Todo) {
        self.agenda.push_back(todo);
    }

    /// The step arrives when what ended has been worked out.
    pub fn arrive_later(&mut self, at: StepAt) {
        self.arriving.insert(at);
    }

    pub fn entry(&self, ix: InstanceIx) -> &'a ScopeEntry {
        self.plan.definition.scope(self.state.instance(ix).scope)
    }

    pub fn step(&self, at: StepAt) -> &'a Step {
        self.entry(at.0).step(at.1)
    }

    pub fn env(&self, ix: InstanceIx) -> ScopeEnv<'_> {
        ScopeEnv::new(self.plan, self.state, ix)
    }

    /// Ends a step with what its policy says of that outcome.
    pub fn end_step(&mut self, at: StepAt, end: End) {
        let (end, effect, settler) = self.effect(at, end);
        let entry = self.entry(at.0);
        let goes = self.state.instance(at.0).is_going() && effect.then == Then::GoOn;
        let route = (entry.is_routed() && goes).then(|| match (effect.satisfies, end.route) {
            (false, _) => Route::End,
            (true, Some(route)) => route,
            (true, None) => entry.next[at.1 as usize].into(),
        });
        let End { outcome, mut output, error, .. } = end;
        let failed = matches!(outcome, Outcome::Failed(_) | Outcome::Exhausted);
        if failed && effect.satisfies && output.is_null() {
            // The steps that depend on it go on, with its declared defaults.
            output = Arc::new(self.step(at).outputs.defaults());
        }
        self.emit(Event::StepEnded { at, outcome, output, error, effect, route, settler });
        if effect.then == Then::GoOn || !self.state.instance(at.0).is_going() {
            return self.later(Todo::StepEnded(at));
        }
        // At once, so that nothing else arrives in between.
        let undo = effect.then == Then::Undo && self.state.instance(at.0).home == at.0;
        self.halt(at.0, Halt::Failed { step: at.1 }, undo);
    }

    pub fn fail_step(&mut self, at: StepAt, error: Error) {
        self.end_step(at, End { error: Some(error.clone()), ..End::of(Outcome::Failed(error.class)) });
    }

    /// What a step's end means for those around it.
    fn step_over(&mut self, at: StepAt) {
        if !self.state.instance(at.0).is_going() {
            return self.later(Todo::Settle(at.0));
        }
        let Some(effect) = self.state.step(at).effect else { return };
        if self.entry(at.0).is_routed() { self.move_cursor(at) } else { self.notify_dependents(at, effect) }
    }

    fn notify_dependents(&mut self, at: StepAt, effect: Effect) {
        for dependent in self.entry(at.0).dependents(at.1) {
            let dependent = StepAt(at.0, *dependent);
            let step = self.state.step(dependent);
            if step.phase != Phase::Pending {
                continue;
            }
            // One that was to settle a conflict may have stopped all.
            if !self.state.instance(at.0).is_going() {
                return self.later(Todo::Settle(at.0));
            }
            let settles = self.entry(at.0).settler(at.1) == Some(dependent.1);
            if !effect.satisfies && !settles {
                self.end_step(dependent, End::of(Outcome::Skipped(Skip::Upstream(at.1))));
            } else if step.unmet == 0 {
                self.arrive_later(dependent);
            }
        }
        if self.state.instance(at.0).open == 0 {
            self.later(Todo::Settle(at.0));
        }
    }

    fn settle_instance(&mut self, ix: InstanceIx) {
        let instance = self.state.instance(ix);
        match &instance.phase {
            InstancePhase::Going if instance.open == 0 => self.complete(ix),
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

/// How a step ends, before its policy is asked.
#[derive(Debug)]
pub(super) struct End {
    pub outcome: Outcome,
    pub output: Arc<Value>,
    pub error: Option<Error>,
    pub route: Option<Route>,
}

impl End {
    pub fn of(outcome: Outcome) -> End {
        End { outcome, output: null(), error: None, route: None }
    }

    pub fn with(output: Arc<Value>) -> End {
        End { output, ..End::of(Outcome::Succeeded) }
    }
}

/// What the policy of a step says of an outcome.
pub(super) fn effect_of(step: &Step, outcome: Outcome) -> Effect {
    let effects = &step.policy.effects;
    match outcome {
        Outcome::Succeeded => effects.succeeded,
        Outcome::Incomplete => effects.incomplete,
        Outcome::Exhausted => effects.exhausted,
        Outcome::Rejected => effects.rejected,
        Outcome::Failed(class) => match effects.failed_by_class.get(&class) {
            Some(effect) => *effect,
            None if class == ErrorClass::Timeout => effects.timed_out,
            None => effects.failed,
        },
        Outcome::Skipped(Skip::Condition) => effects.skipped_by_condition,
        Outcome::Skipped(Skip::Upstream(_)) => effects.skipped_by_upstream,
        Outcome::Cancelled => Effect::BLOCK,
    }
}

impl Error {
    pub fn new(class: ErrorClass, code: &str, message: impl Into<String>) -> Error {
        Error { class, code: Some(code.to_owned()), message: message.into(), origin: None }
    }
}

impl From<crate::plan::Next> for Route {
    fn from(next: crate::plan::Next) -> Route {
        match next {
            crate::plan::Next::Step(step) => Route::Step(step),
            crate::plan::Next::End => Route::End,
        }
    }
}
