//! `_meta.json`: one step, in the terms of the format.

use serde::Serialize;
use skein_core::{
    engine::{EvidenceResult, MainAttempt, MainAttemptEnd},
    ir::{ErrorClass, Step, StepKindSpec, StepStatus, WorkSpec, WorkerSpec},
    time::Timestamp,
    view::StepView,
};

use super::WorkerObservation;

/// The fields are in the order of the format's own example.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepMeta<'a> {
    pub step_id: &'a str,
    pub status: &'a str,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub wall_time_ms: u64,
    /// The attempts of the last iteration.
    pub attempts: u32,
    pub total_attempts: u32,
    pub iterations: u32,
    pub max_iterations: u32,
    pub worker_kind: Option<&'a str>,
    pub artifacts: Vec<ArtifactMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_result: Option<WorkerResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subworkflow: Option<SubworkflowMeta>,
    /// The results of its evidence. The format has no field for them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub evidence: &'a [EvidenceResult],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorMeta>,
    /// The reason why it did not run, or did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct ArtifactMeta {
    pub name: String,
    /// The path in the step's folder.
    pub path: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// True if it was declared and did not exist: its folder is empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerResult {
    status: &'static str,
    /// Always empty: the artifacts of a step are in its own `artifacts`.
    artifacts: [(); 0],
    observations: Vec<WorkerObservation>,
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
pub(super) struct SubworkflowMeta {
    pub path: String,
    pub name: String,
    pub workflow_id: String,
    pub status: String,
    /// The path in the context folder.
    pub context_dir: String,
    pub started_at: Timestamp,
    pub completed_at: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorMeta {
    /// The step at which the error started, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub error_class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
}

impl ErrorMeta {
    pub(super) fn from_view(error: &skein_core::view::ErrorView) -> ErrorMeta {
        ErrorMeta {
            step: error.step.clone(),
            error_class: class_word(error.class),
            code: error.code.clone(),
            message: error.message.clone(),
        }
    }
}

/// The start and end times of a step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepTimes {
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

/// Returns the metadata of a step, without its artifacts and its call.
pub(super) fn step_meta<'a>(step: &'a Step, view: &'a StepView, times: StepTimes) -> StepMeta<'a> {
    StepMeta {
        step_id: step.id.as_str(),
        status: &view.native_status,
        started_at: times.started,
        completed_at: times.ended,
        wall_time_ms: times.started.zip(times.ended).map_or(0, |(from, to)| to.duration_since(from).0),
        attempts: view.attempts,
        total_attempts: view.total_attempts,
        iterations: view.iterations,
        max_iterations: step_work(step).and_then(|work| work.check.as_ref()).map_or(1, |check| check.max_iterations),
        worker_kind: step_work(step).and_then(|work| worker_kind(&work.worker)),
        artifacts: Vec::new(),
        worker_result: None,
        subworkflow: None,
        evidence: &view.evidence,
        error: view.error.as_ref().map(ErrorMeta::from_view),
        reason: view.why.as_ref().map(|why| why.text.as_str()),
    }
}

/// Returns the result of the last attempt at the work. A skipped or cancelled step has no result.
pub(super) fn worker_result(
    view: &StepView,
    main: &MainAttempt,
    seen: Option<WorkerObservation>,
) -> Option<WorkerResult> {
    if matches!(view.status, StepStatus::Skipped | StepStatus::Cancelled) {
        return None;
    }
    let (ended, ending, cost) = main.ended?;
    let mut seen = seen.unwrap_or_default();
    seen.summary = seen.summary.or_else(|| view.summary.clone());
    let (status, error_class) = match ending {
        MainAttemptEnd::Succeeded => ("SUCCEEDED", None),
        MainAttemptEnd::Failed(class) => ("FAILED", Some(class_word(class))),
        MainAttemptEnd::Cancelled => ("CANCELLED", None),
    };
    let cost = CostMeta { estimated_tokens: cost.tokens, wall_time_ms: ended.duration_since(main.started).0 };
    Some(WorkerResult { status, artifacts: [], observations: vec![seen], cost, error_class })
}

pub(super) fn step_work(step: &Step) -> Option<&WorkSpec> {
    match &step.kind {
        StepKindSpec::Work(work) => Some(work),
        _ => None,
    }
}

fn worker_kind(worker: &WorkerSpec) -> Option<&str> {
    match worker {
        WorkerSpec::Agent { program, name, .. } => program.as_deref().or(name.as_deref()),
        WorkerSpec::Script { .. } | WorkerSpec::Command { .. } => Some("CUSTOM"),
        WorkerSpec::Tool { tool, .. } => Some(tool),
        WorkerSpec::Action { action, .. } => Some(action),
    }
}

/// Returns the format's word for an error class. Timeouts and interruptions are transient there.
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

/// True if a step has started, so that it is written.
pub(super) fn has_begun(status: StepStatus) -> bool {
    !matches!(status, StepStatus::Pending | StepStatus::Ready)
}

/// True if nothing more happens to the step by itself.
pub(super) fn is_over(status: StepStatus) -> bool {
    has_ended(status) || matches!(status, StepStatus::Skipped | StepStatus::Cancelled)
}

/// True if others look for artifacts in this step's folder, even if there are none.
pub(super) fn has_ended(status: StepStatus) -> bool {
    use StepStatus::{Failed, Incomplete, Succeeded, TimedOut, Undone};
    matches!(status, Succeeded | Incomplete | Failed | TimedOut | Undone)
}
