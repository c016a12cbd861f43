//! Walks: begun, one undo after another, ended.

use std::sync::Arc;

use crate::engine::{
    Assignment, AttemptId, Error, Halt, Onward, StepAt, UndoTarget, Walk,
    fold::Fold,
    state::{Deadline, Instance, InstancePhase, RunPhase, WalkState},
    transitions::Phase,
};

impl Fold<'_> {
    pub(in crate::engine) fn undo_began(&mut self, of: Walk, targets: &[UndoTarget], uncertain: &[StepAt]) {
        self.state.phase = RunPhase::Going;
        self.state.end = None;
        match of {
            Walk::Workflow(ix) => {
                self.drop_instance_deadline(ix);
                let instance = self.instance(ix);
                let why = instance.halt().cloned().unwrap_or_else(|| ended_badly(instance));
                instance.phase = InstancePhase::Undoing { why };
                instance.ended = None;
            }
            Walk::Composite(at) => {
                self.end_try(at);
                self.set_phase(at, Phase::Unwinding);
            }
        }
        let undone = self.state.walks.get(&of).map_or(0, |walk| walk.undone);
        let walk = WalkState {
            targets: targets.to_vec(),
            at: 0,
            live: None,
            mode: crate::engine::Mode::Fresh,
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
        self.next_undo(of);
    }

    /// Makes the walk's present target the one that is being undone.
    pub(in crate::engine) fn next_undo(&mut self, of: Walk) {
        let walk = &self.state.walks[&of];
        if let Some(target) = walk.targets.get(walk.at).copied() {
            self.state.undoable.insert(of);
            self.state.undoing.insert(target.at, of);
            self.set_phase(target.at, Phase::Undoing);
            self.more(target.at).undo_turns += 1;
        }
    }

    pub(in crate::engine) fn walk(&mut self, at: StepAt) -> Option<&mut WalkState> {
        let of = self.walk_at(at)?;
        self.state.walks.get_mut(&of)
    }

    pub(in crate::engine) fn undo_goes_on(&mut self, at: StepAt, next: Onward) {
        let Some(of) = self.walk_at(at) else { return };
        self.state.undoable.insert(of);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        walk.mode = next.mode;
        if let Some(due) = walk.due.take() {
            self.state.deadlines.remove(&(due, Deadline::Undo(of)));
        }
    }

    pub(in crate::engine) fn undo_started(
        &mut self,
        attempt: AttemptId,
        mode: crate::engine::Mode,
        given: Option<&Arc<crate::engine::Given>>,
    ) {
        let Some(of) = self.walk_at(attempt.at) else { return };
        self.state.undoable.remove(&of);
        let limit = self.limit_of(attempt);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        walk.live = Some(attempt);
        walk.attempts = attempt.attempt;
        if let Some(given) = given {
            walk.given = Some(given.clone());
        }
        let given = walk.given.clone().expect("a first attempt says what it is given");
        self.state.commands.runs.insert(attempt, Assignment { given, mode, stage: 1, limit });
    }

    pub(in crate::engine) fn undo_step_over(&mut self, at: StepAt, error: Option<&Error>) {
        let undone = error.is_none();
        let Some(of) = self.walk_at(at) else { return };
        self.state.undoable.remove(&of);
        self.state.undoing.remove(&at);
        let walk = self.state.walks.get_mut(&of).expect("a step is undone by a walk that began");
        let target = walk.targets[walk.at];
        walk.at += 1;
        (walk.attempts, walk.tries, walk.interruptions) = (0, 0, 0);
        (walk.mode, walk.given) = (crate::engine::Mode::Fresh, None);
        if undone {
            walk.undone += 1;
        } else {
            walk.failed += 1;
        }
        self.more(at).undo_error = error.cloned();
        let completed = &mut self.instance(at.0).completed;
        if undone {
            completed.retain(|done| (done.step, done.visit) != (at.1, target.visit));
        }
        // A step is undone when all of its visits are.
        let left = !undone || completed.iter().any(|done| done.step == at.1);
        self.set_phase(at, if left { Phase::Stuck } else { Phase::Undone });
        self.next_undo(of);
    }

    pub(in crate::engine) fn undo_ended(&mut self, of: Walk, clean: bool) {
        self.state.undoable.remove(&of);
        let walk = self.state.walks.get_mut(&of).expect("a walk ends after it began");
        walk.ended = true;
        let rest: Vec<UndoTarget> = walk.targets[walk.at.min(walk.targets.len())..].to_vec();
        for target in rest {
            self.state.undoing.remove(&target.at);
            if self.state.step(target.at).phase == Phase::Undoing {
                self.set_phase(target.at, Phase::Done);
            }
        }
        let home = match of {
            Walk::Workflow(ix) => ix,
            Walk::Composite(at) => self.state.instance(at.0).home,
        };
        if matches!(of, Walk::Workflow(_)) || !clean {
            self.instance(home).stuck = !clean;
        }
    }
}

/// Why an instance is over that was never halted: one of its steps failed it.
fn ended_badly(instance: &Instance) -> Halt {
    let error = instance.end().and_then(|end| end.error.clone());
    let unknown = || crate::engine::Error {
        class: crate::ir::ErrorClass::NonRetryable,
        code: None,
        message: "it ended in a way that fails the workflow".to_owned(),
        origin: None,
    };
    Halt::Limit { error: error.unwrap_or_else(unknown) }
}
