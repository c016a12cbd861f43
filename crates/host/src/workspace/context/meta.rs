//! `_meta.json`: one step, in the words of the format.

use serde::Serialize;
use skein_core::{
    engine::Proof,
    ir::{ErrorClass, Kind, Step, StepStatus, Work, Worker},
    time::Time,
    view::StepView,
};

use super::{
    Observation,
    ledger::{Ending, Main},
};

/// The fields stand in the order of the format's own example.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta<'a> {
    pub step_id: &'a str,
    pub status: &'a str,
    pub started_at: Option<Time>,
    pub completed_at: Option<Time>,
    pub wall_time_ms: u64,
    /// In the last iteration.
    pub attempts: u32,
    pub total_attempts: u32,
    pub iterations: u32,
    pub max_iterations: u32,
    pub worker_kind: Option<&'a str>,
    pub artifacts: Vec<ArtifactMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_result: Option<WorkerResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subworkflow: Option<Called>,
    /// What was looked at of its evidence. The format has no word for it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub evidence: &'a [Proof],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorMeta>,
    /// Why it did not run, or did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct ArtifactMeta {
    pub name: String,
    /// In the step's folder.
    pub path: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// It was declared and not there: its folder is empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerResult {
    status: &'static str,
    /// Always empty: what a step gives is in its own `artifacts`.
    artifacts: [(); 0],
    observations: Vec<Observation>,
    cost: CostMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CostMeta {
    estimated_tokens: u64,
    wall_time_ms: u64,
}

/// The workflow that a step called.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Called {
    pub path: String,
    pub name: String,
    pub workflow_id: String,
    pub status: String,
    /// In the context folder.
    pub context_dir: String,
    pub started_at: Time,
    pub completed_at: Option<Time>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorMeta {
    /// The step at which it began, when that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub error_class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
}

impl ErrorMeta {
    pub fn of(error: &skein_core::view::ErrorView) -> ErrorMeta {
        ErrorMeta {
            step: error.step.clone(),
            error_class: class_word(error.class),
            code: error.code.clone(),
            message: error.message.clone(),
        }
    }
}

/// When a step began and ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub started: Option<Time>,
    pub ended: Option<Time>,
}

/// All that a step says of itself, without what it gave and called.
pub(super) fn of<'a>(step: &'a Step, view: &'a StepView, times: Times) -> Meta<'a> {
    Meta {
        step_id: step.id.as_str(),
        status: &view.native_status,
        started_at: times.started,
        completed_at: times.ended,
        wall_time_ms: times.started.zip(times.ended).map_or(0, |(from, to)| to.since(from).0),
        attempts: view.attempts,
        total_attempts: view.total_attempts,
        iterations: view.iterations,
        max_iterations: work(step)
            .and_then(|work| work.check.as_ref())
            .map_or(1, |check| check.max_iterations),
        worker_kind: work(step).and_then(|work| worker_kind(&work.worker)),
        artifacts: Vec::new(),
        worker_result: None,
        subworkflow: None,
        evidence: &view.evidence,
        error: view.error.as_ref().map(ErrorMeta::of),
        reason: view.why.as_ref().map(|why| why.text.as_str()),
    }
}

/// How the last attempt at the work ended. A step that was skipped or cancelled has no result.
pub(super) fn worker_result(view: &StepView, main: &Main, seen: Option<Observation>) -> Option<WorkerResult> {
    if matches!(view.status, StepStatus::Skipped | StepStatus::Cancelled) {
        return None;
    }
    let (ended, ending, cost) = main.ended?;
    let mut seen = seen.unwrap_or_default();
    seen.summary = seen.summary.or_else(|| view.summary.clone());
    let (status, error_class) = match ending {
        Ending::Succeeded => ("SUCCEEDED", None),
        Ending::Failed(class) => ("FAILED", Some(class_word(class))),
        Ending::Cancelled => ("CANCELLED", None),
    };
    let cost = CostMeta { estimated_tokens: cost.tokens, wall_time_ms: ended.since(main.started).0 };
    Some(WorkerResult { status, artifacts: [], observations: vec![seen], cost, error_class })
}

pub(super) fn work(step: &Step) -> Option<&Work> {
    match &step.kind {
        Kind::Work(work) => Some(work),
        _ => None,
    }
}

fn worker_kind(worker: &Worker) -> Option<&str> {
    match worker {
        Worker::Agent { program, name, .. } => program.as_deref().or(name.as_deref()),
        Worker::Script { .. } | Worker::Command { .. } => Some("CUSTOM"),
        Worker::Tool { tool, .. } => Some(tool),
        Worker::Action { action, .. } => Some(action),
    }
}

/// The format's own words. Taking too long and being cut off are transient there.
fn class_word(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient | ErrorClass::AgentError | ErrorClass::Timeout | ErrorClass::Interrupted => {
            "RETRYABLE_TRANSIENT"
        }
        ErrorClass::RateLimit => "RETRYABLE_RATE_LIMIT",
        ErrorClass::Network => "RETRYABLE_NETWORK",
        ErrorClass::Service | ErrorClass::External => "RETRYABLE_SERVICE",
        ErrorClass::Validation | ErrorClass::NonRetryable | ErrorClass::Governance => "NON_RETRYABLE",
        ErrorClass::Fatal => "FATAL",
    }
}

/// Whether a step has come far enough to be told of.
pub(super) fn has_begun(status: StepStatus) -> bool {
    !matches!(status, StepStatus::Pending | StepStatus::Ready)
}

/// Whether nothing more is done about it by itself.
pub(super) fn is_over(status: StepStatus) -> bool {
    has_ended(status) || matches!(status, StepStatus::Skipped | StepStatus::Cancelled)
}

/// Whether others look into this step's folder for what it gave, even if that is nothing.
pub(super) fn has_ended(status: StepStatus) -> bool {
    use StepStatus::{Failed, Incomplete, Succeeded, TimedOut, Undone};
    matches!(status, Succeeded | Incomplete | Failed | TimedOut | Undone)
}
