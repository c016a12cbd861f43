//! The JSON documents of a context, in the terms of the format: `_meta.json` describes a step, `_workflow.json` the run or
//! a workflow that was called in it, and `_convergence/` the convergence of a step as its checks report it.

use serde::Serialize;
use skein_core::{
    engine::{
        CheckFinding, CheckRecord, EvidenceResult, InstanceIx, LedgerEntry, MainAttempt, MainAttemptEnd, StageRaise,
        StepAt, StepPaths, VisitState,
    },
    ir::{ConvergencePolicy, ErrorClass, RunStatus, Step, StepKindSpec, StepStatus, WorkSpec, WorkerSpec},
    time::Timestamp,
    view::{ErrorView, StepView},
};

use crate::workspace::context::{ContextInput, WorkerObservation};

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

/// Returns the metadata of a step, without its artifacts and its call.
pub(super) fn step_meta<'a>(step: &'a Step, view: &'a StepView, visit: Option<&VisitState>) -> StepMeta<'a> {
    let (started, ended) = visit.map_or((None, None), |visit| (visit.started, visit.ended));
    StepMeta {
        step_id: step.id.as_str(),
        status: &view.native_status,
        started_at: started,
        completed_at: ended,
        wall_time_ms: started.zip(ended).map_or(0, |(from, to)| to.duration_since(from).0),
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
    input: &ContextInput<'a>,
    names: &StepPaths,
    ix: InstanceIx,
) -> WorkflowSummary<'a> {
    let instance = input.state.instance(ix);
    let entry = input.plan.definition.scope(instance.scope);
    let workflow = &input.plan.definition.workflow_containing(instance.scope).workflow;
    let root = ix == InstanceIx::ROOT;
    let end = instance.end();
    let status = if root { input.state.status() } else { end.map_or(RunStatus::Running, |end| end.status) };
    let failed = |at: &StepAt| matches!(input.state.step_status(*at), StepStatus::Failed | StepStatus::TimedOut);
    let run_end = input.state.end.as_ref().filter(|_| root);
    WorkflowSummary {
        id: input.state.start.as_ref().map(|start| start.run.to_string()).unwrap_or_default(),
        name: workflow.name.as_deref().unwrap_or(workflow.id.as_str()),
        started_at: instance.started,
        status: workflow.words.run_word(status),
        completed_at: run_end.map(|end| end.at).or(instance.ended.filter(|_| !root)),
        resolved: ResolvedLimits {
            timeout_ms: entry.scope.timeout.map(|timeout| timeout.0),
            concurrency: entry.scope.concurrency,
        },
        degraded: run_end.map_or_else(|| end.is_some_and(|end| end.degraded), |end| end.degraded),
        failed_steps: input.instance_steps(ix).filter(failed).map(|at| entry.step(at.1).id.as_str()).collect(),
        error: run_end
            .and_then(|end| end.error.as_ref())
            .map(|error| ErrorMeta::from_view(&ErrorView::from_error(error, names))),
        cancelled: (input.state.cancel.as_ref())
            .filter(|_| root)
            .map(|cancel| CancellationMeta { by: &cancel.by, reason: cancel.reason.as_deref() }),
    }
}

pub(super) const CONVERGENCE_STATE: &str = "state.json";
pub(super) const STAGE_TRANSITION: &str = "stage-transition.json";
pub(super) const SCOPE_VIOLATION: &str = "scope.json";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConvergenceState<'a> {
    step_id: &'a str,
    stage: u32,
    max_stage: u32,
    /// The number of consecutive equal findings.
    stall_count: u32,
    stall_threshold: u32,
    /// The identity of the finding.
    stall_key: Option<String>,
    iteration: u32,
    decision: &'static str,
    reasons: &'a [String],
    fingerprints: &'a [String],
    updated_at: Timestamp,
}

/// The last increase of the stage.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageTransition<'a> {
    step_id: &'a str,
    from_stage: u32,
    to_stage: u32,
    max_stage: u32,
    iteration: u32,
    reasons: &'a [String],
    fingerprints: &'a [String],
    at: Timestamp,
}

/// A violation of the scope: changed files outside of the allowed paths, or too many changed files.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeViolation<'a> {
    step_id: &'a str,
    iteration: u32,
    allowed_paths: &'a [String],
    ignored_paths: &'a [String],
    max_changed_files: Option<u32>,
    /// The files that the check named.
    outside_allowed_paths: Vec<&'a str>,
    too_many_changed_files: bool,
    at: Timestamp,
}

pub(super) fn convergence_state<'a>(
    id: &'a str,
    convergence: &ConvergencePolicy,
    more: &VisitState,
    entry: &'a LedgerEntry,
) -> Option<ConvergenceState<'a>> {
    let check = entry.check.as_ref()?;
    let failed = matches!(entry.raised, Some(StageRaise { to: None, .. }));
    Some(ConvergenceState {
        step_id: id,
        stage: if failed { convergence.max_stage } else { more.next.stage },
        max_stage: convergence.max_stage,
        stall_count: more.stall.map_or(0, |(_, count)| count),
        stall_threshold: convergence.stall_threshold,
        stall_key: more.stall.map(|(key, _)| key.to_string()),
        iteration: check.iteration,
        decision: match check.finding {
            CheckFinding::Complete => "complete",
            CheckFinding::Incomplete => "incomplete",
            CheckFinding::Undecided => "undecided",
            CheckFinding::Blocked => "blocked",
        },
        reasons: &check.reasons,
        fingerprints: &check.fingerprints,
        updated_at: check.at,
    })
}

pub(super) fn stage_transition<'a>(
    id: &'a str,
    convergence: &ConvergencePolicy,
    entry: &'a LedgerEntry,
) -> Option<StageTransition<'a>> {
    let raised = entry.raised.as_ref()?;
    let check = raised.check.as_ref();
    Some(StageTransition {
        step_id: id,
        from_stage: raised.from,
        to_stage: raised.to.unwrap_or(convergence.max_stage),
        max_stage: convergence.max_stage,
        iteration: check.map_or(0, |check| check.iteration),
        reasons: check.map_or(&[], |check| &check.reasons),
        fingerprints: check.map_or(&[], |check| &check.fingerprints),
        at: raised.at,
    })
}

pub(super) fn scope_violation<'a>(
    id: &'a str,
    convergence: &'a ConvergencePolicy,
    entry: &'a LedgerEntry,
) -> Option<ScopeViolation<'a>> {
    let CheckRecord { at, iteration, fingerprints, .. } = entry.scope.as_ref()?;
    Some(ScopeViolation {
        step_id: id,
        iteration: *iteration,
        allowed_paths: &convergence.allowed_paths,
        ignored_paths: &convergence.ignored_paths,
        max_changed_files: convergence.max_changed_files,
        outside_allowed_paths: fingerprints.iter().filter_map(|note| note.strip_prefix("scope:file:")).collect(),
        too_many_changed_files: fingerprints.iter().any(|note| note.starts_with("diff_budget:")),
        at: *at,
    })
}
