//! Advice: facts that a person should know before a run, although they may be intended: a wait without an end, a gate
//! that opens by itself, steps that cannot be undone.

use super::{
    definition::{ScopeIx, WorkflowEntry},
    problem::{FieldPath, PlanField, PlanProblem, ProblemCode, ProblemCollector},
    survey::PlanSurvey,
};
use crate::{
    ir::{GateSpec, GateTimeout, OutcomeAction, OutcomeEffect, OutcomeEffects, Step, StepKindSpec},
    time::Millis,
};

/// Maximum number of names in one line.
const NAMED: usize = 5;

pub(super) fn collect_advice(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for entry in &survey.definition.workflows {
        check_undo(survey, entry, problems);
    }
    let root = survey.definition.root();
    if root.workflow.scope.timeout.is_none() {
        let at = survey.scope_location(root.root, PlanField::Timeout);
        let problem = PlanProblem::new(ProblemCode::NoTimeout, at, "the run has no timeout and may never end");
        problems.push(problem.with_hint("give the workflow a timeout"));
    }
    for (scope, i, step) in survey.steps() {
        let mut advice = StepAdvice { survey, scope, i, step, problems };
        advice.check_timeout();
        advice.check_kind();
    }
}

/// Adds one note for a whole workflow: in some formats every failure undoes, and few steps need it.
fn check_undo(survey: &PlanSurvey<'_>, entry: &WorkflowEntry, problems: &mut ProblemCollector) {
    let policy = &entry.workflow.scope.undo;
    let steps = || {
        let names = entry.names.values();
        names.map(|(scope, i)| (*scope, *i, survey.definition.scope(*scope).step(*i)))
    };
    let undoes = policy.on_timeout || policy.on_cancel || steps().any(|(.., step)| may_undo(&step.policy.effects));
    if !undoes {
        return;
    }
    let mut missing: Vec<(ScopeIx, u32, &Step)> =
        steps().filter(|(.., step)| matches!(step.kind, StepKindSpec::Work(_)) && step.undo.is_none()).collect();
    if missing.is_empty() {
        return;
    }
    missing.sort_unstable_by_key(|(scope, i, _)| (*scope, *i));
    let names: Vec<&str> = missing.iter().take(NAMED).map(|(.., step)| step.id.as_str()).collect();
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let message = format!("when the run is undone, there is no undo for {}{more}", names.join(", "));
    problems.push(PlanProblem::new(
        ProblemCode::NothingToUndo,
        survey.scope_location(entry.root, PlanField::Undo),
        message,
    ));
}

fn may_undo(effects: &OutcomeEffects) -> bool {
    let OutcomeEffects { incomplete, exhausted, failed, failed_by_class, rejected, timed_out, .. } = effects;
    let undoes = |effect: &OutcomeEffect| effect.then == OutcomeAction::Undo;
    [incomplete, exhausted, failed, rejected, timed_out].into_iter().any(undoes) || failed_by_class.values().any(undoes)
}

struct StepAdvice<'a> {
    survey: &'a PlanSurvey<'a>,
    scope: ScopeIx,
    i: u32,
    step: &'a Step,
    problems: &'a mut ProblemCollector,
}

impl StepAdvice<'_> {
    fn push_advice(&mut self, code: ProblemCode, field: impl Into<FieldPath>, message: String, hint: &str) {
        let problem = PlanProblem::new(code, self.survey.step_location(self.scope, self.i, field), message);
        self.problems.push(if hint.is_empty() { problem } else { problem.with_hint(hint) });
    }

    /// Returns the shortest timeout of the scopes around the step, without the callers of its workflow.
    fn outer_timeout(&self) -> Option<Millis> {
        let mut shortest: Option<Millis> = None;
        let mut at = Some(self.scope);
        while let Some(scope) = at {
            let entry = self.survey.definition.scope(scope);
            shortest = shortest.into_iter().chain(entry.scope.timeout).min();
            at = entry.parent.map(|parent| parent.0);
        }
        shortest
    }

    fn check_timeout(&mut self) {
        let policy = &self.step.policy;
        if matches!(self.step.kind, StepKindSpec::Work(_))
            && policy.timeout.is_none()
            && policy.idle_timeout.is_none()
            && self.outer_timeout().is_none()
        {
            let message = format!("`{}` has no timeout: if it hangs, so does the run", self.step.id);
            self.push_advice(
                ProblemCode::NoTimeout,
                [PlanField::Policy, PlanField::Timeout],
                message,
                "give it a timeout",
            );
        }
        let waits = match &self.step.kind {
            StepKindSpec::Gate(gate) => gate.timeout,
            StepKindSpec::Wait(wait) => wait.timeout,
            _ => None,
        };
        if let (Some(waits), Some(outer)) = (waits, self.outer_timeout())
            && waits > outer
        {
            let message = format!("`{}` may wait {waits}, but the run ends after {outer}", self.step.id);
            self.push_advice(ProblemCode::WaitOutlivesRun, PlanField::Timeout, message, "time spent waiting counts");
        }
        let outer = self.outer_timeout().filter(|outer| *outer > Millis(0));
        if let (Some(takes), Some(outer)) = (policy.timeout, outer)
            && takes > outer
            && waits.is_none()
        {
            let message = format!("`{}` may take {takes}, but the run ends after {outer}", self.step.id);
            let step = self.survey.terms(self.scope).step;
            let hint = format!("shorten the timeout of the {step}, or extend that of the run");
            self.push_advice(ProblemCode::StepOutlivesRun, [PlanField::Policy, PlanField::Timeout], message, &hint);
        }
    }

    fn check_kind(&mut self) {
        match &self.step.kind {
            StepKindSpec::Gate(gate) => self.check_gate(gate),
            StepKindSpec::Each(each) if each.parallelism.is_none() => {
                let message = format!("all items of `{}` may run at once", self.step.id);
                self.push_advice(ProblemCode::UnboundedEach, PlanField::Parallelism, message, "");
            }
            _ => {}
        }
    }

    fn check_gate(&mut self, gate: &GateSpec) {
        let id = &self.step.id;
        if self.step.when.is_some() && self.step.policy.effects.skipped_by_condition.satisfies {
            let step = self.survey.terms(self.scope).step;
            let message = format!("if its condition is false, {step}s that wait for `{id}` start without a decision");
            self.push_advice(ProblemCode::SkippedGate, PlanField::When, message, "");
        }
        if gate.on_timeout == GateTimeout::Approve {
            let message = format!("`{id}` opens by itself when nobody decides in time");
            self.push_advice(
                ProblemCode::GateOpensItself,
                PlanField::OnTimeout,
                message,
                "the host must allow it, too",
            );
        }
        if gate.approvers.is_empty() {
            let message = format!("anyone may decide `{id}`");
            self.push_advice(ProblemCode::AnyoneMayApprove, PlanField::Approvers, message, "name a role or a user");
        }
    }
}
