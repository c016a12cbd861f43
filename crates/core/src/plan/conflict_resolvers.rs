//! Check that a conflict resolver can resolve the conflicts of a step: it is work in the same scope, comes after the
//! step, and comes before the steps that need the result.

use super::{
    definition::{RouteTargetIx, ScopeEntry, ScopeIx},
    field_path::PlanField,
    order,
    problem::{PlanProblem, ProblemCode, ProblemCollector},
    survey::PlanSurvey,
};
use crate::ir::{Step, StepKindSpec};

pub(super) fn check_conflict_resolvers(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (ix, entry) in survey.scopes() {
        for (i, step) in (0u32..).zip(&entry.scope.steps) {
            let Some(by) = &step.policy.settled_by else { continue };
            let at = || survey.step_location(ix, i, PlanField::SettledBy);
            let Some(settler) = entry.conflict_resolver(i) else {
                order::report_unknown_step(survey, ix, problems, ProblemCode::UnknownTarget, at(), by);
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
    let said = |message: String, hint: &str| Some((message, hint.to_owned()));
    if i == settler {
        return said(format!("`{id}` cannot resolve its own conflicts"), &format!("name another {term}"));
    }
    if !has_merged_worktree(step) {
        let message = format!("`{id}` has no worktree that is merged, so it has no conflicts to resolve");
        return said(message, "give it `isolation: worktree`, without `merge: false`");
    }
    if !matches!(by.kind, StepKindSpec::Work(_)) {
        let message = format!("`{other}` cannot resolve conflicts: it is not work that can change files");
        return said(message, &format!("name a {term} that an agent, a tool or a command runs"));
    }
    if is_never_merged(by) {
        let message = format!("`{other}` cannot resolve conflicts: its changes are never merged");
        return said(message, "remove `merge: false` there");
    }
    if step_workspace(step) != step_workspace(by) {
        let message = format!("`{other}` cannot resolve the conflicts of `{id}`: it works in another workspace");
        return said(message, "use the same workspace for both");
    }
    if by.policy.settled_by.is_some() {
        let message = format!("`{other}` resolves conflicts, so its own conflicts have no resolver");
        return said(message, "remove `conflict` there");
    }
    if entry.is_routed() {
        let follows = entry.next[i as usize] == RouteTargetIx::Step(settler);
        let message = format!("`{other}` does not come right after `{id}`, whose conflicts it must resolve");
        return (!follows).then(|| (message, format!("write `next: {other}`")));
    }
    if survey.flow(ix).is_before(settler, i) {
        let message = format!("`{other}` must finish before `{id}`, so it cannot resolve its conflicts afterwards");
        return said(message, &format!("name a {term} that does not come before it"));
    }
    let early = |dependent: &&u32| **dependent != settler && !entry.dependents(settler).contains(dependent);
    match entry.dependents(i).iter().find(early) {
        Some(early) => {
            let early = &entry.step(*early).id;
            let message =
                format!("`{early}` waits for `{id}` but not for `{other}`, which resolves the conflicts of `{id}`");
            said(message, "make it depend on the conflict resolver, too")
        }
        None if !entry.dependents(i).contains(&settler) => said(
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
