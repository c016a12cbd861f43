//! The view of a whole run, for the command line and other interfaces.
//!
//! The names of the fields are a contract with other programs. Steps are in document order; each composite is followed
//! by the steps inside it, instance by instance. Instances that have not started have no steps here; the graph shows
//! those.

use serde::Serialize;
use serde_json::Value;

use super::{CostView, ErrorView, StepView, UndoView, WaitpointView, step, undo, waitpoints};
use crate::{
    engine::{ForkOrigin, InstanceIx, RunState, StepAt, StepPaths, format_utc},
    ir::RunStatus,
    plan::Plan,
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// None before it has been started.
    pub run_id: Option<String>,
    pub workflow: WorkflowView,
    pub status: RunStatus,
    pub native_status: String,
    pub degraded: bool,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    /// None while the run is in progress: a view has no clock.
    pub duration_ms: Option<u64>,
    pub outputs: Value,
    pub error: Option<ErrorView>,
    pub cost: CostView,
    /// The run that this one retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    /// The run whose results this one began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
    /// The number of this try of the whole workflow, counted from 1.
    pub attempt: u32,
    /// The time at which the run that retries this one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelView>,
    /// The reason for the quarantine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
    pub waiting_for: Vec<WaitpointView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoView>,
    pub steps: Vec<StepView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkflowView {
    pub id: String,
    pub version: Option<String>,
    pub dialect: String,
    pub hash: String,
    /// True if the workflow is a resource, whose runs report conditions.
    #[serde(skip)]
    pub is_resource: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CancelView {
    pub by: String,
    pub reason: Option<String>,
    pub at: String,
}

/// Options for details beyond the current status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunViewOptions {
    /// Include the steps of earlier tries and visits of composites, marked as superseded.
    pub all_instances: bool,
}

pub fn view_run(plan: &Plan, state: &RunState) -> RunView {
    view_run_with_options(plan, state, RunViewOptions::default())
}

pub fn view_run_with_options(plan: &Plan, state: &RunState, options: RunViewOptions) -> RunView {
    let names = StepPaths::from_state(&plan.definition, state);
    let current = find_current_instances(state);
    let order = order_steps(state, &current, options.all_instances);
    let workflow = &plan.definition.root().workflow;
    let (status, start, end) = (state.status(), state.start.as_deref(), state.end.as_ref());
    let started = state.instances.first().map(|root| root.started);
    let is_current = |at: &StepAt| current[at.0.0 as usize];
    let shown: Vec<StepAt> = order.iter().copied().filter(is_current).collect();
    RunView {
        run_id: start.map(|start| start.run.to_string()),
        workflow: WorkflowView {
            id: workflow.id.to_string(),
            version: workflow.version.clone(),
            dialect: workflow.origin.dialect.clone(),
            hash: plan.definition.hash().to_string(),
            is_resource: workflow.extensions.resource.is_some(),
        },
        status,
        native_status: workflow.words.run_word(status).to_owned(),
        degraded: end.is_some_and(|end| end.degraded),
        started_at: started.map(format_utc),
        finished_at: end.map(|end| format_utc(end.at)),
        duration_ms: started.zip(end).map(|(started, end)| end.at.duration_since(started).0),
        outputs: end.map_or(Value::Null, |end| (*end.output).clone()),
        error: end.and_then(|end| end.error.as_ref()).map(|error| ErrorView::from_error(error, &names)),
        cost: state.spent.into(),
        retry_of: start.and_then(|start| start.retry_of.as_ref()).map(ToString::to_string),
        forked_from: start.and_then(|start| start.forked_from.clone()),
        attempt: start.map_or(1, |start| start.attempt),
        retry_at: end.and_then(|end| end.retry).map(format_utc),
        cancel: state.cancel.as_ref().map(|cancel| CancelView {
            by: cancel.by.clone(),
            reason: cancel.reason.clone(),
            at: format_utc(cancel.at),
        }),
        quarantine: state.quarantine.clone(),
        waiting_for: waitpoints::view_open_waitpoints(state, &names),
        undo: undo::summarize_undo(state, &names, &current, &shown),
        steps: order.iter().map(|at| step::build_step_view(plan, state, &names, *at, !is_current(at))).collect(),
    }
}

/// Marks the instances that belong to the last visit and try of everything around them.
pub(super) fn find_current_instances(state: &RunState) -> Vec<bool> {
    let mut current = vec![false; state.instances.len()];
    if let Some(root) = current.first_mut() {
        *root = true;
    }
    // An instance comes after the one that contains it, so that one pass is enough.
    for (i, instance) in state.instances.iter().enumerate() {
        if current[i] {
            let more = instance.steps.iter().filter_map(|step| step.more.as_deref());
            more.flat_map(|more| &more.children).for_each(|child| current[child.0 as usize] = true);
        }
    }
    current
}

/// Returns the steps in display order.
fn order_steps(state: &RunState, current: &[bool], all: bool) -> Vec<StepAt> {
    let mut inside: Vec<Vec<(u32, InstanceIx)>> = vec![Vec::new(); state.instances.len()];
    for (i, instance) in (0..).zip(&state.instances) {
        if let Some(parent) = instance.parent.filter(|_| all || current[i as usize]) {
            inside[parent.0.0 as usize].push((parent.1, InstanceIx(i)));
        }
    }
    let mut order = Vec::new();
    // A stack of the steps that are still to be added; the next one is last.
    let mut rest: Vec<StepAt> = Vec::new();
    let push = |rest: &mut Vec<StepAt>, ix: InstanceIx| {
        let count = u32::try_from(state.instance(ix).steps.len()).unwrap_or(u32::MAX);
        rest.extend((0..count).rev().map(|step| StepAt(ix, step)));
    };
    if !state.instances.is_empty() {
        push(&mut rest, InstanceIx::ROOT);
    }
    // Sorted by step, then by instance number, which is the order in which the instances started.
    inside.iter_mut().for_each(|children| children.sort_unstable());
    while let Some(at) = rest.pop() {
        order.push(at);
        let children = &inside[at.0.0 as usize];
        let from = children.partition_point(|(step, _)| *step < at.1);
        let to = children.partition_point(|(step, _)| *step <= at.1);
        for (_, child) in children[from..to].iter().rev() {
            push(&mut rest, *child);
        }
    }
    order
}
