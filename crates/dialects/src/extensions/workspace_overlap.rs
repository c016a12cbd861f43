//! Finds steps that can run at the same time and change the same workspace.
//!
//! Owns the search, whose cost is nearly linear in the size of the graph. Does not know the syntax of any format.

use std::collections::BTreeMap;

use skein_core::{
    ids::StepId,
    ir::{Step, StepKindSpec, StepScope, WorkerCapability, WorkerSpec},
};

use crate::fields::workspace_path::normalize_path;

/// Two steps without a dependency between them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OverlappingSteps<'a> {
    pub first: &'a StepId,
    pub second: &'a StepId,
    pub workspace: &'a str,
}

/// Returns pairs of steps that may change one workspace at once: at least one if there is any, and at most `most`.
///
/// Each step is compared with the previous one in the same workspace, in topological order. If each of them depends on
/// its predecessor, directly or not, then all steps of the workspace are ordered.
pub(crate) fn find_shared_workspaces(scope: &StepScope, most: usize) -> Vec<OverlappingSteps<'_>> {
    // Steps that run one at a time never overlap, and neither does a single step.
    if scope.concurrency == Some(1) || scope.steps.iter().filter_map(|step| changed_workspace(step)).nth(1).is_none() {
        return Vec::new();
    }
    let Some(order) = DependencyOrder::from_scope(scope) else { return Vec::new() };
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    let mut asked: Vec<(usize, usize)> = Vec::new();
    for &at in &order.sorted {
        if let Some(workspace) = changed_workspace(&scope.steps[at])
            && let Some(before) = last.insert(normalize_path(workspace), at)
            && !order.after[at].contains(&before)
        {
            asked.push((before, at));
        }
    }
    let apart = asked.chunks(64).flat_map(|questions| order.find_unordered(questions)).take(most);
    let pair = |(before, at): (usize, usize)| OverlappingSteps {
        first: &scope.steps[before].id,
        second: &scope.steps[at].id,
        workspace: changed_workspace(&scope.steps[before]).unwrap_or_default(),
    };
    apart.map(pair).collect()
}

/// Returns the workspace that a step may change, if it shares one.
fn changed_workspace(step: &Step) -> Option<&str> {
    let StepKindSpec::Work(work) = &step.kind else { return None };
    let check = work.check.as_ref().map(|check| &check.worker);
    let changes = std::iter::once(&work.worker).chain(check).any(may_change);
    (changes && !work.isolation.worktree).then(|| work.isolation.workspace.as_deref().unwrap_or("."))
}

fn may_change(worker: &WorkerSpec) -> bool {
    let (WorkerSpec::Agent { capabilities, .. } | WorkerSpec::Script { capabilities, .. }) = worker else {
        return false;
    };
    capabilities.iter().any(|capability| matches!(capability, WorkerCapability::Edit | WorkerCapability::RunCommands))
}

/// The steps of a graph in topological order.
struct DependencyOrder {
    after: Vec<Vec<usize>>,
    sorted: Vec<usize>,
}

impl DependencyOrder {
    /// Sorts the steps. None if there is a dependency cycle. Unknown names are left out.
    fn from_scope(scope: &StepScope) -> Option<DependencyOrder> {
        let numbers: BTreeMap<&StepId, usize> =
            scope.steps.iter().enumerate().map(|(at, step)| (&step.id, at)).collect();
        let waits = |step: &Step| step.after.iter().filter_map(|id| numbers.get(id).copied()).collect();
        let after: Vec<Vec<usize>> = scope.steps.iter().map(|step| waits(step)).collect();
        let mut dependents = vec![Vec::new(); after.len()];
        let mut missing: Vec<usize> = after.iter().map(Vec::len).collect();
        after.iter().enumerate().for_each(|(at, before)| before.iter().for_each(|b| dependents[*b].push(at)));
        let mut sorted: Vec<usize> = (0..after.len()).filter(|at| missing[*at] == 0).collect();
        let mut next = 0;
        while let Some(&at) = sorted.get(next) {
            next += 1;
            for &dependent in &dependents[at] {
                missing[dependent] -= 1;
                if missing[dependent] == 0 {
                    sorted.push(dependent);
                }
            }
        }
        (sorted.len() == after.len()).then_some(DependencyOrder { after, sorted })
    }

    /// Returns those of up to 64 pairs in which the second does not depend on the first. One walk over the graph
    /// answers them all, with one bit for each.
    fn find_unordered(&self, questions: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let mut reached = vec![0u64; self.after.len()];
        for (bit, (first, _)) in questions.iter().enumerate() {
            reached[*first] |= 1 << bit;
        }
        for &at in &self.sorted {
            let before = self.after[at].iter().fold(0, |bits, before| bits | reached[*before]);
            reached[at] |= before;
        }
        let waits = |bit: usize, second: usize| reached[second] & (1 << bit) != 0;
        let apart = questions.iter().enumerate().filter(|(bit, (_, second))| !waits(*bit, *second));
        apart.map(|(_, question)| *question).collect()
    }
}

#[cfg(test)]
mod tests {
    use skein_core::ir::{ScopeShape, WorkSpec};

    use super::*;

    fn step(id: &str, after: &[&str], capability: WorkerCapability, workspace: Option<&str>) -> Step {
        let mut work = WorkSpec::new(WorkerSpec::Script { text: "true".to_owned(), capabilities: vec![capability] });
        work.isolation.workspace = workspace.map(str::to_owned);
        let mut step = Step::new(StepId::new(id).unwrap(), StepKindSpec::Work(Box::new(work)));
        step.after = after.iter().map(|id| StepId::new(id).unwrap()).collect();
        step
    }

    fn pairs(steps: Vec<Step>) -> Vec<String> {
        let scope = StepScope::new(ScopeShape::Graph, steps);
        let pairs = find_shared_workspaces(&scope, 10);
        pairs.iter().map(|pair| format!("{} {} {}", pair.first, pair.second, pair.workspace)).collect()
    }

    #[test]
    fn only_steps_that_can_meet_are_told() {
        use WorkerCapability::{Edit, Read, RunCommands};
        let none: [String; 0] = [];
        assert_eq!(pairs(vec![step("a", &[], Edit, None), step("b", &[], Edit, Some("./"))]), ["a b ."]);
        assert_eq!(pairs(vec![step("a", &[], Edit, None), step("b", &["a"], Edit, None)]), none);
        assert_eq!(pairs(vec![step("a", &[], Edit, None), step("b", &[], Read, None)]), none);
        assert_eq!(pairs(vec![step("a", &[], Edit, None), step("b", &[], RunCommands, Some("x"))]), none);
        // A dependency through a step that changes nothing.
        let chain =
            vec![step("a", &[], Edit, None), step("look", &["a"], Read, None), step("b", &["look"], RunCommands, None)];
        assert_eq!(pairs(chain), none);
    }

    #[test]
    fn a_circle_is_for_others_to_tell() {
        let circle =
            vec![step("a", &["b"], WorkerCapability::Edit, None), step("b", &["a"], WorkerCapability::Edit, None)];
        assert!(pairs(circle).is_empty());
    }

    #[test]
    fn many_steps_take_little_time_and_few_words() {
        let fan = (0..5_000).map(|n| step(&format!("s{n}"), &[], WorkerCapability::Edit, None)).collect();
        assert_eq!(pairs(fan).len(), 10);
        let id = |n: usize| format!("s{n}");
        let chain = (0..5_000)
            .map(|n| match n {
                0 => step(&id(0), &[], WorkerCapability::Edit, None),
                n => step(&id(n), &[&id(n - 1)], WorkerCapability::Edit, None),
            })
            .collect();
        assert!(pairs(chain).is_empty());
    }
}
