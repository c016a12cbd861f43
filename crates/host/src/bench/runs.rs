//! Runs of a plan, on a real journal.

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
    engine::Start,
    ids::RunId,
    ir::{RunStatus, Schema},
    plan::Plan,
};

use super::{
    BenchError, Nobody, WORKERS,
    plans::{TOOL, merged},
};
use crate::{
    crew::{About, Crew, Function, Tool},
    hands::Hands,
    host::{Begin, Capacity, Host, Told},
    secret::Secrets,
    store::{Sqlite, Store},
};

/// How long so many runs of a plan take together, whose steps nobody does.
pub fn run(state: &Path, plan: &Plan, count: usize) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(state)?);
    time(store, Box::<Nobody>::default(), WORKERS, plan, count, state)
}

/// How long so many runs of [`super::functions`] take together: done by functions of Skein, or by nobody, who gives the same.
pub fn functions(state: &Path, plan: &Plan, count: usize, done: bool) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(state)?);
    let hands: Box<dyn Hands> = match done {
        true => Box::new(Crew::new(state, Secrets::default(), None)?),
        false => Box::new(Nobody::giving(merged())),
    };
    time(store, hands, WORKERS, plan, count, state)
}

/// How long one run takes whose steps are programs, so many at once.
pub fn crew(state: &Path, plan: &Plan, at_once: u32) -> Result<Duration, BenchError> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(state)?);
    let hands = Box::new(Crew::new(state, Secrets::default(), None)?);
    time(store, hands, at_once, plan, 1, state)
}

fn time(
    store: Arc<dyn Store>,
    hands: Box<dyn Hands>,
    workers: u32,
    plan: &Plan,
    count: usize,
    state: &Path,
) -> Result<Duration, BenchError> {
    let (host, ended) = host(store, hands, workers);
    let runs = (0..count).map(|n| start(n, plan, state)).collect();
    let began = Instant::now();
    host.begin(runs)?;
    await_all(&ended, count)?;
    Ok(began.elapsed())
}

/// A run has ended, or why it did not end well.
pub(super) type Ended = Result<(), String>;

/// A host, and how its runs end.
pub(super) fn host(store: Arc<dyn Store>, hands: Box<dyn Hands>, workers: u32) -> (Host, Receiver<Ended>) {
    let (tell, ended) = channel();
    let watcher = Box::new(move |told: Told<'_>| {
        let end = match told {
            Told::Row { running, .. } => match &running.state.end {
                Some(end) if end.status == RunStatus::Succeeded => Ok(()),
                Some(end) => {
                    let why = end.error.as_ref().map(|error| format!(": {}", error.message));
                    Err(format!("a run ended as {}{}", end.status.as_str(), why.unwrap_or_default()))
                }
                None => return,
            },
            Told::Closed { .. } | Told::Retries { .. } => return,
            Told::NoSpace { .. } => Err("there is no space left".to_owned()),
            Told::Left { run } | Told::Lost { run } => Err(format!("run {run} was lost")),
            Told::SetAside { why, .. } | Told::Broken { why } => Err(why.to_owned()),
        };
        let _ = tell.send(end);
    });
    (Host::new(store, hands, Capacity { workers }, watcher), ended)
}

/// Until so many runs have ended well.
pub(super) fn await_all(ended: &Receiver<Ended>, count: usize) -> Result<(), BenchError> {
    for _ in 0..count {
        let end = ended.recv().unwrap_or_else(|_| Err("the host has stopped".to_owned()));
        end.map_err(BenchError::Failed)?;
    }
    Ok(())
}

/// A tool that is a function of Skein, with the schemas that such a tool has.
fn merge() -> Tool {
    let object = || Schema::new(json!({"type": "object"}));
    Tool {
        driver: "bench".to_owned(),
        function: Function::named(TOOL),
        inputs: object(),
        outputs: object(),
        ..Tool::default()
    }
}

/// The run of this number. Its workspace is where the state folder is.
pub fn start(number: usize, plan: &Plan, state: &Path) -> Begin {
    let workspace = state.parent().unwrap_or(state);
    let run = RunId::new(format!("bench-{number}")).expect("letters and digits are a name");
    let about = About {
        source: "bench".to_owned(),
        project: workspace.to_owned(),
        workspace: workspace.to_owned(),
        roots: Vec::new(),
        user: "bench".to_owned(),
        agents: Default::default(),
        tools: BTreeMap::from([(TOOL.to_owned(), merge())]),
        surroundings: Default::default(),
        secrets: Default::default(),
        programs: Default::default(),
        record: None,
        replay: None,
        prices: Default::default(),
        test_commands: Vec::new(),
        pass_env: Vec::new(),
        writes: Vec::new(),
        overrides: Default::default(),
        handing: Default::default(),
        pinned: Default::default(),
        context: None,
        warnings: Vec::new(),
        roles: None,
        state: None,
        definitions: Default::default(),
        allow_unenforced: false,
    };
    Begin::new(plan.clone(), Start::new(run), about.value())
}
