//! Runs, rows and waiting, for tests of stores.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::json;
use skein_core::{
    engine::{Cost, Event, JournalBatch, JournalRecord},
    ids::RunId,
    ir::RunStatus,
    plan::ContentHash,
    time::Timestamp,
};
use skein_host::store::{AppendError, ClaimError, JournalAppend, NewRun, RunClaim, RunHead, Store};

/// Long enough for any machine; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn id(run: &str) -> RunId {
    RunId::new(run).unwrap()
}

pub(crate) fn head(status: RunStatus, closed: bool) -> RunHead {
    RunHead {
        workflow: "flow".into(),
        version: Some("1.0".into()),
        dialect: "swdl".into(),
        status,
        native_status: status.as_str().into(),
        started_at: Some(Timestamp(7)),
        finished_at: closed.then_some(Timestamp(9)),
        closed,
        forked_from: None,
        cost: Cost::default(),
    }
}

pub(crate) fn new_run(run: &str) -> NewRun {
    let frozen: Arc<[u8]> = b"a frozen definition"[..].into();
    NewRun {
        run: id(run),
        definition: ContentHash::hash_bytes(b"definition"),
        frozen,
        about: json!({"workspace": "/w", "who": "ada"}),
        head: head(RunStatus::Queued, false),
        first: None,
        open: Vec::new(),
        audit: Vec::new(),
        settles: Vec::new(),
    }
}

/// Claims one run.
pub(crate) fn take(store: &dyn Store, run: &RunId) -> Result<RunClaim, ClaimError> {
    store.claim_runs(std::slice::from_ref(run))?.remove(0)
}

/// A run to which rows are appended.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub claim: RunClaim,
    pub seq: u64,
    pub chain: ContentHash,
}

impl Log {
    pub(crate) fn create(store: &dyn Store, run: &str) -> Log {
        Log { claim: store.create_runs(&[new_run(run)]).unwrap().remove(0), seq: 0, chain: ContentHash::ZERO }
    }

    /// Claims a run and continues at the end of its journal.
    pub(crate) fn claim(store: &dyn Store, run: &str) -> Log {
        let claim = take(store, &id(run)).unwrap();
        let (mut seq, mut chain) = (0, ContentHash::ZERO);
        for batch in rows(store, run) {
            seq = batch.seq + batch.records.len() as u64;
            chain = batch.chain;
        }
        Log { claim, seq, chain }
    }

    /// Returns the next row, without counting it as written.
    pub(crate) fn row(&self, texts: &[&str]) -> JournalAppend {
        let event = |text: &&str| Event::Quarantined { message: (*text).to_owned() };
        let records = texts.iter().map(|text| JournalRecord { at: Timestamp(5), event: event(text) }).collect();
        JournalAppend {
            claim: self.claim.clone(),
            batch: Arc::new(JournalBatch::new(self.seq, self.chain, records)),
            head: None,
            open: None,
            dead: Vec::new(),
            retried: None,
            audit: Vec::new(),
            answers: Vec::new(),
            urgent: false,
            last: false,
        }
    }

    pub(crate) fn wrote(&mut self, batch: &JournalBatch) {
        self.seq = batch.seq + batch.records.len() as u64;
        self.chain = batch.chain;
    }

    /// Appends a row, and continues after it if it was written.
    pub(crate) fn append(&mut self, store: &dyn Store, texts: &[&str]) -> Result<(), AppendError> {
        let row = self.row(texts);
        let batch = Arc::clone(&row.batch);
        append(store, row)?;
        self.wrote(&batch);
        Ok(())
    }
}

/// Appends a row, and waits for the outcome.
pub(crate) fn append(store: &dyn Store, append: JournalAppend) -> Result<(), AppendError> {
    let (told, outcome) = mpsc::channel();
    store.append(append, Box::new(move |outcome| told.send(outcome).unwrap()));
    outcome.recv_timeout(LONG).expect("an append ends")
}

pub(crate) fn rows(store: &dyn Store, run: &str) -> Vec<JournalBatch> {
    let mut rows = Vec::new();
    store
        .read_journal(&id(run), 0, &mut |batch| {
            rows.push(batch);
            true
        })
        .unwrap();
    rows
}

/// Returns the texts of a run's events.
pub(crate) fn texts(store: &dyn Store, run: &str) -> Vec<String> {
    let text = |record: JournalRecord| match record.event {
        Event::Quarantined { message } => message,
        other => panic!("{other:?}"),
    };
    rows(store, run).into_iter().flat_map(|batch| batch.records).map(text).collect()
}
