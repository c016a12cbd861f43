//! Undo: the visits that a walk must cover, their order, and how each one ends.

use std::sync::Arc;

use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptRole, Event, ExecutionError, HaltReason, InstanceIx, StepAt, UndoTarget, UndoWalk,
    },
    ir::{ErrorClass, RunStatus, StepKindSpec, UndoFailurePolicy},
    limits,
    time::Timestamp,
};

use super::{
    Acceptor, RuleResult,
    attempts::{allows_retry, check_retry_due},
    ensure,
    state::{AcceptorStepPhase, AcceptorWalk},
};

impl Acceptor {
    pub(super) fn is_about_undo(&self, event: &Event) -> bool {
        match event {
            Event::UndoBegan { .. } | Event::StepUndone { .. } | Event::UndoFailed { .. } => true,
            Event::UndoEnded { .. } | Event::RetryScheduled { .. } | Event::RunDecided { .. } => true,
            Event::InstanceEnded { .. } => true,
            Event::AttemptStarted { attempt, .. } | Event::AttemptEnded { attempt, .. } => {
                attempt.role == AttemptRole::Undo
            }
            Event::StepGoesOn { next, .. } => next.role == AttemptRole::Undo,
            Event::Closed => self.publish.is_empty(),
            _ => false,
        }
    }

    /// The visits that were completed and not undone in the instances that `belongs` accepts, last first.
    fn list_undo_targets(&self, belongs: impl Fn(InstanceIx) -> bool) -> Vec<UndoTarget> {
        let mut all = Vec::new();
        for ix in (0..self.instances.len()).filter_map(|ix| u32::try_from(ix).ok().map(InstanceIx)) {
            if !belongs(ix) {
                continue;
            }
            for (step, st) in (0..).zip(&self.instances[ix.0 as usize].steps) {
                for one in st.completed.iter().filter(|one| !one.undone) {
                    all.push((one.order, UndoTarget { at: StepAt(ix, step), visit: one.visit }));
                }
            }
        }
        all.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        all.into_iter().map(|(_, target)| target).collect()
    }

    /// The undo targets of a workflow, including lanes, items and passes, and calls that are undone through their own
    /// steps.
    pub(super) fn undo_targets_in(&self, home: InstanceIx) -> Vec<UndoTarget> {
        self.list_undo_targets(|mut ix| {
            while self.instances[ix.0 as usize].home != home {
                match self.instances[ix.0 as usize].parent {
                    Some(parent) if self.is_undone_through(ix, parent) => ix = parent.0,
                    _ => return false,
                }
            }
            true
        })
    }

    /// True if undoing the enclosing workflow also undoes the steps inside an instance. A call must have succeeded and
    /// must not have its own undo.
    fn is_undone_through(&self, ix: InstanceIx, parent: StepAt) -> bool {
        let inst = &self.instances[ix.0 as usize];
        let is_call = inst.home == ix;
        let succeeded = inst.ended.as_ref().is_some_and(|end| end.status == RunStatus::Succeeded);
        !is_call || succeeded && self.scope_entry(parent.0).step(parent.1).undo.is_none()
    }

    /// The undo targets inside a composite, by the same rules.
    pub(super) fn undo_targets_under(&self, at: StepAt) -> Vec<UndoTarget> {
        let under = |mut ix: InstanceIx| {
            loop {
                match self.instances[ix.0 as usize].parent {
                    Some(parent) if !self.is_undone_through(ix, parent) => return false,
                    Some(parent) if parent == at => return true,
                    Some(parent) => ix = parent.0,
                    None => return false,
                }
            }
        };
        self.list_undo_targets(under)
    }

    pub(super) fn accept_undo_began(
        &mut self,
        of: UndoWalk,
        targets: &[UndoTarget],
        uncertain: &[StepAt],
    ) -> RuleResult {
        let mut right = match of {
            UndoWalk::Workflow(home) => {
                self.may_undo(home)?;
                let mut all = self.undo_targets_in(home);
                if !self.instance(home)?.undo_asked {
                    let left = |t: &UndoTarget| self.walks.values().any(|walk| walk.failed && walk.targets.contains(t));
                    all.retain(left);
                }
                all
            }
            UndoWalk::Composite(at) => {
                let st = self.step_state(at)?;
                ensure!(
                    matches!(st.at, AcceptorStepPhase::Inside | AcceptorStepPhase::Retrying(_)),
                    "the composite is not retried"
                );
                ensure!(!matches!(self.step_definition(at)?.kind, StepKindSpec::Call(_)), "a call undoes itself");
                for child in &st.children {
                    let over = self.instances[child.0 as usize].ended.is_some();
                    ensure!(over, "an inner instance has not ended");
                }
                self.undo_targets_under(at)
            }
        };
        if let UndoWalk::Workflow(home) = of
            && let Some(first) = self.find_failed_target(home, targets)
        {
            right.insert(0, first);
        }
        ensure!(right == targets, "the undo targets are {right:?}");
        for at in uncertain {
            ensure!(self.step_definition(*at)?.undo.is_some(), "a step without an undo cannot be listed as uncertain");
        }
        if let UndoWalk::Workflow(home) = of {
            self.instance_mut(home)?.began_undo = true;
        }
        let book = AcceptorWalk { targets: targets.to_vec(), ..AcceptorWalk::default() };
        self.walks.insert(of, book);
        Ok(())
    }

    fn may_undo(&self, home: InstanceIx) -> RuleResult {
        let inst = self.instance(home)?;
        ensure!(inst.home == home, "only a workflow is undone");
        let again = self.status == Some(RunStatus::UndoFailed);
        ensure!((inst.is_halted() && inst.undo_asked) || again, "no undo was requested");
        let before = self.walks.get(&UndoWalk::Workflow(home));
        ensure!(before.is_none_or(|walk| walk.over && walk.failed), "it was undone already");
        for inst in self.instances.iter().filter(|inst| inst.home == home) {
            let live = inst.steps.iter().position(|st| st.is_live() && !st.is_unstarted());
            ensure!(live.is_none(), "step {live:?} is live");
        }
        Ok(())
    }

    /// The step whose failure began the undo, if the policy undoes it first and this walk does so.
    fn find_failed_target(&self, home: InstanceIx, targets: &[UndoTarget]) -> Option<UndoTarget> {
        let inst = self.instance(home).ok()?;
        let policy = &self.plan.definition.workflow_containing(inst.scope).workflow.scope.undo;
        let Some(HaltReason::Failed { step }) = inst.halts.first() else { return None };
        let at = StepAt(home, *step);
        let first = targets.first().filter(|first| first.at == at)?;
        let st = self.step_state(at).ok()?;
        let own = st.completed.iter().any(|one| one.visit == first.visit && !one.undone);
        (policy.failed_step && !own && first.visit == st.visit).then_some(*first)
    }

    /// The walk whose next target is this step.
    pub(super) fn find_walk(&self, at: StepAt) -> Option<UndoWalk> {
        let next = |walk: &AcceptorWalk| !walk.over && walk.targets.get(walk.done).is_some_and(|next| next.at == at);
        self.walks.iter().find(|(_, walk)| next(walk)).map(|(of, _)| *of)
    }

    fn walk_mut(&mut self, at: StepAt) -> RuleResult<&mut AcceptorWalk> {
        let of = self.find_walk(at).ok_or("it is not this step's turn to be undone")?;
        self.walks.get_mut(&of).ok_or_else(|| "there is no such walk".into())
    }

    pub(super) fn accept_undo_started(&mut self, id: AttemptId) -> RuleResult {
        let now = self.now;
        let walk = self.walk_mut(id.at)?;
        let target = walk.targets[walk.done];
        ensure!(target.visit == id.visit, "the visit that is undone is {}", target.visit);
        ensure!(walk.live.is_none(), "another undo is in flight");
        ensure!(id.attempt == walk.attempts + 1, "the number is {}", walk.attempts + 1);
        match (&walk.last, walk.due) {
            // The retry was due, even if the clock was set back since.
            _ if std::mem::take(&mut walk.goes_on) => {}
            (None | Some(AttemptEnd::Interrupted), _) => {}
            (Some(_), Some(due)) => ensure!(due <= now, "the retry is not due yet"),
            (Some(_), None) => return Err("the undo has ended".into()),
        }
        walk.attempts += 1;
        walk.live = Some(id);
        walk.due = None;
        Ok(())
    }

    /// Accepts that an undo continues after an interruption, or because its retry is due.
    pub(super) fn accept_undo_goes_on(&mut self, at: StepAt) -> RuleResult {
        let now = self.now;
        let walk = self.walk_mut(at)?;
        ensure!(walk.live.is_none(), "an undo is in flight");
        let interrupted = matches!(walk.last, Some(AttemptEnd::Interrupted));
        let due = walk.due.is_some_and(|due| due <= now);
        ensure!((interrupted || due) && !walk.goes_on, "the undo is neither interrupted nor due");
        walk.goes_on = true;
        Ok(())
    }

    pub(super) fn accept_undo_attempt_ended(&mut self, id: AttemptId, end: &AttemptEnd) -> RuleResult {
        let walk = self.walk_mut(id.at)?;
        ensure!(walk.live == Some(id), "the attempt is not in flight");
        walk.live = None;
        match end {
            AttemptEnd::Interrupted => walk.interruptions += 1,
            AttemptEnd::Succeeded { .. } => {}
            _ => walk.tries += 1,
        }
        walk.last = Some(end.clone());
        Ok(())
    }

    pub(super) fn accept_undo_retry(&mut self, at: StepAt, due: Timestamp, error: &ExecutionError) -> RuleResult {
        let now = self.now;
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let Some(undo) = &step.undo else { return Err("the step has no undo".into()) };
        let walk = self.walk_mut(at)?;
        let (class, code, not_before) = classify_undo_failure(walk.last.as_ref()).ok_or("the undo has not failed")?;
        ensure!(class == error.class, "it failed with {class:?}");
        ensure!(allows_retry(&undo.retry, walk.tries, class, code), "the policy does not retry this");
        check_retry_due(&undo.retry.backoff, (walk.tries, walk.tries), not_before, now, due)?;
        walk.due = Some(due);
        Ok(())
    }

    pub(super) fn accept_step_undone(&mut self, at: StepAt, visit: u32) -> RuleResult {
        let walk = self.walk_mut(at)?;
        ensure!(walk.targets[walk.done].visit == visit, "another visit is undone");
        ensure!(matches!(walk.last, Some(AttemptEnd::Succeeded { .. })), "its undo has not succeeded");
        walk.advance();
        for one in self.step_state_mut(at)?.completed.iter_mut().filter(|one| one.visit == visit) {
            ensure!(!one.undone, "it was undone already");
            one.undone = true;
        }
        Ok(())
    }

    pub(super) fn accept_undo_failed(&mut self, at: StepAt, visit: u32, error: &ExecutionError) -> RuleResult {
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let Some(undo) = &step.undo else { return Err("the step has no undo".into()) };
        let walk = self.walk_mut(at)?;
        ensure!(walk.targets[walk.done].visit == visit, "another visit is undone");
        ensure!(walk.live.is_none(), "an undo is in flight");
        let interrupted = walk.interruptions >= limits::INTERRUPTIONS;
        match classify_undo_failure(walk.last.as_ref()) {
            Some((class, code, _)) => {
                ensure!(class == error.class, "it failed with {class:?}");
                ensure!(!allows_retry(&undo.retry, walk.tries, class, code), "the policy retries this");
            }
            // If the inputs of an undo cannot be evaluated, the undo fails without an attempt.
            None => ensure!(walk.last.is_none() || interrupted, "its undo has not failed"),
        }
        walk.failed = true;
        walk.advance();
        Ok(())
    }

    pub(super) fn accept_undo_ended(&mut self, of: UndoWalk, clean: bool) -> RuleResult {
        let home = match of {
            UndoWalk::Workflow(home) => home,
            UndoWalk::Composite(at) => self.instance(at.0)?.home,
        };
        let policy = self.plan.definition.workflow_containing(self.instance(home)?.scope).workflow.scope.undo.clone();
        let walk = self.walks.get_mut(&of).ok_or("no such walk began")?;
        ensure!(!walk.over, "the walk has ended already");
        ensure!(walk.live.is_none(), "an undo is in flight");
        let stops = walk.failed && policy.if_one_fails == UndoFailurePolicy::Stop;
        ensure!(walk.done == walk.targets.len() || stops, "not all targets are undone");
        ensure!(clean != walk.failed, "the clean flag does not match its undos");
        walk.over = true;
        Ok(())
    }

    /// Returns two flags: some step of a workflow was undone; some step could not be undone.
    pub(super) fn undo_result(&self, home: InstanceIx) -> (bool, bool) {
        match self.walks.get(&UndoWalk::Workflow(home)) {
            Some(walk) => (walk.done > 0, walk.failed),
            None => {
                let inside = |walk: &UndoWalk| match walk {
                    UndoWalk::Composite(at) => self.instance(at.0).is_ok_and(|inst| inst.home == home),
                    UndoWalk::Workflow(_) => false,
                };
                (false, self.walks.iter().any(|(walk, book)| inside(walk) && book.failed))
            }
        }
    }
}

impl AcceptorWalk {
    fn advance(&mut self) {
        self.done += 1;
        (self.attempts, self.tries, self.interruptions) = (0, 0, 0);
        (self.last, self.due) = (None, None);
    }
}

/// The class and code of a failed undo, and the earliest time of a retry.
fn classify_undo_failure(end: Option<&AttemptEnd>) -> Option<(ErrorClass, Option<&str>, Option<Timestamp>)> {
    match end? {
        AttemptEnd::Failed { class, code, retry_at, .. } => Some((*class, code.as_deref(), *retry_at)),
        AttemptEnd::TimedOut => Some((ErrorClass::Timeout, None, None)),
        // An undo has no fallback worker.
        AttemptEnd::Stopped | AttemptEnd::HandedOver { .. } | AttemptEnd::Unmerged { .. } => {
            Some((ErrorClass::Transient, Some("stopped"), None))
        }
        // An undo is never held for a person.
        AttemptEnd::Blocked { .. } => Some((ErrorClass::NonRetryable, Some("stopped"), None)),
        AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } | AttemptEnd::Interrupted => None,
    }
}
