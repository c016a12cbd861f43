//! `skein memory capture`: an agent reviews an ended run, and proposes facts that are worth remembering.
//!
//! The review is a run of its own, so that it has a journal, limits, logs and costs like every other run. Its id is
//! derived from the id of the reviewed run, so that a repeated request returns the existing review. Owns the handling
//! of the proposals: each is stored once as a candidate, and agents do not see it until a person approves it.

mod run_digest;

use std::{path::Path, sync::Arc};

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    prepare_run::{self, RunRequest},
    project::DiskProject,
    state::{StateHandle, refuse_store_error},
};
use skein_core::{
    engine::RunStart,
    ids::RunId,
    ir::{
        Budget, BudgetMode, RunStatus, Schema, Step, StepKindSpec as StepKind, WorkerCapability, WorkerSpec,
        Workflow,
    },
    limits,
    plan::{self, Plan},
    view,
};
use skein_dialects::{SourceFile, check_source};
use skein_host::{
    clock::Clock,
    executor::RunSettings,
    host::RunLaunch,
    identity::current_user,
    memory::{MemoryEntry, MemoryError, MemoryKind, MemoryStatus, ProjectMemory},
    store::{RunOwner, RunRow, Store},
};

use crate::{
    cli::{AttachOptions, ResumeOptions, refuse_unprepared, start_run, take_over_run},
    exit::Exit,
    host_session,
    output::{CliOutput, OutputFormat},
    send_input,
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

#[derive(Debug, Args)]
#[group(skip)]
pub struct CaptureArguments {
    /// Id of an ended run, or a unique prefix of it.
    run: String,
    /// Agent that reviews the run; default: `reviewer` of `[memory]` in `skein.toml`.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Review the run again if it was reviewed before.
    #[arg(long)]
    again: bool,
}

/// The result of a review.
#[derive(Debug)]
pub struct CaptureOutcome {
    /// The run that was reviewed, and the run that is the review.
    pub of: RunId,
    pub by: RunId,
    pub exit: Exit,
    pub memories: Vec<MemoryEntry>,
}

/// Reviews a run, or returns the proposals of an earlier review.
pub fn capture_memories(
    arguments: &CaptureArguments,
    state: Option<&Path>,
    output: CliOutput,
) -> Result<CaptureOutcome, AppError> {
    let (state, row) = StateHandle::open_run(state, &arguments.run)?;
    if !row.head.closed {
        let message = format!("run `{}` has not ended, and only ended runs can be reviewed", row.run);
        return Err(AppError::new(AppErrorKind::Refused, &message, None));
    }
    let (exit, by) = match find_latest_review(&state, &row.run)? {
        LatestReview::Open(open) => (
            take_over_run(
                &state,
                &open,
                &ResumeOptions { waits: true, quiet: is_quiet(output), detached: false },
                output,
            )?,
            open.run,
        ),
        LatestReview::Closed(done) if done.head.status == RunStatus::Succeeded && !arguments.again => {
            (Exit::Done, done.run)
        }
        LatestReview::Closed(_) | LatestReview::None => {
            let id = next_review_id(&state, &row.run)?;
            (run_review(arguments, &state, &row, id.clone(), output)?, id)
        }
    };
    let memories = if exit == Exit::Done { store_proposals(&state, &row.run, &by)? } else { Vec::new() };
    Ok(CaptureOutcome { of: row.run, by, exit, memories })
}

/// Returns true for formats of programs, which read one value: the proposals.
fn is_quiet(output: CliOutput) -> bool {
    output.format != OutputFormat::Human
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
    state.store.find_run(&id).map_err(|error| refuse_store_error(&error))
}

fn find_latest_review(state: &StateHandle, run: &RunId) -> Result<LatestReview, AppError> {
    let mut last = LatestReview::None;
    for number in 1..=REVIEWS {
        let Some(row) = find_review_row(state, run, number)? else { break };
        if let (false, RunOwner::Other(_)) = (row.head.closed, &row.owner) {
            let message = format!("run `{run}` is already being reviewed by run `{}`", row.run);
            let hint = format!("`skein runs {} --follow` shows it", row.run);
            return Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)));
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
    Err(AppError::new(AppErrorKind::Refused, &message, None))
}

/// Starts a review, and shows it until it ends.
fn run_review(
    arguments: &CaptureArguments,
    state: &StateHandle,
    row: &RunRow,
    id: RunId,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let about = send_input::read_run_settings(row)?;
    let project = DiskProject::open(about.project.clone()).map_err(|diagnostic| {
        AppError::new(AppErrorKind::InvalidSource, &diagnostic.message, Some("`skein validate` shows where"))
    })?;
    let named = arguments.agent.as_ref().or(project.config.memory.reviewer.as_ref());
    let Some(agent) = named else {
        let hint = "name one with `--agent NAME`, or set `reviewer` of `[memory]` in skein.toml";
        return Err(AppError::new(AppErrorKind::Usage, "no agent is configured to review runs", Some(hint)));
    };
    let (before, past) = state.load_run(row)?;
    let told = run_digest::digest_run(&*state.store, &row.run, state.run_folder(&row.run), (&before, &past));
    let told = told.map_err(|error| refuse_store_error(&error))?;
    let plan = plan_review(agent, review_budget(&project), told)
        .map_err(|why| AppError::new(AppErrorKind::Bug, &why, None))?;
    let about = prepare_review(&plan, &project, state, &about)?;
    let begin = RunLaunch::new(plan, RunStart::new(id), about.to_json());
    let how = AttachOptions::with_quiet(is_quiet(output));
    start_run(state, begin, &about, host_session::read_max_workers(&about.project), &how, output)
}

fn prepare_review(
    plan: &Plan,
    project: &DiskProject,
    state: &StateHandle,
    before: &RunSettings,
) -> Result<RunSettings, AppError> {
    let wishes = RunRequest {
        source: "memory capture",
        workspace: Some(&before.workspace),
        allowed: &before.roots,
        state: &state.path,
        overridden: &[],
        user: current_user(),
        replay: None,
    };
    prepare_run::prepare_run(plan, project, wishes).map_err(|no| refuse_unprepared(&no, state))
}

fn review_budget(project: &DiskProject) -> Budget {
    let own = &project.config.memory;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a negative amount becomes zero"
    )]
    let micro_usd = own.usd.map(|usd| (usd * 1e6) as u64);
    Budget { micro_usd, tokens: Some(own.tokens.unwrap_or(TOKENS)), mode: BudgetMode::Stop }
}

/// Plans the review: by this agent, read-only, within this budget, with an answer of this schema.
fn plan_review(agent: &str, budget: Budget, told: Value) -> Result<Plan, String> {
    let wrong = || "the built-in workflow of reviews is invalid".to_owned();
    let report = check_source(SourceFile::new("memory capture", REVIEW), &());
    let mut workflow: Workflow = report.workflow.as_deref().cloned().ok_or_else(wrong)?;
    let step: &mut Step = workflow.scope.steps.first_mut().map(Arc::make_mut).ok_or_else(wrong)?;
    step.outputs = Schema::new(answer_schema());
    step.policy.budget = Some(budget);
    let StepKind::Work(work) = &mut step.kind else { return Err(wrong()) };
    let WorkerSpec::Agent { name, capabilities, .. } = &mut work.worker else { return Err(wrong()) };
    *name = Some(agent.to_owned());
    *capabilities = vec![WorkerCapability::Read];
    let definition = plan::check_workflow(Arc::new(workflow), &()).definition.ok_or_else(wrong)?;
    definition.bind(json!({"run": told})).map_err(|_| wrong())
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
    let wrong = |error: MemoryError| AppError::new(AppErrorKind::Store, &error.to_string(), None);
    let row = state.store.find_run(by).map_err(|error| refuse_store_error(&error))?;
    let Some(row) = row else { return Ok(Vec::new()) };
    let (plan, past) = state.load_run(&row)?;
    let view = view::view_run(&plan, &past);
    let proposed = view.steps.first().and_then(|step| step.outputs["memories"].as_array().cloned());
    let memories = ProjectMemory::open(&state.path).map_err(wrong)?;
    let (known, _) = memories.load_all().map_err(wrong)?;
    let mut kept = Vec::new();
    for (number, value) in proposed.unwrap_or_default().iter().enumerate() {
        let Some(memory) = parse_candidate(value, ProjectMemory::proposal_id(by, number), of) else {
            continue;
        };
        let same = |known: &&MemoryEntry| known.text == memory.text && known.kind == memory.kind;
        match known.iter().find(|known| known.id == memory.id) {
            Some(own) => kept.push(own.clone()),
            None if known.iter().chain(&kept).any(|known| same(&known)) => {}
            None => {
                memories.save_memory(&memory).map_err(wrong)?;
                kept.push(memory);
            }
        }
    }
    Ok(kept)
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
