//! A host, and what it tells, for tests that wait for it.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::Value;
use skein_core::{
    engine::{AttemptId, Batch, Driver, Event, Start},
    ids::RunId,
    ir::RunStatus,
    plan::{Definition, Plan},
    view::{self, RunView},
};
use skein_host::{
    hands::Hands,
    host::{Begin, Capacity, Host, Told, Watcher},
    store::{Memory, Sqlite, Store},
};

/// Long enough for any machine; a test that waits so long has failed.
pub const LONG: Duration = Duration::from_secs(60);

/// Gives owners that share one store. One that is dropped is dead.
pub type World = Box<dyn Fn() -> Arc<dyn Store>>;

pub fn sqlite() -> World {
    let dir = tempfile::tempdir().unwrap();
    Box::new(move || Arc::new(Sqlite::open(dir.path().join("state")).unwrap()))
}

pub fn memory() -> World {
    let first = Memory::new();
    Box::new(move || Arc::new(first.another()))
}

/// What the host told.
#[derive(Debug, Clone)]
pub enum Note {
    Row { run: RunId, batch: Arc<Batch> },
    Closed(RunId),
    Lost(RunId),
    SetAside,
    NoSpace,
    Broken(String),
}

pub struct Stage {
    pub host: Host,
    notes: mpsc::Receiver<Note>,
}

pub fn watcher() -> (Watcher, mpsc::Receiver<Note>) {
    let (tell, notes) = mpsc::channel();
    let watcher = move |told: Told<'_>| {
        let note = match told {
            Told::Row { running, batch } => Note::Row { run: running.run.clone(), batch: Arc::clone(batch) },
            Told::Closed { run } => Note::Closed(run.clone()),
            Told::Left { run } | Told::Lost { run } => Note::Lost(run.clone()),
            Told::SetAside { .. } => Note::SetAside,
            Told::NoSpace { .. } => Note::NoSpace,
            // The run that retries another is told of by its rows.
            Told::Retries { .. } => return,
            Told::Broken { why } => Note::Broken(why.to_owned()),
        };
        let _ = tell.send(note);
    };
    (Box::new(watcher), notes)
}

impl Stage {
    pub fn new(store: Arc<dyn Store>, hands: impl Hands + 'static, workers: u32) -> Stage {
        let (watcher, notes) = watcher();
        Stage { host: Host::new(store, Box::new(hands), Capacity { workers }, watcher), notes }
    }

    pub fn begin(&self, runs: &[(&str, &Plan)]) {
        self.host.begin(runs.iter().map(|(run, plan)| begin(run, plan, Value::Null)).collect()).unwrap();
    }

    pub fn next(&self) -> Note {
        self.notes.recv_timeout(LONG).expect("the host tells something")
    }

    /// Waits until the host tells what is looked for, and gives what that is.
    pub fn until<T>(&self, mut found: impl FnMut(Note) -> Option<T>) -> T {
        loop {
            if let Some(found) = found(self.next()) {
                return found;
            }
        }
    }

    /// Waits until these runs are over. Nothing else may become of any.
    pub fn closed(&self, runs: &[&str]) {
        let mut left: BTreeSet<&str> = runs.iter().copied().collect();
        while !left.is_empty() {
            match self.next() {
                Note::Row { .. } | Note::NoSpace => {}
                Note::Closed(run) => assert!(left.remove(run.as_str()), "{run} is over"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until a row of a run has an event like this.
    pub fn event(&self, run: &str, like: impl Fn(&Event) -> bool) {
        self.until(|note| match note {
            Note::Row { run: of, batch } if of.as_str() == run => {
                batch.records.iter().any(|record| like(&record.event)).then_some(())
            }
            _ => None,
        });
    }
}

pub fn begin(run: &str, plan: &Plan, about: Value) -> Begin {
    let start = Start::new(id(run));
    Begin::new(plan.clone(), start, about)
}

pub fn id(run: &str) -> RunId {
    RunId::new(run).unwrap()
}

pub fn rows(store: &dyn Store, run: &RunId) -> Vec<Batch> {
    let mut rows = Vec::new();
    let each = &mut |batch| {
        rows.push(batch);
        true
    };
    store.read(run, 0, each).unwrap();
    rows
}

pub fn events(store: &dyn Store, run: &str) -> Vec<Event> {
    let rows = rows(store, &id(run));
    rows.into_iter().flat_map(|batch| batch.records).map(|record| record.event).collect()
}

/// The attempts that were started.
pub fn starts(events: &[Event]) -> Vec<AttemptId> {
    let started = |event: &Event| match event {
        Event::AttemptStarted { attempt, .. } => Some(*attempt),
        _ => None,
    };
    events.iter().filter_map(started).collect()
}

pub fn status(store: &dyn Store, run: &str) -> RunStatus {
    store.run(&id(run)).unwrap().unwrap().head.status
}

/// A run as its journal alone tells it.
pub fn view(store: &dyn Store, run: &RunId) -> RunView {
    let row = store.run(run).unwrap().unwrap();
    let frozen = String::from_utf8(store.definition(row.definition).unwrap()).unwrap();
    replayed(&frozen, &rows(store, run))
}

pub fn replayed(frozen: &str, rows: &[Batch]) -> RunView {
    let definition = Definition::from_frozen_json(frozen).definition.expect("a definition");
    let plan = Plan { parameters: Arc::default(), hash: definition.hash(), definition };
    let driver = Driver::replay(plan, rows).unwrap();
    view::run(driver.plan(), driver.state())
}
