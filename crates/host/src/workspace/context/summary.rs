//! `_workflow.json`: the run, or a workflow that was called in it.

use serde::Serialize;
use skein_core::{
    engine::{InstanceIx, StepAt, StepPaths},
    ir::{RunStatus, StepStatus},
    time::Timestamp,
    view::ErrorView,
};

use super::{ContextInput, meta::ErrorMeta};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkflowSummary<'a> {
    /// The run's id, also for a called workflow.
    id: String,
    name: &'a str,
    started_at: Timestamp,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    resolved: ResolvedLimits,
    /// True if a step failed and the workflow continued.
    degraded: bool,
    failed_steps: Vec<&'a str>,
    /// The error with which the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<CancellationMeta<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResolvedLimits {
    timeout_ms: Option<u64>,
    concurrency: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CancellationMeta<'a> {
    by: &'a str,
    reason: Option<&'a str>,
}

pub(super) fn summarize_workflow<'a>(
    story: &ContextInput<'a>,
    names: &StepPaths,
    ix: InstanceIx,
) -> WorkflowSummary<'a> {
    let instance = story.state.instance(ix);
    let entry = story.plan.definition.scope(instance.scope);
    let workflow = &story.plan.definition.workflow_containing(instance.scope).workflow;
    let root = ix == InstanceIx::ROOT;
    let end = instance.end();
    let status = if root { story.state.status() } else { end.map_or(RunStatus::Running, |end| end.status) };
    let failed = |at: &StepAt| matches!(story.state.step_status(*at), StepStatus::Failed | StepStatus::TimedOut);
    let run_end = story.state.end.as_ref().filter(|_| root);
    WorkflowSummary {
        id: story.state.start.as_ref().map(|start| start.run.to_string()).unwrap_or_default(),
        name: workflow.name.as_deref().unwrap_or(workflow.id.as_str()),
        started_at: instance.started,
        status: workflow.words.run_word(status),
        completed_at: run_end.map(|end| end.at).or(instance.ended.filter(|_| !root)),
        resolved: ResolvedLimits {
            timeout_ms: entry.scope.timeout.map(|timeout| timeout.0),
            concurrency: entry.scope.concurrency,
        },
        degraded: run_end.map_or_else(|| end.is_some_and(|end| end.degraded), |end| end.degraded),
        failed_steps: story.instance_steps(ix).filter(failed).map(|at| entry.step(at.1).id.as_str()).collect(),
        error: run_end
            .and_then(|end| end.error.as_ref())
            .map(|error| ErrorMeta::from_view(&ErrorView::from_error(error, names))),
        cancelled: (story.state.cancel.as_ref())
            .filter(|_| root)
            .map(|cancel| CancellationMeta { by: &cancel.by, reason: cancel.reason.as_deref() }),
    }
}
