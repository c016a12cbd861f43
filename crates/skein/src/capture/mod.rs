//! `skein memory capture`: an agent looks back at a run that is over, and proposes what is worth remembering of it.
//!
//! The review is a run of its own, so that it has a journal, limits, logs and a bill like every other; what it is called
//! follows from the run that it looks at, so that whoever asks again gets what there is. Owns what becomes of its answer:
//! candidates, each once, which are told to nobody until a person approves them.

mod story;

use std::{path::Path, sync::Arc};

use clap::Args;
use serde_json::{Value, json};
use skein_core::{
    engine::Start,
    ids::RunId,
    ir::{Budget, BudgetMode, Capability, Kind as StepKind, RunStatus, Schema, Step, Worker, Workflow},
    limits,
    plan::{self, Plan},
    view,
};
use skein_dialects::{Source, check};
use skein_host::{
    clock::Clock,
    crew::About,
    host::Begin,
    identity::current_user,
    memory::{Kind, Memories, Memory, MemoryError, Status},
    store::{Owner, RunRow, Store},
};

use crate::{
    cli::{How, Stay, refuse, start, take_up},
    exit::Exit,
    output::{Format, Output},
    own,
    project::OnDisk,
    say,
    settle::{self, Wishes},
    state::{State, failed},
};

/// The workflow of a review.
const REVIEW: &str = include_str!("review.yaml");
/// What one may propose at most.
const PROPOSALS: usize = 20;
const TEXT: usize = 1_000;
/// What a review may spend where the project does not say.
const TOKENS: u64 = 200_000;
/// As often as a run is looked at.
const REVIEWS: u32 = 100;

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins. It must be over.
    run: String,
    /// Who looks back at it; `reviewer` of `[memory]` in `skein.toml` unless told otherwise.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Look once more, where that was done before.
    #[arg(long)]
    again: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Captured {
    /// The run that was looked at, and the one that did.
    pub of: RunId,
    pub by: RunId,
    pub exit: Exit,
    pub memories: Vec<Memory>,
}

/// Looks back at a run, or takes what was found before.
pub fn capture(arguments: &Arguments, state: Option<&Path>, output: Output) -> Result<Captured, Exit> {
    let (state, row) = State::with_run(state, &arguments.run, output)?;
    if !row.head.closed {
        let message = format!("run `{}` is not over, and only what is over can be looked back at", row.run);
        return Err(output.refuse(Exit::Refused, &message, None));
    }
    let (exit, by) = match last(&state, &row.run, output)? {
        Last::Open(open) => (
            take_up(&state, &open, &Stay { waits: true, quiet: quiet(output), detached: false }, output)?,
            open.run,
        ),
        Last::Closed(done) if done.head.status == RunStatus::Succeeded && !arguments.again => {
            (Exit::Done, done.run)
        }
        Last::Closed(_) | Last::None => {
            let id = next(&state, &row.run, output)?;
            (review(arguments, &state, &row, id.clone(), output)?, id)
        }
    };
    let memories = if exit == Exit::Done { keep(&state, &row.run, &by, output)? } else { Vec::new() };
    Ok(Captured { of: row.run, by, exit, memories })
}

/// Programs read one value, which is what is remembered.
fn quiet(output: Output) -> bool {
    output.format != Format::Human
}

/// The last review of a run.
enum Last {
    None,
    Open(RunRow),
    Closed(RunRow),
}

fn id(run: &RunId, number: u32) -> Option<RunId> {
    RunId::new(format!("memory-{run}-{number}")).ok()
}

fn row(state: &State, run: &RunId, number: u32, output: Output) -> Result<Option<RunRow>, Exit> {
    let Some(id) = id(run, number) else { return Ok(None) };
    state.store.run(&id).map_err(|error| failed(&error, output))
}

fn last(state: &State, run: &RunId, output: Output) -> Result<Last, Exit> {
    let mut last = Last::None;
    for number in 1..=REVIEWS {
        let Some(row) = row(state, run, number, output)? else { break };
        if let (false, Owner::Other(_)) = (row.head.closed, &row.owner) {
            let message = format!("run `{run}` is being looked at, by run `{}`", row.run);
            let hint = format!("`skein runs {} --follow` shows it", row.run);
            return Err(output.refuse(Exit::Refused, &message, Some(&hint)));
        }
        last = if row.head.closed { Last::Closed(row) } else { Last::Open(row) };
    }
    Ok(last)
}

/// What the next review of a run is called.
fn next(state: &State, run: &RunId, output: Output) -> Result<RunId, Exit> {
    for number in 1..=REVIEWS {
        if let (None, Some(id)) = (row(state, run, number, output)?, id(run, number)) {
            return Ok(id);
        }
    }
    let message = format!("run `{run}` has been looked at {REVIEWS} times, and that is enough");
    Err(output.refuse(Exit::Refused, &message, None))
}

/// Begins a review, and shows it to its end.
fn review(
    arguments: &Arguments,
    state: &State,
    row: &RunRow,
    id: RunId,
    output: Output,
) -> Result<Exit, Exit> {
    let about = say::about(row, output)?;
    let project = OnDisk::open(about.project.clone()).map_err(|diagnostic| {
        output.refuse(Exit::Invalid, &diagnostic.message, Some("`skein validate` shows where"))
    })?;
    let named = arguments.agent.as_ref().or(project.config.memory.reviewer.as_ref());
    let Some(agent) = named else {
        let hint = "name one by `--agent NAME`, or by `reviewer` of `[memory]` in skein.toml";
        return Err(output.refuse(Exit::Usage, "nobody is named who could look back at a run", Some(hint)));
    };
    let (before, past) = state.recall(row, output)?;
    let told = story::story(&*state.store, &row.run, state.kept(&row.run), (&before, &past));
    let told = told.map_err(|error| failed(&error, output))?;
    let plan =
        planned(agent, budget(&project), told).map_err(|why| output.refuse(Exit::Broken, &why, None))?;
    let about = settled(&plan, &project, state, &about, output)?;
    let begin = Begin::new(plan, Start::new(id), about.value());
    let how = How::to_its_end(quiet(output));
    start(state, begin, &about, own::workers(&about.project), &how, output)
}

fn settled(
    plan: &Plan,
    project: &OnDisk,
    state: &State,
    before: &About,
    output: Output,
) -> Result<About, Exit> {
    let wishes = Wishes {
        source: "memory capture",
        workspace: Some(&before.workspace),
        allowed: &before.roots,
        state: &state.path,
        overridden: &[],
        user: current_user(),
        replay: None,
    };
    settle::settle(plan, project, wishes).map_err(|no| refuse(&no, state, output))
}

fn budget(project: &OnDisk) -> Budget {
    let own = &project.config.memory;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is negative is nothing")]
    let micro_usd = own.usd.map(|usd| (usd * 1e6) as u64);
    Budget { micro_usd, tokens: Some(own.tokens.unwrap_or(TOKENS)), mode: BudgetMode::Stop }
}

/// The review as it is run: by this agent, which only reads, within this budget, with an answer of this form.
fn planned(agent: &str, budget: Budget, told: Value) -> Result<Plan, String> {
    let wrong = || "the workflow of a review is wrong".to_owned();
    let report = check(Source::new("memory capture", REVIEW), &());
    let mut workflow: Workflow = report.workflow.as_deref().cloned().ok_or_else(wrong)?;
    let step: &mut Step = workflow.scope.steps.first_mut().map(Arc::make_mut).ok_or_else(wrong)?;
    step.outputs = Schema::new(form());
    step.policy.budget = Some(budget);
    let StepKind::Work(work) = &mut step.kind else { return Err(wrong()) };
    let Worker::Agent { name, capabilities, .. } = &mut work.worker else { return Err(wrong()) };
    *name = Some(agent.to_owned());
    *capabilities = vec![Capability::Read];
    let definition = plan::check(Arc::new(workflow), &()).definition.ok_or_else(wrong)?;
    definition.bind(json!({"run": told})).map_err(|_| wrong())
}

/// What an answer must look like.
fn form() -> Value {
    let texts = json!({"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 200}});
    let memory = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": Kind::ALL.map(Kind::as_str)},
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

/// Keeps what a review proposed, each once, however often it is asked for. What is known already, or was retired, is not
/// proposed again.
fn keep(state: &State, of: &RunId, by: &RunId, output: Output) -> Result<Vec<Memory>, Exit> {
    let wrong = |error: MemoryError| output.refuse(Exit::Store, &error.to_string(), None);
    let row = state.store.run(by).map_err(|error| failed(&error, output))?;
    let Some(row) = row else { return Ok(Vec::new()) };
    let (plan, past) = state.recall(&row, output)?;
    let view = view::run(&plan, &past);
    let proposed = view.steps.first().and_then(|step| step.outputs["memories"].as_array().cloned());
    let memories = Memories::open(&state.path).map_err(wrong)?;
    let (known, _) = memories.all().map_err(wrong)?;
    let mut kept = Vec::new();
    for (number, value) in proposed.unwrap_or_default().iter().enumerate() {
        let Some(memory) = candidate(value, Memories::id_of(by, number), of) else { continue };
        let same = |known: &&Memory| known.text == memory.text && known.kind == memory.kind;
        match known.iter().find(|known| known.id == memory.id) {
            Some(own) => kept.push(own.clone()),
            None if known.iter().chain(&kept).any(|known| same(&known)) => {}
            None => {
                memories.keep(&memory).map_err(wrong)?;
                kept.push(memory);
            }
        }
    }
    Ok(kept)
}

/// What was proposed, as it is kept. None: it says nothing.
fn candidate(value: &Value, id: String, of: &RunId) -> Option<Memory> {
    let kind = Kind::ALL.into_iter().find(|kind| value["type"] == kind.as_str())?;
    let text = value["text"].as_str()?.trim();
    let texts = |name: &str| {
        let list = value[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        list.map(str::to_owned).collect::<Vec<_>>()
    };
    let memory = Memory {
        id,
        kind,
        text: text.to_owned(),
        confidence: value["confidence"].as_f64()?,
        scope: "current".to_owned(),
        status: Status::Candidate,
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
        let plan = planned("ada", budget.clone(), json!({"run_id": "r"})).unwrap();
        let step = &plan.definition.root().workflow.scope.steps[0];
        assert_eq!(step.policy.budget, Some(budget));
        let StepKind::Work(work) = &step.kind else { panic!("an agent works") };
        let Worker::Agent { name, capabilities, .. } = &work.worker else { panic!("an agent works") };
        assert_eq!((name.as_deref(), &capabilities[..]), (Some("ada"), &[Capability::Read][..]));
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
