//! Reviews: an agent reviews an ended run, and proposes facts that are worth remembering.
//!
//! The review is a run of its own, so that it has a journal, limits, logs and costs like every other run. Its id is
//! derived from the id of the reviewed run, so that a repeated request returns the existing review. Owns the digest of the
//! run that the reviewer sees, which is untrusted and was redacted before it was stored, and the handling of the
//! proposals: each is stored once as a candidate, and agents do not see it until a person approves it.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptId, AttemptRole, RunStart},
    ids::RunId,
    ir::{
        Budget, BudgetMode, RunStatus, Schema, Step, StepKindSpec as StepKind, StepStatus, WorkerCapability,
        WorkerSpec, Workflow,
    },
    limits,
    plan::{self, Plan},
    view::{self, StepView},
};
use skein_dialects::{SourceFile, check_source};
use skein_host::{
    clock::Clock,
    host::RunLaunch,
    identity::current_user,
    memory::{MemoryEntry, MemoryError, MemoryKind, MemoryStatus, ProjectMemory},
    run_settings::RunSettings,
    store::{RunOwner, RunRow, Store},
};

use crate::{
    app::App,
    app_error::{AppError, AppErrorKind},
    memory::require_person,
    prepare::{self, RunRequest},
    project::DiskProject,
    runs::{
        follow::{self, RunFrontEnd},
        logs::{AttemptLogs, AttemptSelector, LogFile},
        resume::take_over_run,
        send_input,
        session::read_max_workers,
        start::{RunAttachment, RunOutcome, launch_run, refuse_unprepared},
    },
    state::StateHandle,
};

/// The workflow of a review.
const REVIEW: &str = include_str!("review.yaml");
/// The maximum number of proposals of a review, and the maximum length of their texts.
const PROPOSALS: usize = 20;
const TEXT: usize = 1_000;
/// The token budget of a review if the project sets none.
const TOKENS: u64 = 200_000;
/// The maximum number of reviews of a run.
const REVIEWS: u32 = 100;

/// A review of a run.
#[derive(Debug)]
pub struct CaptureRequest {
    /// The id of an ended run, or a unique prefix of it.
    pub run: String,
    /// The agent that reviews the run; none: `reviewer` of `[memory]` in `skein.toml`.
    pub agent: Option<String>,
    /// Review the run again if it was reviewed before.
    pub again: bool,
}

/// The result of a review.
#[derive(Debug)]
pub struct CaptureOutcome {
    /// The run that was reviewed, and the run that is the review.
    pub reviewed: RunId,
    pub review: RunId,
    /// The end of the review; none if an earlier one succeeded.
    pub outcome: Option<RunOutcome>,
    pub memories: Vec<MemoryEntry>,
}

impl CaptureOutcome {
    pub(crate) fn is_success(&self) -> bool {
        self.outcome.as_ref().is_none_or(RunOutcome::is_success)
    }
}

/// Reviews a run, or returns the proposals of an earlier review.
pub fn capture_memories(
    app: &App,
    request: &CaptureRequest,
    front_end: &dyn RunFrontEnd,
) -> Result<CaptureOutcome, AppError> {
    require_person()?;
    let (state, row) = app.open_run(&request.run)?;
    if !row.head.closed {
        let message = format!("run `{}` has not ended, and only ended runs can be reviewed", row.run);
        return Err(AppError::refused(message));
    }
    let (outcome, review) = match find_latest_review(&state, &row.run)? {
        LatestReview::Open(open) => {
            (Some(take_over_run(app, &state, &open, RunAttachment::UntilEnd, front_end)?), open.run)
        }
        LatestReview::Closed(done) if done.head.status == RunStatus::Succeeded && !request.again => (None, done.run),
        LatestReview::Closed(_) | LatestReview::None => {
            let id = next_review_id(&state, &row.run)?;
            (Some(run_review(app, request, &state, &row, id.clone(), front_end)?), id)
        }
    };
    let mut capture = CaptureOutcome { reviewed: row.run, review, outcome, memories: Vec::new() };
    if capture.is_success() {
        capture.memories = store_proposals(&state, &capture.reviewed, &capture.review)?;
    }
    Ok(capture)
}

/// The latest review of a run.
enum LatestReview {
    None,
    Open(RunRow),
    Closed(RunRow),
}

fn review_run_id(run: &RunId, number: u32) -> Option<RunId> {
    RunId::new(format!("memory-{run}-{number}")).ok()
}

fn find_review_row(state: &StateHandle, run: &RunId, number: u32) -> Result<Option<RunRow>, AppError> {
    let Some(id) = review_run_id(run, number) else { return Ok(None) };
    Ok(state.store.find_run(&id)?)
}

fn find_latest_review(state: &StateHandle, run: &RunId) -> Result<LatestReview, AppError> {
    let mut last = LatestReview::None;
    for number in 1..=REVIEWS {
        let Some(row) = find_review_row(state, run, number)? else { break };
        if let (false, RunOwner::Other(_)) = (row.head.closed, &row.owner) {
            let message = format!("run `{run}` is already being reviewed by run `{}`", row.run);
            let hint = format!("`skein runs {} --follow` shows it", row.run);
            return Err(AppError::refused(message).with_hint(hint));
        }
        last = if row.head.closed { LatestReview::Closed(row) } else { LatestReview::Open(row) };
    }
    Ok(last)
}

/// Returns the id of the next review of a run.
fn next_review_id(state: &StateHandle, run: &RunId) -> Result<RunId, AppError> {
    for number in 1..=REVIEWS {
        if let (None, Some(id)) = (find_review_row(state, run, number)?, review_run_id(run, number)) {
            return Ok(id);
        }
    }
    let message = format!("run `{run}` has been reviewed {REVIEWS} times, which is the maximum");
    Err(AppError::refused(message))
}

/// Starts a review, and follows it until it ends.
fn run_review(
    app: &App,
    request: &CaptureRequest,
    state: &StateHandle,
    row: &RunRow,
    id: RunId,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    let reviewed = send_input::read_run_settings(row)?;
    let project = DiskProject::open(reviewed.project.clone()).map_err(|diagnostic| {
        AppError::new(AppErrorKind::InvalidSource, diagnostic.message.clone()).with_hint("`skein validate` shows where")
    })?;
    let named = request.agent.as_ref().or(project.config.memory.reviewer.as_ref());
    let Some(agent) = named else {
        let hint = "name one with `--agent NAME`, or set `reviewer` of `[memory]` in skein.toml";
        return Err(AppError::usage("no agent is configured to review runs").with_hint(hint));
    };
    let plan = plan_review(agent, review_budget(&project), digest_run(state, row)?)
        .ok_or_else(|| AppError::bug("the built-in workflow of reviews is invalid"))?;
    let settings = prepare_review(&plan, &project, state, &reviewed)?;
    let launch = RunLaunch::new(plan, RunStart::new(id), settings.clone());
    let workers = read_max_workers(&settings.project);
    launch_run(app, state, launch, &settings, workers, RunAttachment::UntilEnd, front_end)
}

fn prepare_review(
    plan: &Plan,
    project: &DiskProject,
    state: &StateHandle,
    before: &RunSettings,
) -> Result<RunSettings, AppError> {
    let run_request = RunRequest {
        source: "memory capture",
        workspace: Some(&before.workspace),
        allowed: &before.roots,
        state: &state.path,
        overridden: &[],
        user: current_user(),
        replay: None,
    };
    prepare::prepare_run(plan, project, run_request).map_err(|error| refuse_unprepared(&error, state))
}

fn review_budget(project: &DiskProject) -> Budget {
    let existing = &project.config.memory;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a negative amount becomes zero")]
    let micro_usd = existing.usd.map(|usd| (usd * 1e6) as u64);
    Budget { micro_usd, tokens: Some(existing.tokens.unwrap_or(TOKENS)), mode: BudgetMode::Stop }
}

/// Plans the review: by this agent, read-only, within this budget, with an answer of this schema. None: the built-in
/// workflow is invalid.
fn plan_review(agent: &str, budget: Budget, digest: Value) -> Option<Plan> {
    let report = check_source(SourceFile::new("memory capture", REVIEW), &());
    let mut workflow: Workflow = report.workflow.as_deref().cloned()?;
    let step: &mut Step = workflow.scope.steps.first_mut().map(Arc::make_mut)?;
    step.outputs = Schema::new(answer_schema());
    step.policy.budget = Some(budget);
    let StepKind::Work(work) = &mut step.kind else { return None };
    let WorkerSpec::Agent { name, capabilities, .. } = &mut work.worker else { return None };
    *name = Some(agent.to_owned());
    *capabilities = vec![WorkerCapability::Read];
    let definition = plan::check_workflow(Arc::new(workflow), &()).definition?;
    definition.bind(json!({"run": digest})).ok()
}

/// Returns the schema of an answer.
fn answer_schema() -> Value {
    let texts = json!({"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 200}});
    let memory = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": MemoryKind::ALL.map(MemoryKind::as_str)},
            "text": {"type": "string", "minLength": 1, "maxLength": TEXT},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "files": texts,
            "stages": texts,
        },
        "required": ["type", "text", "confidence", "files", "stages"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {"memories": {"type": "array", "maxItems": PROPOSALS, "items": memory}},
        "required": ["memories"],
        "additionalProperties": false,
    })
}

/// Stores the proposals of a review, each once, however often they are requested. A memory that is already known, or
/// was retired, is not proposed again.
fn store_proposals(state: &StateHandle, of: &RunId, by: &RunId) -> Result<Vec<MemoryEntry>, AppError> {
    let wrong = |error: MemoryError| AppError::store(error.to_string());
    let Some(row) = state.store.find_run(by)? else { return Ok(Vec::new()) };
    let run = state.load_run(&row)?;
    let view = view::view_run(run.plan(), run.state());
    let proposed = view.steps.first().and_then(|step| step.outputs["memories"].as_array().cloned());
    let memories = ProjectMemory::open(&state.path).map_err(wrong)?;
    let (known, _) = memories.load_all().map_err(wrong)?;
    let mut stored = Vec::new();
    for (number, value) in proposed.unwrap_or_default().iter().enumerate() {
        let Some(memory) = parse_candidate(value, ProjectMemory::proposal_id(by, number), of) else {
            continue;
        };
        let same = |known: &&MemoryEntry| known.text == memory.text && known.kind == memory.kind;
        match known.iter().find(|known| known.id == memory.id) {
            Some(existing) => stored.push(existing.clone()),
            None if known.iter().chain(&stored).any(|known| same(&known)) => {}
            None => {
                memories.save_memory(&memory).map_err(wrong)?;
                stored.push(memory);
            }
        }
    }
    Ok(stored)
}

/// Converts a proposal to a memory. None: it has no text.
fn parse_candidate(value: &Value, id: String, of: &RunId) -> Option<MemoryEntry> {
    let kind = MemoryKind::ALL.into_iter().find(|kind| value["type"] == kind.as_str())?;
    let text = value["text"].as_str()?.trim();
    let texts = |name: &str| {
        let list = value[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        list.map(str::to_owned).collect::<Vec<_>>()
    };
    let memory = MemoryEntry {
        id,
        kind,
        text: text.to_owned(),
        confidence: value["confidence"].as_f64()?,
        scope: "current".to_owned(),
        status: MemoryStatus::Candidate,
        files: texts("files"),
        stages: texts("stages"),
        created_at: Clock::new().now(),
        by: of.to_string(),
        approved_by: None,
    };
    (!text.is_empty() && text.len() <= limits::MEMORY_BYTES).then_some(memory)
}

/// The maximum size of all steps together, in bytes of JSON.
const MOST: usize = 48 * 1024;
/// The maximum size of one value and of one log.
const VALUE: usize = 2 * 1024;
const LOG: usize = 1536;

/// Returns the digest of an ended run.
fn digest_run(state: &StateHandle, row: &RunRow) -> Result<Value, AppError> {
    let (run, run_folder) = (state.load_run(row)?, state.run_folder(&row.run));
    let mut logs = AttemptLogs::new(run.plan(), run_folder.clone(), AttemptSelector::default(), LogFile::Output);
    logs.read_journal(&*state.store, &row.run)?;
    let last = logs.all.iter().filter(|log| log.attempt.role == AttemptRole::Main);
    let last: BTreeMap<&str, AttemptId> = last.map(|log| (log.step.as_str(), log.attempt)).collect();
    let view = view::view_run(run.plan(), run.state());
    let mut steps: Vec<&StepView> = view.steps.iter().filter(|step| !step.superseded).collect();
    // Failed steps come first, because they teach most.
    steps.sort_by_key(|step| Reverse(step.error.is_some()));
    let (mut digests, mut size) = (Vec::new(), 0);
    for step in steps.iter().filter(|step| step.status != StepStatus::Pending) {
        let log = last.get(step.path.as_str()).and_then(|attempt| follow::read_log_tail(&run_folder, *attempt));
        let digest = digest_step(step, log.as_deref());
        size += digest.to_string().len();
        if size > MOST {
            break;
        }
        digests.push(digest);
    }
    Ok(json!({
        "run_id": view.run_id,
        "workflow": view.workflow,
        "status": view.status,
        "error": view.error,
        "outputs": truncate_value(&view.outputs),
        "steps_not_told": steps.len() - digests.len(),
        "steps": digests,
    }))
}

fn digest_step(step: &StepView, log: Option<&str>) -> Value {
    json!({
        "step": step.path,
        "status": step.native_status,
        "attempts": step.total_attempts,
        "outputs": truncate_value(&step.outputs),
        "error": step.error,
        "end_of_log": log.map(|log| text_tail(log, LOG)),
    })
}

/// Returns a value, or its beginning as text.
fn truncate_value(value: &Value) -> Value {
    let text = value.to_string();
    match text.len() <= VALUE {
        true => value.clone(),
        false => Value::from(format!("{}…", &text[..text.floor_char_boundary(VALUE)])),
    }
}

/// Returns the end of a text.
fn text_tail(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_only_reads_and_is_kept_to_its_form() {
        let budget = Budget { micro_usd: Some(5), tokens: Some(7), mode: BudgetMode::Stop };
        let plan = plan_review("ada", budget.clone(), json!({"run_id": "r"})).unwrap();
        let step = &plan.definition.root().workflow.scope.steps[0];
        assert_eq!(step.policy.budget, Some(budget));
        let StepKind::Work(work) = &step.kind else { panic!("an agent works") };
        let WorkerSpec::Agent { name, capabilities, .. } = &work.worker else { panic!("an agent works") };
        assert_eq!((name.as_deref(), &capabilities[..]), (Some("ada"), &[WorkerCapability::Read][..]));
        let good = json!({"type": "gotcha", "text": "x", "confidence": 0.5, "files": [], "stages": []});
        assert!(step.outputs.check(&json!({"memories": [good]})).is_ok());
        for (field, wrong) in
            [("type", json!("whim")), ("confidence", json!(2)), ("text", json!("")), ("more", json!(1))]
        {
            let mut bad = good.clone();
            bad[field] = wrong;
            assert!(step.outputs.check(&json!({"memories": [bad]})).is_err(), "{field}");
        }
    }
}
