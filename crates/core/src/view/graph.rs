//! The steps of a workflow as nodes, edges and groups, with or without how a run is doing.
//!
//! Owns what is connected to what and the labels of it. Refuses to know how it is drawn. Each scope of the plan is
//! one group, whatever the number of its instances, and a called workflow is one group however often it is called, so
//! that the drawing is as large as the plan.

use std::collections::BTreeMap;

use serde::Serialize;

use super::run::find_current_instances;
use crate::{
    engine::RunState,
    engine::StepAt,
    ir::{GateTimeout, RouteTarget, StepKindName, StepKindSpec, StepStatus, WaitTimeout},
    plan::{PlanDefinition, RouteTargetIx, ScopeEntry, ScopeIx},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GraphView {
    pub groups: Vec<GraphGroup>,
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<GraphEdge>,
}

/// The steps of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphGroup {
    /// What the ids of its nodes begin with.
    pub id: String,
    pub label: String,
    pub kind: GraphGroupKind,
    /// The node it is inside of; none for a workflow.
    pub inside: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphGroupKind {
    Workflow,
    Lane,
    Item,
    Pass,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphNode {
    pub id: String,
    pub label: String,
    pub kind: GraphNodeKind,
    /// Its group, by number.
    pub group: usize,
    /// The group of the workflow that it calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<usize>,
    /// Of the instances there are now, what matters most; none without a run, or before it gets there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StepStatus>,
    /// How many instances of it are how.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<StepStatus, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum GraphNodeKind {
    Step(StepKindName),
    Mark(GraphMark),
}

/// A node that is no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphMark {
    /// Where a route ends its scope.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphEdge {
    pub from: String,
    pub to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The drawing of a plan, with the statuses of a run if one is given.
pub fn build_graph(definition: &PlanDefinition, state: Option<&RunState>) -> GraphView {
    let mut drawing = GraphBuilder { definition, graph: GraphView::default(), ends: BTreeMap::new() };
    // A scope stands before those inside it, so that their names can be built on its own.
    for (i, entry) in (0..).zip(&definition.scopes) {
        drawing.add_group(ScopeIx(i), entry);
    }
    for (i, entry) in (0..).zip(&definition.scopes) {
        drawing.add_nodes(i, entry);
        drawing.add_edges(i, entry);
        drawing.add_end_edges(i, entry);
    }
    let mut graph = drawing.graph;
    if let Some(state) = state {
        paint_statuses(definition, state, &mut graph);
    }
    graph
}

struct GraphBuilder<'a> {
    definition: &'a PlanDefinition,
    graph: GraphView,
    /// The nodes at which routes end, by group.
    ends: BTreeMap<usize, String>,
}

impl GraphBuilder<'_> {
    fn add_group(&mut self, ix: ScopeIx, entry: &ScopeEntry) {
        let group = match entry.parent {
            None => self.workflow_group(ix),
            Some((around, step, which)) => self.inner_group(around, step, which),
        };
        self.graph.groups.push(group);
    }

    fn workflow_group(&self, ix: ScopeIx) -> GraphGroup {
        let entry = self.definition.workflow_containing(ix);
        // No path has two slashes, so that the steps of a called workflow have names of their own.
        let id = entry.name.as_ref().map_or(String::new(), |name| format!("{name}//"));
        let label = entry.workflow.name.clone().unwrap_or_else(|| entry.workflow.id.to_string());
        GraphGroup { id, label, kind: GraphGroupKind::Workflow, inside: None }
    }

    fn inner_group(&self, around: ScopeIx, step: u32, which: u32) -> GraphGroup {
        let holder = self.definition.scope(around).step(step);
        let node = format!("{}{}", self.graph.groups[around.0 as usize].id, holder.id);
        let (kind, id, label) = match &holder.kind {
            StepKindSpec::Parallel(parallel) => {
                let lane = parallel.lanes.get(which as usize).map_or("", |lane| lane.id.as_str());
                (GraphGroupKind::Lane, format!("{node}/{lane}/"), lane.to_owned())
            }
            StepKindSpec::Each(each) => {
                (GraphGroupKind::Item, format!("{node}[]/"), format!("each of {}", each.over.source()))
            }
            StepKindSpec::Loop(repeat) => {
                (GraphGroupKind::Pass, format!("{node}#/"), format!("while {}", repeat.condition.source()))
            }
            _ => (GraphGroupKind::Pass, format!("{node}/"), String::new()),
        };
        GraphGroup { id, label, kind, inside: Some(node) }
    }

    fn add_nodes(&mut self, group: usize, entry: &ScopeEntry) {
        for (i, step) in (0..).zip(&entry.scope.steps) {
            let calls =
                matches!(step.kind, StepKindSpec::Call(_)).then(|| entry.inner_scope(i, 0).0 as usize);
            self.graph.nodes.push(GraphNode {
                id: format!("{}{}", self.graph.groups[group].id, step.id),
                label: step.name.clone().unwrap_or_else(|| step.id.to_string()),
                kind: GraphNodeKind::Step(step.kind.name()),
                group,
                calls,
                status: None,
                counts: BTreeMap::new(),
            });
        }
    }

    fn add_edges(&mut self, group: usize, entry: &ScopeEntry) {
        for (i, step) in (0..).zip(&entry.scope.steps) {
            if !entry.is_routed() {
                let dependencies = step.after.iter().filter_map(|id| entry.by_id.get(id));
                dependencies
                    .for_each(|before| self.add_edge(group, entry, *before, RouteTargetIx::Step(i), None));
                continue;
            }
            let detours = find_detours(&step.kind);
            if falls_through(&step.kind) && entry.next[i as usize] != RouteTargetIx::End {
                self.add_edge(group, entry, i, entry.next[i as usize], None);
            }
            for (target, label) in detours {
                self.add_edge(group, entry, i, entry.resolve_target(target), Some(label));
            }
        }
    }

    /// Where some route leads to the end, all steps that end there do.
    fn add_end_edges(&mut self, group: usize, entry: &ScopeEntry) {
        if !entry.is_routed() || !self.ends.contains_key(&group) {
            return;
        }
        for (i, step) in (0..).zip(&entry.scope.steps) {
            if falls_through(&step.kind) && entry.next[i as usize] == RouteTargetIx::End {
                self.add_edge(group, entry, i, RouteTargetIx::End, None);
            }
        }
    }

    fn add_edge(
        &mut self,
        group: usize,
        entry: &ScopeEntry,
        from: u32,
        to: RouteTargetIx,
        label: Option<String>,
    ) {
        let prefix = &self.graph.groups[group].id;
        let from = format!("{prefix}{}", entry.step(from).id);
        let to = match to {
            RouteTargetIx::Step(to) => format!("{prefix}{}", entry.step(to).id),
            RouteTargetIx::End => self.ensure_end_node(group),
        };
        self.graph.edges.push(GraphEdge { from, to, label });
    }

    fn ensure_end_node(&mut self, group: usize) -> String {
        if let Some(id) = self.ends.get(&group) {
            return id.clone();
        }
        let id = format!("{}$end", self.graph.groups[group].id);
        self.ends.insert(group, id.clone());
        self.graph.nodes.push(GraphNode {
            id: id.clone(),
            label: "end".to_owned(),
            kind: GraphNodeKind::Mark(GraphMark::End),
            group,
            calls: None,
            status: None,
            counts: BTreeMap::new(),
        });
        id
    }
}

/// Whether the cursor can go to `next`: not from a branch, and not from a gate that decides otherwise.
fn falls_through(kind: &StepKindSpec) -> bool {
    match kind {
        StepKindSpec::Branch(_) => false,
        StepKindSpec::Gate(gate) => gate.on_approve.is_none(),
        _ => true,
    }
}

/// Where a step can route to other than by `next`, and when.
fn find_detours(kind: &StepKindSpec) -> Vec<(&RouteTarget, String)> {
    match kind {
        StepKindSpec::Branch(branch) => {
            let arms = branch.arms.iter().map(|arm| (&arm.next, arm.when.source().to_owned()));
            arms.chain([(&branch.default, "else".to_owned())]).collect()
        }
        StepKindSpec::Gate(gate) => {
            let approved = gate.on_approve.iter().map(|target| (target, "approved".to_owned()));
            let rejected = gate.on_reject.iter().map(|target| (target, "rejected".to_owned()));
            let late = match &gate.on_timeout {
                GateTimeout::Go(target) => Some((target, "timeout".to_owned())),
                _ => None,
            };
            approved.chain(rejected).chain(late).collect()
        }
        StepKindSpec::Wait(wait) => match &wait.on_timeout {
            WaitTimeout::Go(target) => vec![(target, "timeout".to_owned())],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Adds how the run is doing: each step of each instance that counts, once.
fn paint_statuses(definition: &PlanDefinition, state: &RunState, graph: &mut GraphView) {
    let mut first = vec![0; definition.scopes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        first[node.group] = i;
    }
    let current = find_current_instances(state);
    for (i, instance) in (0..).zip(&state.instances) {
        if !current[i as usize] {
            continue;
        }
        for step in 0..u32::try_from(instance.steps.len()).unwrap_or(u32::MAX) {
            let status = state.step_status(StepAt(crate::engine::InstanceIx(i), step));
            let node = &mut graph.nodes[first[instance.scope.0 as usize] + step as usize];
            *node.counts.entry(status).or_default() += 1;
        }
    }
    for node in &mut graph.nodes {
        node.status = node.counts.keys().copied().min_by_key(|status| status_rank(*status));
    }
}

/// What matters more comes first.
fn status_rank(status: StepStatus) -> u8 {
    match status {
        StepStatus::Running => 0,
        StepStatus::Checking => 1,
        StepStatus::Waiting => 2,
        StepStatus::Ready => 3,
        StepStatus::Failed => 4,
        StepStatus::TimedOut => 5,
        StepStatus::Incomplete => 6,
        StepStatus::Cancelled => 7,
        StepStatus::Undone => 8,
        StepStatus::Pending => 9,
        StepStatus::Succeeded => 10,
        StepStatus::Skipped => 11,
    }
}
