//! Iterate: what a completion check found, and whether there is another round.

use crate::{
    engine::{
        AttemptEnd, AttemptId, CheckOutput, Error, Event, Finding, Mode, Onward, Outcome, Role, StepAt, code,
        decide::{Decision, End},
    },
    ir::{Check, ErrorClass, HoldReason, Kind},
    limits,
};

/// Stands for the words of a check that gave none.
const NO_REASON: &str = "no reason given";

impl Decision<'_> {
    pub(in crate::engine) fn check_ended(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        match end {
            AttemptEnd::Succeeded { .. } => self.complete_work(at),
            AttemptEnd::Checked { finding: Finding::Complete, .. } => self.complete_work(at),
            AttemptEnd::Checked { finding: Finding::Incomplete, reasons, fingerprints, output } => {
                self.incomplete(at, &said(reasons, fingerprints, output.as_ref()));
            }
            AttemptEnd::Checked { finding: Finding::Undecided, .. } => self.undecided(at),
            AttemptEnd::Checked { finding: Finding::Blocked, reasons, fingerprints, output } => {
                self.blocked(at, &said(reasons, fingerprints, output.as_ref()));
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
            return self.again(at, None, None);
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
        self.again(at, Some(stage), Some(said));
    }

    /// The next iteration, or the end if that was the last.
    fn again(&mut self, at: StepAt, stage: Option<u32>, said: Option<&str>) {
        let next = self.state.more(at).expect("a check ended").next;
        let check = self.check(at);
        if next.iteration < check.max_iterations {
            let stage = stage.unwrap_or(next.stage);
            let next = Onward { role: Role::Main, iteration: next.iteration + 1, mode: Mode::Fresh, stage };
            return self.emit(Event::StepGoesOn { at, next });
        }
        let said = said.filter(|said| *said != NO_REASON).map_or(String::new(), |said| format!(": {said}"));
        let message = format!("incomplete after {} iterations{said}", check.max_iterations);
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
            return self.again(at, None, Some(said));
        }
        let message = format!("its check says that it cannot go on: {said}");
        let next =
            Onward { role: Role::Main, iteration: next.iteration + 1, mode: Mode::Fresh, stage: next.stage };
        self.hold(at, HoldReason::Blocked, None, message, next);
    }
}

/// A line for what a check said: its reasons, or else what identifies them, or else a line of its output.
fn said(reasons: Vec<String>, fingerprints: Vec<String>, output: Option<&CheckOutput>) -> String {
    let notes = if reasons.is_empty() { fingerprints } else { reasons };
    if !notes.is_empty() {
        return notes.join("; ");
    }
    output.and_then(CheckOutput::headline).unwrap_or(NO_REASON).to_owned()
}
