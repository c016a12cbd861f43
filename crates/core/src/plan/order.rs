//! Whether the steps of a scope can follow one another: every name is there, nothing waits for itself, everything
//! can be reached.

use super::{
    definition::{ScopeEntry, ScopeIx},
    problem::{At, Problem, ProblemCode, Problems},
    survey::Survey,
};
use crate::{
    ids::StepId,
    ir::{GateTimeout, Kind, Shape, Step, Target, WaitTimeout},
};

/// A cycle that is longer is shown with its middle left out.
const SHOWN: usize = 40;
/// Of a cycle with more steps than this, the way from each to the next is not shown one by one.
const LABELLED: usize = 6;

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    for (ix, entry) in survey.scopes() {
        let mut scope = ScopeCheck { survey, ix, entry, problems };
        match &entry.scope.shape {
            Shape::Graph => scope.check_graph(),
            Shape::Routed { start, cycles } => scope.check_routed(start.as_ref(), *cycles),
        }
    }
}

struct ScopeCheck<'a> {
    survey: &'a Survey<'a>,
    ix: ScopeIx,
    entry: &'a ScopeEntry,
    problems: &'a mut Problems,
}

impl ScopeCheck<'_> {
    fn check_graph(&mut self) {
        for (i, step) in (0u32..).zip(&self.entry.scope.steps) {
            for (n, id) in step.after.iter().enumerate() {
                let at = || self.survey.at(self.ix, i, format!("after[{n}]"));
                if *id == step.id {
                    let message = format!("`{id}` waits for itself");
                    self.problems.push(Problem::new(ProblemCode::SelfDependency, at(), message));
                } else if !self.entry.by_id.contains_key(id) {
                    self.unknown(ProblemCode::UnknownDependency, at(), id);
                }
            }
        }
        self.check_cycles("each waits for the one before: a step cannot start after itself");
    }

    fn check_routed(&mut self, start: Option<&StepId>, cycles: bool) {
        let mut known = true;
        if let Some(start) = start.filter(|start| !self.entry.by_id.contains_key(*start)) {
            known = false;
            let at = self.survey.at_scope(self.ix, "start");
            self.unknown(ProblemCode::UnknownStart, at, start);
        }
        for (i, step) in (0u32..).zip(&self.entry.scope.steps) {
            for (field, target) in targets(step) {
                if let Target::Step(id) = target
                    && !self.entry.by_id.contains_key(id)
                {
                    known = false;
                    let at = self.survey.at(self.ix, i, field);
                    self.unknown(ProblemCode::UnknownTarget, at, id);
                }
            }
        }
        if !cycles {
            self.check_cycles("use a loop step for repetition, or allow cycles");
        }
        // With a wrong name, what it should have led to would be called unreachable too.
        if known {
            self.check_reachable();
        }
    }

    fn unknown(&mut self, code: ProblemCode, at: At, id: &StepId) {
        unknown(self.survey, self.ix, self.problems, code, at, id);
    }

    fn check_cycles(&mut self, hint: &str) {
        let flow = self.survey.flow(self.ix);
        for first in flow.components.cyclic(&flow.graph) {
            let cycle = flow.graph.cycle_through(first, &flow.components);
            let message = format!("steps go in a circle: {}", self.path(&cycle));
            let mut ways = cycle.windows(2).filter_map(|way| self.way(way[0], way[1]));
            let at = ways.next_back().map(|(at, _)| at);
            let at = at.unwrap_or_else(|| self.survey.at(self.ix, first, ""));
            let problem = Problem::new(ProblemCode::Cycle, at, message).hint(hint);
            let ways: Vec<_> = ways.take(LABELLED + 1).collect();
            let ways = ways.into_iter().filter(|_| cycle.len() <= LABELLED + 1);
            self.problems.push(ways.fold(problem, |problem, (at, what)| problem.related(at, what)));
        }
    }

    /// The field that makes one step follow another, and what it says. None where nothing is written.
    fn way(&self, from: u32, to: u32) -> Option<(At, String)> {
        let (one, other) = (self.entry.step(from), self.entry.step(to));
        if !self.entry.is_routed() {
            let place = other.after.iter().position(|id| *id == one.id)?;
            let at = self.survey.at(self.ix, to, format!("after[{place}]"));
            return Some((at, format!("`{}` waits for `{}`", other.id, one.id)));
        }
        let leads = |target: &Target| matches!(target, Target::Step(id) if *id == other.id);
        let (field, _) = targets(one).into_iter().find(|(_, target)| leads(target))?;
        Some((self.survey.at(self.ix, from, field), format!("`{}` goes to `{}`", one.id, other.id)))
    }

    fn path(&self, steps: &[u32]) -> String {
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
        for i in self.survey.flow(self.ix).graph.reachable(self.entry.start) {
            reached[i as usize] = true;
        }
        for i in (0..self.entry.len()).filter(|i| !reached[*i as usize]) {
            let start = &self.entry.step(self.entry.start).id;
            let message = format!("`{}` can never be reached from `{start}`", self.entry.step(i).id);
            let problem = Problem::new(ProblemCode::Unreachable, self.survey.at(self.ix, i, ""), message);
            self.problems.push(problem.hint("route to it, or take it out"));
        }
    }
}

/// Says where the step is if it exists somewhere else, and else which name is near.
pub(super) fn unknown(
    survey: &Survey<'_>,
    ix: ScopeIx,
    problems: &mut Problems,
    code: ProblemCode,
    at: At,
    id: &StepId,
) {
    let elsewhere = survey.definition.workflow_of(ix).names.get(id);
    problems.push_with(code, || match elsewhere {
        Some((scope, step)) => Problem::new(code, at, format!("`{id}` is not in the same list of steps"))
            .related(survey.at(*scope, *step, ""), "it is here")
            .hint("name the step that holds it"),
        None => {
            let names = survey.definition.scope(ix).by_id.keys().map(StepId::as_str);
            Problem::new(code, at, format!("there is no step `{id}`")).near(id.as_str(), names)
        }
    });
}

/// Every field of a step that names where a cursor goes.
pub(super) fn targets(step: &Step) -> Vec<(String, &Target)> {
    let mut targets: Vec<(String, &Target)> = Vec::new();
    targets.extend(step.next.iter().map(|target| ("next".to_owned(), target)));
    match &step.kind {
        Kind::Branch(branch) => {
            let arms = branch.arms.iter().enumerate();
            targets.extend(arms.map(|(i, arm)| (format!("arms[{i}].next"), &arm.next)));
            targets.push(("default".to_owned(), &branch.default));
        }
        Kind::Gate(gate) => {
            targets.extend(gate.on_approve.iter().map(|target| ("on_approve".to_owned(), target)));
            targets.extend(gate.on_reject.iter().map(|target| ("on_reject".to_owned(), target)));
            if let GateTimeout::Go(target) = &gate.on_timeout {
                targets.push(("on_timeout".to_owned(), target));
            }
        }
        Kind::Wait(wait) => {
            if let WaitTimeout::Go(target) = &wait.on_timeout {
                targets.push(("on_timeout".to_owned(), target));
            }
        }
        _ => {}
    }
    targets
}
