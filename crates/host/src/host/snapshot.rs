//! Snapshots: the state of a long run after some row, so that loading it does not need all its rows.
//!
//! Owns their format, the decision when to take one, and the thread that writes them. A snapshot is only a cache: it is
//! bound to the run, to a row of its journal and to this version of the code, and its bytes include their own hash.

use std::{
    sync::Arc,
    thread::{Builder, JoinHandle},
};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{Driver, RunState, STATE_VERSION},
    ids::RunId,
    plan::ContentHash,
};

use super::{OwnedRunKey, host_loop::HostLoop, owned_run::OwnedRun};
use crate::{store::Store, workspace::Ledger};

/// A state of another release, or of code that computes other states, cannot be used.
const FORM: (&str, u32) = (env!("CARGO_PKG_VERSION"), STATE_VERSION);
/// The number of new events below which reading them takes no noticeable time.
const EVENTS: u64 = 2_000;
/// A snapshot is taken when the journal has grown by this fraction (one in `GROWN`) of the events in the last one. All
/// snapshots together then cost no more than a few times the last one.
const GROWN: u64 = 4;
/// The maximum size of a snapshot.
const BYTES: usize = 64 * 1024 * 1024;
const HASH: usize = 32;

/// The state of a run after a row.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSnapshot {
    form: (String, u32),
    run: RunId,
    /// The hash of that row.
    pub(super) chain: ContentHash,
    pub(super) state: RunState,
    pub(super) ledger: Ledger,
}

impl RunSnapshot {
    /// Takes a snapshot of a run with no append in flight.
    pub fn new(run: &RunId, driver: &Driver, ledger: &Ledger) -> RunSnapshot {
        RunSnapshot {
            form: (FORM.0.to_owned(), FORM.1),
            run: run.clone(),
            chain: driver.chain(),
            state: driver.state().clone(),
            ledger: ledger.clone(),
        }
    }

    /// Serialises the snapshot with its hash. None: it is too large to be kept.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; HASH];
        serde_json::to_writer(&mut bytes, self).ok()?;
        let hash = ContentHash::hash_bytes(&bytes[HASH..]);
        bytes[..HASH].copy_from_slice(&hash.0);
        (bytes.len() <= BYTES).then_some(bytes)
    }

    /// Parses a snapshot. None: it is damaged, or of another run or version.
    pub(super) fn parse(bytes: &[u8], run: &RunId) -> Option<RunSnapshot> {
        let (hash, json) = bytes.split_at_checked(HASH)?;
        if ContentHash::hash_bytes(json).0 != *hash {
            return None;
        }
        let read: RunSnapshot = serde_json::from_slice(json).ok()?;
        let form = (read.form.0.as_str(), read.form.1);
        (form == FORM && read.run == *run).then_some(read)
    }
}

/// Writes one snapshot at a time, on a thread beside the loop.
#[derive(Debug, Default)]
pub(super) struct SnapshotWriter(Option<JoinHandle<()>>);

impl SnapshotWriter {
    fn is_free(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn write_snapshot(&mut self, snapshot: RunSnapshot, store: Arc<dyn Store>) {
        let body = move || {
            if let Some(bytes) = snapshot.to_bytes() {
                store.keep_snapshot(&snapshot.run, &bytes);
            }
        };
        self.0 = Builder::new().name("snapshot".into()).spawn(body).ok();
    }
}

impl Drop for SnapshotWriter {
    /// Waits for the thread, so that the store is not in use once the loop has ended.
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

impl HostLoop {
    /// Takes a snapshot of a run that has grown much since the last one.
    pub(super) fn snapshot_if_grown(&mut self, key: OwnedRunKey) {
        let grown = |owned: &OwnedRun| EVENTS.max(owned.snapshot / GROWN);
        self.snapshot_past_threshold(key, grown);
    }

    /// Takes a snapshot of a long run that leaves this process.
    pub(super) fn snapshot_on_leave(&mut self, key: OwnedRunKey) {
        self.snapshot_past_threshold(key, |_| EVENTS);
    }

    fn snapshot_past_threshold(&mut self, key: OwnedRunKey, new: impl Fn(&OwnedRun) -> u64) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let events = owned.driver.state().events;
        // The state includes an append in flight, which is not yet in the journal.
        if events < owned.snapshot + new(owned) || owned.appending.is_some() || !self.keeper.is_free() {
            return;
        }
        owned.snapshot = events;
        let snapshot = RunSnapshot::new(owned.run(), &owned.driver, owned.run_context().ledger);
        self.keeper.write_snapshot(snapshot, Arc::clone(&self.store));
    }
}
