//! Undo walk events: began, each undo, ended.

use std::sync::Arc;

use crate::engine::{
    AttemptAssignment, AttemptId, ExecutionError, HaltReason, NextAction, StepAt, UndoTarget, UndoWalk,
    fold::StateFold,
    state::{Deadline, InstancePhase, InstanceState, RunPhase, UndoWalkState},
    transitions::StepPhase,
};

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
        let walk = UndoWalkState {
            targets: targets.to_vec(),
            at: 0,
            live: None,
            mode: crate::engine::AttemptMode::Fresh,
            given: None,
            attempts: 0,
            tries: 0,
            interruptions: 0,
            due: None,
            undone,
            failed: 0,
            uncertain: uncertain.to_vec(),
            ended: false,
        };
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
        mode: crate::engine::AttemptMode,
        given: Option<&Arc<crate::engine::AttemptInput>>,
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
        (walk.mode, walk.given) = (crate::engine::AttemptMode::Fresh, None);
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
    let unknown = || crate::engine::ExecutionError {
        class: crate::ir::ErrorClass::NonRetryable,
        code: None,
        message: "it ended in a way that fails the workflow".to_owned(),
        origin: None,
    };
    HaltReason::Limit { error: error.unwrap_or_else(unknown) }
}
