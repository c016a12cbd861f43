//! A host and its notifications, for tests that wait for it.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::Duration,
};

use skein_core::{
    engine::{AttemptId, Driver, Event, JournalBatch, RunStart},
    ids::RunId,
    ir::RunStatus,
    plan::{Plan, PlanDefinition},
    view::{self, RunView},
};
use skein_host::{
    executor_api::Executor,
    host::{Host, HostEvent, HostWatcher, RunLaunch, WorkerCapacity},
    run_settings::RunSettings,
    store::{SqliteStore, Store},
};
use skein_testkit::store::MemoryStore;

/// Long enough for any machine; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Creates owners that share one store. An owner that is dropped is dead.
pub(crate) type World = Box<dyn Fn() -> Arc<dyn Store>>;

pub(crate) fn sqlite() -> World {
    let dir = tempfile::tempdir().unwrap();
    Box::new(move || Arc::new(SqliteStore::open(dir.path().join("state")).unwrap()))
}

pub(crate) fn memory() -> World {
    let first = MemoryStore::new();
    Box::new(move || Arc::new(first.add_owner()))
}

/// A notification of the host.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    Row { run: RunId, batch: Arc<JournalBatch> },
    Closed(RunId),
    Lost(RunId),
    SetAside,
    NoSpace,
    Broken(String),
}

pub(crate) struct Stage {
    pub host: Host,
    notes: mpsc::Receiver<Note>,
}

pub(crate) fn watcher() -> (HostWatcher, mpsc::Receiver<Note>) {
    let (tell, notes) = mpsc::channel();
    let watcher = move |told: HostEvent<'_>| {
        let note = match told {
            HostEvent::Row { running, batch } => Note::Row { run: running.run.clone(), batch: Arc::clone(batch) },
            HostEvent::Closed { run } => Note::Closed(run.clone()),
            HostEvent::Left { run } | HostEvent::Lost { run } => Note::Lost(run.clone()),
            HostEvent::SetAside { .. } => Note::SetAside,
            HostEvent::NoSpace { .. } => Note::NoSpace,
            // The run that retries another one is reported by its rows.
            HostEvent::Retries { .. } => return,
            HostEvent::Broken { why } => Note::Broken(why.to_owned()),
        };
        let _ = tell.send(note);
    };
    (Box::new(watcher), notes)
}

impl Stage {
    pub(crate) fn new(store: Arc<dyn Store>, hands: impl Executor + 'static, workers: u32) -> Stage {
        let (watcher, notes) = watcher();
        Stage { host: Host::new(store, Box::new(hands), WorkerCapacity { workers }, watcher), notes }
    }

    pub(crate) fn begin(&self, runs: &[(&str, &Plan)]) {
        self.host
            .launch_runs(runs.iter().map(|(run, plan)| begin(run, plan, RunSettings::default())).collect())
            .unwrap();
    }

    pub(crate) fn next(&self) -> Note {
        self.notes.recv_timeout(LONG).expect("the host tells something")
    }

    /// Waits until the host reports the expected notification, and returns the result.
    pub(crate) fn until<T>(&self, mut found: impl FnMut(Note) -> Option<T>) -> T {
        loop {
            if let Some(found) = found(self.next()) {
                return found;
            }
        }
    }

    /// Waits until these runs have ended. No other run may end.
    pub(crate) fn closed(&self, runs: &[&str]) {
        let mut left: BTreeSet<&str> = runs.iter().copied().collect();
        while !left.is_empty() {
            match self.next() {
                Note::Row { .. } | Note::NoSpace => {}
                Note::Closed(run) => assert!(left.remove(run.as_str()), "{run} is over"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until a row of a run has such an event.
    pub(crate) fn event(&self, run: &str, like: impl Fn(&Event) -> bool) {
        self.until(|note| match note {
            Note::Row { run: of, batch } if of.as_str() == run => {
                batch.records.iter().any(|record| like(&record.event)).then_some(())
            }
            _ => None,
        });
    }
}

pub(crate) fn begin(run: &str, plan: &Plan, settings: RunSettings) -> RunLaunch {
    let start = RunStart::new(id(run));
    RunLaunch::new(plan.clone(), start, settings)
}

pub(crate) fn id(run: &str) -> RunId {
    RunId::new(run).unwrap()
}

pub(crate) fn rows(store: &dyn Store, run: &RunId) -> Vec<JournalBatch> {
    let mut rows = Vec::new();
    let each = &mut |batch| {
        rows.push(batch);
        true
    };
    store.read_journal(run, 0, each).unwrap();
    rows
}

pub(crate) fn events(store: &dyn Store, run: &str) -> Vec<Event> {
    let rows = rows(store, &id(run));
    rows.into_iter().flat_map(|batch| batch.records).map(|record| record.event).collect()
}

/// Returns the attempts that were started.
pub(crate) fn starts(events: &[Event]) -> Vec<AttemptId> {
    let started = |event: &Event| match event {
        Event::AttemptStarted { attempt, .. } => Some(*attempt),
        _ => None,
    };
    events.iter().filter_map(started).collect()
}

pub(crate) fn status(store: &dyn Store, run: &str) -> RunStatus {
    store.find_run(&id(run)).unwrap().unwrap().head.status
}

/// Returns a run as its journal alone describes it.
pub(crate) fn view(store: &dyn Store, run: &RunId) -> RunView {
    let row = store.find_run(run).unwrap().unwrap();
    let frozen = String::from_utf8(store.read_definition(row.definition).unwrap()).unwrap();
    replayed(&frozen, &rows(store, run))
}

pub(crate) fn replayed(frozen: &str, rows: &[JournalBatch]) -> RunView {
    let definition = PlanDefinition::from_frozen_json(frozen).definition.expect("a definition");
    let plan = Plan { parameters: Arc::default(), hash: definition.hash(), definition };
    let driver = Driver::replay(plan, rows).unwrap();
    view::view_run(driver.plan(), driver.state())
}
