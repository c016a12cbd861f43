//! Fail: holds, retries or ends a step after a failure, for work and composites alike.

use crate::{
    engine::{
        AttemptEnd, Event, ExecutionError, HaltReason, InstanceIx, StepAt, UndoWalk, code, decide::DecideContext,
        state::InstancePhase, transitions::StepPhase,
    },
    ir::{ErrorClass, SiblingPolicy, StepKindSpec, StepRetry},
    plan::ContentHash,
    time::{Millis, Timestamp},
};

impl DecideContext<'_> {
    /// Handles a failed main or check attempt.
    pub(in crate::engine) fn handle_failure(&mut self, at: StepAt, end: AttemptEnd) {
        let (error, retry_at) = match end {
            AttemptEnd::Failed { class, code, message, retry_at } => {
                (ExecutionError { class, code, message, origin: None }, retry_at)
            }
            AttemptEnd::Unmerged { message, .. } => {
                (ExecutionError::non_retryable(code::MERGE_CONFLICT, message), None)
            }
            AttemptEnd::TimedOut => (self.timeout_error(at), None),
            _ => (
                ExecutionError::new(ErrorClass::Transient, code::STOPPED, "the worker stopped without being told to"),
                None,
            ),
        };
        self.hold_or_fail(at, error, retry_at);
    }

    /// Returns the error of a step, or of one of its attempts, that exceeded the timeout of the step.
    pub(in crate::engine) fn timeout_error(&self, at: StepAt) -> ExecutionError {
        let message = match self.step(at).policy.timeout {
            Some(timeout) => format!("timed out after {timeout} (step `timeout`)"),
            None => "timed out".to_owned(),
        };
        ExecutionError::timeout(message)
    }

    /// Holds the step if its policy holds errors of this class; otherwise retries or ends it.
    pub(in crate::engine) fn hold_or_fail(&mut self, at: StepAt, error: ExecutionError, retry_at: Option<Timestamp>) {
        match self.step(at).policy.holds.get(&error.class) {
            Some(reason) => self.hold_again(at, *reason, retry_at, error.message),
            None => self.fail_or_retry(at, error, retry_at),
        }
    }

    /// Retries if the policy allows it; otherwise ends the step.
    pub(in crate::engine) fn fail_or_retry(&mut self, at: StepAt, error: ExecutionError, retry_at: Option<Timestamp>) {
        let more = self.state.visit_state(at).expect("something of it ended");
        let retry = &self.step(at).policy.retry;
        if !self.may_go_on(at) || !allows_retry(retry, &error, more.tries + 1) {
            return self.fail_step(at, error);
        }
        if self.state.step(at).phase == StepPhase::Inside && self.begin_composite_undo(at) {
            return;
        }
        self.schedule_retry(at, error, retry_at);
    }

    pub(in crate::engine) fn schedule_retry(&mut self, at: StepAt, error: ExecutionError, retry_at: Option<Timestamp>) {
        let tries = self.state.visit_state(at).expect("something of it ended").tries + 1;
        let due = self.retry_due(&self.step(at).policy.retry, at, tries, retry_at);
        self.emit(Event::RetryScheduled { at, due, error });
    }

    /// True if a step of this instance may make another attempt.
    pub(in crate::engine) fn may_go_on(&self, at: StepAt) -> bool {
        match &self.state.instance(at.0).phase {
            InstancePhase::Going => true,
            InstancePhase::Halted { .. } => self.is_draining(at.0),
            InstancePhase::Undoing { .. } | InstancePhase::Ended { .. } => false,
        }
    }

    /// True if running steps of a halted instance may finish: its policy drains siblings, and nothing around it was
    /// stopped.
    pub(in crate::engine) fn is_draining(&self, mut ix: InstanceIx) -> bool {
        loop {
            let instance = self.state.instance(ix);
            let failed = matches!(instance.halt_reason(), Some(HaltReason::Failed { .. }));
            let drained =
                failed && self.scope_entry(ix).scope.siblings == SiblingPolicy::Drain && self.state.cancel.is_none();
            if !drained && !instance.is_going() {
                return false;
            }
            match instance.parent {
                Some(parent) => ix = parent.0,
                None => return true,
            }
        }
    }

    /// Returns the time at which the n-th retry of a step is due.
    pub(in crate::engine) fn retry_due(
        &self,
        retry: &StepRetry,
        at: StepAt,
        n: u32,
        retry_at: Option<Timestamp>,
    ) -> Timestamp {
        let delay = retry.backoff.retry_delay(n);
        let delay = if retry.backoff.jitter { self.jitter_delay(delay, at, n) } else { delay };
        let due = self.now.saturating_add(delay);
        retry_at.map_or(due, |time| time.max(due))
    }

    /// Returns a delay between zero and `delay`, the same for the same run, step and try.
    fn jitter_delay(&self, delay: Millis, at: StepAt, n: u32) -> Millis {
        let run = self.state.start.as_ref().map_or("", |start| start.run.as_str());
        let step = self.state.step(at);
        let iteration = step.more.as_ref().map_or(0, |more| more.next.iteration);
        let seed = format!("{run} {} {} {} {iteration} {n}", at.0.0, at.1, step.visit);
        let ContentHash(bytes) = ContentHash::hash_bytes(seed.as_bytes());
        let (first, _) = bytes.split_first_chunk::<8>().expect("a hash is longer than a number");
        Millis(u64::from_le_bytes(*first) % delay.0.saturating_add(1))
    }

    /// Undoes the completed steps of a failed composite. Returns false if there is nothing to undo; a call has undone
    /// itself.
    fn begin_composite_undo(&mut self, at: StepAt) -> bool {
        if matches!(self.step(at).kind, StepKindSpec::Call(_)) {
            return false;
        }
        let targets = self.find_targets_inside(at);
        if targets.is_empty() {
            return false;
        }
        let of = UndoWalk::Composite(at);
        self.emit(Event::UndoBegan { of, targets, uncertain: Vec::new() });
        true
    }
}

/// True if a retry is allowed after the n-th failure.
pub(super) fn allows_retry(retry: &StepRetry, error: &ExecutionError, n: u32) -> bool {
    let never = error.code.as_ref().is_some_and(|code| retry.never.contains(code));
    !never && retry.attempts.get(&error.class).is_some_and(|attempts| n < *attempts)
}
