//! Finish: an attempt ended, and what that makes of its step.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    engine::{
        AttemptEnd, AttemptId, CheckOutput, Error, Event, Mode, Onward, Outcome, Proof, Refusal, Report,
        Role, Stop, code,
        decide::{Decision, End},
        size,
        transitions::Phase,
    },
    ir::{ErrorClass, Kind, OnInterrupted, SchemaError, Work},
    limits,
};

impl Decision<'_> {
    pub(in crate::engine) fn finished(&mut self, attempt: AttemptId, report: &Report) -> Result<(), Refusal> {
        if !self.state.in_flight().contains(&attempt) {
            return Err(if self.was_started(attempt) {
                Refusal::LateResult
            } else {
                Refusal::UnknownAttempt
            });
        }
        if matches!(report.end, AttemptEnd::Checked { .. }) && attempt.role != Role::Check {
            return Err(Refusal::WrongReport);
        }
        self.ended(attempt, report.clone());
        Ok(())
    }

    /// Whether there was such an attempt, though it is not in flight.
    fn was_started(&self, attempt: AttemptId) -> bool {
        let Some(step) = self.state.find(attempt.at) else { return false };
        let Some(more) = &step.more else { return false };
        if attempt.attempt == 0 || attempt.role == Role::Undo {
            return attempt.attempt > 0 && step.outcome.is_some();
        }
        let now = (step.visit, more.next.iteration);
        match (attempt.visit, attempt.iteration).cmp(&now) {
            std::cmp::Ordering::Less => attempt.visit > 0 && attempt.iteration > 0,
            std::cmp::Ordering::Equal => attempt.attempt <= more.attempts[attempt.role as usize],
            std::cmp::Ordering::Greater => false,
        }
    }

    /// Records the end of an attempt and goes on from there.
    pub(in crate::engine) fn ended(&mut self, attempt: AttemptId, report: Report) {
        let at = attempt.at;
        let phase = self.state.step(at).phase;
        let Report { end, cost, proofs, by } = report;
        let (end, proofs) = match attempt.role {
            Role::Main => {
                let proofs: Vec<Proof> =
                    proofs.into_iter().take(limits::EVIDENCE).map(Proof::bounded).collect();
                (self.proven(at, self.fitting(at, end), &proofs), proofs)
            }
            Role::Check | Role::Summary | Role::Undo => (bounded(end), Vec::new()),
        };
        self.emit(Event::AttemptEnded { attempt, end: end.clone(), cost, proofs, by });
        match (phase, attempt.role) {
            (_, Role::Undo) => self.undo_ended(attempt, end),
            (Phase::Stopping, _) => self.stopped(attempt, &end),
            (_, Role::Main) => self.main_ended(attempt, end),
            (_, Role::Check) => self.check_ended(attempt, end),
            (_, Role::Summary) => self.summary_ended(attempt, &end),
        }
    }

    /// A success whose output is not what was declared is a failure.
    fn fitting(&self, at: crate::engine::StepAt, end: AttemptEnd) -> AttemptEnd {
        let mut output = match &end {
            AttemptEnd::Succeeded { output } | AttemptEnd::Unmerged { output, .. } => Arc::clone(output),
            _ => return bounded(end),
        };
        let is_empty = output.is_null() || output.as_object().is_some_and(serde_json::Map::is_empty);
        let schema = &self.step(at).outputs;
        let bad = |message: String| AttemptEnd::Failed {
            class: ErrorClass::Validation,
            code: Some(code::OUTPUT_INVALID.into()),
            message,
            retry_at: None,
        };
        if !size::within(&output, limits::VALUE_BYTES) {
            return bad(format!("its output is larger than {} bytes", limits::VALUE_BYTES));
        }
        if schema.properties().next().is_some() {
            schema.complete(Arc::make_mut(&mut output));
        }
        let checked = if schema.is_empty() { Ok(()) } else { schema.check(&output) };
        match (checked, end) {
            (Err(error), _) => bad(self.output_fault(at, &output, is_empty, &error)),
            (Ok(()), AttemptEnd::Unmerged { message, .. }) => AttemptEnd::Unmerged { output, message },
            (Ok(()), _) => AttemptEnd::Succeeded { output },
        }
    }

    /// Says what is wrong with the output of a step, which is empty where the worker gave none.
    fn output_fault(
        &self,
        at: crate::engine::StepAt,
        output: &Value,
        is_empty: bool,
        error: &SchemaError,
    ) -> String {
        let step = self.step(at);
        let missing: Vec<String> = step
            .outputs
            .required()
            .filter(|name| output.get(*name).is_none())
            .map(|name| format!("`{name}`"))
            .collect();
        let missing = match &missing[..] {
            [] => return format!("its output does not match what is declared: {error}"),
            [one] => format!("required output {one} is missing"),
            several => format!("required outputs {} are missing", several.join(", ")),
        };
        if is_empty { format!("`{}` wrote no outputs; {missing}", step.id) } else { missing }
    }

    /// A success is none without all of the step's evidence.
    fn proven(&self, at: crate::engine::StepAt, end: AttemptEnd, proofs: &[Proof]) -> AttemptEnd {
        let work = self.work(at);
        if !matches!(end, AttemptEnd::Succeeded { .. }) || work.evidence.is_empty() {
            return end;
        }
        let message = match proofs.iter().find(|proof| !proof.holds) {
            None if proofs.len() == work.evidence.len() => return end,
            None => "nobody looked at all of its evidence".to_owned(),
            Some(proof) => {
                let last = proof.found.lines().rev().find(|line| !line.trim().is_empty());
                let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
                format!("it is not proven that {}{last}", proof.what)
            }
        };
        // As if the worker itself had said that it failed.
        let class = work.worker.failure();
        AttemptEnd::Failed { class, code: Some(code::EVIDENCE.into()), message, retry_at: None }
    }

    fn work(&self, at: crate::engine::StepAt) -> &Work {
        let Kind::Work(work) = &self.step(at).kind else { unreachable!("only work has attempts of its own") };
        work
    }

    fn main_ended(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        match end {
            AttemptEnd::Succeeded { .. } if self.work(at).check.is_some() => self.next_role(at, Role::Check),
            AttemptEnd::Succeeded { .. } => self.complete_work(at),
            AttemptEnd::Interrupted => self.interrupted(attempt),
            AttemptEnd::Blocked { reason, until, message } => self.hold_again(at, reason, until, message),
            AttemptEnd::HandedOver { .. } => self.handed_over(at),
            other => self.failed(at, other),
        }
    }

    /// Another does the same at once. No try is used up: who ran out of an account has not failed at the work.
    pub(in crate::engine) fn handed_over(&mut self, at: crate::engine::StepAt) {
        let next = self.state.more(at).expect("an attempt ended").next;
        self.emit(Event::StepGoesOn { at, next: Onward { mode: Mode::Again, ..next } });
    }

    /// The work is done and found complete; only a summary can be missing.
    pub(in crate::engine) fn complete_work(&mut self, at: crate::engine::StepAt) {
        if self.work(at).summary.is_some() {
            return self.next_role(at, Role::Summary);
        }
        self.succeed(at);
    }

    fn succeed(&mut self, at: crate::engine::StepAt) {
        let output = self.result(at);
        self.end_step(at, End::with(output));
    }

    pub(in crate::engine) fn result(&self, at: crate::engine::StepAt) -> Arc<Value> {
        self.state.more(at).expect("an attempt ended").result.clone()
    }

    fn next_role(&mut self, at: crate::engine::StepAt, role: Role) {
        let next = self.state.more(at).expect("an attempt ended").next;
        self.emit(Event::StepGoesOn { at, next: Onward { role, mode: Mode::Fresh, ..next } });
    }

    fn summary_ended(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        if *end == AttemptEnd::Interrupted {
            return self.interrupted(attempt);
        }
        self.succeed(attempt.at);
    }

    /// The host died under it.
    pub(in crate::engine) fn interrupted(&mut self, attempt: AttemptId) {
        let at = attempt.at;
        let more = self.state.more(at).expect("an attempt ended");
        let (next, often) = (more.next, more.interruptions >= limits::INTERRUPTIONS);
        let policy = match attempt.role {
            Role::Main => self.step(at).policy.on_interrupted,
            Role::Check | Role::Summary | Role::Undo => OnInterrupted::Rerun,
        };
        let mode = match policy {
            OnInterrupted::Rerun => Mode::Rerun,
            OnInterrupted::Resume => Mode::Resume,
            OnInterrupted::Restore => Mode::Restore,
            OnInterrupted::Ask => Mode::Rerun,
            OnInterrupted::Fail => {
                let message = "the host died while it ran";
                let error = Error::new(ErrorClass::Interrupted, code::INTERRUPTED, message);
                return self.hold_or_fail(at, error, None);
            }
        };
        let next = Onward { mode, ..next };
        if policy != OnInterrupted::Ask && !often {
            return self.emit(Event::StepGoesOn { at, next });
        }
        let times = self.state.more(at).expect("an attempt ended").interruptions;
        let message = match times {
            1 => "the host died while it ran".to_owned(),
            _ => format!("the host died while it ran, {times} times so far"),
        };
        self.hold(at, crate::ir::HoldReason::Interruption, None, message, next);
    }

    /// An attempt that was told to stop has ended.
    fn stopped(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        let at = attempt.at;
        if self.state.more(at).and_then(|more| more.stopping) == Some(Stop::Timeout) {
            return self.step_timed_out(at);
        }
        let succeeded = matches!(end, AttemptEnd::Succeeded { .. });
        let complete = match attempt.role {
            Role::Main => succeeded && self.work(at).check.is_none(),
            Role::Check => succeeded || is_complete(end),
            Role::Summary | Role::Undo => true,
        };
        if complete { self.succeed(at) } else { self.end_step(at, End::of(Outcome::Cancelled)) }
    }

    pub(in crate::engine) fn step_timed_out(&mut self, at: crate::engine::StepAt) {
        self.fail_step(at, self.timeout_of(at));
    }
}

fn is_complete(end: &AttemptEnd) -> bool {
    matches!(end, AttemptEnd::Checked { finding: crate::engine::Finding::Complete, .. })
}

/// What a check says, cut to what is kept; a value that is too large is dropped.
fn bounded(end: AttemptEnd) -> AttemptEnd {
    let cut = |notes: Vec<String>| {
        let notes = notes.into_iter().take(limits::CHECK_NOTES);
        notes.map(|note| note.chars().take(limits::CHECK_NOTE_CHARS).collect()).collect()
    };
    match end {
        AttemptEnd::Checked { finding, reasons, fingerprints, output } => AttemptEnd::Checked {
            finding,
            reasons: cut(reasons),
            fingerprints: cut(fingerprints),
            output: output.map(CheckOutput::bounded),
        },
        AttemptEnd::Succeeded { output } if !size::within(&output, limits::VALUE_BYTES) => {
            AttemptEnd::Succeeded { output: crate::engine::state::null() }
        }
        // Only what the work itself gave counts.
        AttemptEnd::Unmerged { message, .. } => {
            AttemptEnd::Unmerged { output: crate::engine::state::null(), message }
        }
        other => other,
    }
}
