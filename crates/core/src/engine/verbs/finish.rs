//! Finish: handles the end of an attempt, also after a restart of the host, and the end of the run, which is published
//! and closed.

use std::{cmp::Ordering, sync::Arc};

use serde_json::Value;

use crate::{
    engine::{
        AttemptEnd, AttemptId, AttemptMode, AttemptReport, AttemptRole, AttemptStopReason, CheckFinding, CheckOutput,
        Cost, Event, EvidenceResult, ExecutionError, InstanceEnd, InstanceIx, NextAction, Publication, Refusal, StepAt,
        StepOutcome, code,
        decide::{DecideContext, StepEnd},
        state::{RunPhase, null},
        transitions::StepPhase,
        verbs::start::select_hooks,
    },
    ir::{ErrorClass, HoldReason, HookTiming, OnInterrupted, RunStatus, SchemaError, StepKindSpec, WorkSpec},
    limits,
    time::Timestamp,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn finish_attempt(
        &mut self,
        attempt: AttemptId,
        report: &AttemptReport,
    ) -> Result<(), Refusal> {
        if !self.state.in_flight().contains(&attempt) {
            return Err(if self.was_started(attempt) { Refusal::LateResult } else { Refusal::UnknownAttempt });
        }
        if matches!(report.end, AttemptEnd::Checked { .. }) && attempt.role != AttemptRole::Check {
            return Err(Refusal::WrongReport);
        }
        self.record_attempt_end(attempt, report.clone());
        Ok(())
    }

    /// True if the attempt was started at some time. Call it for attempts that are not in flight.
    fn was_started(&self, attempt: AttemptId) -> bool {
        let Some(step) = self.state.find_step(attempt.at) else { return false };
        let Some(more) = &step.more else { return false };
        if attempt.attempt == 0 || attempt.role == AttemptRole::Undo {
            return attempt.attempt > 0 && step.outcome.is_some();
        }
        let now = (step.visit, more.next.iteration);
        match (attempt.visit, attempt.iteration).cmp(&now) {
            Ordering::Less => attempt.visit > 0 && attempt.iteration > 0,
            Ordering::Equal => attempt.attempt <= more.attempts[attempt.role as usize],
            Ordering::Greater => false,
        }
    }

    /// Records the end of an attempt and applies its consequences.
    fn record_attempt_end(&mut self, attempt: AttemptId, report: AttemptReport) {
        let at = attempt.at;
        let phase = self.state.step(at).phase;
        let AttemptReport { end, cost, proofs, by } = report;
        let (end, proofs) = match attempt.role {
            AttemptRole::Main => {
                let proofs: Vec<EvidenceResult> =
                    proofs.into_iter().take(limits::EVIDENCE).map(EvidenceResult::into_bounded).collect();
                (self.require_evidence(at, self.validate_output(at, end), &proofs), proofs)
            }
            AttemptRole::Check | AttemptRole::Summary | AttemptRole::Undo => (truncate_attempt_end(end), Vec::new()),
        };
        self.emit(Event::AttemptEnded { attempt, end: end.clone(), cost, proofs, by });
        match (phase, attempt.role) {
            (_, AttemptRole::Undo) => self.handle_undo_end(attempt, end),
            (StepPhase::Stopping, _) => self.handle_stopped_attempt(attempt, &end),
            (_, AttemptRole::Main) => self.handle_main_end(attempt, end),
            (_, AttemptRole::Check) => self.handle_check_end(attempt, end),
            (_, AttemptRole::Summary) => self.handle_summary_end(attempt, &end),
        }
    }

    /// Turns a success whose output does not match the declared outputs into a failure.
    fn validate_output(&self, at: StepAt, end: AttemptEnd) -> AttemptEnd {
        let mut output = match &end {
            AttemptEnd::Succeeded { output } | AttemptEnd::Unmerged { output, .. } => Arc::clone(output),
            _ => return truncate_attempt_end(end),
        };
        let is_empty = output.is_null() || output.as_object().is_some_and(serde_json::Map::is_empty);
        let schema = &self.step(at).outputs;
        let bad = |message: String| AttemptEnd::Failed {
            class: ErrorClass::Validation,
            code: Some(code::OUTPUT_INVALID.into()),
            message,
            retry_at: None,
        };
        if !fits_within(&output, limits::VALUE_BYTES) {
            return bad(format!("its output is larger than {} bytes", limits::VALUE_BYTES));
        }
        if schema.properties().next().is_some() {
            schema.complete_output(Arc::make_mut(&mut output));
        }
        let checked = if schema.is_empty() { Ok(()) } else { schema.check(&output) };
        match (checked, end) {
            (Err(error), _) => bad(self.describe_output_fault(at, &output, is_empty, &error)),
            (Ok(()), AttemptEnd::Unmerged { message, .. }) => AttemptEnd::Unmerged { output, message },
            (Ok(()), _) => AttemptEnd::Succeeded { output },
        }
    }

    /// Describes the mismatch between the output of a step and its declared outputs. `is_empty`: the worker wrote no
    /// output.
    fn describe_output_fault(&self, at: StepAt, output: &Value, is_empty: bool, error: &SchemaError) -> String {
        let step = self.step(at);
        let missing: Vec<String> = step
            .outputs
            .required_properties()
            .filter(|name| output.get(*name).is_none())
            .map(|name| format!("`{name}`"))
            .collect();
        let missing = match &missing[..] {
            [] => return format!("its output does not match the declared outputs: {error}"),
            [one] => format!("required output {one} is missing"),
            several => format!("required outputs {} are missing", several.join(", ")),
        };
        if is_empty { format!("`{}` wrote no outputs; {missing}", step.id) } else { missing }
    }

    /// Turns a success without complete evidence into a failure.
    fn require_evidence(&self, at: StepAt, end: AttemptEnd, proofs: &[EvidenceResult]) -> AttemptEnd {
        let work = self.work(at);
        if !matches!(end, AttemptEnd::Succeeded { .. }) || work.evidence.is_empty() {
            return end;
        }
        let message = match proofs.iter().find(|proof| !proof.holds) {
            None if proofs.len() == work.evidence.len() => return end,
            None => "not all of its evidence was checked".to_owned(),
            Some(proof) => {
                let last = proof.found.lines().rev().find(|line| !line.trim().is_empty());
                let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
                format!("it is not proven that {}{last}", proof.what)
            }
        };
        // The same class as if the worker had reported a failure.
        let class = work.worker.default_error_class();
        AttemptEnd::Failed { class, code: Some(code::EVIDENCE.into()), message, retry_at: None }
    }

    fn work(&self, at: StepAt) -> &WorkSpec {
        let StepKindSpec::Work(work) = &self.step(at).kind else { unreachable!("only work has attempts of its own") };
        work
    }

    fn handle_main_end(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let at = attempt.at;
        match end {
            AttemptEnd::Succeeded { .. } if self.work(at).check.is_some() => {
                self.continue_with_role(at, AttemptRole::Check)
            }
            AttemptEnd::Succeeded { .. } => self.complete_work(at),
            AttemptEnd::Interrupted => self.handle_interruption(attempt),
            AttemptEnd::Blocked { reason, until, message } => self.hold_again(at, reason, until, message),
            AttemptEnd::HandedOver { .. } => self.hand_over_attempt(at),
            other => self.handle_failure(at, other),
        }
    }

    /// Starts another attempt at once, by another agent. It does not count as a retry: an exhausted account is not a
    /// failure of the work.
    pub(in crate::engine) fn hand_over_attempt(&mut self, at: StepAt) {
        let next = self.state.visit_state(at).expect("an attempt ended").next;
        self.emit(Event::StepGoesOn { at, next: NextAction { mode: AttemptMode::Again, ..next } });
    }

    /// Ends work that the check found complete, or starts its summary.
    pub(in crate::engine) fn complete_work(&mut self, at: StepAt) {
        if self.work(at).summary.is_some() {
            return self.continue_with_role(at, AttemptRole::Summary);
        }
        self.succeed_step(at);
    }

    fn succeed_step(&mut self, at: StepAt) {
        let output = self.work_result(at);
        self.end_step(at, StepEnd::from_output(output));
    }

    pub(in crate::engine) fn work_result(&self, at: StepAt) -> Arc<Value> {
        self.state.visit_state(at).expect("an attempt ended").result.clone()
    }

    fn continue_with_role(&mut self, at: StepAt, role: AttemptRole) {
        let next = self.state.visit_state(at).expect("an attempt ended").next;
        self.emit(Event::StepGoesOn { at, next: NextAction { role, mode: AttemptMode::Fresh, ..next } });
    }

    fn handle_summary_end(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        if *end == AttemptEnd::Interrupted {
            return self.handle_interruption(attempt);
        }
        self.succeed_step(attempt.at);
    }

    /// Handles an attempt that was interrupted by a crash of the host.
    pub(in crate::engine) fn handle_interruption(&mut self, attempt: AttemptId) {
        let at = attempt.at;
        let more = self.state.visit_state(at).expect("an attempt ended");
        let (next, times) = (more.next, more.interruptions);
        let policy = match attempt.role {
            AttemptRole::Main => self.step(at).policy.on_interrupted,
            AttemptRole::Check | AttemptRole::Summary | AttemptRole::Undo => OnInterrupted::Rerun,
        };
        let mode = match policy {
            OnInterrupted::Rerun => AttemptMode::Rerun,
            OnInterrupted::Resume => AttemptMode::Resume,
            OnInterrupted::Restore => AttemptMode::Restore,
            OnInterrupted::Ask => AttemptMode::Rerun,
            OnInterrupted::Fail => {
                let message = "the host crashed while it ran";
                let error = ExecutionError::new(ErrorClass::Interrupted, code::INTERRUPTED, message);
                return self.hold_or_fail(at, error, None);
            }
        };
        let next = NextAction { mode, ..next };
        if policy != OnInterrupted::Ask && times < limits::INTERRUPTIONS {
            return self.emit(Event::StepGoesOn { at, next });
        }
        let message = match times {
            1 => "the host crashed while it ran".to_owned(),
            _ => format!("the host crashed while it ran, {times} times so far"),
        };
        self.hold_step(at, HoldReason::Interruption, None, message, next);
    }

    /// Ends every attempt in flight as interrupted, or as stopped if it was being stopped.
    pub(in crate::engine) fn recover_attempts(&mut self) {
        let lost: Vec<AttemptId> = self.state.in_flight().iter().copied().collect();
        for attempt in lost {
            let stopping =
                attempt.role != AttemptRole::Undo && self.state.step(attempt.at).phase == StepPhase::Stopping;
            let end = if stopping { AttemptEnd::Stopped } else { AttemptEnd::Interrupted };
            self.record_attempt_end(attempt, AttemptReport::new(end, Cost::default()));
            self.follow_consequences();
        }
    }

    /// Handles the end of an attempt that was told to stop.
    fn handle_stopped_attempt(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        let at = attempt.at;
        if self.state.visit_state(at).and_then(|more| more.stopping) == Some(AttemptStopReason::Timeout) {
            return self.time_out_step(at);
        }
        let succeeded = matches!(end, AttemptEnd::Succeeded { .. });
        let complete = match attempt.role {
            AttemptRole::Main => succeeded && self.work(at).check.is_none(),
            AttemptRole::Check => succeeded || is_complete(end),
            AttemptRole::Summary | AttemptRole::Undo => true,
        };
        if complete { self.succeed_step(at) } else { self.end_step(at, StepEnd::from_outcome(StepOutcome::Cancelled)) }
    }

    pub(in crate::engine) fn time_out_step(&mut self, at: StepAt) {
        self.fail_step(at, self.timeout_error(at));
    }
}

fn is_complete(end: &AttemptEnd) -> bool {
    matches!(end, AttemptEnd::Checked { finding: CheckFinding::Complete, .. })
}

/// Truncates the notes of a check, and drops an output that is too large.
fn truncate_attempt_end(end: AttemptEnd) -> AttemptEnd {
    let cut = |notes: Vec<String>| {
        let notes = notes.into_iter().take(limits::CHECK_NOTES);
        notes.map(|note| note.chars().take(limits::CHECK_NOTE_CHARS).collect()).collect()
    };
    match end {
        AttemptEnd::Checked { finding, reasons, fingerprints, output } => AttemptEnd::Checked {
            finding,
            reasons: cut(reasons),
            fingerprints: cut(fingerprints),
            output: output.map(CheckOutput::into_bounded),
        },
        AttemptEnd::Succeeded { output } if !fits_within(&output, limits::VALUE_BYTES) => {
            AttemptEnd::Succeeded { output: null() }
        }
        // Only the output of a main attempt is kept.
        AttemptEnd::Unmerged { message, .. } => AttemptEnd::Unmerged { output: null(), message },
        other => other,
    }
}

/// True if the JSON of a value takes about `most` bytes at most. Stops counting at the limit.
fn fits_within(value: &Value, most: usize) -> bool {
    let mut left = most;
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        let own = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                rest.extend(items);
                items.len() + 2
            }
            Value::Object(object) => {
                rest.extend(object.values());
                object.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
        };
        let Some(after) = left.checked_sub(own) else { return false };
        left = after;
    }
    true
}

impl DecideContext<'_> {
    /// Decides the outcome of the run after the root instance has ended.
    pub(in crate::engine) fn decide_run_end(&mut self) {
        let Some(end) = self.state.instance(InstanceIx::ROOT).end().cloned() else { return };
        let retry = self.linked_retry_due(end.status);
        let mut publish = self.list_publications(end.status);
        publish.extend(retry.map(|_| Publication::Retry));
        let InstanceEnd { status, output, error, degraded } = end;
        self.emit(Event::RunDecided { status, output, error, degraded, publish, retry });
        self.close_if_published();
    }

    fn list_publications(&self, status: RunStatus) -> Vec<Publication> {
        let workflow = &self.plan.definition.root().workflow;
        let mut publish = match status {
            RunStatus::Succeeded => select_hooks(&workflow.hooks, HookTiming::Success),
            RunStatus::Cancelled => Vec::new(),
            _ => select_hooks(&workflow.hooks, HookTiming::Failure),
        };
        publish.extend((!workflow.files_out.is_empty()).then_some(Publication::Files));
        publish.extend(workflow.context.directory.is_some().then_some(Publication::Context));
        publish
    }

    /// Returns the time at which a retry of the whole run is due, if there is to be one.
    fn linked_retry_due(&self, status: RunStatus) -> Option<Timestamp> {
        let retry = self.scope_entry(InstanceIx::ROOT).scope.retry.as_ref()?;
        let attempt = self.state.start.as_ref()?.attempt;
        let fits = match status {
            RunStatus::Failed | RunStatus::Undone => true,
            RunStatus::TimedOut => retry.on_timeout,
            _ => false,
        };
        (fits && attempt < retry.attempts).then(|| self.now.saturating_add(retry.backoff.retry_delay(attempt)))
    }

    pub(in crate::engine) fn record_publication(
        &mut self,
        item: Publication,
        failed: Option<&str>,
    ) -> Result<(), Refusal> {
        if !self.state.commands.publish.contains(&item) {
            return Err(Refusal::NotPublishing);
        }
        self.emit(Event::PublicationEnded { item, failed: failed.map(str::to_owned) });
        self.close_if_published();
        Ok(())
    }

    fn close_if_published(&mut self) {
        if self.state.phase == RunPhase::Decided && self.state.commands.publish.is_empty() {
            self.emit(Event::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_counts_keys_texts_and_items() {
        assert!(fits_within(&json!("x".repeat(98)), 100));
        assert!(!fits_within(&json!("x".repeat(99)), 100));
        assert!(!fits_within(&json!({"k".repeat(200): [1, 2, 3]}), 100));
        // Brackets, commas and quotes count: an array takes 2 bytes and 1 for each item, a number 8, a one-letter key
        // 5.
        for (value, size) in [(json!([]), 2), (json!([1]), 11), (json!({}), 2), (json!({"k": 1}), 15), (json!(""), 2)] {
            assert!(fits_within(&value, size), "{value}");
            assert!(!fits_within(&value, size - 1), "{value}");
        }
    }
}
