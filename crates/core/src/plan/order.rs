//! Check that the steps of a scope can follow one another: every name exists, no step waits for itself, every step can
//! be reached, and a conflict resolver comes after the step whose conflicts it resolves and before the steps that need
//! the result.

use crate::{
    ids::StepId,
    ir::{RouteTarget, ScopeShape, Step, StepKindSpec},
    plan::{
        definition::{RouteTargetIx, ScopeEntry, ScopeIx, detours},
        problem::{
            FieldPath, FieldRef, FieldRest, PlanField, PlanProblem, ProblemCode, ProblemCollector, ProblemLocation,
        },
        survey::PlanSurvey,
    },
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
        let (field, _) = route_targets(one).find(|(_, target)| leads(target))?;
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
fn report_unknown_step(
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

/// Returns every field of a step that names a route target, and the targets.
pub(super) fn route_targets(step: &Step) -> impl Iterator<Item = (FieldRef<'static>, &RouteTarget)> {
    let next = FieldRef::new(PlanField::Next, FieldRest::Whole);
    step.next.iter().map(move |target| (next, target)).chain(detours(&step.kind))
}

pub(super) fn check_conflict_resolvers(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (ix, entry) in survey.scopes() {
        for (i, step) in (0u32..).zip(&entry.scope.steps) {
            let Some(by) = &step.policy.settled_by else { continue };
            let at = || survey.step_location(ix, i, PlanField::SettledBy);
            let Some(settler) = entry.conflict_resolver(i) else {
                report_unknown_step(survey, ix, problems, ProblemCode::UnknownTarget, at(), by);
                continue;
            };
            if let Some((message, hint)) = find_resolver_fault(survey, ix, entry, i, settler) {
                problems.push(PlanProblem::new(ProblemCode::BadSettler, at(), message).with_hint(hint));
            }
        }
    }
}

/// Returns the reason why a step cannot resolve the conflicts of another, and a hint.
fn find_resolver_fault(
    survey: &PlanSurvey<'_>,
    ix: ScopeIx,
    entry: &ScopeEntry,
    i: u32,
    settler: u32,
) -> Option<(String, String)> {
    let (step, by) = (entry.step(i), entry.step(settler));
    let (id, other) = (&step.id, &by.id);
    let term = survey.terms(ix).step;
    let fault = |message: String, hint: &str| Some((message, hint.to_owned()));
    if i == settler {
        return fault(format!("`{id}` cannot resolve its own conflicts"), &format!("name another {term}"));
    }
    if !has_merged_worktree(step) {
        let message = format!("`{id}` has no worktree that is merged, so it has no conflicts to resolve");
        return fault(message, "give it `isolation: worktree`, without `merge: false`");
    }
    if !matches!(by.kind, StepKindSpec::Work(_)) {
        let message = format!("`{other}` cannot resolve conflicts: it is not work that can change files");
        return fault(message, &format!("name a {term} that an agent, a tool or a command runs"));
    }
    if is_never_merged(by) {
        let message = format!("`{other}` cannot resolve conflicts: its changes are never merged");
        return fault(message, "remove `merge: false` there");
    }
    if step_workspace(step) != step_workspace(by) {
        let message = format!("`{other}` cannot resolve the conflicts of `{id}`: it works in another workspace");
        return fault(message, "use the same workspace for both");
    }
    if by.policy.settled_by.is_some() {
        let message = format!("`{other}` resolves conflicts, so its own conflicts have no resolver");
        return fault(message, "remove `conflict` there");
    }
    if entry.is_routed() {
        let follows = entry.next[i as usize] == RouteTargetIx::Step(settler);
        let message = format!("`{other}` does not come right after `{id}`, whose conflicts it must resolve");
        return (!follows).then(|| (message, format!("write `next: {other}`")));
    }
    if survey.flow(ix).is_before(settler, i) {
        let message = format!("`{other}` must finish before `{id}`, so it cannot resolve its conflicts afterwards");
        return fault(message, &format!("name a {term} that does not come before it"));
    }
    let early = |dependent: &&u32| **dependent != settler && !entry.dependents(settler).contains(dependent);
    match entry.dependents(i).iter().find(early) {
        Some(early) => {
            let early = &entry.step(*early).id;
            let message =
                format!("`{early}` waits for `{id}` but not for `{other}`, which resolves the conflicts of `{id}`");
            fault(message, "make it depend on the conflict resolver, too")
        }
        None if !entry.dependents(i).contains(&settler) => fault(
            format!("`{other}` does not wait for `{id}`, whose conflicts it must resolve"),
            &format!("make it depend on that {term}"),
        ),
        None => None,
    }
}

fn step_workspace(step: &Step) -> Option<&str> {
    match &step.kind {
        StepKindSpec::Work(work) => work.isolation.workspace.as_deref(),
        _ => None,
    }
}

fn has_merged_worktree(step: &Step) -> bool {
    matches!(&step.kind, StepKindSpec::Work(work) if work.isolation.worktree) && !is_never_merged(step)
}

/// True if its changes stay in a worktree of its own.
fn is_never_merged(step: &Step) -> bool {
    let worktree = matches!(&step.kind, StepKindSpec::Work(work) if work.isolation.worktree);
    worktree && step.extensions.skein.never_merges()
}
