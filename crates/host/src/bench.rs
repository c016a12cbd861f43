//! Benchmarks of this machine and of the host on it. Each result is a time, measured in a given folder.
//!
//! Owns the work that is measured: synthetic plans, runs of them on a real journal with an executor that does nothing,
//! their recovery, and the same operations without a host. Does not know which result is good enough, and how results
//! are shown.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, Cost, Publication, RunStart,
    },
    expr::Expr,
    ids::{RunId, StepId, WorkflowId},
    ir::{
        CompletionCheck, EachErrorPolicy, EachSpec, GateSpec, GateTimeout, InputBinding, OutcomeEffect, RunStatus,
        Schema, ScopeShape, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow,
    },
    limits,
    plan::{Plan, check_workflow},
};

use crate::{
    executor::{ExecutorError, ProcessExecutor},
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter},
    host::{Host, HostEvent, ResumeError, RunLaunch, WorkerCapacity},
    run_settings::{BuiltinFunction, RunSettings, ToolSettings},
    secret::Secrets,
    store::{RunSelection, SqliteStore, Store, StoreError, StoreOpenError},
};

/// A worker for every step: the steps do no work.
const WORKERS: u32 = 10_000;

/// The reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Crew(#[from] ExecutorError),
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error("{0}")]
    Failed(String),
}

/// Ends every attempt at once without doing anything, or never. No check ever passes.
#[derive(Debug, Default)]
pub struct NullExecutor {
    never: bool,
    begun: Vec<AttemptReporter>,
    /// The output of every step.
    output: Arc<Value>,
}

impl NullExecutor {
    /// Creates an executor that starts every attempt and ends none.
    pub(crate) fn new_idle() -> NullExecutor {
        NullExecutor { never: true, ..NullExecutor::default() }
    }

    /// Creates an executor whose steps all have this output.
    pub(crate) fn with_output(output: Value) -> NullExecutor {
        NullExecutor { output: Arc::new(output), ..NullExecutor::default() }
    }
}

impl Executor for NullExecutor {
    fn start_attempt(&mut self, _: ActiveRun<'_>, attempt: AttemptId, _: &AttemptAssignment, finish: AttemptReporter) {
        if self.never {
            return self.begun.push(finish);
        }
        let end = match attempt.role {
            AttemptRole::Check => AttemptEnd::Checked {
                finding: CheckFinding::Incomplete,
                reasons: vec!["not done yet".to_owned()],
                output: None,
                fingerprints: Vec::new(),
            },
            _ => AttemptEnd::Succeeded { output: Arc::clone(&self.output) },
        };
        finish.report(AttemptReport::new(end, Cost::default()));
    }

    fn stop_attempt(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: ActiveRun<'_>, _: Publication, published: PublicationReporter) {
        published.report(None);
    }

    fn reap_orphans(&mut self, _: &[RunId]) {}

    fn forget_run(&mut self, _: &RunId) {}
}

/// A row of about the size that one step adds to a journal.
const ROW: [u8; 300] = [7; 300];

/// Times `count` commits of one small row by one writer, each synced like those of the journal.
pub fn time_commits(folder: &Path, count: usize) -> Result<Duration, BenchError> {
    let path = folder.join("commits.db");
    let db = rusqlite::Connection::open(&path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    crate::store::configure_connection(&db)?;
    db.execute_batch("CREATE TABLE t (x BLOB)")?;
    let began = Instant::now();
    for _ in 0..count {
        db.prepare_cached("INSERT INTO t VALUES (?1)")?.execute([&ROW[..]])?;
    }
    let took = began.elapsed();
    drop(db);
    fs::remove_file(path)?;
    Ok(took)
}

/// Times `count` small appends to a file, each synced.
pub fn time_syncs(folder: &Path, count: usize) -> Result<Duration, BenchError> {
    let path = folder.join("syncs");
    let mut file = File::create(&path)?;
    let began = Instant::now();
    for _ in 0..count {
        file.write_all(&ROW)?;
        file.sync_data()?;
    }
    let took = began.elapsed();
    fs::remove_file(path)?;
    Ok(took)
}

/// Times `count` processes that do nothing, `at_once` in parallel.
pub fn time_spawns(count: usize, at_once: usize) -> Result<Duration, BenchError> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let work = || {
        while next.fetch_add(1, Ordering::Relaxed) < count {
            check_success(Command::new("true"))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| {
            one.join().unwrap_or_else(|_| Err(BenchError::Failed("a thread that starts processes failed".into())))
        })
    })?;
    Ok(began.elapsed())
}

/// Times the same with `make`. Returns `None` if it is not installed.
pub fn time_make(folder: &Path, count: usize, at_once: usize) -> Result<Option<Duration>, BenchError> {
    let targets: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
    let targets = targets.join(" ");
    let text = format!(".PHONY: all {targets}\nall: {targets}\n{targets}:\n\t@true\n");
    fs::write(folder.join("Makefile"), text)?;
    let mut command = Command::new("make");
    command.arg(format!("-j{at_once}")).current_dir(folder).env_remove("MAKEFLAGS");
    let began = Instant::now();
    match check_success(command) {
        Ok(()) => Ok(Some(began.elapsed())),
        Err(BenchError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_success(mut command: Command) -> Result<(), BenchError> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let name = || command.get_program().to_string_lossy().into_owned();
    status.success().then_some(()).ok_or_else(|| BenchError::Failed(format!("`{}` failed: {status}", name())))
}

/// Times `count` concurrent runs of a plan whose steps do no work.
pub fn time_runs(state: &Path, plan: &Plan, count: usize) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    time_host(store, Box::<NullExecutor>::default(), WORKERS, plan, count, state)
}

/// Times `count` concurrent runs of [`function_plan`], executed by builtin functions or by an executor that only
/// returns the same output.
pub fn time_functions(state: &Path, plan: &Plan, count: usize, done: bool) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let executor: Box<dyn Executor> = match done {
        true => Box::new(ProcessExecutor::new(state, Secrets::default(), None)?),
        false => Box::new(NullExecutor::with_output(merged_output())),
    };
    time_host(store, executor, WORKERS, plan, count, state)
}

/// Times one run whose steps are programs, `at_once` in parallel.
pub fn time_programs(state: &Path, plan: &Plan, at_once: u32) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let executor = Box::new(ProcessExecutor::new(state, Secrets::default(), None)?);
    time_host(store, executor, at_once, plan, 1, state)
}

fn time_host(
    store: Arc<dyn Store>,
    executor: Box<dyn Executor>,
    workers: u32,
    plan: &Plan,
    count: usize,
    state: &Path,
) -> Result<Duration, BenchError> {
    let (host, ended) = start_host(store, executor, workers);
    let runs = build_runs(count, plan, state);
    let began = Instant::now();
    host.launch_runs(runs)?;
    await_all(&ended, count)?;
    Ok(began.elapsed())
}

/// The end of a run, or the reason why it did not succeed.
type BenchRunResult = Result<(), String>;

/// Starts a host, and returns it with a channel of the ends of its runs.
fn start_host(store: Arc<dyn Store>, executor: Box<dyn Executor>, workers: u32) -> (Host, Receiver<BenchRunResult>) {
    let (tell, ended) = channel();
    let watcher = Box::new(move |event: HostEvent<'_>| {
        let end = match event {
            HostEvent::Row { running, .. } => match &running.state.end {
                Some(end) if end.status == RunStatus::Succeeded => Ok(()),
                Some(end) => {
                    let why = end.error.as_ref().map(|error| format!(": {}", error.message));
                    Err(format!("a run ended as {}{}", end.status.as_str(), why.unwrap_or_default()))
                }
                None => return,
            },
            HostEvent::Closed { .. } | HostEvent::Retries { .. } => return,
            HostEvent::NoSpace { .. } => Err("the disk is full".to_owned()),
            HostEvent::Left { run } | HostEvent::Lost { run } => Err(format!("run {run} was lost")),
            HostEvent::SetAside { why, .. } | HostEvent::Broken { why } => Err(why.to_owned()),
        };
        let _ = tell.send(end);
    });
    (Host::new(store, executor, WorkerCapacity { workers }, watcher), ended)
}

/// Waits until `count` runs have succeeded.
fn await_all(ended: &Receiver<BenchRunResult>, count: usize) -> Result<(), BenchError> {
    for _ in 0..count {
        let end = ended.recv().unwrap_or_else(|_| Err("the host has stopped".to_owned()));
        end.map_err(BenchError::Failed)?;
    }
    Ok(())
}

/// Returns a tool that is a builtin function, with the schemas of such a tool.
fn merge_tool() -> ToolSettings {
    let object = || Schema::new(json!({"type": "object"}));
    ToolSettings {
        driver: "bench".to_owned(),
        function: BuiltinFunction::from_name(TOOL),
        inputs: object(),
        outputs: object(),
        ..ToolSettings::default()
    }
}

/// Returns this number of runs with the same settings. Their workspace is the parent of the state folder.
pub(crate) fn build_runs(count: usize, plan: &Plan, state: &Path) -> Vec<RunLaunch> {
    let workspace = state.parent().unwrap_or(state);
    let settings = Arc::new(RunSettings {
        source: "bench".to_owned(),
        project: workspace.to_owned(),
        workspace: workspace.to_owned(),
        user: "bench".to_owned(),
        tools: BTreeMap::from([(TOOL.to_owned(), merge_tool())]),
        ..RunSettings::default()
    });
    let run = |number| RunId::new(format!("bench-{number}")).expect("letters and digits are a name");
    let launch = |number| RunLaunch::new(plan.clone(), RunStart::new(run(number)), Arc::clone(&settings));
    (0..count).map(launch).collect()
}

/// Starts `count` runs of a plan and lets them advance as far as they can. The host owns them and does not continue
/// them: if this process is then killed, they are left unfinished. With `idle`, no step of them ends.
pub fn leave_unfinished(state: &Path, plan: &Plan, count: usize, idle: bool) -> Result<Host, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let executor: Box<dyn Executor> = Box::new(if idle { NullExecutor::new_idle() } else { NullExecutor::default() });
    let (tell, waiting) = channel();
    let watcher = Box::new(move |event: HostEvent<'_>| {
        if let HostEvent::Row { running, .. } = event
            && (running.state.is_waiting() || (idle && !running.state.in_flight().is_empty()))
        {
            let _ = tell.send(());
        }
    });
    let host = Host::new(store, executor, WorkerCapacity { workers: WORKERS }, watcher);
    host.launch_runs(build_runs(count, plan, state))?;
    for _ in 0..count {
        waiting.recv().map_err(|_| BenchError::Failed("the host has stopped".into()))?;
    }
    Ok(host)
}

/// Times the resume of all interrupted runs to their ends. Their steps do no work.
pub fn time_resume(state: &Path) -> Result<(usize, Duration), BenchError> {
    let began = Instant::now();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let unfinished: Vec<RunId> = store.select_runs(RunSelection::Orphaned)?.into_iter().map(|row| row.run).collect();
    let count = unfinished.len();
    let (host, ended) = start_host(store, Box::<NullExecutor>::default(), WORKERS);
    host.resume_runs(unfinished).into_iter().try_for_each(|resumed| resumed.map(drop))?;
    await_all(&ended, count)?;
    Ok((count, began.elapsed()))
}

/// Returns a chain of steps.
pub fn chain_plan(length: usize) -> Plan {
    let after = |i: usize| if i == 0 { Vec::new() } else { vec![format!("s{}", i - 1)] };
    bind_plan((0..length).map(|i| command_step(&format!("s{i}"), after(i))).collect(), None)
}

/// The tool of the steps of [`function_plan`].
const TOOL: &str = "json.merge";

/// Returns a chain of steps, each of which merges two small objects with a builtin function.
pub fn function_plan(length: usize) -> Plan {
    let values = Expr::literal(json!([{"a": 1, "b": "two"}, {"b": "three"}])).expect("values are an expression");
    let step = |i: usize| {
        let worker = WorkerSpec::Tool { tool: TOOL.to_owned(), pinned: None };
        let mut step = Step::new(step_id(&format!("s{i}")), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
        step.after = i.checked_sub(1).map(|before| step_id(&format!("s{before}"))).into_iter().collect();
        let (name, schema) = ("values".to_owned(), Schema::default());
        step.inputs = vec![InputBinding { name: name.into(), value: values.clone(), schema, required: true }];
        step
    };
    bind_plan((0..length).map(step).collect(), None)
}

/// Returns the output of each of these steps.
fn merged_output() -> Value {
    json!({"value": {"a": 1, "b": "three"}})
}

/// Returns a step, `width` parallel steps after it, and one step after all of them.
pub fn fan_out_plan(width: usize) -> Plan {
    let mut steps = vec![command_step("first", Vec::new())];
    let names: Vec<String> = (0..width).map(|i| format!("s{i}")).collect();
    steps.extend(names.iter().map(|name| command_step(name, vec!["first".to_owned()])));
    steps.push(command_step("last", names));
    bind_plan(steps, None)
}

/// Returns independent steps, of which `at_once` run in parallel.
pub fn parallel_plan(count: usize, at_once: u32) -> Plan {
    bind_plan((0..count).map(|i| command_step(&format!("s{i}"), Vec::new())).collect(), Some(at_once))
}

/// Returns two steps for each of `count` items, four items in parallel.
pub fn items_plan(count: usize) -> Plan {
    let over = Expr::literal(vec![7; count]).expect("numbers are an expression");
    let inner = StepScope::new(
        ScopeShape::Graph,
        vec![command_step("one", Vec::new()), command_step("two", vec!["one".to_owned()])],
    );
    let (parallelism, errors) = (Some(4), EachErrorPolicy::default());
    let each = EachSpec { over, parallelism, errors, scope: Arc::new(inner) };
    bind_plan(vec![Step::new(step_id("all"), StepKindSpec::Each(Box::new(each)))], None)
}

/// Returns parallel steps, each of which is repeated because its check never passes.
pub fn checked_plan(count: usize) -> Plan {
    let again = |n: usize| {
        let mut step = command_step(&format!("s{n}"), Vec::new());
        step.policy.effects.incomplete = OutcomeEffect::CONTINUE;
        if let StepKindSpec::Work(work) = &mut step.kind {
            work.check = Some(Box::new(CompletionCheck {
                worker: work.worker.clone(),
                timeout: None,
                max_iterations: limits::ITERATIONS,
                incomplete_is_an_end: true,
                decision_file: None,
                convergence: None,
            }));
        }
        step
    };
    bind_plan((0..count).map(again).collect(), None)
}

/// Returns a step, followed by a gate that nobody opens.
pub fn gated_plan() -> Plan {
    let gate = GateSpec {
        message: Expr::literal("Continue?").expect("a text is an expression"),
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    let mut gate = Step::new(step_id("gate"), StepKindSpec::Gate(Box::new(gate)));
    gate.after = vec![step_id("first")];
    bind_plan(vec![command_step("first", Vec::new()), gate], None)
}

fn step_id(text: &str) -> StepId {
    StepId::new(text).expect("letters and digits are a name")
}

fn command_step(text: &str, after: Vec<String>) -> Step {
    let worker = WorkerSpec::Command { program: "true".to_owned(), arguments: Vec::new() };
    let mut step = Step::new(step_id(text), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
    step.after = after.iter().map(|text| step_id(text)).collect();
    step
}

fn bind_plan(steps: Vec<Step>, concurrency: Option<u32>) -> Plan {
    let mut scope = StepScope::new(ScopeShape::Graph, steps);
    scope.concurrency = concurrency;
    let workflow = Workflow::new(WorkflowId::new("bench").expect("letters are a name"), scope);
    let checked = check_workflow(Arc::new(workflow), &BTreeMap::new());
    checked.definition.expect("the plan is right").bind(json!({})).expect("there are no parameters")
}
