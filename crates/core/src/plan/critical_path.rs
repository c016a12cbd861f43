//! The plan of a scope as shown before a run: the steps that can run in parallel, and the longest path.

use std::collections::BTreeMap;

use super::{
    definition::{PlanDefinition, ScopeEntry, ScopeIx},
    graph::IndexGraph,
    survey::flow_graph,
};
use crate::{
    ir::{ScopeShape, StepKindSpec},
    time::Millis,
};

/// The path through a scope that can take longest, by the timeouts of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CriticalPath {
    pub steps: Vec<u32>,
    /// None if some step on the path, or inside one, has no timeout.
    pub total: Option<Millis>,
    /// The steps on the path whose duration is unknown.
    pub unknown: Vec<u32>,
}

impl PlanDefinition {
    /// Returns the steps of a scope in batches: each can start when those before it have ended. In a routed scope,
    /// where one step runs at a time, a batch is the progress of the cursor.
    pub fn step_batches(&self, scope: ScopeIx) -> Vec<Vec<u32>> {
        acyclic_flow(self.scope(scope)).levels()
    }

    /// Returns the longest path by timeouts, with one attempt and one pass of everything. Gates and waits count as
    /// zero.
    pub fn critical_path(&self, scope: ScopeIx) -> CriticalPath {
        CriticalPathSearch { definition: self, done: BTreeMap::new() }.search_scope(scope)
    }
}

/// Returns the flow of a scope's steps, without the back edges that a routed scope may have.
pub(super) fn acyclic_flow(entry: &ScopeEntry) -> IndexGraph {
    let graph = flow_graph(entry);
    match entry.scope.shape {
        ScopeShape::Routed { cycles: true, .. } => graph.without_back_edges(entry.start),
        _ => graph,
    }
}

/// Paths of scopes, each computed once, however often the scope is called.
struct CriticalPathSearch<'a> {
    definition: &'a PlanDefinition,
    done: BTreeMap<ScopeIx, CriticalPath>,
}

impl CriticalPathSearch<'_> {
    /// Recursion is bounded by the limits on nesting and calls.
    fn search_scope(&mut self, scope: ScopeIx) -> CriticalPath {
        if let Some(path) = self.done.get(&scope) {
            return path.clone();
        }
        let entry = self.definition.scope(scope);
        let times: Vec<(u64, bool)> = (0..entry.len()).map(|i| self.step_time(entry, i)).collect();
        let weights: Vec<u64> = times.iter().map(|time| time.0).collect();
        let (steps, sum) = acyclic_flow(entry).longest_path(&weights);
        let unknown: Vec<u32> = steps.iter().copied().filter(|i| !times[*i as usize].1).collect();
        let total = unknown.is_empty().then_some(Millis(sum));
        let path = CriticalPath { steps, total, unknown };
        self.done.insert(scope, path.clone());
        path
    }

    /// Returns the maximum duration of a step, and whether it is known.
    fn step_time(&mut self, entry: &ScopeEntry, i: u32) -> (u64, bool) {
        let step = entry.step(i);
        let own = step.policy.timeout.map(|timeout| timeout.0);
        if matches!(step.kind, StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_)) {
            return (0, true);
        }
        if matches!(step.kind, StepKindSpec::Work(_)) {
            return own.map_or((0, false), |time| (time, true));
        }
        let inner = entry.inner[i as usize].iter().map(|scope| {
            let cap = self.definition.scope(*scope).scope.timeout.map(|timeout| timeout.0);
            let path = self.search_scope(*scope).total.map(|total| total.0);
            path.into_iter().chain(cap).min()
        });
        // Lanes run in parallel, so the longest counts; if one is unknown, so is the longest.
        let longest = inner.collect::<Vec<_>>().into_iter().try_fold(0, |most, time| Some(most.max(time?)));
        longest.into_iter().chain(own).min().map_or((0, false), |time| (time, true))
    }
}
