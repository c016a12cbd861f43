//! One life of a host with the reference runs: it starts new runs, resumes existing ones, plays the people who answer,
//! and ends when all runs have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use serde_json::json;
use skein_core::{
    engine::{DecisionActor, Event, Refusal, RunInput, RunPhase, Verdict, Waitpoint, WaitpointKind},
    ids::RunId,
    ir::RunStatus,
};
use skein_host::{
    executor::ProcessExecutor,
    executor_api::{ActiveRun, Executor},
    host::{Host, HostEvent, WorkerCapacity},
    run_settings::RunSettings,
    secret::{SecretSource, Secrets},
    store::{RunRow, RunSelection, Store},
};

use super::{
    kit::signal,
    reference::{self, Reference},
    stage::{LONG, begin, id},
};

/// The step at which nobody answers.
const NEVER: &str = "never";

/// The folders that a host uses.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub state: PathBuf,
    pub work: PathBuf,
}

impl Place {
    pub(crate) fn of(dir: &Path) -> Place {
        let place = Place { state: dir.join("state"), work: dir.join("work") };
        fs::create_dir_all(&place.work).unwrap();
        place
    }

    pub(crate) fn settings(&self) -> RunSettings {
        RunSettings {
            source: "reference".into(),
            project: self.work.clone(),
            workspace: self.work.clone(),
            user: "ada".into(),
            tools: [("pay".to_owned(), reference::pay())].into(),
            secrets: self.secrets(),
            ..RunSettings::default()
        }
    }

    fn secrets(&self) -> BTreeMap<String, SecretSource> {
        let token = self.work.join("token");
        fs::write(&token, "a-token-of-the-bank").unwrap();
        [("BANK_TOKEN".to_owned(), SecretSource::File(token))].into()
    }

    pub(crate) fn crew(&self) -> ProcessExecutor {
        let secrets = Secrets::load(&self.secrets()).unwrap();
        ProcessExecutor::new(&self.state, secrets, None).unwrap()
    }
}

/// A task for the people around a run.
enum Chore {
    Say(RunId, RunInput),
    Cancel(RunId),
    Over(RunId),
}

/// The result of a host's life.
#[derive(Debug, Default)]
pub(crate) struct Lived {
    pub rows: usize,
    /// The answer to the cancel that was requested.
    pub cancel: Option<Result<(), Refusal>>,
}

/// Runs a host until all these runs have ended. Cancels after `cancel_after` rows, if it is given.
pub(crate) fn live(
    place: &Place,
    store: &Arc<dyn Store>,
    hands: Box<dyn Executor>,
    names: &[&str],
    cancel_after: Option<usize>,
) -> Lived {
    let references: Vec<Reference> = names.iter().map(|name| reference::get(name)).collect();
    let cancelled: BTreeSet<RunId> = references.iter().filter(|it| it.cancelled).map(|it| id(it.name)).collect();
    let (tell, chores) = mpsc::channel();
    let (watched, own) = (tell.clone(), tell);
    let rows = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rows);
    let watcher = move |told: HostEvent<'_>| match told {
        HostEvent::Row { running, batch } => {
            if Some(counted.fetch_add(1, Ordering::Relaxed) + 1) == cancel_after {
                let _ = watched.send(Chore::Cancel(running.run.clone()));
            }
            let new = batch.records.iter().map(|record| &record.event);
            for input in inputs(running, new, cancelled.contains(running.run)) {
                let _ = watched.send(Chore::Say(running.run.clone(), input));
            }
        }
        HostEvent::Closed { run } => drop(watched.send(Chore::Over(run.clone()))),
        HostEvent::NoSpace { .. } => {}
        other => panic!("{other:?}"),
    };
    let host = Host::new(Arc::clone(store), hands, WorkerCapacity { workers: 8 }, Box::new(watcher));
    let mut left = begin_or_resume(&host, &**store, place, &references, &own);
    let mut lived = Lived::default();
    while !left.is_empty() {
        match chores.recv_timeout(LONG).unwrap_or_else(|_| panic!("{left:?} do not end")) {
            Chore::Over(run) => drop(left.remove(&run)),
            Chore::Say(run, input) => drop(host.send_input(&run, input)),
            Chore::Cancel(run) => lived.cancel = host.send_input(&run, cancel()),
        }
    }
    lived.rows = rows.load(Ordering::Relaxed);
    lived
}

fn begin_or_resume(
    host: &Host,
    store: &dyn Store,
    place: &Place,
    references: &[Reference],
    chores: &mpsc::Sender<Chore>,
) -> BTreeSet<RunId> {
    let rows = store.select_runs(RunSelection::Newest(u32::MAX)).unwrap();
    let new: Vec<_> = references.iter().filter(|it| !rows.iter().any(|row| row.run.as_str() == it.name)).collect();
    let mut left: BTreeSet<RunId> = new.iter().map(|it| id(it.name)).collect();
    host.launch_runs(new.iter().map(|it| begin(it.name, &(it.plan)(), place.settings())).collect()).unwrap();
    // An undo that failed because the host was killed repeatedly is retried.
    let stuck = rows.iter().filter(|row| row.head.status == RunStatus::UndoFailed);
    let again = serde_json::to_vec(&RunInput::RetryUndo { by: "ada".into() }).unwrap();
    for row in stuck {
        store.send_request(&row.run, &again).unwrap();
    }
    let goes_on = |row: &RunRow| !row.head.closed || row.head.status == RunStatus::UndoFailed;
    let unfinished: Vec<_> = rows.into_iter().filter(goes_on).collect();
    let resumed = host.resume_runs(unfinished.iter().map(|row| row.run.clone()).collect());
    assert!(resumed.iter().all(Result::is_ok), "{resumed:?}");
    for row in unfinished {
        // Questions of an earlier host are still open.
        for open in row.open.iter().filter(|open| open.step != NEVER) {
            let input = if open.kind == "wait" { paid() } else { approve(open.opening) };
            let _ = chores.send(Chore::Say(row.run.clone(), input));
        }
        left.insert(row.run);
    }
    left
}

/// Returns the inputs of people to these new events.
fn inputs<'a>(running: ActiveRun<'_>, new: impl Iterator<Item = &'a Event>, cancelled: bool) -> Vec<RunInput> {
    let mut inputs = Vec::new();
    for event in new {
        match event {
            Event::Opened { opening, .. } | Event::StepHeld { opening, .. } => {
                inputs.extend(answer(running, *opening));
            }
            Event::AttemptStarted { attempt, .. }
                if cancelled
                    && running.state.phase == RunPhase::Going
                    && running.names.step_path(attempt.at) == "long" =>
            {
                inputs.push(cancel());
            }
            _ => {}
        }
    }
    inputs
}

fn answer(running: ActiveRun<'_>, opening: Waitpoint) -> Option<RunInput> {
    let open = running.state.waitpoint(opening).filter(|open| !open.closed)?;
    if running.names.step_path(open.at) == NEVER {
        return None;
    }
    Some(if open.kind == WaitpointKind::Wait { paid() } else { approve(opening) })
}

fn approve(opening: Waitpoint) -> RunInput {
    let by = DecisionActor { name: "ada".into(), roles: Vec::new() };
    RunInput::Decide { opening, decision: Verdict::Approve, by, reason: None }
}

fn paid() -> RunInput {
    RunInput::Signal { name: signal(), payload: Arc::new(json!({"cents": 2})), to: None }
}

fn cancel() -> RunInput {
    RunInput::Cancel { by: "ada".into(), reason: None }
}

/// Waits until no process carries a mark of this state folder.
pub(crate) fn nothing_is_left(place: &Place) {
    let mark = skein_host::process::StateMark::from_directory(&place.state).unwrap();
    let wanted = format!("SKEIN_MARK={mark}/");
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|pair| pair.starts_with(wanted.as_bytes()))
    };
    let numbers = || fs::read_dir("/proc").unwrap().flatten();
    let begun = std::time::Instant::now();
    loop {
        let pids = numbers().filter_map(|name| name.file_name().to_str()?.parse::<i32>().ok());
        let left: Vec<i32> = pids.filter(carries).collect();
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < LONG, "processes are left: {left:?}");
        thread::yield_now();
    }
}
