//! Fail: hold, try again, or end the step; for work and composites alike.

use crate::{
    engine::{
        AttemptEnd, Error, Event, Halt, InstanceIx, StepAt, Walk, code, decide::Decision,
        state::InstancePhase, transitions::Phase,
    },
    ir::{ErrorClass, Kind, Retry, Siblings},
    plan::Hash,
    time::{Millis, Time},
};

impl Decision<'_> {
    /// An attempt of main or check ended badly.
    pub(in crate::engine) fn failed(&mut self, at: StepAt, end: AttemptEnd) {
        let (error, retry_at) = match end {
            AttemptEnd::Failed { class, code, message, retry_at } => {
                (Error { class, code, message, origin: None }, retry_at)
            }
            AttemptEnd::Unmerged { message, .. } => {
                (Error::new(ErrorClass::NonRetryable, code::MERGE_CONFLICT, message), None)
            }
            AttemptEnd::TimedOut => (self.timeout_of(at), None),
            _ => (
                Error::new(ErrorClass::Transient, code::STOPPED, "the worker stopped without being told to"),
                None,
            ),
        };
        self.hold_or_fail(at, error, retry_at);
    }

    /// The error of a step, or of an attempt at it, that took longer than the step allows.
    pub(in crate::engine) fn timeout_of(&self, at: StepAt) -> Error {
        let message = match self.step(at).policy.timeout {
            Some(timeout) => format!("timed out after {timeout} (step `timeout`)"),
            None => "timed out".to_owned(),
        };
        Error::new(ErrorClass::Timeout, code::TIMEOUT, message)
    }

    /// Holds the step if its policy holds that class, else tries again or ends it.
    pub(in crate::engine) fn hold_or_fail(&mut self, at: StepAt, error: Error, retry_at: Option<Time>) {
        match self.step(at).policy.holds.get(&error.class) {
            Some(reason) => self.hold_again(at, *reason, retry_at, error.message),
            None => self.fail_or_retry(at, error, retry_at),
        }
    }

    /// Tries again if the policy allows it, else ends the step.
    pub(in crate::engine) fn fail_or_retry(&mut self, at: StepAt, error: Error, retry_at: Option<Time>) {
        let more = self.state.more(at).expect("something of it ended");
        let retry = &self.step(at).policy.retry;
        if !self.may_go_on(at) || !allows(retry, &error, more.tries + 1) {
            return self.fail_step(at, error);
        }
        if self.state.step(at).phase == Phase::Inside && self.begin_composite_undo(at) {
            return;
        }
        self.schedule(at, error, retry_at);
    }

    pub(in crate::engine) fn schedule(&mut self, at: StepAt, error: Error, retry_at: Option<Time>) {
        let tries = self.state.more(at).expect("something of it ended").tries + 1;
        let due = self.due(&self.step(at).policy.retry, at, tries, retry_at);
        self.emit(Event::RetryScheduled { at, due, error });
    }

    /// Whether a step of this instance may make another attempt.
    pub(in crate::engine) fn may_go_on(&self, at: StepAt) -> bool {
        match &self.state.instance(at.0).phase {
            InstancePhase::Going => true,
            InstancePhase::Halted { .. } => self.drains(at.0),
            InstancePhase::Undoing { .. } | InstancePhase::Ended { .. } => false,
        }
    }

    /// Whether what is at work in a halted instance may go on to its end: its own policy says so, and nothing around
    /// it has been stopped.
    pub(in crate::engine) fn drains(&self, mut ix: InstanceIx) -> bool {
        loop {
            let instance = self.state.instance(ix);
            let failed = matches!(instance.halt(), Some(Halt::Failed { .. }));
            let drained =
                failed && self.entry(ix).scope.siblings == Siblings::Drain && self.state.cancel.is_none();
            if !drained && !instance.is_going() {
                return false;
            }
            match instance.parent {
                Some(parent) => ix = parent.0,
                None => return true,
            }
        }
    }

    /// When the n-th retry of a step is due.
    pub(in crate::engine) fn due(&self, retry: &Retry, at: StepAt, n: u32, retry_at: Option<Time>) -> Time {
        let delay = retry.backoff.delay(n);
        let delay = if retry.backoff.jitter { self.jitter(delay, at, n) } else { delay };
        let due = self.now.after(delay);
        retry_at.map_or(due, |time| time.max(due))
    }

    /// Anything between nothing and the whole delay, the same for the same run, step and try.
    fn jitter(&self, delay: Millis, at: StepAt, n: u32) -> Millis {
        let run = self.state.start.as_ref().map_or("", |start| start.run.as_str());
        let step = self.state.step(at);
        let iteration = step.more.as_ref().map_or(0, |more| more.next.iteration);
        let seed = format!("{run} {} {} {} {iteration} {n}", at.0.0, at.1, step.visit);
        let Hash(bytes) = Hash::of(seed.as_bytes());
        let (first, _) = bytes.split_first_chunk::<8>().expect("a hash is longer than a number");
        Millis(u64::from_le_bytes(*first) % delay.0.saturating_add(1))
    }

    /// Undoes what a failed composite completed. False when there is nothing to undo: a call has undone itself.
    fn begin_composite_undo(&mut self, at: StepAt) -> bool {
        if matches!(self.step(at).kind, Kind::Call(_)) {
            return false;
        }
        let targets = self.completed_inside(at);
        if targets.is_empty() {
            return false;
        }
        let of = Walk::Composite(at);
        self.emit(Event::UndoBegan { of, targets, uncertain: Vec::new() });
        true
    }
}

/// Whether a failure may be tried again when it is the n-th.
pub(super) fn allows(retry: &Retry, error: &Error, n: u32) -> bool {
    let never = error.code.as_ref().is_some_and(|code| retry.never.contains(code));
    !never && retry.attempts.get(&error.class).is_some_and(|attempts| n < *attempts)
}
