//! Undo: what was completed is taken back, last first, one after another.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    fail::allows,
    start::{bind, texts},
};
use crate::{
    engine::{
        AttemptEnd, AttemptId, Error, Event, Given, Halt, InstanceIx, Mode, Onward, Outcome, Refusal, Role,
        StepAt, UndoTarget, Walk, code,
        decide::{Decision, Todo},
        state::RunPhase,
    },
    ir::{ErrorClass, RunStatus, Undo, UndoFailure},
    limits,
};

impl Decision<'_> {
    /// A workflow in which nothing is live any more is undone.
    pub(in crate::engine) fn begin_undo(&mut self, ix: InstanceIx) {
        let mut targets = Vec::new();
        if let Some(Halt::Failed { step }) = self.state.instance(ix).halt()
            && self.entry(ix).scope.undo.failed_step
            && self.entry(ix).step(*step).undo.is_some()
        {
            let at = StepAt(ix, *step);
            targets.push(UndoTarget { at, visit: self.state.step(at).visit });
        }
        targets.extend(self.completed(|_| true, ix));
        if targets.is_empty() {
            return self.end_halted(ix);
        }
        let uncertain = self.uncertain(ix);
        self.emit(Event::UndoBegan { of: Walk::Workflow(ix), targets, uncertain });
    }

    /// Lists the completed steps of the members of a workflow that fit, last first. A call that succeeded and has no undo of its
    /// own is undone by the undos of the steps inside it.
    fn completed(&self, fits: impl Fn(InstanceIx) -> bool, home: InstanceIx) -> Vec<UndoTarget> {
        let homes = self.undone_with(home);
        let members = homes.iter().flat_map(|home| self.state.instance(*home).members.iter().copied());
        let members = members.filter(|member| fits(*member));
        let mut done: Vec<(u64, UndoTarget)> = members
            .flat_map(|ix| self.state.instance(ix).completed.iter().map(move |done| (ix, done)))
            .map(|(ix, done)| (done.order, UndoTarget { at: StepAt(ix, done.step), visit: done.visit }))
            .collect();
        done.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        done.into_iter().map(|(_, target)| target).collect()
    }

    /// A workflow, and the workflows that it called and that are undone with it.
    fn undone_with(&self, home: InstanceIx) -> BTreeSet<InstanceIx> {
        let mut homes = BTreeSet::from([home]);
        // A called workflow begins after its caller, so that one pass will do.
        for (i, instance) in (0..).zip(&self.state.instances).skip(home.0 as usize + 1) {
            let Some(parent) = instance.parent.filter(|_| instance.home == InstanceIx(i)) else { continue };
            let succeeded = instance.end().is_some_and(|end| end.status == RunStatus::Succeeded);
            let within = homes.contains(&self.state.instance(parent.0).home);
            if within && succeeded && self.step(parent).undo.is_none() {
                homes.insert(InstanceIx(i));
            }
        }
        homes
    }

    /// What was completed inside a composite, last first.
    pub(in crate::engine) fn completed_inside(&self, at: StepAt) -> Vec<UndoTarget> {
        self.completed(|member| self.is_inside(member, at), self.state.instance(at.0).home)
    }

    fn is_inside(&self, mut ix: InstanceIx, composite: StepAt) -> bool {
        while let Some(parent) = self.state.instance(ix).parent {
            if parent == composite {
                return true;
            }
            ix = parent.0;
        }
        false
    }

    /// Steps with an undo that were cut off and may have had an effect.
    fn uncertain(&self, home: InstanceIx) -> Vec<StepAt> {
        let mut found = Vec::new();
        for ix in &self.state.instance(home).members {
            let entry = self.entry(*ix);
            for (i, step) in (0..).zip(&self.state.instance(*ix).steps) {
                let cut_off = match step.outcome {
                    Some(Outcome::Cancelled) => step.more.as_ref().is_some_and(|more| more.started.is_some()),
                    Some(Outcome::Failed(ErrorClass::Timeout | ErrorClass::Interrupted)) => true,
                    _ => false,
                };
                if cut_off && entry.step(i).undo.is_some() {
                    found.push(StepAt(*ix, i));
                }
            }
        }
        found
    }

    pub(in crate::engine) fn start_undo(&mut self, of: Walk) {
        let walk = &self.state.walks[&of];
        let target = walk.targets[walk.at];
        let attempt = AttemptId {
            at: target.at,
            visit: target.visit,
            iteration: self.state.more(target.at).map_or(1, |more| more.undo_turns),
            role: Role::Undo,
            attempt: walk.attempts + 1,
        };
        let (mode, ready) = (walk.mode, walk.given.is_some());
        let given = if ready { Ok(None) } else { self.undo_given(target).map(|given| Some(Arc::new(given))) };
        match given {
            Ok(given) => {
                self.grant -= 1;
                self.emit(Event::AttemptStarted { attempt, mode, given, deadline: None });
            }
            Err(error) => self.undo_failed(of, target, error),
        }
    }

    fn undo(&self, at: StepAt) -> &Undo {
        self.step(at).undo.as_deref().expect("only a step with an undo is undone")
    }

    /// Evaluates the inputs of an undo, seen from the step it undoes, with that visit's output. One that declares no
    /// inputs is given that output, if it is an object.
    fn undo_given(&self, target: UndoTarget) -> Result<Given, Error> {
        let UndoTarget { at, visit } = target;
        let done = &self.state.instance(at.0).completed;
        let done = done.iter().find(|done| (done.step, done.visit) == (at.1, visit));
        let output = done.map_or(Value::Null, |done| (*done.output).clone());
        let mut env = self.env(at.0);
        env.own = Some((at, &output));
        let undo = self.undo(at);
        let inputs = match undo.inputs.is_empty() && output.is_object() {
            true => output.clone(),
            false => bind(&undo.inputs, &env)?,
        };
        Ok(Given { inputs, texts: texts(Some(&undo.work.worker), &env)? })
    }

    pub(in crate::engine) fn undo_ended(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        let Some(of) = self.state.undoing.get(&at).copied() else { return };
        let walk = &self.state.walks[&of];
        let target = walk.targets[walk.at];
        let (tries, often) = (walk.tries + 1, walk.interruptions >= limits::INTERRUPTIONS);
        let mut retry_at = None;
        let error = match end {
            AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => {
                self.emit(Event::StepUndone { at, visit: target.visit });
                return self.later(Todo::Walk(of));
            }
            AttemptEnd::Interrupted if !often => {
                let next = Onward { role: Role::Undo, iteration: 1, mode: Mode::Rerun, stage: 1 };
                return self.emit(Event::StepGoesOn { at, next });
            }
            AttemptEnd::Failed { class, code, message, retry_at: at } => {
                retry_at = at;
                Error { class, code, message, origin: None }
            }
            other => undo_error(&other),
        };
        let retry = &self.undo(at).retry;
        if !often && allows(retry, &error, tries) {
            let due = self.due(retry, at, tries, retry_at);
            return self.emit(Event::RetryScheduled { at, due, error });
        }
        self.undo_failed(of, target, error);
    }

    fn undo_failed(&mut self, of: Walk, target: UndoTarget, error: Error) {
        self.emit(Event::UndoFailed { at: target.at, visit: target.visit, error });
        self.later(Todo::Walk(of));
    }

    /// The next undo, or the end of the walk.
    pub(in crate::engine) fn walk_on(&mut self, of: Walk) {
        let walk = &self.state.walks[&of];
        let home = match of {
            Walk::Workflow(ix) => ix,
            Walk::Composite(at) => self.state.instance(at.0).home,
        };
        let stops = walk.failed > 0 && self.entry(home).scope.undo.if_one_fails == UndoFailure::Stop;
        if walk.at < walk.targets.len() && !stops {
            return;
        }
        let clean = walk.failed == 0;
        self.emit(Event::UndoEnded { of, clean });
        match of {
            Walk::Workflow(ix) => self.workflow_undone(ix),
            Walk::Composite(at) => self.composite_undone(at, clean),
        }
    }

    fn workflow_undone(&mut self, ix: InstanceIx) {
        let instance = self.state.instance(ix);
        match instance.halt() {
            _ if instance.stuck => self.end_as(ix, RunStatus::UndoFailed),
            Some(Halt::Cancelled { .. } | Halt::Outer) => self.end_as(ix, RunStatus::Cancelled),
            // Only what a composite left was undone, if the workflow was not to be.
            _ if instance.undo_asked => self.end_as(ix, RunStatus::Undone),
            _ => self.end_halted(ix),
        }
    }

    /// A composite whose failed instances have been undone is tried again, unless that went wrong.
    fn composite_undone(&mut self, at: StepAt, clean: bool) {
        let more = self.state.more(at).expect("it was entered");
        let overdue = more.stopping.is_some() && self.step(at).policy.timeout_per == crate::ir::Per::Step;
        let error = more.child_error.clone().unwrap_or_else(|| {
            Error::new(ErrorClass::NonRetryable, code::UNDO_FAILED, "its failed instance was undone")
        });
        if !clean {
            let message = format!("it failed and could not be undone before another try: {}", error.message);
            return self.fail_step(at, Error::new(ErrorClass::NonRetryable, code::UNDO_FAILED, message));
        }
        if overdue {
            return self.step_timed_out(at);
        }
        if !self.may_go_on(at) {
            return self.fail_step(at, error);
        }
        self.schedule(at, error, None);
    }

    /// Whether a walk was to undo this.
    fn was_left(&self, target: UndoTarget) -> bool {
        self.state.walks.values().any(|walk| walk.targets.contains(&target))
    }

    /// What a run could not undo is tried again.
    pub(in crate::engine) fn retry_undo(&mut self) -> Result<(), Refusal> {
        let stuck = self.state.end.as_ref().is_some_and(|end| end.status == RunStatus::UndoFailed);
        if self.state.phase != RunPhase::Closed || !stuck {
            return Err(Refusal::NothingToUndo);
        }
        let root = InstanceIx::ROOT;
        // Where the run itself was not to be undone, only what could not be is left to do.
        let all = self.state.instance(root).undo_asked;
        let mut targets = self.completed(|_| true, root);
        targets.retain(|target| all || self.was_left(*target));
        if targets.is_empty() {
            return Err(Refusal::NothingToUndo);
        }
        let uncertain = self.uncertain(root);
        self.emit(Event::UndoBegan { of: Walk::Workflow(root), targets, uncertain });
        Ok(())
    }
}

fn undo_error(end: &AttemptEnd) -> Error {
    match end {
        AttemptEnd::TimedOut => Error::new(ErrorClass::Timeout, code::TIMEOUT, "the undo timed out"),
        AttemptEnd::Interrupted => Error::new(
            ErrorClass::Interrupted,
            code::INTERRUPTED,
            "the host died under the undo again and again",
        ),
        AttemptEnd::Blocked { message, .. } => {
            Error::new(ErrorClass::NonRetryable, code::STOPPED, message.as_str())
        }
        _ => Error::new(ErrorClass::Transient, code::STOPPED, "the undo stopped without being told to"),
    }
}
