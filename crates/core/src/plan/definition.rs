//! The frozen workflow, the arrays that the engine walks, and the comparison of steps of two definitions, which finds
//! results of one that are still valid in the other.
//!
//! Scopes are numbered in reading order: a scope, then for each of its steps in order the scopes inside; the root
//! workflow first, then each called one by name. Journals store these numbers, so the order is part of their format.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    ops::Index,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    expr::ReferenceRoot,
    ids::{SignalName, StepId},
    ir::{
        GateTimeout, RouteTarget, ScopeShape, Step, StepKindSpec, StepScope, WaitTimeout, Workflow,
        rules::{PolicyPrincipal, RunRulings, StepRuling, WorkflowRules},
    },
    plan::{
        ContentHash,
        graph::FlatLists,
        problem::{FieldRef, FieldRest, PlanField},
        survey::step_sites,
    },
    time::Timestamp,
};

/// The number of a scope in the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeIx(pub u32);

/// The target of a cursor, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteTargetIx {
    Step(u32),
    End,
}

/// A definition and the parameters of one run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub definition: Arc<PlanDefinition>,
    /// The parameters of the run, with defaults filled in.
    pub parameters: Arc<Value>,
    /// The hash of both.
    pub hash: ContentHash,
}

/// A workflow that has been checked, with every workflow that it calls.
#[derive(Debug)]
pub struct PlanDefinition {
    /// Computed on demand, because checking a workflow is cheaper than hashing it.
    pub(super) hash: OnceLock<ContentHash>,
    /// The root workflow, then the called ones.
    pub workflows: Vec<WorkflowEntry>,
    pub scopes: Vec<ScopeEntry>,
    /// Every signal that some step waits for.
    pub signals: BTreeSet<SignalName>,
    /// Set if the rules of the definition have been judged for a run.
    ruled: Option<RuledDefinition>,
}

/// The origin of a definition whose steps have the rulings of a run.
#[derive(Debug)]
struct RuledDefinition {
    /// The definition as it is stored.
    stored: Arc<PlanDefinition>,
    rulings: RunRulings,
}

#[derive(Debug)]
pub struct WorkflowEntry {
    /// The name by which it is called; none for the root.
    pub name: Option<String>,
    pub workflow: Arc<Workflow>,
    pub root: ScopeIx,
    /// The location of each step, including nested ones.
    pub names: StepIdMap<(ScopeIx, u32)>,
}

#[derive(Debug)]
pub struct ScopeEntry {
    pub scope: Arc<StepScope>,
    /// The number of the workflow that it belongs to.
    pub workflow: u32,
    /// The step that contains it and the index among that step's scopes; none for a workflow's root.
    pub parent: Option<(ScopeIx, u32, u32)>,
    pub by_id: StepIdMap<u32>,
    /// In a graph: the number of steps that each one waits for.
    pub unmet: Vec<u32>,
    dependents: FlatLists,
    /// In a routed scope: the target of each step when nothing else decides.
    pub next: Vec<RouteTargetIx>,
    pub start: u32,
    /// For each conflict resolver, the steps whose conflicts it resolves.
    settles: BTreeMap<u32, Vec<u32>>,
    /// The scopes inside each step, in order. For a call, the root of the called workflow.
    pub inner: Vec<Vec<ScopeIx>>,
}

/// The path from a scope instance to the step that a name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelativeStepPath {
    /// The number of instances to go out.
    pub up: u32,
    /// Then the steps whose inner scopes to go into, each with the index of the scope.
    pub down: Vec<(u32, u32)>,
    /// The number of the step there.
    pub step: u32,
}

impl ScopeEntry {
    /// Returns the scope of one lane of a step; for items, passes and calls, the only one.
    pub fn inner_scope(&self, step: u32, which: u32) -> ScopeIx {
        self.inner[step as usize][which as usize]
    }

    pub fn step(&self, i: u32) -> &Step {
        &self.scope.steps[i as usize]
    }

    pub fn len(&self) -> u32 {
        u32::try_from(self.scope.steps.len()).expect("steps are limited")
    }

    pub fn is_empty(&self) -> bool {
        self.scope.steps.is_empty()
    }

    pub fn is_routed(&self) -> bool {
        matches!(self.scope.shape, ScopeShape::Routed { .. })
    }

    /// The steps that wait for this one.
    pub fn dependents(&self, i: u32) -> &[u32] {
        self.dependents.get(i as usize)
    }

    /// Returns the conflict resolver of this step.
    pub fn conflict_resolver(&self, i: u32) -> Option<u32> {
        self.by_id.get(self.step(i).policy.settled_by.as_ref()?).copied()
    }

    /// Returns the steps whose conflicts this one resolves, in order.
    pub fn steps_resolved_by(&self, i: u32) -> &[u32] {
        self.settles.get(&i).map_or(&[], Vec::as_slice)
    }

    /// Returns a target by number. Targets were checked when the plan was built.
    pub fn resolve_target(&self, target: &RouteTarget) -> RouteTargetIx {
        match target {
            RouteTarget::Step(id) => self.by_id.get(id).map_or(RouteTargetIx::End, |i| RouteTargetIx::Step(*i)),
            RouteTarget::End => RouteTargetIx::End,
        }
    }
}

impl PlanDefinition {
    /// Judges the rules of all steps for the principal who starts a run, at this time.
    pub fn judge(&self, principal: &PolicyPrincipal, now: Timestamp) -> RunRulings {
        let workflows = (0..).zip(&self.stored_definition().workflows);
        RunRulings(workflows.flat_map(|(i, entry)| entry.workflow.rules.judge(i, principal, now)).collect())
    }

    /// Returns the definition with the rulings of a run in the policies of its steps. It is stored, and hashed, without
    /// them. A step with rules and without a ruling may not start.
    pub fn with_rulings(self: &Arc<Self>, rulings: RunRulings) -> Arc<PlanDefinition> {
        let stored = self.ruled.as_ref().map_or(self, |ruled| &ruled.stored);
        if rulings.is_empty() {
            return stored.clone();
        }
        let workflows: Vec<Arc<Workflow>> =
            (0..).zip(&stored.workflows).map(|(i, entry)| apply_rulings(&entry.workflow, i, &rulings)).collect();
        let names = stored.workflows.iter().filter_map(|entry| entry.name.clone());
        let called = names.zip(workflows[1..].iter().cloned()).collect();
        let mut ruled = PlanDefinition::from_workflows(&workflows[0], &called);
        ruled.hash = OnceLock::from(stored.hash());
        ruled.ruled = Some(RuledDefinition { stored: stored.clone(), rulings });
        Arc::new(ruled)
    }

    /// The rulings of a run for its steps; none if the definition has not been judged.
    pub fn rulings(&self) -> &RunRulings {
        static NONE: RunRulings = RunRulings(Vec::new());
        self.ruled.as_ref().map_or(&NONE, |ruled| &ruled.rulings)
    }

    /// The definition without the rulings of a run.
    pub(super) fn stored_definition(&self) -> &PlanDefinition {
        self.ruled.as_ref().map_or(self, |ruled| &ruled.stored)
    }

    pub fn scope(&self, ix: ScopeIx) -> &ScopeEntry {
        &self.scopes[ix.0 as usize]
    }

    pub fn root(&self) -> &WorkflowEntry {
        &self.workflows[0]
    }

    pub fn workflow_containing(&self, ix: ScopeIx) -> &WorkflowEntry {
        &self.workflows[self.scope(ix).workflow as usize]
    }

    /// Returns the step that a name means in this scope. None if there is no such step, or if it is inside a step whose
    /// instances cannot be told apart from outside (the items of an each).
    pub fn locate_step(&self, from: ScopeIx, id: &str) -> Option<RelativeStepPath> {
        let (scope, step) = *self.workflow_containing(from).names.get(id)?;
        let outward = self.scopes_outward(from);
        let mut inward = Vec::new();
        let mut at = scope;
        loop {
            if let Some(up) = outward.iter().position(|s| *s == at) {
                inward.reverse();
                return Some(RelativeStepPath { up: u32::try_from(up).ok()?, down: inward, step });
            }
            let (parent, holder, which) = self.scope(at).parent?;
            if matches!(self.scope(parent).step(holder).kind, StepKindSpec::Each(_)) {
                return None;
            }
            inward.push((holder, which));
            at = parent;
        }
    }

    /// Returns this scope and those around it in the same workflow, from the inside out.
    fn scopes_outward(&self, from: ScopeIx) -> Vec<ScopeIx> {
        let mut path = vec![from];
        let mut at = from;
        while let Some((parent, ..)) = self.scope(at).parent {
            path.push(parent);
            at = parent;
        }
        path
    }

    /// Numbers the scopes of workflows that have been checked. `called` holds each called workflow once.
    pub(super) fn from_workflows(root: &Arc<Workflow>, called: &BTreeMap<String, Arc<Workflow>>) -> PlanDefinition {
        let numbers: BTreeMap<&str, u32> = called.keys().map(String::as_str).zip(1..).collect();
        let mut definition = PlanDefinition {
            hash: OnceLock::new(),
            workflows: Vec::new(),
            scopes: Vec::new(),
            signals: BTreeSet::new(),
            ruled: None,
        };
        definition.add_workflow(None, root);
        for (name, workflow) in called {
            definition.add_workflow(Some(name.clone()), workflow);
        }
        let roots: Vec<ScopeIx> = definition.workflows.iter().map(|entry| entry.root).collect();
        for entry in &mut definition.scopes {
            for (i, step) in entry.scope.steps.iter().enumerate() {
                if let StepKindSpec::Call(call) = &step.kind {
                    entry.inner[i] =
                        numbers.get(call.workflow.as_str()).map(|n| roots[*n as usize]).into_iter().collect();
                }
            }
        }
        definition
    }

    fn add_workflow(&mut self, name: Option<String>, workflow: &Arc<Workflow>) {
        let number = u32::try_from(self.workflows.len()).expect("calls are limited");
        let root = self.add_scope(&Arc::new(workflow.scope.clone()), number, None);
        // The names of one scope are already sorted, so sorting all of them is cheap.
        let names = (root.0..)
            .map(ScopeIx)
            .zip(&self.scopes[root.0 as usize..])
            .flat_map(|(ix, entry)| entry.by_id.iter().map(move |(id, step)| (id.clone(), (ix, *step))));
        let names = names.collect();
        self.workflows.push(WorkflowEntry { name, workflow: workflow.clone(), root, names });
    }

    /// Recursion is bounded by the limit on nesting.
    fn add_scope(&mut self, scope: &Arc<StepScope>, workflow: u32, parent: Option<(ScopeIx, u32, u32)>) -> ScopeIx {
        let ix = ScopeIx(u32::try_from(self.scopes.len()).expect("scopes are limited"));
        self.scopes.push(ScopeEntry::new(scope.clone(), workflow, parent));
        for (i, step) in (0u32..).zip(&scope.steps) {
            if let StepKindSpec::Wait(wait) = &step.kind {
                self.signals.extend(wait.on.iter().cloned());
            }
            for (which, inner) in (0u32..).zip(step.kind.inner_scopes()) {
                let inner = self.add_scope(inner, workflow, Some((ix, i, which)));
                self.scopes[ix.0 as usize].inner[i as usize].push(inner);
            }
        }
        ix
    }
}

impl ScopeEntry {
    fn new(scope: Arc<StepScope>, workflow: u32, parent: Option<(ScopeIx, u32, u32)>) -> ScopeEntry {
        let by_id: StepIdMap<u32> = scope.steps.iter().map(|step| step.id.clone()).zip(0..).collect();
        let mut after = Vec::new();
        let mut waits = FlatLists::with_capacity(scope.steps.len());
        for step in &scope.steps {
            after.clear();
            after.extend(step.after.iter().filter_map(|id| by_id.get(id).copied()));
            after.sort_unstable();
            after.dedup();
            waits.push(after.iter().copied());
        }
        let unmet = waits.iter().map(|list| u32::try_from(list.len()).expect("edges are limited")).collect();
        let start = match &scope.shape {
            ScopeShape::Routed { start: Some(start), .. } => by_id.get(start).copied().unwrap_or(0),
            _ => 0,
        };
        let next = next_steps(&scope, &by_id);
        let inner = vec![Vec::new(); scope.steps.len()];
        let dependents = waits.invert();
        let mut settles: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, step) in (0u32..).zip(&scope.steps) {
            let settler = step.policy.settled_by.as_ref().and_then(|id| by_id.get(id));
            settler.into_iter().for_each(|settler| settles.entry(*settler).or_default().push(i));
        }
        ScopeEntry { scope, workflow, parent, by_id, unmet, dependents, next, start, settles, inner }
    }
}

/// Fills the rulings for one workflow into its steps. Its rules have then had their effect.
fn apply_rulings(workflow: &Arc<Workflow>, number: u32, rulings: &RunRulings) -> Arc<Workflow> {
    let own = rulings.0.iter().filter(|ruling| ruling.workflow == number);
    let by_step: BTreeMap<&StepId, &StepRuling> = own.map(|ruling| (&ruling.step, ruling)).collect();
    if by_step.is_empty() {
        return workflow.clone();
    }
    let mut ruled = Workflow::clone(workflow);
    ruled.rules = WorkflowRules::default();
    ruled.for_each_step_mut(|step| {
        if let Some(ruling) = by_step.get(&step.id) {
            ruling.apply_to(&mut step.policy);
        }
    });
    Arc::new(ruled)
}

/// Returns the target of each step when nothing else decides: its `next`, or else the following step that is not the
/// target of an arm, a decision or a timeout.
fn next_steps(scope: &StepScope, by_id: &StepIdMap<u32>) -> Vec<RouteTargetIx> {
    let targeted: BTreeSet<u32> = scope
        .steps
        .iter()
        .flat_map(|step| detour_targets(&step.kind))
        .filter_map(|id| by_id.get(id).copied())
        .collect();
    let mut following = RouteTargetIx::End;
    let mut next = Vec::new();
    for (i, step) in scope.steps.iter().enumerate().rev() {
        let i = u32::try_from(i).expect("steps are limited");
        next.push(match &step.next {
            Some(RouteTarget::Step(id)) => by_id.get(id).map_or(RouteTargetIx::End, |i| RouteTargetIx::Step(*i)),
            Some(RouteTarget::End) => RouteTargetIx::End,
            None => following,
        });
        if !targeted.contains(&i) {
            following = RouteTargetIx::Step(i);
        }
    }
    next.reverse();
    next
}

/// Returns the fields of a kind that name a route target, and the targets.
pub(crate) fn detours(kind: &StepKindSpec) -> Vec<(FieldRef<'static>, &RouteTarget)> {
    let whole = |field| FieldRef::new(field, FieldRest::Whole);
    match kind {
        StepKindSpec::Branch(branch) => {
            let next = |i| FieldRef::new(PlanField::Arms, FieldRest::ItemField(i, PlanField::Next));
            let arms = branch.arms.iter().enumerate().map(|(i, arm)| (next(i), &arm.next));
            arms.chain([(whole(PlanField::Default), &branch.default)]).collect()
        }
        StepKindSpec::Gate(gate) => {
            let approved = gate.on_approve.iter().map(|target| (whole(PlanField::OnApprove), target));
            let rejected = gate.on_reject.iter().map(|target| (whole(PlanField::OnReject), target));
            let late = match &gate.on_timeout {
                GateTimeout::Go(target) => Some((whole(PlanField::OnTimeout), target)),
                _ => None,
            };
            approved.chain(rejected).chain(late).collect()
        }
        StepKindSpec::Wait(wait) => match &wait.on_timeout {
            WaitTimeout::Go(target) => vec![(whole(PlanField::OnTimeout), target)],
            _ => Vec::new(),
        },
        StepKindSpec::Work(_)
        | StepKindSpec::Parallel(_)
        | StepKindSpec::Each(_)
        | StepKindSpec::Loop(_)
        | StepKindSpec::Call(_) => Vec::new(),
    }
}

/// Returns the steps that a step can route to other than by `next`.
pub(super) fn detour_targets(kind: &StepKindSpec) -> impl Iterator<Item = &StepId> {
    detours(kind).into_iter().filter_map(|(_, target)| match target {
        RouteTarget::Step(id) => Some(id),
        RouteTarget::End => None,
    })
}

/// A map from step ids to values, in the order of the ids. It is a sorted array: it is built once and then only read, and
/// for a large workflow it costs a fraction of a tree.
#[derive(Debug, Clone)]
pub struct StepIdMap<T> {
    sorted: Vec<StepIdEntry<T>>,
}

#[derive(Debug, Clone)]
struct StepIdEntry<T> {
    /// The first bytes of the id, which sort as the ids do; they nearly always suffice to distinguish two ids.
    head: u64,
    id: StepId,
    value: T,
}

impl<T> StepIdMap<T> {
    pub fn get(&self, id: impl AsRef<str>) -> Option<&T> {
        let id = id.as_ref();
        let head = key_prefix(id);
        let from = &self.sorted[self.sorted.partition_point(|named| named.head < head)..];
        let order = |named: &StepIdEntry<T>| named.head.cmp(&head).then_with(|| named.id.as_str().cmp(id));
        match from.first()? {
            first if first.id.as_str() == id => Some(&first.value),
            _ => from.binary_search_by(order).ok().map(|at| &from[at].value),
        }
    }

    pub fn contains_key(&self, id: impl AsRef<str>) -> bool {
        self.get(id).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&StepId, &T)> {
        self.sorted.iter().map(|named| (&named.id, &named.value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &StepId> {
        self.iter().map(|(id, _)| id)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

fn key_prefix(id: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(id.bytes()).for_each(|(to, byte)| *to = byte);
    u64::from_be_bytes(bytes)
}

fn compare_entries<T>(one: &StepIdEntry<T>, other: &StepIdEntry<T>) -> Ordering {
    one.head.cmp(&other.head).then_with(|| one.id.cmp(&other.id))
}

/// If an id occurs several times, its last value counts.
impl<T> FromIterator<(StepId, T)> for StepIdMap<T> {
    fn from_iter<I: IntoIterator<Item = (StepId, T)>>(all: I) -> StepIdMap<T> {
        let named = all.into_iter().map(|(id, value)| StepIdEntry { head: key_prefix(id.as_str()), id, value });
        let mut sorted: Vec<StepIdEntry<T>> = named.collect();
        sorted.sort_by(compare_entries);
        sorted.dedup_by(|later, kept| {
            let same = later.id == kept.id;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        StepIdMap { sorted }
    }
}

impl<T, Q: AsRef<str>> Index<Q> for StepIdMap<T> {
    type Output = T;

    fn index(&self, id: Q) -> &T {
        self.get(id).expect("the name is there")
    }
}

/// Comparison of steps. Equal definitions of a step have all fields of the step, of the steps inside it, and of the
/// workflows that it calls in common.
impl PlanDefinition {
    /// Returns true if a step and a step of another definition are defined alike.
    pub fn is_same_step(&self, at: (ScopeIx, u32), other: &PlanDefinition, its: (ScopeIx, u32)) -> bool {
        let (own, theirs) = (self.scope(at.0), other.scope(its.0));
        let (own_inner, their_inner) = (&own.inner[at.1 as usize], &theirs.inner[its.1 as usize]);
        is_same_without_ui(own.step(at.1), theirs.step(its.1))
            && own_inner.len() == their_inner.len()
            && own_inner.iter().zip(their_inner).all(|(own, its)| self.is_same_scope(*own, other, *its))
    }

    fn is_same_scope(&self, own: ScopeIx, other: &PlanDefinition, its: ScopeIx) -> bool {
        let (entry, theirs) = (self.scope(own), other.scope(its));
        // The root of a called workflow has no step around it, so the workflows are compared as a whole.
        let called = entry.parent.is_none() || theirs.parent.is_none();
        let (workflow, its_workflow) =
            (&self.workflow_containing(own).workflow, &other.workflow_containing(its).workflow);
        let without_ui = |workflow: &Workflow| workflow.without_ui().unwrap_or_else(|| workflow.clone());
        if called && workflow != its_workflow && without_ui(workflow) != without_ui(its_workflow) {
            return false;
        }
        let same = |i: u32| self.is_same_step((own, i), other, (its, i));
        entry.len() == theirs.len() && (0..entry.len()).all(same)
    }

    /// Returns true if a step, or one inside it, reads one of these parameters of its workflow.
    pub fn reads_parameters(&self, at: (ScopeIx, u32), names: &BTreeSet<String>) -> bool {
        let entry = self.scope(at.0);
        let sites = step_sites(at.0, at.1, entry.step(at.1));
        let reads = sites.iter().flat_map(|site| site.expr.reads()).any(|read| {
            *read.root == ReferenceRoot::Input && read.path.first().is_none_or(|name| names.contains(name))
        });
        let own = |scope: &&ScopeIx| self.scope(**scope).workflow == entry.workflow;
        let mut inner = entry.inner[at.1 as usize].iter().filter(own);
        reads || inner.any(|scope| (0..self.scope(*scope).len()).any(|i| self.reads_parameters((*scope, i), names)))
    }

    /// Returns true if `holds` is true for a step or for one inside it, also in workflows that it calls.
    pub fn any_step_within(&self, at: (ScopeIx, u32), holds: &dyn Fn(&Step) -> bool) -> bool {
        let entry = self.scope(at.0);
        let inside = |scope: &ScopeIx| (0..self.scope(*scope).len()).any(|i| self.any_step_within((*scope, i), holds));
        holds(entry.step(at.1)) || entry.inner[at.1 as usize].iter().any(inside)
    }
}

/// True if two steps are equal apart from the marks of a composer, which have no effect.
fn is_same_without_ui(step: &Step, other: &Step) -> bool {
    let without_ui = |step: &Step| {
        let mut step = step.clone();
        step.remove_ui();
        step
    };
    step == other || step.extensions != other.extensions && without_ui(step) == without_ui(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_the_last_of_two_counts() {
        let given = ["step-number-2", "b", "step-number-1", "ab", "b", "a", "step-number-10"];
        let names: StepIdMap<u32> = given.iter().map(|id| StepId::new(id).unwrap()).zip(0..).collect();
        let keys: Vec<&str> = names.keys().map(StepId::as_str).collect();
        assert_eq!(keys, ["a", "ab", "b", "step-number-1", "step-number-10", "step-number-2"]);
        assert_eq!((names["b"], names["step-number-1"], names.get("c")), (4, 2, None));
        assert!(names.contains_key("ab") && !names.contains_key("step-number-") && names.len() == 6);
    }
}
