//! The frozen workflow and the arrays that the engine walks.
//!
//! Scopes are numbered in reading order: a scope, then for each of its steps in order the scopes inside; the root
//! workflow first, then each called one by name. Journals store these numbers, so the order is part of their format.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ContentHash, flat_lists::FlatLists, step_id_map::StepIdMap};
use crate::{
    ids::{SignalName, StepId},
    ir::rules::{PolicyPrincipal, RunRulings, StepRuling, WorkflowRules},
    ir::{RouteTarget, ScopeShape, Step, StepKindSpec, StepScope, Workflow},
    time::Timestamp,
};

/// The number of a scope in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Returns the steps that a step can route to other than by `next`.
pub(super) fn detour_targets(kind: &StepKindSpec) -> Vec<&StepId> {
    use crate::ir::{GateTimeout, WaitTimeout};
    let targets: Vec<&RouteTarget> = match kind {
        StepKindSpec::Branch(branch) => branch.arms.iter().map(|arm| &arm.next).chain([&branch.default]).collect(),
        StepKindSpec::Gate(gate) => {
            let late = match &gate.on_timeout {
                GateTimeout::Go(target) => Some(target),
                _ => None,
            };
            gate.on_approve.iter().chain(&gate.on_reject).chain(late).collect()
        }
        StepKindSpec::Wait(wait) => match &wait.on_timeout {
            WaitTimeout::Go(target) => vec![target],
            _ => Vec::new(),
        },
        StepKindSpec::Work(_)
        | StepKindSpec::Parallel(_)
        | StepKindSpec::Each(_)
        | StepKindSpec::Loop(_)
        | StepKindSpec::Call(_) => Vec::new(),
    };
    targets
        .into_iter()
        .filter_map(|target| match target {
            RouteTarget::Step(id) => Some(id),
            RouteTarget::End => None,
        })
        .collect()
}
