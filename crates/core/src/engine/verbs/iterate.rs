//! Iterate: what a completion check found, and whether there is another round.

use crate::{
    engine::{
        AttemptEnd, AttemptId, Error, Event, Finding, Mode, Onward, Outcome, Role, StepAt, code,
        decide::{Decision, End},
    },
    ir::{Check, ErrorClass, HoldReason, Kind},
    limits,
};

impl Decision<'_> {
    pub(in crate::engine) fn check_ended(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        match end {
            AttemptEnd::Succeeded { .. } => self.complete_work(at),
            AttemptEnd::Checked { finding: Finding::Complete, .. } => self.complete_work(at),
            AttemptEnd::Checked { finding: Finding::Incomplete, reasons, fingerprints } => {
                self.incomplete(at, &said(reasons, fingerprints));
            }
            AttemptEnd::Checked { finding: Finding::Undecided, .. } => self.undecided(at),
            AttemptEnd::Checked { finding: Finding::Blocked, reasons, fingerprints } => {
                self.blocked(at, &said(reasons, fingerprints));
            }
            AttemptEnd::Interrupted => self.interrupted(attempt),
            AttemptEnd::Blocked { reason, until, message } => self.hold_again(at, reason, until, message),
            AttemptEnd::HandedOver { .. } => self.handed_over(at),
            other => self.failed(at, other),
        }
    }

    fn check(&self, at: StepAt) -> &Check {
        let Kind::Work(work) = &self.step(at).kind else { unreachable!("only work is checked") };
        work.check.as_deref().expect("a check ended")
    }

    fn undecided(&mut self, at: StepAt) {
        if self.state.more(at).expect("a check ended").undecided < limits::UNDECIDED_CHECKS {
            return self.again(at, None);
        }
        let message = "its check ended twice in a row without a decision";
        self.fail_step(at, Error::new(ErrorClass::NonRetryable, code::CHECK_UNDECIDED, message));
    }

    fn incomplete(&mut self, at: StepAt, said: &str) {
        let more = self.state.more(at).expect("a check ended");
        let mut stage = more.next.stage;
        let repeats = more.stall.map_or(0, |(_, count)| count);
        if let Some(convergence) = &self.check(at).convergence
            && repeats >= convergence.stall_threshold
        {
            stage = (stage + 1).min(convergence.max_stage.max(stage));
            if stage >= convergence.max_stage && convergence.fail_on_max_stage {
                let message = format!("its check finds the same again and again: {said}");
                let error = Error::new(ErrorClass::NonRetryable, code::STALLED, message);
                return self.end_step(at, End { error: Some(error), ..End::of(Outcome::Exhausted) });
            }
        }
        self.again(at, Some(stage));
    }

    /// The next iteration, or the end if that was the last.
    fn again(&mut self, at: StepAt, stage: Option<u32>) {
        let next = self.state.more(at).expect("a check ended").next;
        let check = self.check(at);
        if next.iteration < check.max_iterations {
            let stage = stage.unwrap_or(next.stage);
            let next = Onward { role: Role::Main, iteration: next.iteration + 1, mode: Mode::Fresh, stage };
            return self.emit(Event::StepGoesOn { at, next });
        }
        let message =
            format!("its check still found it incomplete after {} iterations", check.max_iterations);
        let error = Some(Error::new(ErrorClass::NonRetryable, code::EXHAUSTED, message));
        let end = if check.incomplete_is_an_end {
            End { outcome: Outcome::Incomplete, ..End::with(self.result(at)) }
        } else {
            End::of(Outcome::Exhausted)
        };
        self.end_step(at, End { error, ..end });
    }

    fn blocked(&mut self, at: StepAt, said: &str) {
        let next = self.state.more(at).expect("a check ended").next;
        if next.iteration >= self.check(at).max_iterations {
            return self.again(at, None);
        }
        let message = format!("its check says that it cannot go on: {said}");
        let next =
            Onward { role: Role::Main, iteration: next.iteration + 1, mode: Mode::Fresh, stage: next.stage };
        self.hold(at, HoldReason::Blocked, None, message, next);
    }
}

/// What a check said, in one line: its reasons, or else what identifies them.
fn said(reasons: Vec<String>, fingerprints: Vec<String>) -> String {
    let notes = if reasons.is_empty() { fingerprints } else { reasons };
    if notes.is_empty() { "no reason given".to_owned() } else { notes.join("; ") }
}
