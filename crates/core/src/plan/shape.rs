//! Check of the shape of each scope: unique names, fields that apply, and enough steps, arms, lanes and signals.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    definition::{ScopeEntry, ScopeIx, detours},
    problem::{FieldPath, FieldRef, FieldRest, PlanField, PlanProblem, ProblemCode, ProblemCollector},
    survey::PlanSurvey,
};
use crate::{
    ids::StepId,
    ir::{ParallelSpec, Step, StepKindSpec},
    terms::WorkflowTerms,
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
            let term = survey.terms(ix).step;
            let message = format!("two {term}s are called `{}`", step.id);
            let problem =
                PlanProblem::new(ProblemCode::DuplicateStep, survey.step_location(ix, i, PlanField::Id), message);
            let hint = format!("names are unique in a workflow, {term}s inside other {term}s included");
            problems.push(
                problem.with_hint(hint).with_related(survey.step_location(first, j, PlanField::Id), "the other one"),
            );
        }
    }
}

fn check_scope(survey: &PlanSurvey<'_>, ix: ScopeIx, entry: &ScopeEntry, problems: &mut ProblemCollector) {
    let term = survey.terms(ix).step;
    if entry.is_empty() {
        let (code, message) = match entry.parent {
            None => (ProblemCode::EmptyWorkflow, format!("the workflow has no {term}s")),
            Some(_) => (ProblemCode::EmptyScope, format!("there are no {term}s inside")),
        };
        problems.push(PlanProblem::new(code, survey.scope_location(ix, PlanField::Steps), message));
    }
    if entry.parent.is_some() && entry.scope.retry.is_some() {
        let message = "a retry of the run is only allowed at the top level";
        let problem = PlanProblem::new(ProblemCode::Misplaced, survey.scope_location(ix, PlanField::Retry), message);
        problems.push(problem.with_hint(format!("give the {term} a retry of its own")));
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
    fn build_problem(&self, code: ProblemCode, field: impl Into<FieldPath>, message: impl Into<String>) -> PlanProblem {
        PlanProblem::new(code, self.survey.step_location(self.scope, self.i, field), message)
    }

    /// Checks for fields of a graph in a routed scope, and the other way round.
    fn check_place(&mut self) {
        let term = self.survey.terms(self.scope).step;
        if self.routed {
            if !self.step.after.is_empty() {
                let message = format!("`{}` waits for {term}s, but its scope is routed", self.step.id);
                let problem = self.build_problem(ProblemCode::Misplaced, PlanField::After, message);
                self.problems.push(problem.with_hint("route to it with `next`"));
            }
            return;
        }
        let next = self.step.next.is_some().then_some(FieldRef::new(PlanField::Next, FieldRest::Whole));
        for field in next.into_iter().chain(routing_fields(&self.step.kind)) {
            let message = format!("`{}` routes to a {term}, but in a graph {term}s wait for each other", self.step.id);
            let problem = self.build_problem(ProblemCode::Misplaced, field, message);
            self.problems.push(problem.with_hint(format!("let the other {term} wait for this one, with a condition")));
        }
    }

    fn check_kind(&mut self) {
        match &self.step.kind {
            StepKindSpec::Branch(branch) if branch.arms.is_empty() => {
                let problem = self.build_problem(ProblemCode::NoArms, PlanField::Arms, "a branch has at least one arm");
                self.problems.push(problem);
            }
            StepKindSpec::Parallel(parallel) => self.check_lanes(parallel),
            StepKindSpec::Wait(wait) if wait.on.is_empty() => {
                let signal = self.survey.terms(self.scope).signal;
                let message = format!("no {signal} can end this wait");
                let problem = self.build_problem(ProblemCode::NoSignals, PlanField::On, message);
                self.problems.push(problem.with_hint(format!("name at least one {signal}")));
            }
            _ => {}
        }
    }

    fn check_lanes(&mut self, parallel: &ParallelSpec) {
        let WorkflowTerms { step, lanes, .. } = self.survey.terms(self.scope);
        if parallel.lanes.len() < 2 {
            let message = format!("a parallel {step} has at least two {lanes}, this has {}", parallel.lanes.len());
            let problem = self.build_problem(ProblemCode::TooFewLanes, PlanField::Lanes, message);
            self.problems.push(problem);
        }
        let lane_id = |i| FieldRef::new(PlanField::Lanes, FieldRest::ItemField(i, PlanField::Id));
        let mut seen = BTreeMap::new();
        for (i, lane) in parallel.lanes.iter().enumerate() {
            let first = *seen.entry(&lane.id).or_insert(i);
            if first != i {
                let message = format!("two {lanes} are called `{}`", lane.id);
                let problem = self.build_problem(ProblemCode::DuplicateLane, lane_id(i), message);
                let other = self.survey.step_location(self.scope, self.i, lane_id(first));
                self.problems.push(problem.with_related(other, "the other one"));
            }
        }
    }

    fn check_inputs(&mut self) {
        let undo = self.step.undo.as_ref().map(|undo| (true, &undo.inputs));
        for (undo, inputs) in [(false, &self.step.inputs)].into_iter().chain(undo) {
            let mut seen = BTreeSet::new();
            for input in inputs {
                if !seen.insert(&input.name) {
                    let field = FieldRef::new(PlanField::Inputs, FieldRest::Name(&input.name));
                    let field = FieldRef { undo, ..field };
                    let message = format!("the input `{}` is given twice", input.name);
                    let problem = self.build_problem(ProblemCode::DuplicateInput, field, message);
                    self.problems.push(problem);
                }
            }
        }
    }
}

/// Returns the fields of a kind that route a cursor. For a branch, that is the kind itself.
fn routing_fields(kind: &StepKindSpec) -> Vec<FieldRef<'static>> {
    match kind {
        StepKindSpec::Branch(_) => vec![FieldRef::new(PlanField::Kind, FieldRest::Whole)],
        kind => detours(kind).into_iter().map(|(field, _)| field).collect(),
    }
}
