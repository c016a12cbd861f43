//! Undo: undoes completed steps one after another, the last one first.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    fail::allows_retry,
    start::{evaluate_bindings, evaluate_texts},
};
use crate::{
    engine::{
        AttemptEnd, AttemptId, AttemptInput, AttemptMode, AttemptRole, Event, ExecutionError, HaltReason, InstanceIx,
        NextAction, Refusal, StepAt, StepOutcome, UndoTarget, UndoWalk, code,
        decide::{DecideContext, PendingConsequence},
        state::RunPhase,
    },
    ir::{ErrorClass, RunStatus, TimeoutScope, UndoFailurePolicy, UndoSpec},
    limits,
};

impl DecideContext<'_> {
    /// Starts the undo of a workflow in which nothing is live any more.
    pub(in crate::engine) fn begin_undo(&mut self, ix: InstanceIx) {
        let mut targets = Vec::new();
        if let Some(HaltReason::Failed { step }) = self.state.instance(ix).halt_reason()
            && self.scope_entry(ix).scope.undo.failed_step
            && self.scope_entry(ix).step(*step).undo.is_some()
        {
            let at = StepAt(ix, *step);
            targets.push(UndoTarget { at, visit: self.state.step(at).visit });
        }
        targets.extend(self.find_undo_targets(|_| true, ix));
        if targets.is_empty() {
            return self.end_halted(ix);
        }
        let uncertain = self.find_uncertain_steps(ix);
        self.emit(Event::UndoBegan { of: UndoWalk::Workflow(ix), targets, uncertain });
    }

    /// Lists the completed steps of the matching members of a workflow, last first. A call that succeeded and has no
    /// undo of its own is undone by the undos of the steps inside it.
    fn find_undo_targets(&self, fits: impl Fn(InstanceIx) -> bool, home: InstanceIx) -> Vec<UndoTarget> {
        let homes = self.find_undone_workflows(home);
        let members = homes.iter().flat_map(|home| self.state.instance(*home).members.iter().copied());
        let members = members.filter(|member| fits(*member));
        let mut done: Vec<(u64, UndoTarget)> = members
            .flat_map(|ix| self.state.instance(ix).completed.iter().map(move |done| (ix, done)))
            .map(|(ix, done)| (done.order, UndoTarget { at: StepAt(ix, done.step), visit: done.visit }))
            .collect();
        done.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        done.into_iter().map(|(_, target)| target).collect()
    }

    /// Returns a workflow and the workflows that it called and that are undone with it.
    fn find_undone_workflows(&self, home: InstanceIx) -> BTreeSet<InstanceIx> {
        let mut homes = BTreeSet::from([home]);
        // A called workflow has a higher number than its caller, so that one pass is enough.
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

    /// Lists the completed steps inside a composite, last first.
    pub(in crate::engine) fn find_targets_inside(&self, at: StepAt) -> Vec<UndoTarget> {
        self.find_undo_targets(|member| self.is_inside(member, at), self.state.instance(at.0).home)
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

    /// Lists the steps with an undo that were stopped or interrupted and may have had an effect.
    fn find_uncertain_steps(&self, home: InstanceIx) -> Vec<StepAt> {
        let mut found = Vec::new();
        for ix in &self.state.instance(home).members {
            let entry = self.scope_entry(*ix);
            for (i, step) in (0..).zip(&self.state.instance(*ix).steps) {
                let cut_off = match step.outcome {
                    Some(StepOutcome::Cancelled) => step.more.as_ref().is_some_and(|more| more.started.is_some()),
                    Some(StepOutcome::Failed(ErrorClass::Timeout | ErrorClass::Interrupted)) => true,
                    _ => false,
                };
                if cut_off && entry.step(i).undo.is_some() {
                    found.push(StepAt(*ix, i));
                }
            }
        }
        found
    }

    pub(in crate::engine) fn start_undo_attempt(&mut self, of: UndoWalk) {
        let walk = &self.state.walks[&of];
        let target = walk.targets[walk.at];
        let attempt = AttemptId {
            at: target.at,
            visit: target.visit,
            iteration: self.state.visit_state(target.at).map_or(1, |more| more.undo_turns),
            role: AttemptRole::Undo,
            attempt: walk.attempts + 1,
        };
        let (mode, ready) = (walk.mode, walk.given.is_some());
        let given = if ready { Ok(None) } else { self.evaluate_undo_input(target).map(|given| Some(Arc::new(given))) };
        match given {
            Ok(given) => {
                self.grant -= 1;
                self.emit(Event::AttemptStarted { attempt, mode, given, deadline: None });
            }
            Err(error) => self.record_undo_failure(of, target, error),
        }
    }

    fn step_undo(&self, at: StepAt) -> &UndoSpec {
        self.step(at).undo.as_deref().expect("only a step with an undo is undone")
    }

    /// Evaluates the inputs of an undo in the environment of its step, with the output of that visit. An undo without
    /// declared inputs is given that output, if it is an object.
    fn evaluate_undo_input(&self, target: UndoTarget) -> Result<AttemptInput, ExecutionError> {
        let UndoTarget { at, visit } = target;
        let done = &self.state.instance(at.0).completed;
        let done = done.iter().find(|done| (done.step, done.visit) == (at.1, visit));
        let output = done.map_or(Value::Null, |done| (*done.output).clone());
        let mut env = self.env(at.0);
        env.own = Some((at, &output));
        let undo = self.step_undo(at);
        let inputs = match undo.inputs.is_empty() && output.is_object() {
            true => output.clone(),
            false => evaluate_bindings(&undo.inputs, &env)?,
        };
        Ok(AttemptInput { inputs, texts: evaluate_texts(Some(&undo.work.worker), &env)? })
    }

    pub(in crate::engine) fn handle_undo_end(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        let Some(of) = self.state.undoing.get(&at).copied() else { return };
        let walk = &self.state.walks[&of];
        let target = walk.targets[walk.at];
        let (tries, often) = (walk.tries + 1, walk.interruptions >= limits::INTERRUPTIONS);
        let mut retry_at = None;
        let error = match end {
            AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => {
                self.emit(Event::StepUndone { at, visit: target.visit });
                return self.defer_consequence(PendingConsequence::Walk(of));
            }
            AttemptEnd::Interrupted if !often => {
                let next = NextAction { role: AttemptRole::Undo, iteration: 1, mode: AttemptMode::Rerun, stage: 1 };
                return self.emit(Event::StepGoesOn { at, next });
            }
            AttemptEnd::Failed { class, code, message, retry_at: at } => {
                retry_at = at;
                ExecutionError { class, code, message, origin: None }
            }
            other => undo_error(&other),
        };
        let retry = &self.step_undo(at).retry;
        if !often && allows_retry(retry, &error, tries) {
            let due = self.retry_due(retry, at, tries, retry_at);
            return self.emit(Event::RetryScheduled { at, due, error });
        }
        self.record_undo_failure(of, target, error);
    }

    fn record_undo_failure(&mut self, of: UndoWalk, target: UndoTarget, error: ExecutionError) {
        self.emit(Event::UndoFailed { at: target.at, visit: target.visit, error });
        self.defer_consequence(PendingConsequence::Walk(of));
    }

    /// Continues with the next undo, or ends the walk.
    pub(in crate::engine) fn continue_undo_walk(&mut self, of: UndoWalk) {
        let walk = &self.state.walks[&of];
        let home = match of {
            UndoWalk::Workflow(ix) => ix,
            UndoWalk::Composite(at) => self.state.instance(at.0).home,
        };
        let stops = walk.failed > 0 && self.scope_entry(home).scope.undo.if_one_fails == UndoFailurePolicy::Stop;
        if walk.at < walk.targets.len() && !stops {
            return;
        }
        let clean = walk.failed == 0;
        self.emit(Event::UndoEnded { of, clean });
        match of {
            UndoWalk::Workflow(ix) => self.end_undone_workflow(ix),
            UndoWalk::Composite(at) => self.retry_undone_composite(at, clean),
        }
    }

    fn end_undone_workflow(&mut self, ix: InstanceIx) {
        let instance = self.state.instance(ix);
        match instance.halt_reason() {
            _ if instance.stuck => self.end_with_status(ix, RunStatus::UndoFailed),
            Some(HaltReason::Cancelled { .. } | HaltReason::Outer) => self.end_with_status(ix, RunStatus::Cancelled),
            // If the workflow itself was not to be undone, only the remains of a composite were undone.
            _ if instance.undo_asked => self.end_with_status(ix, RunStatus::Undone),
            _ => self.end_halted(ix),
        }
    }

    /// Retries a composite whose failed instances were undone, or fails it if an undo failed.
    fn retry_undone_composite(&mut self, at: StepAt, clean: bool) {
        let more = self.state.visit_state(at).expect("it was entered");
        let overdue = more.stopping.is_some() && self.step(at).policy.timeout_per == TimeoutScope::Step;
        let error = more
            .child_error
            .clone()
            .unwrap_or_else(|| ExecutionError::non_retryable(code::UNDO_FAILED, "its failed instance was undone"));
        if !clean {
            let message = format!("it failed and could not be undone before a retry: {}", error.message);
            return self.fail_step(at, ExecutionError::non_retryable(code::UNDO_FAILED, message));
        }
        if overdue {
            return self.time_out_step(at);
        }
        if !self.may_go_on(at) {
            return self.fail_step(at, error);
        }
        self.schedule_retry(at, error, None);
    }

    /// True if a walk had this target.
    fn was_undo_target(&self, target: UndoTarget) -> bool {
        self.state.walks.values().any(|walk| walk.targets.contains(&target))
    }

    /// Retries the undos of a run that failed.
    pub(in crate::engine) fn retry_undo(&mut self) -> Result<(), Refusal> {
        let stuck = self.state.end.as_ref().is_some_and(|end| end.status == RunStatus::UndoFailed);
        if self.state.phase != RunPhase::Closed || !stuck {
            return Err(Refusal::NothingToUndo);
        }
        let root = InstanceIx::ROOT;
        // If the run itself was not to be undone, only the failed targets are retried.
        let all = self.state.instance(root).undo_asked;
        let mut targets = self.find_undo_targets(|_| true, root);
        targets.retain(|target| all || self.was_undo_target(*target));
        if targets.is_empty() {
            return Err(Refusal::NothingToUndo);
        }
        let uncertain = self.find_uncertain_steps(root);
        self.emit(Event::UndoBegan { of: UndoWalk::Workflow(root), targets, uncertain });
        Ok(())
    }
}

fn undo_error(end: &AttemptEnd) -> ExecutionError {
    match end {
        AttemptEnd::TimedOut => ExecutionError::timeout("the undo timed out"),
        AttemptEnd::Interrupted => {
            ExecutionError::new(ErrorClass::Interrupted, code::INTERRUPTED, "the undo was interrupted too many times")
        }
        AttemptEnd::Blocked { message, .. } => ExecutionError::non_retryable(code::STOPPED, message.as_str()),
        _ => ExecutionError::new(ErrorClass::Transient, code::STOPPED, "the undo stopped without being told to"),
    }
}
