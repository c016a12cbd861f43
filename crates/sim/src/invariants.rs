//! The invariants that hold after every event, computed from scratch where the engine keeps an index.

use std::collections::{BTreeMap, BTreeSet};

use crate::violation::RuleResult;
use skein_core::{
    engine::{
        AttemptId, AttemptRole, Event, InstanceIx, InstancePhase, RunPhase, RunState, StepAt, StepOutcome, UndoTarget,
        UndoWalk, transitions::StepPhase, wanted,
    },
    ir::{RunStatus, StepKindSpec},
    plan::Plan,
    time::Timestamp,
};

#[derive(Debug)]
pub(crate) struct InvariantChecker {
    plan: Plan,
    started: BTreeSet<AttemptId>,
    ended: BTreeSet<AttemptId>,
    /// Completed visits of steps that have an undo, in order.
    completed: Vec<UndoTarget>,
    undone: BTreeSet<UndoTarget>,
    /// The targets that each walk has undone or failed to undo, in order.
    walked: BTreeMap<UndoWalk, Vec<UndoTarget>>,
    /// Workflow instances that have begun to undo.
    unwinding: BTreeSet<InstanceIx>,
}

impl InvariantChecker {
    pub(crate) fn new(plan: Plan) -> InvariantChecker {
        InvariantChecker {
            plan,
            started: BTreeSet::new(),
            ended: BTreeSet::new(),
            completed: Vec::new(),
            undone: BTreeSet::new(),
            walked: BTreeMap::new(),
            unwinding: BTreeSet::new(),
        }
    }

    /// Checks that an event is allowed in this state.
    pub(crate) fn check_before_event(&mut self, state: &RunState, event: &Event) -> RuleResult {
        if state.phase == RunPhase::Closed && !matches!(event, Event::UndoBegan { .. } | Event::Quarantined { .. }) {
            return Err(format!("I5: {event:?} after the run was closed").into());
        }
        match event {
            Event::Quarantined { message } if message.starts_with("a decision failed") => Err(message.as_str().into()),
            Event::AttemptStarted { attempt, .. } => self.may_start(state, *attempt),
            Event::AttemptEnded { attempt, .. } => {
                // I3: each attempt has exactly one end.
                if !self.started.contains(attempt) || !self.ended.insert(*attempt) {
                    return Err(format!("I3: {attempt} ended without having been started, or twice").into());
                }
                Ok(())
            }
            Event::StepReady { at } | Event::StepEntered { at, .. } | Event::Opened { at, .. } => {
                self.may_go_forward(state, *at)
            }
            Event::UndoBegan { of, targets, .. } => self.check_undo_start(state, *of, targets),
            Event::StepUndone { at, visit } => self.check_undo_end(state, UndoTarget { at: *at, visit: *visit }, true),
            Event::UndoFailed { at, visit, .. } => {
                self.check_undo_end(state, UndoTarget { at: *at, visit: *visit }, false)
            }
            _ => Ok(()),
        }
    }

    fn may_start(&mut self, state: &RunState, attempt: AttemptId) -> RuleResult {
        // I3: an attempt is never started twice, and a step has one in flight at most.
        if !self.started.insert(attempt) {
            return Err(format!("I3: {attempt} was started twice").into());
        }
        if state.in_flight().iter().any(|other| other.at == attempt.at) {
            return Err(format!("I3: {attempt} was started beside another attempt of its step").into());
        }
        if attempt.role == AttemptRole::Undo {
            return Ok(());
        }
        self.may_go_forward(state, attempt.at)
    }

    fn may_go_forward(&self, state: &RunState, at: StepAt) -> RuleResult {
        let instance = state.instance(at.0);
        // I6: a workflow that has begun to undo never goes forward again.
        if self.unwinding.contains(&instance.home) {
            return Err(format!("I6: {at:?} goes forward after undo began").into());
        }
        if matches!(instance.phase, InstancePhase::Ended { .. } | InstancePhase::Undoing { .. }) {
            return Err(format!("I6: {at:?} goes forward in an instance that is over").into());
        }
        // I4: no step starts before all its dependencies have ended in a way that satisfies.
        let entry = self.plan.definition.scope(instance.scope);
        for id in &entry.step(at.1).after {
            let dependency = &instance.steps[entry.by_id[id] as usize];
            // A conflict resolver waits for any end of the steps whose conflicts it resolves.
            let settles = entry.step(entry.by_id[id]).policy.settled_by.as_ref() == Some(&entry.step(at.1).id);
            if !dependency.effect.is_some_and(|effect| effect.satisfies || settles) {
                return Err(format!("I4: {at:?} started before `{id}` had ended").into());
            }
        }
        Ok(())
    }

    fn check_undo_start(&mut self, state: &RunState, of: UndoWalk, targets: &[UndoTarget]) -> RuleResult {
        self.walked.insert(of, Vec::new());
        let plan = &self.plan;
        let members = |at: StepAt| {
            let mut outwards =
                std::iter::successors(Some(at.0), |ix| find_undoing_step(plan, state, *ix).map(|at| at.0));
            match of {
                UndoWalk::Workflow(home) => outwards.any(|ix| state.instance(ix).home == home),
                UndoWalk::Composite(composite) => {
                    outwards.any(|ix| find_undoing_step(plan, state, ix) == Some(composite))
                }
            }
        };
        // I6: undo starts only when no forward attempt is in flight.
        if let Some(flying) = state.in_flight().iter().find(|a| a.role != AttemptRole::Undo && members(a.at)) {
            return Err(format!("I6: undo began while {flying} was in flight").into());
        }
        if let UndoWalk::Workflow(ix) = of {
            self.unwinding.insert(ix);
        }
        // I6: the undo targets are all visits that were completed and not undone, last first. The step whose failure
        // began the undo may come before them.
        let mut expected: Vec<UndoTarget> =
            self.completed.iter().rev().filter(|t| members(t.at) && !self.undone.contains(t)).copied().collect();
        // A run for which no undo was requested retries only the targets that a failed walk left.
        if let UndoWalk::Workflow(ix) = of
            && state.phase == RunPhase::Closed
            && !state.instance(ix).undo_asked
        {
            let left = |t: &UndoTarget| state.walks.values().any(|walk| walk.failed > 0 && walk.targets.contains(t));
            expected.retain(left);
        }
        if targets.len() == expected.len() + 1 {
            expected.insert(0, targets[0]);
            let failed = state.step(targets[0].at).outcome;
            if matches!(failed, Some(StepOutcome::Succeeded)) {
                return Err("I6: an undo that was not requested".into());
            }
        }
        if targets != expected { Err(format!("I6: undo of {targets:?}, not of {expected:?}").into()) } else { Ok(()) }
    }

    fn check_undo_end(&mut self, state: &RunState, target: UndoTarget, undone: bool) -> RuleResult {
        let found = state.walks.iter().find(|(_, walk)| !walk.ended && walk.targets.get(walk.at) == Some(&target));
        let Some((of, walk)) = found else {
            return Err(format!("I6: {target:?} is not the next to be undone").into());
        };
        let walked = self.walked.entry(*of).or_default();
        walked.push(target);
        if walk.targets[..walked.len()] != **walked {
            return Err(format!("I6: undone out of order: {walked:?}").into());
        }
        if undone && !self.undone.insert(target) {
            return Err(format!("I6: {target:?} was undone twice").into());
        }
        Ok(())
    }

    pub(crate) fn check_after_event(&mut self, state: &RunState, _at: Timestamp, event: &Event) -> RuleResult {
        let completed = match event {
            Event::StepEnded { at, outcome: StepOutcome::Succeeded, .. }
            | Event::StepEnded { at, settler: Some(_), .. } => Some(*at),
            Event::StepReused(reused) if reused.outcome == StepOutcome::Succeeded || reused.settler.is_some() => {
                Some(reused.at)
            }
            _ => None,
        };
        if let Some(at) = completed {
            let entry = self.plan.definition.scope(state.instance(at.0).scope);
            if entry.step(at.1).undo.is_some() {
                self.completed.push(UndoTarget { at, visit: state.step(at).visit });
            }
        }
        self.check_limits(state, event)
    }

    /// I9: limits are never exceeded.
    fn check_limits(&self, state: &RunState, event: &Event) -> RuleResult {
        let at = match event {
            Event::AttemptStarted { attempt, .. } => attempt.at,
            Event::StepEntered { at, .. } => *at,
            Event::InstanceStarted { parent, .. } => return self.check_each_limit(state, *parent),
            _ => return Ok(()),
        };
        let instance = state.instance(at.0);
        let entry = self.plan.definition.scope(instance.scope);
        let Some(limit) = entry.scope.concurrency else { return Ok(()) };
        let works = |phase: StepPhase| {
            matches!(
                phase,
                StepPhase::Running
                    | StepPhase::Checking
                    | StepPhase::Summing
                    | StepPhase::Inside
                    | StepPhase::Unwinding
            )
        };
        let busy = instance.steps.iter().filter(|step| works(step.phase)).count();
        if busy > limit as usize {
            return Err(format!("I9: {busy} steps at work, {limit} allowed").into());
        }
        Ok(())
    }

    fn check_each_limit(&self, state: &RunState, parent: StepAt) -> RuleResult {
        let entry = self.plan.definition.scope(state.instance(parent.0).scope);
        let StepKindSpec::Each(each) = &entry.step(parent.1).kind else { return Ok(()) };
        let children = state.visit_state(parent).map_or(&[][..], |more| &more.children);
        let open = children.iter().filter(|ix| state.instance(**ix).end().is_none()).count();
        match each.parallelism {
            Some(most) if open > most as usize => Err(format!("I9: {open} items open, {most} allowed").into()),
            _ => Ok(()),
        }
    }

    /// I5, I7, I8: checks that the wanted world, computed from scratch, equals the one that the state keeps up to date.
    pub(crate) fn check_settled(&self, state: &RunState) -> RuleResult {
        let kept = wanted(state);
        let mut runs = BTreeSet::new();
        let mut phases = [0; StepPhase::ALL.len()];
        for (ix, instance) in (0..).map(InstanceIx).zip(&state.instances) {
            let mut live = 0;
            let mut slots = 0;
            for (i, step) in (0..).zip(&instance.steps) {
                phases[step.phase as usize] += 1;
                live += u32::from(step.phase.is_live());
                slots += u32::from(step.slot);
                let flying = matches!(step.phase, StepPhase::Running | StepPhase::Checking | StepPhase::Summing);
                let attempt = step.more.as_ref().and_then(|more| more.live);
                if flying != (attempt.is_some() && step.phase != StepPhase::Stopping) {
                    return Err(format!("I8: {:?} is {:?} with {attempt:?}", StepAt(ix, i), step.phase).into());
                }
                runs.extend(attempt.filter(|_| flying));
            }
            if (live, slots) != (instance.live, instance.slots) {
                return Err(format!("I7: {ix:?} counts {} live and {} slots", instance.live, instance.slots).into());
            }
        }
        if phases != state.phases {
            return Err("I7: the count of phases is wrong".into());
        }
        runs.extend(state.walks.values().filter_map(|walk| walk.live));
        if state.phase == RunPhase::Quarantined {
            return if kept.is_empty() { Ok(()) } else { Err("I5: a quarantined run wants something".into()) };
        }
        if !kept.runs.keys().eq(runs.iter()) {
            return Err(format!("I8: wanted {:?}, should be {runs:?}", kept.runs.keys().collect::<Vec<_>>()).into());
        }
        if matches!(state.phase, RunPhase::Decided | RunPhase::Closed) && !(kept.runs.is_empty() && kept.wake.is_none())
        {
            return Err("I5: a decided run wants more than to publish".into());
        }
        self.check_wake(state)
    }

    /// Checks that the next wake-up is the earliest deadline or due time.
    fn check_wake(&self, state: &RunState) -> RuleResult {
        let mut times: Vec<Timestamp> = state.instances.iter().filter_map(|instance| instance.deadline).collect();
        for step in state.instances.iter().flat_map(|instance| &instance.steps) {
            times.extend(step.more.iter().flat_map(|more| [more.deadline, more.due]).flatten());
        }
        times.extend(state.openings.iter().filter_map(|opening| opening.deadline));
        times.extend(state.walks.values().filter_map(|walk| walk.due));
        let expected = times.into_iter().min();
        let kept = wanted(state).wake;
        if kept == expected { Ok(()) } else { Err(format!("I7: wakes at {kept:?}, not at {expected:?}").into()) }
    }
}

/// The step whose undo covers the steps inside an instance: the step around a lane, an item or a pass, or a call that
/// succeeded and has no undo of its own.
fn find_undoing_step(plan: &Plan, state: &RunState, ix: InstanceIx) -> Option<StepAt> {
    let instance = state.instance(ix);
    let parent = instance.parent?;
    let is_call = instance.home == ix;
    let succeeded = instance.end().is_some_and(|end| end.status == RunStatus::Succeeded);
    let scope = plan.definition.scope(state.instance(parent.0).scope);
    let has_undo = scope.step(parent.1).undo.is_some();
    (!is_call || succeeded && !has_undo).then_some(parent)
}
