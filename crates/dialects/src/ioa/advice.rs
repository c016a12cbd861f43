//! Advice about valid IOA sources: deviations from the format's recommendations, and fields without effect.

use std::collections::BTreeSet;

use skein_core::{expr::ExprSpan, ids::StepId};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    ioa::{
        defaults::{GATE, IoaFailurePolicy, IoaOnFailure, STEPS_ADVISED},
        step::gate_text,
        syntax::{IoaSpec, IoaStep},
    },
};

pub(super) fn check_advice(spec: &IoaSpec<'_>, steps: &[Box<IoaStep<'_>>], sink: &mut DiagnosticSink) {
    let mut advice = IoaAdvice { spec, steps, sink };
    advice.check_step_count();
    advice.check_undo();
    for step in steps {
        match gate_text(step) {
            Some(_) => advice.check_gate(step),
            None => advice.check_nearly_gate(step),
        }
        advice.check_abort(step);
    }
}

struct IoaAdvice<'a> {
    spec: &'a IoaSpec<'a>,
    steps: &'a [Box<IoaStep<'a>>],
    sink: &'a mut DiagnosticSink,
}

impl IoaAdvice<'_> {
    fn push_warning(&mut self, code: Code, span: ExprSpan, message: impl Into<String>, hint: &str) {
        self.sink.push(Diagnostic::new(code, &self.sink.source, span, message).with_hint(hint));
    }

    fn check_step_count(&mut self) {
        let count = self.steps.len();
        if let Some(first) = self.steps.get(STEPS_ADVISED) {
            let message = format!("{count} steps, but the format recommends at most {STEPS_ADVISED}");
            self.push_warning(Code::QuiteBig, first.id.span, message, "split it into smaller workflows");
        }
    }

    fn check_undo(&mut self) {
        let entries: BTreeSet<&StepId> = self.spec.compensation.iter().map(|entry| &entry.step.value).collect();
        let undoes = |step: &IoaStep<'_>| {
            step.on_failure.as_ref().filter(|word| word.value == IoaOnFailure::Compensate).map(|word| word.span)
        };
        let policy = self.spec.failure_policy.as_ref().filter(|word| word.value == IoaFailurePolicy::Compensate);
        if let Some(policy) = policy.filter(|_| entries.is_empty()) {
            let hint = "add `compensation` for the steps that change something";
            return self.push_warning(
                Code::NoUndo,
                policy.span,
                "failures are compensated, but there is no `compensation`",
                hint,
            );
        }
        for step in self.steps {
            if let Some(span) = undoes(step).filter(|_| !entries.contains(&step.id.value)) {
                let message = format!("`{}` has `onFailure: compensate` but no entry in `compensation`", step.id.value);
                let hint = "add an entry to `compensation`, unless the step changes nothing";
                self.push_warning(Code::NoUndo, span, message, hint);
            }
        }
        let never = policy.is_none() && !self.steps.iter().any(|step| undoes(step).is_some());
        if let Some(first) = self.spec.compensation.first().filter(|_| never) {
            let hint = "set `compensate` in a step's `onFailure` or in `failurePolicy`";
            self.push_warning(Code::UnusedUndo, first.step.span, "no failure triggers this compensation", hint);
        }
    }

    fn check_gate(&mut self, step: &IoaStep<'_>) {
        if step.timeout.is_none() {
            let until = if self.spec.timeout.is_some() { "as long as the run lasts" } else { "for ever" };
            let message = format!("the gate `{}` has no timeout: it may wait {until}", step.id.value);
            let hint = "set a timeout, such as `timeout: 24h`";
            self.push_warning(Code::NoTimeout, step.id.span, message, hint);
        }
        let ignored = [
            (step.node.field("retryPolicy"), "`retryPolicy` changes nothing: a gate is not retried"),
            (
                step.node.get("x-skein").and_then(|block| block.field("output")),
                "`output` changes nothing: a gate returns `decision`, `reason` and `approver`",
            ),
        ];
        for (field, message) in ignored {
            if let Some(field) = field {
                let source = field.value.source();
                self.sink.push(Diagnostic::new(Code::IgnoredField, source, field.key_span, message));
            }
        }
    }

    /// Warns of an action that begins like `Gate:`: an agent would run it, without an approval.
    fn check_nearly_gate(&mut self, step: &IoaStep<'_>) {
        let (Some(action), None) = (&step.action, step.skein.gate()) else { return };
        let word = GATE.trim_end_matches(':');
        let begins = action.value.trim_start();
        let rest = begins.get(word.len()..).unwrap_or_default();
        let is_near = begins.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
            && rest.trim_start().starts_with([':', '：']);
        if is_near {
            let message = format!("`{}` is not a gate: an agent runs it without an approval", step.id.value);
            let hint = "write `GATE:` in capitals, or set `x-skein: {gate: false}` to keep it as it is";
            self.push_warning(Code::NearlyGate, action.span, message, hint);
        }
    }

    /// Warns of `abort` in a workflow that retries runs: the run is retried whichever step failed.
    fn check_abort(&mut self, step: &IoaStep<'_>) {
        let aborts = step.on_failure.as_ref().filter(|word| word.value == IoaOnFailure::Abort);
        let (Some(word), Some(policy)) = (aborts, &self.spec.failure_policy) else { return };
        if policy.value == IoaFailurePolicy::Retry {
            let message = "`abort` ends this run, and `failurePolicy` starts another";
            let diagnostic = Diagnostic::new(Code::RetriedAnyway, &self.sink.source, word.span, message);
            self.sink.push(diagnostic.with_related(policy.span, "because of this"));
        }
    }
}
