//! Folds one durable event into the state. The function is total: it evaluates no expression and no policy and cannot
//! refuse an event.
//!
//! Owns every change of [`RunState`], and the primitive changes that events are composed of: phases, slots, waitpoints,
//! deadlines. Does not derive consequences: `decide` does, so that replay only has to apply events.

mod instance;
mod step;

use std::sync::Arc;

use crate::{
    engine::{
        Event, InstanceIx, StepAt, UndoWalk, Waitpoint,
        state::{
            Deadline, InstanceState, RunCancellation, RunConclusion, RunPhase, RunState, StepState, VisitState,
            WaitpointKind, null,
        },
        transitions::{StepPhase, can_follow},
    },
    ir::{OutcomeEffect, StepKindSpec, StepPolicy, TimeoutScope},
    plan::{Plan, ScopeEntry},
    time::Timestamp,
};

/// Folds one event, decided at time `at`, into the state.
pub fn apply(plan: &Plan, state: &mut RunState, at: Timestamp, event: &Event) {
    state.events += 1;
    state.now = at;
    let mut fold = StateFold { plan, state, now: at };
    fold.apply_event(event);
    fold.state.commands.wake = fold.state.deadlines.first().map(|(time, _)| *time);
}

impl StateFold<'_> {
    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::RunStarted { start, definition, parameters, env, deadline, publish, rulings } => {
                self.state.definition = *definition;
                self.state.rulings = rulings.clone();
                self.apply_run_started(start, parameters, env, *deadline, publish);
            }
            Event::InstanceStarted { parent, part, input, env, deadline } => {
                self.apply_instance_started(*parent, *part, input.as_ref(), env, *deadline);
            }
            Event::InstanceHalted { instance, why, undo } => self.apply_instance_halted(*instance, why, *undo),
            Event::InstanceEnded { instance, end } => self.apply_instance_ended(*instance, end),
            Event::InstanceReused(reused) => self.apply_instance_reused(reused),
            Event::StepReused(reused) => self.apply_step_reused(reused),
            Event::StepReady { at } => {
                self.begin_visit(*at);
                self.make_ready(*at);
            }
            Event::StepOverdue { at } => {
                self.drop_step_deadline(*at);
                self.visit_state_mut(*at).stopping = Some(super::AttemptStopReason::Timeout);
            }
            Event::StepExpanded { at, items } => self.visit_state_mut(*at).items = Some(items.clone()),
            Event::StepEntered { at, deadline } => self.apply_step_entered(*at, *deadline),
            Event::AttemptStarted { attempt, mode, given, deadline } => {
                self.apply_attempt_started(*attempt, *mode, given.as_ref(), *deadline);
            }
            Event::StopAsked { attempt, why } => {
                self.state.commands.runs.remove(attempt);
                self.visit_state_mut(attempt.at).stopping = Some(*why);
                self.set_phase(attempt.at, StepPhase::Stopping);
            }
            Event::AttemptEnded { attempt, end, cost, proofs, .. } => {
                self.apply_attempt_ended(attempt, end, *cost, proofs);
            }
            Event::StepGoesOn { at, next } => self.apply_step_goes_on(*at, *next),
            Event::RetryScheduled { at, due, error } => self.apply_retry_scheduled(*at, *due, error),
            Event::StepHeld { .. }
            | Event::Opened { .. }
            | Event::Escalated { .. }
            | Event::Approved { .. }
            | Event::Decided { .. } => {
                self.apply_waitpoint_event(event);
            }
            Event::SignalKept { name, payload } => self.state.signals.push_back((name.clone(), payload.clone())),
            Event::SignalTaken { opening, name, payload, kept } => {
                self.close_waitpoint(*opening);
                let taken = self.state.signals.iter().position(|(kept, with)| kept == name && with == payload);
                if let Some(i) = taken.filter(|_| *kept) {
                    self.state.signals.remove(i);
                }
            }
            Event::StepEnded { .. } => self.apply_step_ended(event),
            Event::CancelAsked { by, reason } => {
                let cancel = RunCancellation { by: by.clone(), reason: reason.clone(), at: self.now };
                self.state.cancel.get_or_insert(cancel);
            }
            Event::Tampered { .. } => self.state.tampers += 1,
            Event::UndoBegan { of, targets, uncertain } => self.apply_undo_began(*of, targets, uncertain),
            Event::StepUndone { at, .. } => self.finish_undo_target(*at, None),
            Event::UndoFailed { at, error, .. } => self.finish_undo_target(*at, Some(error)),
            Event::UndoEnded { of, clean } => self.apply_undo_ended(*of, *clean),
            Event::RunDecided { status, output, error, degraded, publish, retry } => {
                self.state.phase = RunPhase::Decided;
                let end = RunConclusion {
                    status: *status,
                    output: output.clone(),
                    error: error.clone(),
                    degraded: *degraded,
                    at: self.now,
                    retry: *retry,
                };
                self.state.end = Some(end);
                self.state.commands.publish.extend(publish);
            }
            Event::PublicationEnded { item, .. } => {
                self.state.commands.publish.remove(item);
            }
            Event::Closed => self.state.phase = RunPhase::Closed,
            Event::Quarantined { message } => {
                self.state.phase = RunPhase::Quarantined;
                self.state.quarantine = Some(message.clone());
                self.state.deadlines.clear();
                self.state.in_flight.clear();
                self.state.ready.clear();
                self.state.entering.clear();
                self.state.undoable.clear();
                self.state.commands = super::WantedWork::default();
            }
        }
    }
}

/// A state to which an event is being applied, at a time.
pub(super) struct StateFold<'a> {
    pub plan: &'a Plan,
    pub state: &'a mut RunState,
    pub now: Timestamp,
}

/// Returns the steps of a new instance.
pub(super) fn new_steps(entry: &ScopeEntry) -> Vec<StepState> {
    let step = |unmet: &u32| StepState {
        phase: StepPhase::Pending,
        unmet: *unmet,
        slot: false,
        visit: 0,
        outcome: None,
        effect: None,
        output: null(),
        more: None,
    };
    entry.unmet.iter().map(step).collect()
}

impl<'a> StateFold<'a> {
    pub(super) fn scope_entry(&self, ix: InstanceIx) -> &'a ScopeEntry {
        self.plan.definition.scope(self.state.instance(ix).scope)
    }

    pub(super) fn step_policy(&self, at: StepAt) -> &'a StepPolicy {
        &self.scope_entry(at.0).step(at.1).policy
    }

    pub(super) fn instance_mut(&mut self, ix: InstanceIx) -> &mut InstanceState {
        &mut self.state.instances[ix.0 as usize]
    }

    pub(super) fn visit_state_mut(&mut self, at: StepAt) -> &mut VisitState {
        Arc::make_mut(self.instance_mut(at.0).steps[at.1 as usize].more.get_or_insert_default())
    }

    /// Sets the phase of a step. No other code changes a phase. A change that the table of transitions does not allow
    /// panics, except in release builds.
    pub(super) fn set_phase(&mut self, at: StepAt, phase: StepPhase) {
        let instance = &mut self.state.instances[at.0.0 as usize];
        let step = &mut instance.steps[at.1 as usize];
        debug_assert!(can_follow(step.phase, phase), "{:?} cannot be followed by {phase:?}", step.phase);
        self.state.phases[step.phase as usize] -= 1;
        self.state.phases[phase as usize] += 1;
        instance.live -= u32::from(step.phase.is_live());
        instance.live += u32::from(phase.is_live());
        step.phase = phase;
    }

    /// Begins a new visit, unless the step is in one.
    pub(super) fn begin_visit(&mut self, at: StepAt) {
        let now = self.now;
        let home = self.state.instance(at.0).home;
        let instance = self.instance_mut(at.0);
        let step = &mut instance.steps[at.1 as usize];
        match step.phase {
            StepPhase::Pending => {}
            StepPhase::Done => instance.open += 1,
            _ => return,
        }
        step.visit += 1;
        step.outcome = None;
        step.effect = None;
        let old = step.more.take();
        let more = Arc::make_mut(step.more.get_or_insert_default());
        more.ready = Some(now);
        if let Some(old) = old {
            more.cost = old.cost;
            more.total_attempts = old.total_attempts;
        }
        self.instance_mut(home).executed += 1;
    }

    /// Queues the step for a slot or, if it has one, for a worker.
    pub(super) fn make_ready(&mut self, at: StepAt) {
        self.clear_retry(at);
        self.set_phase(at, StepPhase::Ready);
        let more = self.visit_state_mut(at);
        more.held = None;
        more.stopping = None;
        let limit = self.scope_entry(at.0).scope.concurrency;
        let instance = self.instance_mut(at.0);
        let slot = instance.steps[at.1 as usize].slot;
        match limit {
            Some(limit) if !slot && instance.slots >= limit => {
                instance.queue.insert(at.1);
            }
            Some(_) if !slot => self.take_slot(at),
            _ => self.offer_step(at),
        }
    }

    fn take_slot(&mut self, at: StepAt) {
        let instance = self.instance_mut(at.0);
        instance.slots += 1;
        instance.steps[at.1 as usize].slot = true;
        self.offer_step(at);
    }

    fn offer_step(&mut self, at: StepAt) {
        if matches!(self.scope_entry(at.0).step(at.1).kind, StepKindSpec::Work(_)) {
            self.state.ready.insert(at);
        } else {
            self.state.entering.insert(at);
        }
    }

    /// Frees the slot of a step and gives it to the next step in the queue.
    pub(super) fn free_slot(&mut self, at: StepAt) {
        let instance = self.instance_mut(at.0);
        let step = &mut instance.steps[at.1 as usize];
        if !std::mem::take(&mut step.slot) {
            return;
        }
        instance.slots -= 1;
        self.offer_slots(at.0);
    }

    /// Resets ready steps that have not started to pending, as if they had not arrived.
    pub(super) fn forget_unstarted(&mut self, ix: InstanceIx) {
        let range = StepAt(ix, 0)..=StepAt(ix, u32::MAX);
        let mut waiting: Vec<u32> = self.state.ready.range(range.clone()).map(|at| at.1).collect();
        waiting.extend(self.state.entering.range(range).map(|at| at.1));
        waiting.extend(self.state.instance(ix).queue.iter().copied());
        for step in waiting {
            let at = StepAt(ix, step);
            if self.state.visit_state(at).is_some_and(|more| more.started.is_some()) {
                continue;
            }
            self.state.ready.remove(&at);
            self.state.entering.remove(&at);
            let instance = self.instance_mut(ix);
            instance.queue.remove(&step);
            instance.slots -= u32::from(std::mem::take(&mut instance.steps[step as usize].slot));
            instance.steps[step as usize].visit -= 1;
            self.set_phase(at, StepPhase::Pending);
        }
        self.offer_slots(ix);
    }

    /// Gives free slots to queued steps.
    fn offer_slots(&mut self, ix: InstanceIx) {
        let Some(limit) = self.scope_entry(ix).scope.concurrency else { return };
        while self.state.instance(ix).slots < limit
            && let Some(next) = self.instance_mut(ix).queue.pop_first()
        {
            self.take_slot(StepAt(ix, next));
        }
    }

    /// Removes the present visit from all queues and clears its deadlines and its waitpoint.
    pub(super) fn clear_step(&mut self, at: StepAt) {
        self.state.ready.remove(&at);
        self.state.entering.remove(&at);
        self.instance_mut(at.0).queue.remove(&at.1);
        self.clear_retry(at);
        self.drop_step_deadline(at);
        let more = self.visit_state_mut(at);
        let opening = more.opening.take();
        more.stopping = None;
        more.held = None;
        if let Some(opening) = opening {
            self.close_waitpoint(opening);
        }
    }

    fn drop_step_deadline(&mut self, at: StepAt) {
        if let Some(time) = self.visit_state_mut(at).deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Step(at)));
        }
    }

    /// Ends a try of a step. A deadline that applies to each try is removed.
    pub(super) fn end_try(&mut self, at: StepAt) {
        if self.step_policy(at).timeout_per == TimeoutScope::Attempt {
            self.drop_step_deadline(at);
        }
    }

    fn clear_retry(&mut self, at: StepAt) {
        if let Some(due) = self.visit_state_mut(at).due.take() {
            self.state.deadlines.remove(&(due, Deadline::Retry(at)));
        }
    }

    pub(super) fn close_waitpoint(&mut self, opening: Waitpoint) {
        self.drop_waitpoint_deadline(opening);
        let state = &mut self.state.openings[opening.0 as usize];
        state.closed = true;
        let (at, waits) = (state.at, state.kind == WaitpointKind::Wait);
        self.visit_state_mut(at).opening = None;
        if waits && let StepKindSpec::Wait(wait) = &self.scope_entry(at.0).step(at.1).kind {
            for name in &wait.on {
                if let Some(open) = self.state.waits.get_mut(name) {
                    open.remove(&opening);
                }
            }
        }
    }

    pub(super) fn drop_waitpoint_deadline(&mut self, opening: Waitpoint) {
        if let Some(time) = self.state.openings[opening.0 as usize].deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Opening(opening)));
        }
    }

    /// Decrements the unmet count of dependents if the outcome satisfies them. A conflict resolver is decremented after
    /// any outcome.
    pub(super) fn satisfy_dependents(&mut self, at: StepAt, effect: OutcomeEffect) {
        let entry = self.scope_entry(at.0);
        let instance = self.instance_mut(at.0);
        let waits = |dependent: &&u32| effect.satisfies || entry.conflict_resolver(at.1) == Some(**dependent);
        for dependent in entry.dependents(at.1).iter().filter(waits) {
            let step = &mut instance.steps[*dependent as usize];
            step.unmet = step.unmet.saturating_sub(1);
        }
    }

    /// Returns the walk whose current target is this step.
    pub(super) fn find_undo_walk(&self, at: StepAt) -> Option<UndoWalk> {
        self.state.undoing.get(&at).copied()
    }
}
