//! The steps of a workflow as nodes, edges and groups, optionally with the statuses of a run.
//!
//! Owns the connections and the labels. Does not know how they are rendered. Each scope of the plan is one group,
//! regardless of the number of its instances, and a called workflow is one group however often it is called, so that
//! the size of the graph is that of the plan.

use std::collections::BTreeMap;

use serde::Serialize;

use super::run::find_current_instances;
use crate::{
    engine::{InstanceIx, RunState, StepAt},
    ir::{StepKindName, StepKindSpec, StepStatus},
    plan::{FieldRef, FieldRest, PlanDefinition, PlanField, RouteTargetIx, ScopeEntry, ScopeIx, detours},
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
    /// The prefix of the ids of its nodes.
    pub id: String,
    pub label: String,
    pub kind: GraphGroupKind,
    /// The node that contains it; none for a workflow.
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
    /// The most important status among the current instances; none without a run, or before the step is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StepStatus>,
    /// The number of instances by status.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<StepStatus, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum GraphNodeKind {
    Step(StepKindName),
    Mark(GraphMark),
}

/// A node that is not a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphMark {
    /// The end of a scope, as the target of routes.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphEdge {
    pub from: String,
    pub to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Builds the graph of a plan, with the statuses of a run if one is given.
pub fn build_graph(definition: &PlanDefinition, state: Option<&RunState>) -> GraphView {
    let mut drawing = GraphBuilder { definition, graph: GraphView::default(), ends: BTreeMap::new() };
    // A scope comes before the scopes inside it, whose ids are built from its own.
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
    /// The end nodes, by group.
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
        // No path contains two slashes, so the ids of steps in a called workflow are unique.
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
            let calls = matches!(step.kind, StepKindSpec::Call(_)).then(|| entry.inner_scope(i, 0).0 as usize);
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
                dependencies.for_each(|before| self.add_edge(group, entry, *before, RouteTargetIx::Step(i), None));
                continue;
            }
            if falls_through(&step.kind) && entry.next[i as usize] != RouteTargetIx::End {
                self.add_edge(group, entry, i, entry.next[i as usize], None);
            }
            for (field, target) in detours(&step.kind) {
                let label = detour_label(&step.kind, field);
                self.add_edge(group, entry, i, entry.resolve_target(target), Some(label));
            }
        }
    }

    /// Adds an edge to the end for every step that falls through to it, if some route leads to the end.
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

    fn add_edge(&mut self, group: usize, entry: &ScopeEntry, from: u32, to: RouteTargetIx, label: Option<String>) {
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

/// True if the cursor can go from the step to `next`: not from a branch, and not from a gate with a route for approval.
fn falls_through(kind: &StepKindSpec) -> bool {
    match kind {
        StepKindSpec::Branch(_) => false,
        StepKindSpec::Gate(gate) => gate.on_approve.is_none(),
        _ => true,
    }
}

/// Returns the condition of a route other than `next`.
fn detour_label(kind: &StepKindSpec, field: FieldRef<'_>) -> String {
    match (kind, field.field, field.rest) {
        (StepKindSpec::Branch(branch), _, FieldRest::ItemField(arm, _)) => branch.arms[arm].when.source(),
        (_, PlanField::OnApprove, _) => "approved",
        (_, PlanField::OnReject, _) => "rejected",
        (_, PlanField::OnTimeout, _) => "timeout",
        _ => "else",
    }
    .to_owned()
}

/// Adds the statuses of a run, counting each step of each current instance once.
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
            let status = state.step_status(StepAt(InstanceIx(i), step));
            let node = &mut graph.nodes[first[instance.scope.0 as usize] + step as usize];
            *node.counts.entry(status).or_default() += 1;
        }
    }
    for node in &mut graph.nodes {
        node.status = node.counts.keys().copied().min_by_key(|status| status_rank(*status));
    }
}

/// Returns the rank of a status; the most important one has the lowest rank.
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
