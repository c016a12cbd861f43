//! Instance events: started, halted, ended, reused; and the undo walks of instances.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use crate::{
    engine::{
        AttemptAssignment, AttemptId, AttemptInput, AttemptMode, ExecutionError, HaltReason, InstanceEnd, InstanceIx,
        InstancePart, InstanceReused, NextAction, Publication, RunStart, StepAt, UndoTarget, UndoWalk,
        apply::{StateFold, new_steps},
        state::{Deadline, InstancePhase, InstanceState, RunPhase, UndoWalkState, null},
        transitions::StepPhase,
    },
    ir::{ErrorClass, RunImpact, RunStatus, SiblingPolicy},
    plan::ScopeIx,
    time::Timestamp,
};

impl StateFold<'_> {
    pub(in crate::engine) fn apply_run_started(
        &mut self,
        start: &RunStart,
        parameters: &Arc<Value>,
        env: &Arc<Value>,
        deadline: Option<Timestamp>,
        publish: &[Publication],
    ) {
        self.state.phase = RunPhase::Going;
        self.state.start = Some(Box::new(start.clone()));
        self.state.commands.publish.extend(publish);
        let root = self.plan.definition.root().root;
        self.add_instance(root, None, None, parameters.clone(), env.clone(), deadline);
    }

    pub(in crate::engine) fn apply_instance_started(
        &mut self,
        parent: StepAt,
        part: InstancePart,
        input: Option<&Arc<Value>>,
        env: &Arc<Value>,
        deadline: Option<Timestamp>,
    ) {
        let scope = self.part_scope(parent, part);
        let input = input.cloned().unwrap_or_else(null);
        let ix = self.add_instance(scope, Some(parent), Some(part), input, env.clone(), deadline);
        let more = self.visit_state_mut(parent);
        more.children.push(ix);
        more.open_children += 1;
    }

    /// Adds an instance that has already ended. Its parent step enters phase `Inside` and ends with its own
    /// `StepReused` event.
    pub(in crate::engine) fn apply_instance_reused(&mut self, reused: &InstanceReused) {
        let InstanceReused { parent, part, input, env, why, end } = reused;
        self.begin_visit(*parent);
        if self.state.step(*parent).phase != StepPhase::Inside {
            self.set_phase(*parent, StepPhase::Inside);
        }
        let input = input.clone().unwrap_or_else(null);
        let scope = self.part_scope(*parent, *part);
        let ix = self.add_instance(scope, Some(*parent), Some(*part), input, env.clone(), None);
        self.visit_state_mut(*parent).children.push(ix);
        let now = self.now;
        let instance = self.instance_mut(ix);
        instance.phase = InstancePhase::Ended { why: why.clone(), end: end.clone() };
        instance.ended = Some(now);
    }

    /// Returns the scope of a part of a composite.
    fn part_scope(&self, parent: StepAt, part: InstancePart) -> ScopeIx {
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        self.scope_entry(parent.0).inner_scope(parent.1, which)
    }

    pub(in crate::engine) fn add_instance(
        &mut self,
        scope: ScopeIx,
        parent: Option<StepAt>,
        part: Option<InstancePart>,
        input: Arc<Value>,
        env: Arc<Value>,
        deadline: Option<Timestamp>,
    ) -> InstanceIx {
        let ix = InstanceIx(u32::try_from(self.state.instances.len()).expect("instances are limited"));
        let home = match (parent, part) {
            (Some(parent), Some(InstancePart::Lane(_) | InstancePart::Item(_) | InstancePart::Pass(_))) => {
                self.state.instance(parent.0).home
            }
            _ => ix,
        };
        let steps = new_steps(self.plan.definition.scope(scope));
        let open = u32::try_from(steps.len()).expect("steps are limited");
        self.state.phases[StepPhase::Pending as usize] += open;
        self.state.instances.push(InstanceState {
            scope,
            parent,
            part,
            home,
            phase: InstancePhase::Going,
            steps,
            input,
            env,
            members: Vec::new(),
            executed: 0,
            open,
            live: 0,
            slots: 0,
            queue: BTreeSet::new(),
            verdict: RunImpact::Clean,
            error: None,
            last_output: null(),
            cursor: None,
            completed: Vec::new(),
            undo_asked: false,
            stuck: false,
            deadline,
            started: self.now,
            ended: None,
        });
        self.state.instances[home.0 as usize].members.push(ix);
        if let Some(time) = deadline {
            self.state.deadlines.insert((time, Deadline::Instance(ix)));
        }
        ix
    }

    pub(in crate::engine) fn apply_instance_halted(&mut self, ix: InstanceIx, why: &HaltReason, undo: bool) {
        self.forget_unstarted(ix);
        let drain =
            self.scope_entry(ix).scope.siblings == SiblingPolicy::Drain && matches!(why, HaltReason::Failed { .. });
        // An instance that drains keeps its deadline.
        if !drain {
            self.drop_instance_deadline(ix);
            self.instance_mut(ix).queue.clear();
        }
        self.instance_mut(ix).undo_asked = undo;
        self.instance_mut(ix).phase = InstancePhase::Halted { why: why.clone(), undo };
    }

    pub(in crate::engine) fn apply_instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) {
        self.drop_instance_deadline(ix);
        let now = self.now;
        let instance = self.instance_mut(ix);
        let why = instance.halt_reason().cloned();
        let outer = why == Some(HaltReason::Outer);
        instance.phase = InstancePhase::Ended { why, end: end.clone() };
        instance.ended = Some(now);
        let Some(parent) = instance.parent else { return };
        let more = self.visit_state_mut(parent);
        more.open_children -= 1;
        if end.status != RunStatus::Succeeded && !outer {
            more.failed_children += 1;
            if more.child_error.is_none() {
                more.child_error.clone_from(&end.error);
            }
        }
    }

    fn drop_instance_deadline(&mut self, ix: InstanceIx) {
        if let Some(time) = self.instance_mut(ix).deadline.take() {
            self.state.deadlines.remove(&(time, Deadline::Instance(ix)));
        }
    }
}

impl StateFold<'_> {
    pub(in crate::engine) fn apply_undo_began(&mut self, of: UndoWalk, targets: &[UndoTarget], uncertain: &[StepAt]) {
        self.state.phase = RunPhase::Going;
        self.state.end = None;
        match of {
            UndoWalk::Workflow(ix) => {
                self.drop_instance_deadline(ix);
                let instance = self.instance_mut(ix);
                let why = instance.halt_reason().cloned().unwrap_or_else(|| halt_from_end(instance));
                instance.phase = InstancePhase::Undoing { why };
                instance.ended = None;
            }
            UndoWalk::Composite(at) => {
                self.end_try(at);
                self.set_phase(at, StepPhase::Unwinding);
            }
        }
        let undone = self.state.walks.get(&of).map_or(0, |walk| walk.undone);
        let (targets, uncertain) = (targets.to_vec(), uncertain.to_vec());
        let walk = UndoWalkState { targets, uncertain, undone, ..UndoWalkState::default() };
        self.state.walks.insert(of, walk);
        self.mark_undo_target(of);
    }

    /// Marks the current target of the walk as being undone.
    fn mark_undo_target(&mut self, of: UndoWalk) {
        let walk = &self.state.walks[&of];
        if let Some(target) = walk.targets.get(walk.at).copied() {
            self.state.undoable.insert(of);
            self.state.undoing.insert(target.at, of);
            self.set_phase(target.at, StepPhase::Undoing);
            self.visit_state_mut(target.at).undo_turns += 1;
        }
    }

    pub(in crate::engine) fn undo_walk_mut(&mut self, at: StepAt) -> Option<&mut UndoWalkState> {
        let of = self.find_undo_walk(at)?;
        self.state.walks.get_mut(&of)
    }

    pub(in crate::engine) fn resume_undo_walk(&mut self, at: StepAt, next: NextAction) {
        let Some(of) = self.find_undo_walk(at) else { return };
        self.state.undoable.insert(of);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        walk.mode = next.mode;
        if let Some(due) = walk.due.take() {
            self.state.deadlines.remove(&(due, Deadline::Undo(of)));
        }
    }

    pub(in crate::engine) fn start_undo_attempt(
        &mut self,
        attempt: AttemptId,
        mode: AttemptMode,
        given: Option<&Arc<AttemptInput>>,
    ) {
        let Some(of) = self.find_undo_walk(attempt.at) else { return };
        self.state.undoable.remove(&of);
        let limit = self.attempt_time_limit(attempt);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        walk.live = Some(attempt);
        walk.attempts = attempt.attempt;
        if let Some(given) = given {
            walk.given = Some(given.clone());
        }
        let given = walk.given.clone().expect("a first attempt says what it is given");
        self.state.commands.runs.insert(attempt, AttemptAssignment { given, mode, stage: 1, limit });
    }

    pub(in crate::engine) fn finish_undo_target(&mut self, at: StepAt, error: Option<&ExecutionError>) {
        let undone = error.is_none();
        let Some(of) = self.find_undo_walk(at) else { return };
        self.state.undoable.remove(&of);
        self.state.undoing.remove(&at);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        let target = walk.targets[walk.at];
        walk.at += 1;
        (walk.attempts, walk.tries, walk.interruptions) = (0, 0, 0);
        (walk.mode, walk.given) = (AttemptMode::Fresh, None);
        if undone {
            walk.undone += 1;
        } else {
            walk.failed += 1;
        }
        self.visit_state_mut(at).undo_error = error.cloned();
        let completed = &mut self.instance_mut(at.0).completed;
        if undone {
            completed.retain(|done| (done.step, done.visit) != (at.1, target.visit));
        }
        // A step is undone when all of its visits are undone.
        let left = !undone || completed.iter().any(|done| done.step == at.1);
        self.set_phase(at, if left { StepPhase::Stuck } else { StepPhase::Undone });
        self.mark_undo_target(of);
    }

    pub(in crate::engine) fn apply_undo_ended(&mut self, of: UndoWalk, clean: bool) {
        self.state.undoable.remove(&of);
        let walk = self.state.walks.get_mut(&of).expect("a walk ends after it began");
        walk.ended = true;
        let rest: Vec<UndoTarget> = walk.targets[walk.at.min(walk.targets.len())..].to_vec();
        for target in rest {
            self.state.undoing.remove(&target.at);
            if self.state.step(target.at).phase == StepPhase::Undoing {
                self.set_phase(target.at, StepPhase::Done);
            }
        }
        let home = match of {
            UndoWalk::Workflow(ix) => ix,
            UndoWalk::Composite(at) => self.state.instance(at.0).home,
        };
        if matches!(of, UndoWalk::Workflow(_)) || !clean {
            self.instance_mut(home).stuck = !clean;
        }
    }
}

/// The halt reason of an instance that ended without being halted: one of its steps failed it.
fn halt_from_end(instance: &InstanceState) -> HaltReason {
    let error = instance.end().and_then(|end| end.error.clone());
    let unknown = || ExecutionError {
        class: ErrorClass::NonRetryable,
        code: None,
        message: "it ended in a way that fails the workflow".to_owned(),
        origin: None,
    };
    HaltReason::Limit { error: error.unwrap_or_else(unknown) }
}
