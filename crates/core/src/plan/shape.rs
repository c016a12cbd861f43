//! Check of the shape of each scope: unique names, fields that apply, and enough steps, arms, lanes and signals.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    definition::{ScopeEntry, ScopeIx},
    problem::{PlanProblem, ProblemCode, ProblemCollector},
    survey::PlanSurvey,
};
use crate::{
    ids::StepId,
    ir::{GateSpec, GateTimeout, ParallelSpec, Step, StepKindSpec, WaitTimeout},
};

pub(super) fn check_shapes(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    check_names(survey, problems);
    for (ix, entry) in survey.scopes() {
        check_scope(survey, ix, entry, problems);
        for (i, step) in (0u32..).zip(&entry.scope.steps) {
            let mut step = StepShapeCheck { survey, scope: ix, i, step, routed: entry.is_routed(), problems };
            step.check_place();
            step.check_kind();
            step.check_inputs();
        }
    }
}

/// Checks that names are unique in a whole workflow, so that an expression can name a step at any depth.
fn check_names(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    let names: usize = survey.definition.workflows.iter().map(|entry| entry.names.len()).sum();
    if names == survey.steps().count() {
        return;
    }
    let mut seen: BTreeMap<(u32, &StepId), (ScopeIx, u32)> = BTreeMap::new();
    for (ix, i, step) in survey.steps() {
        let workflow = survey.definition.scope(ix).workflow;
        if let Some((first, j)) = seen.insert((workflow, &step.id), (ix, i)) {
            let message = format!("two steps are called `{}`", step.id);
            let problem =
                PlanProblem::new(ProblemCode::DuplicateStep, survey.step_location(ix, i, "id"), message);
            let hint = "names are unique in a workflow, steps inside other steps included";
            problems.push(
                problem.with_hint(hint).with_related(survey.step_location(first, j, "id"), "the other one"),
            );
        }
    }
}

fn check_scope(survey: &PlanSurvey<'_>, ix: ScopeIx, entry: &ScopeEntry, problems: &mut ProblemCollector) {
    if entry.is_empty() {
        let (code, message) = match entry.parent {
            None => (ProblemCode::EmptyWorkflow, "the workflow has no steps"),
            Some(_) => (ProblemCode::EmptyScope, "there are no steps inside"),
        };
        problems.push(PlanProblem::new(code, survey.scope_location(ix, "steps"), message));
    }
    if entry.parent.is_some() && entry.scope.retry.is_some() {
        let message = "a retry of the run is only allowed at the top level";
        let problem = PlanProblem::new(ProblemCode::Misplaced, survey.scope_location(ix, "retry"), message);
        problems.push(problem.with_hint("give the step a retry of its own"));
    }
}

struct StepShapeCheck<'a> {
    survey: &'a PlanSurvey<'a>,
    scope: ScopeIx,
    i: u32,
    step: &'a Step,
    routed: bool,
    problems: &'a mut ProblemCollector,
}

impl StepShapeCheck<'_> {
    fn build_problem(
        &self,
        code: ProblemCode,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> PlanProblem {
        PlanProblem::new(code, self.survey.step_location(self.scope, self.i, field), message)
    }

    /// Checks for fields of a graph in a routed scope, and the other way round.
    fn check_place(&mut self) {
        if self.routed {
            if !self.step.after.is_empty() {
                let message = format!("`{}` waits for steps, but its scope is routed", self.step.id);
                let problem = self.build_problem(ProblemCode::Misplaced, "after", message);
                self.problems.push(problem.with_hint("route to it with `next`"));
            }
            return;
        }
        let next = self.step.next.is_some().then_some("next");
        for field in next.into_iter().chain(routing_fields(&self.step.kind)) {
            let message =
                format!("`{}` routes to a step, but in a graph steps wait for each other", self.step.id);
            let problem = self.build_problem(ProblemCode::Misplaced, field, message);
            self.problems.push(problem.with_hint("let the other step wait for this one, with a condition"));
        }
    }

    fn check_kind(&mut self) {
        match &self.step.kind {
            StepKindSpec::Branch(branch) if branch.arms.is_empty() => {
                let problem =
                    self.build_problem(ProblemCode::NoArms, "arms", "a branch has at least one arm");
                self.problems.push(problem);
            }
            StepKindSpec::Parallel(parallel) => self.check_lanes(parallel),
            StepKindSpec::Wait(wait) if wait.on.is_empty() => {
                let problem = self.build_problem(ProblemCode::NoSignals, "on", "no signal can end this wait");
                self.problems.push(problem.with_hint("name at least one signal"));
            }
            _ => {}
        }
    }

    fn check_lanes(&mut self, parallel: &ParallelSpec) {
        if parallel.lanes.len() < 2 {
            let message =
                format!("a parallel step has at least two lanes, this has {}", parallel.lanes.len());
            let problem = self.build_problem(ProblemCode::TooFewLanes, "lanes", message);
            self.problems.push(problem);
        }
        let mut seen = BTreeMap::new();
        for (i, lane) in parallel.lanes.iter().enumerate() {
            let first = *seen.entry(&lane.id).or_insert(i);
            if first != i {
                let message = format!("two lanes are called `{}`", lane.id);
                let problem =
                    self.build_problem(ProblemCode::DuplicateLane, format!("lanes[{i}].id"), message);
                let other = self.survey.step_location(self.scope, self.i, format!("lanes[{first}].id"));
                self.problems.push(problem.with_related(other, "the other one"));
            }
        }
    }

    fn check_inputs(&mut self) {
        let undo = self.step.undo.as_ref().map(|undo| ("undo.inputs", &undo.inputs));
        for (field, inputs) in [("inputs", &self.step.inputs)].into_iter().chain(undo) {
            let mut seen = BTreeSet::new();
            for input in inputs {
                if !seen.insert(&input.name) {
                    let field = format!("{field}.{}", input.name);
                    let message = format!("the input `{}` is given twice", input.name);
                    let problem = self.build_problem(ProblemCode::DuplicateInput, field, message);
                    self.problems.push(problem);
                }
            }
        }
    }
}

/// Returns the fields of a kind that route a cursor.
fn routing_fields(kind: &StepKindSpec) -> Vec<&'static str> {
    match kind {
        StepKindSpec::Branch(_) => vec!["kind"],
        StepKindSpec::Gate(gate) => {
            let GateSpec { on_approve, on_reject, on_timeout, .. } = &**gate;
            let late = matches!(on_timeout, GateTimeout::Go(_));
            let fields = [
                (on_approve.is_some(), "on_approve"),
                (on_reject.is_some(), "on_reject"),
                (late, "on_timeout"),
            ];
            fields.into_iter().filter(|field| field.0).map(|field| field.1).collect()
        }
        StepKindSpec::Wait(wait) if matches!(wait.on_timeout, WaitTimeout::Go(_)) => vec!["on_timeout"],
        _ => Vec::new(),
    }
}
