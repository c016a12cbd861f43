//! Conflict resolvers: adds the dependencies of steps that resolve merge conflicts of other steps.
//!
//! A step that resolves the conflicts of another depends on it, and every dependent of the other also depends on the
//! resolver. Where that is impossible, nothing is added, and the plan reports the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{
    ids::StepId,
    ir::{RouteTarget, ScopeShape, Step, StepKindSpec, StepScope, Workflow},
};

/// Adds to every scope the dependencies that resolvers need. `all` is the workflow's resolver, for the steps directly
/// before it that name none. Returns false if `all` is a step of the workflow and there are no such steps.
pub(crate) fn link_resolvers(all: Option<&StepId>, workflow: &mut Workflow) -> bool {
    let mut known = BTreeSet::new();
    let mut any = false;
    for_each_scope(&mut workflow.scope, &mut |scope| {
        any |= all.is_some() || scope.steps.iter().any(|step| step.policy.settled_by.is_some());
    });
    if !any {
        return true;
    }
    for_each_scope(&mut workflow.scope, &mut |scope| known.extend(scope.steps.iter().map(|step| step.id.clone())));
    let mut used = all.is_none_or(|all| !known.contains(all));
    for_each_scope(&mut workflow.scope, &mut |scope| {
        used |= all.is_some_and(|all| assign_resolver(all, scope));
        for step in &mut scope.steps {
            // An unknown name has been reported.
            let unknown = step.policy.settled_by.as_ref().is_some_and(|by| !known.contains(by));
            if unknown {
                Arc::make_mut(step).policy.settled_by = None;
            }
        }
        if scope.shape == ScopeShape::Graph {
            add_resolver_dependencies(scope);
        }
    });
    used
}

/// Visits all scopes. The limit on nesting bounds the recursion.
fn for_each_scope(scope: &mut StepScope, each: &mut impl FnMut(&mut StepScope)) {
    each(scope);
    for step in &mut scope.steps {
        if step.kind.inner_scopes().is_empty() {
            continue;
        }
        match &mut Arc::make_mut(step).kind {
            StepKindSpec::Parallel(parallel) => {
                parallel.lanes.iter_mut().for_each(|lane| for_each_scope(Arc::make_mut(&mut lane.scope), each));
            }
            StepKindSpec::Each(items) => for_each_scope(Arc::make_mut(&mut items.scope), each),
            StepKindSpec::Loop(repeat) => for_each_scope(Arc::make_mut(&mut repeat.scope), each),
            StepKindSpec::Work(_)
            | StepKindSpec::Gate(_)
            | StepKindSpec::Wait(_)
            | StepKindSpec::Branch(_)
            | StepKindSpec::Call(_) => {}
        }
    }
}

/// Makes the workflow's resolver that of the steps directly before it. Returns true if there are any.
fn assign_resolver(all: &StepId, scope: &mut StepScope) -> bool {
    let Some(place) = scope.steps.iter().position(|step| step.id == *all) else { return false };
    let after: BTreeSet<StepId> = scope.steps[place].after.iter().cloned().collect();
    let (routed, named) = (scope.shape != ScopeShape::Graph, RouteTarget::Step(all.clone()));
    let mut any = false;
    for (i, step) in scope.steps.iter_mut().enumerate() {
        let follows = match (routed, &step.next) {
            (false, _) => after.contains(&step.id),
            (true, Some(next)) => *next == named,
            (true, None) => i + 1 == place,
        };
        if follows && step.policy.settled_by.is_none() && is_merged(step) {
            Arc::make_mut(step).policy.settled_by = Some(all.clone());
        }
        any |= step.policy.settled_by.as_ref() == Some(all);
    }
    any
}

fn is_merged(step: &Step) -> bool {
    let StepKindSpec::Work(work) = &step.kind else { return false };
    work.isolation.worktree && !step.extensions.skein.never_merges()
}

/// Adds the dependencies for each resolver. Leaves out those that would create a cycle.
fn add_resolver_dependencies(scope: &mut StepScope) {
    let places: BTreeMap<&StepId, usize> = scope.steps.iter().map(|step| &step.id).zip(0..).collect();
    let after: Vec<Vec<usize>> =
        scope.steps.iter().map(|step| step.after.iter().filter_map(|id| places.get(id).copied()).collect()).collect();
    let mut settles: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, step) in scope.steps.iter().enumerate() {
        let by = step.policy.settled_by.as_ref().and_then(|by| places.get(by));
        by.into_iter().for_each(|by| settles.entry(*by).or_default().push(i));
    }
    let mut dependents = vec![Vec::new(); after.len()];
    after.iter().enumerate().for_each(|(i, after)| after.iter().for_each(|of| dependents[*of].push(i)));
    let mut waits: Vec<(usize, usize)> = Vec::new();
    for (by, of) in settles {
        let step = &scope.steps[by];
        if !matches!(step.kind, StepKindSpec::Work(_)) || step.policy.settled_by.is_some() {
            continue;
        }
        let (earlier, later) = (find_reachable(&after, by), find_reachable(&dependents, by));
        for of in of.into_iter().filter(|of| !later[*of]) {
            let waiting = || dependents[of].iter().copied().filter(|waiting| *waiting != by);
            if waiting().all(|waiting| !earlier[waiting]) {
                waits.push((by, of));
                waits.extend(waiting().map(|waiting| (waiting, by)));
            }
        }
    }
    for (who, whom) in waits {
        let id = scope.steps[whom].id.clone();
        if !scope.steps[who].after.contains(&id) {
            Arc::make_mut(&mut scope.steps[who]).after.push(id);
        }
    }
}

/// Returns the steps that are reachable over these edges, including `from`.
fn find_reachable(edges: &[Vec<usize>], from: usize) -> Vec<bool> {
    let (mut found, mut rest) = (vec![false; edges.len()], vec![from]);
    while let Some(step) = rest.pop() {
        if !std::mem::replace(&mut found[step], true) {
            rest.extend(&edges[step]);
        }
    }
    found
}
