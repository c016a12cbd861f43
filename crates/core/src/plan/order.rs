//! Check that the steps of a scope can follow one another: every name exists, no step waits for itself, every step can
//! be reached.

use super::{
    definition::{ScopeEntry, ScopeIx},
    field_path::{FieldPath, FieldRef, FieldRest, PlanField},
    problem::{PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    survey::PlanSurvey,
};
use crate::{
    ids::StepId,
    ir::{GateTimeout, RouteTarget, ScopeShape, Step, StepKindSpec, WaitTimeout},
};

/// Maximum steps of a cycle that are shown; the middle of a longer one is left out.
const SHOWN: usize = 40;
/// Maximum steps of a cycle whose edges are labelled one by one.
const LABELLED: usize = 6;

pub(super) fn check_order(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (ix, entry) in survey.scopes() {
        let mut scope = ScopeOrderCheck { survey, ix, entry, problems };
        match &entry.scope.shape {
            ScopeShape::Graph => scope.check_graph(),
            ScopeShape::Routed { start, cycles } => scope.check_routed(start.as_ref(), *cycles),
        }
    }
}

struct ScopeOrderCheck<'a> {
    survey: &'a PlanSurvey<'a>,
    ix: ScopeIx,
    entry: &'a ScopeEntry,
    problems: &'a mut ProblemCollector,
}

impl ScopeOrderCheck<'_> {
    fn check_graph(&mut self) {
        for (i, step) in (0u32..).zip(&self.entry.scope.steps) {
            for (n, id) in step.after.iter().enumerate() {
                let at = || self.survey.step_location(self.ix, i, FieldRef::new(PlanField::After, FieldRest::Item(n)));
                if *id == step.id {
                    let message = format!("`{id}` waits for itself");
                    self.problems.push(PlanProblem::new(ProblemCode::SelfDependency, at(), message));
                } else if !self.entry.by_id.contains_key(id) {
                    self.report_unknown(ProblemCode::UnknownDependency, at(), id);
                }
            }
        }
        let step = self.survey.terms(self.ix).step;
        self.check_cycles(&format!("each waits for the one before: a {step} cannot start after itself"));
    }

    fn check_routed(&mut self, start: Option<&StepId>, cycles: bool) {
        let mut known = true;
        if let Some(start) = start.filter(|start| !self.entry.by_id.contains_key(*start)) {
            known = false;
            let at = self.survey.scope_location(self.ix, PlanField::Start);
            self.report_unknown(ProblemCode::UnknownStart, at, start);
        }
        for (i, step) in (0u32..).zip(&self.entry.scope.steps) {
            for (field, target) in route_targets(step) {
                if let RouteTarget::Step(id) = target
                    && !self.entry.by_id.contains_key(id)
                {
                    known = false;
                    let at = self.survey.step_location(self.ix, i, field);
                    self.report_unknown(ProblemCode::UnknownTarget, at, id);
                }
            }
        }
        if !cycles {
            let step = self.survey.terms(self.ix).step;
            self.check_cycles(&format!("use a loop {step} for repetition, or allow cycles"));
        }
        // After a wrong name, its intended target would be reported as unreachable, too.
        if known {
            self.check_reachable();
        }
    }

    fn report_unknown(&mut self, code: ProblemCode, at: ProblemLocation, id: &StepId) {
        report_unknown_step(self.survey, self.ix, self.problems, code, at, id);
    }

    fn check_cycles(&mut self, hint: &str) {
        let flow = self.survey.flow(self.ix);
        for first in flow.components.find_cycle_starts(&flow.graph) {
            let cycle = flow.graph.find_cycle_through(first, &flow.components);
            let message = format!("dependency cycle: {}", self.render_path(&cycle));
            let mut ways = cycle.windows(2).filter_map(|way| self.find_edge_field(way[0], way[1]));
            let at = ways.next_back().map(|(at, _)| at);
            let at = at.unwrap_or_else(|| self.survey.step_location(self.ix, first, FieldPath::default()));
            let problem = PlanProblem::new(ProblemCode::Cycle, at, message).with_hint(hint);
            let ways: Vec<_> = ways.take(LABELLED + 1).collect();
            let ways = ways.into_iter().filter(|_| cycle.len() <= LABELLED + 1);
            self.problems.push(ways.fold(problem, |problem, (at, what)| problem.with_related(at, what)));
        }
    }

    /// Returns the field that makes one step follow another, and its label. None if no field does.
    fn find_edge_field(&self, from: u32, to: u32) -> Option<(ProblemLocation, String)> {
        let (one, other) = (self.entry.step(from), self.entry.step(to));
        if !self.entry.is_routed() {
            let place = other.after.iter().position(|id| *id == one.id)?;
            let at = self.survey.step_location(self.ix, to, FieldRef::new(PlanField::After, FieldRest::Item(place)));
            return Some((at, format!("`{}` waits for `{}`", other.id, one.id)));
        }
        let leads = |target: &RouteTarget| matches!(target, RouteTarget::Step(id) if *id == other.id);
        let (field, _) = route_targets(one).into_iter().find(|(_, target)| leads(target))?;
        Some((self.survey.step_location(self.ix, from, field), format!("`{}` goes to `{}`", one.id, other.id)))
    }

    fn render_path(&self, steps: &[u32]) -> String {
        let name = |i: &u32| self.entry.step(*i).id.to_string();
        if steps.len() <= SHOWN {
            return steps.iter().map(name).collect::<Vec<_>>().join(" -> ");
        }
        let (head, tail) = (&steps[..SHOWN / 2], &steps[steps.len() - SHOWN / 2..]);
        let left_out = format!("… {} more …", steps.len() - SHOWN);
        head.iter().map(name).chain([left_out]).chain(tail.iter().map(name)).collect::<Vec<_>>().join(" -> ")
    }

    fn check_reachable(&mut self) {
        let mut reached = vec![false; self.entry.len() as usize];
        for i in self.survey.flow(self.ix).graph.find_reachable(self.entry.start) {
            reached[i as usize] = true;
        }
        for i in (0..self.entry.len()).filter(|i| !reached[*i as usize]) {
            let start = &self.entry.step(self.entry.start).id;
            let message = format!("`{}` can never be reached from `{start}`", self.entry.step(i).id);
            let problem = PlanProblem::new(
                ProblemCode::Unreachable,
                self.survey.step_location(self.ix, i, FieldPath::default()),
                message,
            );
            self.problems.push(problem.with_hint("route to it, or remove it"));
        }
    }
}

/// Reports an unknown step. Points to it if it exists elsewhere, otherwise suggests a similar name.
pub(super) fn report_unknown_step(
    survey: &PlanSurvey<'_>,
    ix: ScopeIx,
    problems: &mut ProblemCollector,
    code: ProblemCode,
    at: ProblemLocation,
    id: &StepId,
) {
    let term = survey.terms(ix).step;
    let elsewhere = survey.definition.workflow_containing(ix).names.get(id);
    problems.push_with(code, || match elsewhere {
        Some((scope, step)) => PlanProblem::new(code, at, format!("`{id}` is not in the same list of {term}s"))
            .with_related(survey.step_location(*scope, *step, FieldPath::default()), "it is here")
            .with_hint(format!("name the {term} that holds it")),
        None => {
            let names = survey.definition.scope(ix).by_id.keys().map(StepId::as_str);
            PlanProblem::new(code, at, format!("there is no {term} `{id}`")).with_suggestion(id.as_str(), names)
        }
    });
}

/// Returns every field of a step that names a route target.
pub(super) fn route_targets(step: &Step) -> Vec<(FieldRef<'static>, &RouteTarget)> {
    let whole = |field| FieldRef::new(field, FieldRest::Whole);
    let mut targets: Vec<(FieldRef<'static>, &RouteTarget)> = Vec::new();
    targets.extend(step.next.iter().map(|target| (whole(PlanField::Next), target)));
    match &step.kind {
        StepKindSpec::Branch(branch) => {
            let arms = branch.arms.iter().enumerate();
            targets.extend(
                arms.map(|(i, arm)| {
                    (FieldRef::new(PlanField::Arms, FieldRest::ItemField(i, PlanField::Next)), &arm.next)
                }),
            );
            targets.push((whole(PlanField::Default), &branch.default));
        }
        StepKindSpec::Gate(gate) => {
            targets.extend(gate.on_approve.iter().map(|target| (whole(PlanField::OnApprove), target)));
            targets.extend(gate.on_reject.iter().map(|target| (whole(PlanField::OnReject), target)));
            if let GateTimeout::Go(target) = &gate.on_timeout {
                targets.push((whole(PlanField::OnTimeout), target));
            }
        }
        StepKindSpec::Wait(wait) => {
            if let WaitTimeout::Go(target) = &wait.on_timeout {
                targets.push((whole(PlanField::OnTimeout), target));
            }
        }
        _ => {}
    }
    targets
}
