//! The view of one step of a run, with its cost.

use serde::Serialize;
use serde_json::Value;

use super::{StepExplanation, explain, words};
use crate::{
    engine::{
        AttemptId, AttemptRole, Cost, EvidenceResult, ExecutionError, RunState, StepAt, StepOutcome, StepPaths,
        VisitState, format_utc,
    },
    ir::{ErrorClass, StepKindSpec, StepStatus, WorkerSpec},
    plan::Plan,
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepView {
    pub path: String,
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The exact address, which inputs use to name the step.
    pub at: StepAt,
    /// True if it belongs to an earlier try of a step around it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// True if the result was taken over from the run that this one was forked from.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
    pub kind: &'static str,
    pub status: StepStatus,
    pub native_status: String,
    /// The number of attempts in the last iteration; for a composite, of tries in this visit.
    pub attempts: u32,
    /// The number of attempts over all iterations and visits.
    pub total_attempts: u32,
    /// The number of iterations of the completion check, or of passes of a loop.
    pub iterations: u32,
    /// The convergence stage, from 1.
    pub stage: u32,
    pub visits: u32,
    /// The last attempt by an agent in this iteration; its log has the same id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_run_id: Option<String>,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub duration_ms: Option<u64>,
    pub outputs: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub error: Option<ErrorView>,
    /// The step that resolved the merge conflict of this one, so that its failure does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
    /// The results of checking its evidence after the last attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceResult>,
    /// The cost of its own attempts, without the steps inside it.
    pub cost: CostView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<StepExplanation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorView {
    pub class: ErrorClass,
    pub code: Option<String>,
    pub message: String,
    /// The step that caused the error, if it is another one.
    pub step: Option<String>,
}

impl ErrorView {
    pub fn from_error(error: &ExecutionError, names: &StepPaths) -> ErrorView {
        ErrorView {
            class: error.class,
            code: error.code.clone(),
            message: error.message.clone(),
            step: error.origin.map(|at| names.step_path(at)),
        }
    }
}

/// Returns the view of one step, in a time independent of the size of the run. `names` must know every instance that
/// has started.
pub fn view_step(plan: &Plan, state: &RunState, names: &StepPaths, at: StepAt) -> StepView {
    build_step_view(plan, state, names, at, false)
}

pub(super) fn build_step_view(
    plan: &Plan,
    state: &RunState,
    names: &StepPaths,
    at: StepAt,
    superseded: bool,
) -> StepView {
    let scope = names.scope(at.0);
    let step = plan.definition.scope(scope).step(at.1);
    let now = state.step(at);
    let blank = VisitState::default();
    let more = now.more.as_deref().unwrap_or(&blank);
    let status = state.step_status(at);
    let own_failure = now.effect.is_some_and(|effect| effect.as_skipped);
    let words = &plan.definition.workflow_containing(scope).workflow.words;
    StepView {
        path: names.step_path(at),
        id: step.id.to_string(),
        name: step.name.clone(),
        at,
        superseded,
        reused: more.reused,
        kind: words::kind_word(step.kind.name()),
        status,
        native_status: words.step_word(status, own_failure).to_owned(),
        attempts: count_attempts(&step.kind, more),
        total_attempts: more.total_attempts,
        iterations: count_iterations(&step.kind, more),
        stage: more.next.stage,
        visits: now.visit,
        agent_run_id: last_agent_attempt(&step.kind, at, now.visit, more).map(|attempt| attempt.to_string()),
        started_at: more.started.map(format_utc),
        finished_at: more.ended.map(format_utc),
        duration_ms: more.started.zip(more.ended).map(|(started, ended)| ended.duration_since(started).0),
        // The output of an earlier visit is not shown.
        outputs: now.outcome.map_or(Value::Null, |_| (*now.output).clone()),
        summary: more.summary.clone(),
        error: more.error.as_ref().map(|error| ErrorView::from_error(error, names)),
        settled_by: find_conflict_resolver(state, at, more).map(|by| names.step_path(by)),
        evidence: more.proofs.clone(),
        cost: more.cost.into(),
        why: explain::explain_step(plan, state, names, at),
    }
}

fn find_conflict_resolver(state: &RunState, at: StepAt, more: &VisitState) -> Option<StepAt> {
    let settler = StepAt(at.0, more.settler?);
    (state.step(settler).outcome == Some(StepOutcome::Succeeded)).then_some(settler)
}

fn count_attempts(kind: &StepKindSpec, more: &VisitState) -> u32 {
    match kind {
        StepKindSpec::Work(_) => more.attempts[AttemptRole::Main as usize],
        StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_) => 0,
        // `tries` counts only the failures that are retried.
        StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_) => {
            let begun = more.started.is_some() && more.due.is_none();
            more.tries + u32::from(begun)
        }
    }
}

/// Returns the last main attempt of a step that an agent runs.
fn last_agent_attempt(kind: &StepKindSpec, at: StepAt, visit: u32, more: &VisitState) -> Option<AttemptId> {
    let StepKindSpec::Work(work) = kind else { return None };
    let attempt = more.attempts[AttemptRole::Main as usize];
    let is_agent = matches!(work.worker, WorkerSpec::Agent { .. }) && attempt > 0 && !more.reused;
    is_agent.then_some(AttemptId { at, visit, iteration: more.next.iteration, role: AttemptRole::Main, attempt })
}

fn count_iterations(kind: &StepKindSpec, more: &VisitState) -> u32 {
    match kind {
        // Between iterations, the next one has no attempt yet.
        StepKindSpec::Work(_) if more.attempts[AttemptRole::Main as usize] == 0 => more.next.iteration - 1,
        StepKindSpec::Work(_) => more.next.iteration,
        StepKindSpec::Loop(_) => u32::try_from(more.children.len()).unwrap_or(u32::MAX),
        StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_) => 0,
        StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Call(_) => u32::from(more.started.is_some()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostView {
    pub tokens: u64,
    /// None if no worker reported a cost in money.
    pub usd: Option<f64>,
}

impl From<Cost> for CostView {
    fn from(cost: Cost) -> CostView {
        // A double is exact to the millionth up to billions of dollars.
        CostView { tokens: cost.tokens, usd: cost.micro_usd.map(|micro| micro as f64 / 1_000_000.0) }
    }
}
