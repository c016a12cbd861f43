//! Primitive state changes that events are composed of: phases, slots, waitpoints, deadlines.

use std::sync::Arc;

use super::{
    InstanceIx, StepAt, UndoWalk, Waitpoint,
    state::{Deadline, InstanceState, RunState, StepState, VisitState, WaitpointKind, null},
    transitions::{StepPhase, can_follow},
};
use crate::{
    ir::{OutcomeEffect, StepKindSpec, StepPolicy, TimeoutScope},
    plan::{Plan, ScopeEntry},
    time::Timestamp,
};

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
    pub fn scope_entry(&self, ix: InstanceIx) -> &'a ScopeEntry {
        self.plan.definition.scope(self.state.instance(ix).scope)
    }

    pub fn step_policy(&self, at: StepAt) -> &'a StepPolicy {
        &self.scope_entry(at.0).step(at.1).policy
    }

    pub fn instance_mut(&mut self, ix: InstanceIx) -> &mut InstanceState {
        &mut self.state.instances[ix.0 as usize]
    }

    pub fn visit_state_mut(&mut self, at: StepAt) -> &mut VisitState {
        Arc::make_mut(self.instance_mut(at.0).steps[at.1 as usize].more.get_or_insert_default())
    }

    /// Sets the phase of a step. No other code changes a phase. A change that the table of transitions does not allow
    /// panics, except in release builds.
    pub fn set_phase(&mut self, at: StepAt, phase: StepPhase) {
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
    pub fn begin_visit(&mut self, at: StepAt) {
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
    pub fn make_ready(&mut self, at: StepAt) {
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
    pub fn free_slot(&mut self, at: StepAt) {
        let instance = self.instance_mut(at.0);
        let step = &mut instance.steps[at.1 as usize];
        if !std::mem::take(&mut step.slot) {
            return;
        }
        instance.slots -= 1;
        self.offer_slots(at.0);
    }

    /// Resets ready steps that have not started to pending, as if they had not arrived.
    pub fn forget_unstarted(&mut self, ix: InstanceIx) {
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
    pub fn clear_step(&mut self, at: StepAt) {
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

    pub fn drop_step_deadline(&mut self, at: StepAt) {
        if let Some(time) = self.visit_state_mut(at).deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Step(at)));
        }
    }

    /// Ends a try of a step. A deadline that applies to each try is removed.
    pub fn end_try(&mut self, at: StepAt) {
        if self.step_policy(at).timeout_per == TimeoutScope::Attempt {
            self.drop_step_deadline(at);
        }
    }

    pub fn clear_retry(&mut self, at: StepAt) {
        if let Some(due) = self.visit_state_mut(at).due.take() {
            self.state.deadlines.remove(&(due, Deadline::Retry(at)));
        }
    }

    pub fn close_waitpoint(&mut self, opening: Waitpoint) {
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

    pub fn drop_waitpoint_deadline(&mut self, opening: Waitpoint) {
        if let Some(time) = self.state.openings[opening.0 as usize].deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Opening(opening)));
        }
    }

    /// Decrements the unmet count of dependents if the outcome satisfies them. A conflict resolver is decremented after
    /// any outcome.
    pub fn satisfy_dependents(&mut self, at: StepAt, effect: OutcomeEffect) {
        let entry = self.scope_entry(at.0);
        let instance = self.instance_mut(at.0);
        let waits = |dependent: &&u32| effect.satisfies || entry.conflict_resolver(at.1) == Some(**dependent);
        for dependent in entry.dependents(at.1).iter().filter(waits) {
            let step = &mut instance.steps[*dependent as usize];
            step.unmet = step.unmet.saturating_sub(1);
        }
    }

    /// Returns the walk whose current target is this step.
    pub fn find_undo_walk(&self, at: StepAt) -> Option<UndoWalk> {
        self.state.undoing.get(&at).copied()
    }
}
