//! Iterate: applies the finding of a completion check and starts another iteration if needed.

use crate::{
    engine::{
        AttemptEnd, AttemptId, AttemptMode, AttemptRole, CheckFinding, CheckOutput, Event, ExecutionError, NextAction,
        StepAt, StepOutcome, code,
        decide::{DecideContext, StepEnd},
    },
    ir::{CompletionCheck, HoldReason, StepKindSpec},
    limits,
};

/// Placeholder for the reason of a check that gave none.
const NO_REASON: &str = "no reason given";

impl DecideContext<'_> {
    pub(in crate::engine) fn handle_check_end(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        match end {
            AttemptEnd::Succeeded { .. } => self.complete_work(at),
            AttemptEnd::Checked { finding: CheckFinding::Complete, .. } => self.complete_work(at),
            AttemptEnd::Checked { finding: CheckFinding::Incomplete, reasons, fingerprints, output } => {
                self.handle_incomplete(at, &summarize_finding(reasons, fingerprints, output.as_ref()));
            }
            AttemptEnd::Checked { finding: CheckFinding::Undecided, .. } => self.handle_undecided(at),
            AttemptEnd::Checked { finding: CheckFinding::Blocked, reasons, fingerprints, output } => {
                self.handle_blocked(at, &summarize_finding(reasons, fingerprints, output.as_ref()));
            }
            AttemptEnd::Interrupted => self.handle_interruption(attempt),
            AttemptEnd::Blocked { reason, until, message } => self.hold_again(at, reason, until, message),
            AttemptEnd::HandedOver { .. } => self.hand_over_attempt(at),
            other => self.handle_failure(at, other),
        }
    }

    fn step_check(&self, at: StepAt) -> &CompletionCheck {
        let StepKindSpec::Work(work) = &self.step(at).kind else { unreachable!("only work is checked") };
        work.check.as_deref().expect("a check ended")
    }

    fn handle_undecided(&mut self, at: StepAt) {
        if self.state.visit_state(at).expect("a check ended").undecided < limits::UNDECIDED_CHECKS {
            return self.iterate_or_end(at, None, None);
        }
        let message = "its check ended twice in a row without a decision";
        self.fail_step(at, ExecutionError::non_retryable(code::CHECK_UNDECIDED, message));
    }

    fn handle_incomplete(&mut self, at: StepAt, remark: &str) {
        let more = self.state.visit_state(at).expect("a check ended");
        let mut stage = more.next.stage;
        let repeats = more.stall.map_or(0, |(_, count)| count);
        if let Some(convergence) = &self.step_check(at).convergence
            && repeats >= convergence.stall_threshold
        {
            stage = (stage + 1).min(convergence.max_stage.max(stage));
            if stage >= convergence.max_stage && convergence.fail_on_max_stage {
                let message = format!("its check keeps reporting the same finding: {remark}");
                let error = ExecutionError::non_retryable(code::STALLED, message);
                let end = StepEnd::from_outcome(StepOutcome::Exhausted);
                return self.end_step(at, StepEnd { error: Some(error), ..end });
            }
        }
        self.iterate_or_end(at, Some(stage), Some(remark));
    }

    /// Starts the next iteration, or ends the step after the last one.
    fn iterate_or_end(&mut self, at: StepAt, stage: Option<u32>, remark: Option<&str>) {
        let next = self.state.visit_state(at).expect("a check ended").next;
        let check = self.step_check(at);
        if next.iteration < check.max_iterations {
            let next = next_iteration(next, stage.unwrap_or(next.stage));
            return self.emit(Event::StepGoesOn { at, next });
        }
        let remark = remark.filter(|remark| *remark != NO_REASON).map_or(String::new(), |remark| format!(": {remark}"));
        let message = format!("incomplete after {} iterations{remark}", check.max_iterations);
        let error = Some(ExecutionError::non_retryable(code::EXHAUSTED, message));
        let end = if check.incomplete_is_an_end {
            StepEnd { outcome: StepOutcome::Incomplete, ..StepEnd::from_output(self.work_result(at)) }
        } else {
            StepEnd::from_outcome(StepOutcome::Exhausted)
        };
        self.end_step(at, StepEnd { error, ..end });
    }

    fn handle_blocked(&mut self, at: StepAt, remark: &str) {
        let next = self.state.visit_state(at).expect("a check ended").next;
        if next.iteration >= self.step_check(at).max_iterations {
            return self.iterate_or_end(at, None, Some(remark));
        }
        let message = format!("its check reports that the work is blocked: {remark}");
        self.hold_step(at, HoldReason::Blocked, None, message, next_iteration(next, next.stage));
    }
}

fn next_iteration(last: NextAction, stage: u32) -> NextAction {
    NextAction { role: AttemptRole::Main, iteration: last.iteration + 1, mode: AttemptMode::Fresh, stage }
}

/// Summarises the finding of a check in one line: its reasons, or else its fingerprints, or else a line of its output.
fn summarize_finding(reasons: Vec<String>, fingerprints: Vec<String>, output: Option<&CheckOutput>) -> String {
    let notes = if reasons.is_empty() { fingerprints } else { reasons };
    if !notes.is_empty() {
        return notes.join("; ");
    }
    output.and_then(CheckOutput::headline).unwrap_or(NO_REASON).to_owned()
}
