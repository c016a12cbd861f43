//! Whether a step that is to settle the conflicts of another can: it is work beside it, comes after it, and before
//! whatever waits for what was settled.

use super::{
    definition::{RouteTargetIx, ScopeEntry, ScopeIx},
    order,
    problem::{PlanProblem, ProblemCode, ProblemCollector},
    survey::PlanSurvey,
};
use crate::ir::{Step, StepKindSpec};

pub(super) fn check_conflict_resolvers(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (ix, entry) in survey.scopes() {
        for (i, step) in (0u32..).zip(&entry.scope.steps) {
            let Some(by) = &step.policy.settled_by else { continue };
            let at = || survey.step_location(ix, i, "settled_by");
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

/// What keeps the one from settling the conflicts of the other, and what to do about it.
fn find_resolver_fault(
    survey: &PlanSurvey<'_>,
    ix: ScopeIx,
    entry: &ScopeEntry,
    i: u32,
    settler: u32,
) -> Option<(String, String)> {
    let (step, by) = (entry.step(i), entry.step(settler));
    let (id, other) = (&step.id, &by.id);
    let said = |message: String, hint: &str| Some((message, hint.to_owned()));
    if i == settler {
        return said(format!("`{id}` cannot settle its own conflicts"), "name another step");
    }
    if !has_merged_worktree(step) {
        let message = format!("`{id}` has no tree of its own that is merged, so there is nothing to settle");
        return said(message, "give it `isolation: worktree`, without `merge: false`");
    }
    if !matches!(by.kind, StepKindSpec::Work(_)) {
        let message = format!("`{other}` cannot settle conflicts: it is no work that can change files");
        return said(message, "name a step that is done by an agent, a tool or a command");
    }
    if is_never_merged(by) {
        let message = format!("`{other}` cannot settle conflicts: what it changes is never merged");
        return said(message, "take `merge: false` out there");
    }
    if step_workspace(step) != step_workspace(by) {
        let message =
            format!("`{other}` cannot settle the conflicts of `{id}`: it works in another workspace");
        return said(message, "let both work in the same");
    }
    if by.policy.settled_by.is_some() {
        let message = format!("`{other}` settles conflicts, so nobody settles its own");
        return said(message, "leave `conflict` out there");
    }
    if entry.is_routed() {
        let follows = entry.next[i as usize] == RouteTargetIx::Step(settler);
        let message = format!("`{other}` does not come right after `{id}`, whose conflicts it is to settle");
        return (!follows).then(|| (message, format!("write `next: {other}`")));
    }
    if survey.flow(ix).is_before(settler, i) {
        let message =
            format!("`{other}` must finish before `{id}`, and cannot settle its conflicts after it");
        return said(message, "name a step that does not come before it");
    }
    let early = |dependent: &&u32| **dependent != settler && !entry.dependents(settler).contains(dependent);
    match entry.dependents(i).iter().find(early) {
        Some(early) => {
            let early = &entry.step(*early).id;
            let message = format!(
                "`{early}` waits for `{id}`, and `{other}`, which settles the conflicts of `{id}`, comes after it"
            );
            said(message, "let what is settled come before whoever needs it")
        }
        None if !entry.dependents(i).contains(&settler) => said(
            format!("`{other}` does not wait for `{id}`, whose conflicts it is to settle"),
            "let it wait",
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

/// What it does in a tree of its own stays there.
fn is_never_merged(step: &Step) -> bool {
    let worktree = matches!(&step.kind, StepKindSpec::Work(work) if work.isolation.worktree);
    worktree && step.skein_extension("workspace.merge").and_then(|merge| merge.as_bool()) == Some(false)
}
