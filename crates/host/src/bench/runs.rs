//! Timed runs of a plan on a real journal.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use skein_core::{
    engine::RunStart,
    ids::RunId,
    ir::{RunStatus, Schema},
    plan::Plan,
};

use super::{
    BenchError, NullExecutor, WORKERS,
    plans::{TOOL, merged_output},
};
use crate::{
    executor::ProcessExecutor,
    executor_api::Executor,
    host::{Host, HostEvent, RunLaunch, WorkerCapacity},
    run_settings::{BuiltinFunction, RunSettings, ToolSettings},
    secret::Secrets,
    store::{SqliteStore, Store},
};

/// Times `count` concurrent runs of a plan whose steps do no work.
pub fn time_runs(state: &Path, plan: &Plan, count: usize) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    time_host(store, Box::<NullExecutor>::default(), WORKERS, plan, count, state)
}

/// Times `count` concurrent runs of [`super::of_functions`], executed by builtin functions or by an executor that only
/// returns the same output.
pub fn time_functions(state: &Path, plan: &Plan, count: usize, done: bool) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let hands: Box<dyn Executor> = match done {
        true => Box::new(ProcessExecutor::new(state, Secrets::default(), None)?),
        false => Box::new(NullExecutor::with_output(merged_output())),
    };
    time_host(store, hands, WORKERS, plan, count, state)
}

/// Times one run whose steps are programs, `at_once` in parallel.
pub fn time_programs(state: &Path, plan: &Plan, at_once: u32) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let hands = Box::new(ProcessExecutor::new(state, Secrets::default(), None)?);
    time_host(store, hands, at_once, plan, 1, state)
}

fn time_host(
    store: Arc<dyn Store>,
    hands: Box<dyn Executor>,
    workers: u32,
    plan: &Plan,
    count: usize,
    state: &Path,
) -> Result<Duration, BenchError> {
    let (host, ended) = start_host(store, hands, workers);
    let runs = build_runs(count, plan, state);
    let began = Instant::now();
    host.launch_runs(runs)?;
    await_all(&ended, count)?;
    Ok(began.elapsed())
}

/// The end of a run, or the reason why it did not succeed.
pub(super) type BenchRunResult = Result<(), String>;

/// Starts a host, and returns it with a channel of the ends of its runs.
pub(super) fn start_host(
    store: Arc<dyn Store>,
    hands: Box<dyn Executor>,
    workers: u32,
) -> (Host, Receiver<BenchRunResult>) {
    let (tell, ended) = channel();
    let watcher = Box::new(move |told: HostEvent<'_>| {
        let end = match told {
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
    (Host::new(store, hands, WorkerCapacity { workers }, watcher), ended)
}

/// Waits until `count` runs have succeeded.
pub(super) fn await_all(ended: &Receiver<BenchRunResult>, count: usize) -> Result<(), BenchError> {
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
pub fn build_runs(count: usize, plan: &Plan, state: &Path) -> Vec<RunLaunch> {
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
