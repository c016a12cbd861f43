//! Cancel: cancels a run and halts instances; records callers that were not allowed to.

use crate::{
    engine::{
        AttemptStopReason, Event, ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart, Refusal, StepAt,
        StepOutcome, TIMEOUT_ACTOR, code,
        decide::{DecideContext, PendingConsequence, StepEnd},
        state::{InstancePhase, null},
        transitions::StepPhase,
    },
    ir::{RunStatus, StepKindSpec},
    limits,
    time::Millis,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn cancel_run(&mut self, by: &str, reason: Option<&str>) -> Result<(), Refusal> {
        if self.state.end.is_some() {
            return Err(Refusal::Ended);
        }
        if self.state.cancel.is_some() {
            return Ok(());
        }
        self.emit(Event::CancelAsked { by: by.to_owned(), reason: reason.map(str::to_owned) });
        match self.state.instance(InstanceIx::ROOT).phase {
            InstancePhase::Going => {
                let undo = self.scope_entry(InstanceIx::ROOT).scope.undo.on_cancel;
                self.halt_instance(InstanceIx::ROOT, HaltReason::Cancelled { by: by.to_owned() }, undo);
            }
            // Steps that were left to drain are stopped.
            InstancePhase::Halted { .. } => self.stop_live(InstanceIx::ROOT),
            InstancePhase::Undoing { .. } | InstancePhase::Ended { .. } => {}
        }
        Ok(())
    }

    /// Halts a workflow that exceeded a limit. It is undone under the same setting as for a timeout, because both mean
    /// that it ran too long.
    pub(in crate::engine) fn halt_over_limit(&mut self, home: InstanceIx, error: ExecutionError) {
        let undo = self.scope_entry(home).scope.undo.on_timeout;
        self.halt_instance(home, HaltReason::Limit { error }, undo);
    }

    /// Halts an instance: nothing more starts in it, and running steps are stopped or drained. An instance that drains
    /// can still be stopped by a timeout or a limit.
    pub(in crate::engine) fn halt_instance(&mut self, instance: InstanceIx, why: HaltReason, undo: bool) {
        let late = matches!(why, HaltReason::TimedOut | HaltReason::Limit { .. });
        let undo = match self.state.instance(instance).phase {
            InstancePhase::Going => undo,
            InstancePhase::Halted { undo, .. } if late => undo,
            _ => return,
        };
        self.emit(Event::InstanceHalted { instance, why, undo });
        if self.is_draining(instance) {
            self.drop_unstarted_holds(instance);
        } else {
            self.stop_live(instance);
        }
        self.defer_consequence(PendingConsequence::Settle(instance));
    }

    /// Ends the steps of a draining instance that were held before their first attempt: they have not started.
    fn drop_unstarted_holds(&mut self, ix: InstanceIx) {
        for at in (0..self.scope_entry(ix).len()).map(|step| StepAt(ix, step)) {
            let started = self.state.visit_state(at).is_some_and(|more| more.started.is_some());
            if self.state.step(at).phase == StepPhase::Held && !started {
                self.end_step(at, StepEnd::from_outcome(StepOutcome::Cancelled));
            }
        }
    }

    /// Stops everything that is running in an instance and inside it.
    fn stop_live(&mut self, root: InstanceIx) {
        let mut rest = vec![root];
        while let Some(ix) = rest.pop() {
            if self.state.instance(ix).live == 0 {
                continue;
            }
            for step in 0..self.scope_entry(ix).len() {
                rest.extend(self.stop_step(StepAt(ix, step)));
            }
        }
    }

    /// Stops a step. Returns the instances inside it that were already halted, for the caller to stop.
    fn stop_step(&mut self, at: StepAt) -> Vec<InstanceIx> {
        match self.state.step(at).phase {
            StepPhase::Running | StepPhase::Checking | StepPhase::Summing => {
                let attempt = self.state.visit_state(at).and_then(|more| more.live).expect("it is in flight");
                self.emit(Event::StopAsked { attempt, why: AttemptStopReason::Halted });
            }
            StepPhase::Ready | StepPhase::Held | StepPhase::Backoff | StepPhase::Gated | StepPhase::Waiting => {
                self.end_step(at, StepEnd::from_outcome(StepOutcome::Cancelled));
            }
            StepPhase::Inside => return self.halt_children(at, &HaltReason::Outer),
            StepPhase::Pending | StepPhase::Stopping | StepPhase::Unwinding | StepPhase::Done => {}
            StepPhase::Undoing | StepPhase::Undone | StepPhase::Stuck => {}
        }
        Vec::new()
    }

    /// Halts the open instances of a composite. Returns those that were already halted.
    pub(in crate::engine) fn halt_children(&mut self, at: StepAt, why: &HaltReason) -> Vec<InstanceIx> {
        let children = self.state.visit_state(at).map_or(Vec::new(), |more| more.children.clone());
        let mut halted = Vec::new();
        for child in children {
            let policy = &self.scope_entry(child).scope.undo;
            let called = self.state.instance(child).part == Some(InstancePart::Call);
            let undo = called && if *why == HaltReason::TimedOut { policy.on_timeout } else { policy.on_cancel };
            match self.state.instance(child).phase {
                InstancePhase::Going => self.halt_instance(child, why.clone(), undo),
                InstancePhase::Halted { .. } => halted.push(child),
                InstancePhase::Undoing { .. } | InstancePhase::Ended { .. } => {}
            }
        }
        halted
    }

    /// Ends a halted instance in which nothing is live and nothing is to be undone.
    pub(in crate::engine) fn end_halted(&mut self, ix: InstanceIx) {
        let status = match self.state.instance(ix).halt_reason() {
            // An undo before a retry failed inside it.
            _ if self.state.instance(ix).stuck => RunStatus::UndoFailed,
            Some(HaltReason::TimedOut) => RunStatus::TimedOut,
            Some(HaltReason::Cancelled { .. } | HaltReason::Outer) => RunStatus::Cancelled,
            Some(HaltReason::Failed { .. } | HaltReason::Limit { .. }) | None => RunStatus::Failed,
        };
        self.end_with_status(ix, status);
    }

    pub(in crate::engine) fn end_with_status(&mut self, ix: InstanceIx, status: RunStatus) {
        let error = self.halt_error(ix);
        self.end_instance(ix, InstanceEnd { status, output: null(), error, degraded: false });
    }

    /// Returns the gate or wait of an instance that timed out first, with its timeout. `None` if it is inside another
    /// step.
    fn find_unanswered_step(&self, ix: InstanceIx) -> Option<(StepAt, Millis)> {
        let steps = 0..u32::try_from(self.state.instance(ix).steps.len()).ok()?;
        let cancelled = steps.map(|step| StepAt(ix, step)).filter_map(|at| {
            let timeout = match &self.step(at).kind {
                StepKindSpec::Gate(gate) => gate.timeout,
                StepKindSpec::Wait(wait) => wait.timeout,
                _ => None,
            };
            timeout.filter(|_| self.state.step(at).outcome == Some(StepOutcome::Cancelled)).map(|time| (at, time))
        });
        cancelled.min_by_key(|(_, timeout)| *timeout)
    }

    /// Returns the error of a halted instance.
    fn halt_error(&self, ix: InstanceIx) -> Option<ExecutionError> {
        match self.state.instance(ix).halt_reason()? {
            HaltReason::Failed { step } => {
                let at = StepAt(ix, *step);
                let mut error = self.state.visit_state(at)?.error.clone().unwrap_or_else(|| {
                    ExecutionError::non_retryable(code::STOPPED, "it ended in a way that stops the workflow")
                });
                error.origin.get_or_insert(at);
                Some(error)
            }
            HaltReason::TimedOut => {
                let message = match self.scope_entry(ix).scope.timeout {
                    Some(timeout) => format!("timed out after {timeout} (workflow `timeout`)"),
                    None => "timed out".to_owned(),
                };
                Some(ExecutionError::timeout(message))
            }
            HaltReason::Cancelled { by } if by == TIMEOUT_ACTOR => {
                let message = match self.find_unanswered_step(ix) {
                    Some((at, timeout)) => {
                        format!("cancelled: `{}` timed out after {timeout}", self.step(at).id)
                    }
                    None => "cancelled: nobody answered in time".to_owned(),
                };
                Some(ExecutionError::non_retryable(code::CANCELLED, message))
            }
            HaltReason::Cancelled { by } => {
                Some(ExecutionError::non_retryable(code::CANCELLED, format!("cancelled by {by}")))
            }
            HaltReason::Outer => None,
            HaltReason::Limit { error } => Some(error.clone()),
        }
    }

    pub(in crate::engine) fn record_tampering(&mut self, by: &str, what: &str) -> Result<(), Refusal> {
        if self.state.end.is_some() {
            return Err(Refusal::Ended);
        }
        // Repeated tries must not fill the journal.
        if self.state.tampers < limits::TAMPERS {
            self.emit(Event::Tampered { by: by.to_owned(), what: what.to_owned() });
        }
        Ok(())
    }
}
