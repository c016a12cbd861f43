//! Loads runs: from the last snapshot that matches the journal, or else from its beginning.
//!
//! Owns that both give the same result, the format of a snapshot, the decision when to take one, and the thread that
//! writes them. A snapshot is only a cache: it is bound to the run, to a row of its journal and to this version of the
//! code, and its bytes include their own hash. One with any fault is not used.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    thread::{Builder, JoinHandle},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::{Event, JournalBatch, RunLedger, RunProjection, RunState, STATE_VERSION},
    ids::RunId,
    plan::{ContentHash, Plan, PlanDefinition},
};

use super::{OwnedRunKey, host_loop::HostLoop, owned_run::OwnedRun};
use crate::{
    run_settings::{RunSettings, RunSettingsError},
    store::{RunRow, Store, StoreError},
};

/// Loads runs of one store. Runs of one definition share it, and runs with the same settings share these.
pub struct RunLoader<'a> {
    store: &'a dyn Store,
    definitions: BTreeMap<ContentHash, Arc<PlanDefinition>>,
    /// The settings that were read last, with their stored form.
    settings: Option<(Value, Arc<RunSettings>)>,
}

/// A run as its journal describes it.
#[derive(Debug)]
pub struct LoadedRun {
    pub projection: RunProjection,
    /// The number of its events in the snapshot that was used.
    pub snapshot: u64,
}

impl fmt::Debug for RunLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLoader").field("definitions", &self.definitions.keys()).finish_non_exhaustive()
    }
}

impl<'a> RunLoader<'a> {
    pub fn new(store: &'a dyn Store) -> RunLoader<'a> {
        RunLoader { store, definitions: BTreeMap::new(), settings: None }
    }

    pub(crate) fn find_row(&self, run: &RunId) -> Result<RunRow, StoreError> {
        self.store.find_run(run)?.ok_or_else(|| StoreError::Unknown(run.clone()))
    }

    /// Reads the settings of a run.
    pub(crate) fn load_settings(&mut self, row: RunRow) -> Result<Arc<RunSettings>, RunSettingsError> {
        if let Some((_, settings)) = self.settings.as_ref().filter(|(stored, _)| *stored == row.about) {
            return Ok(Arc::clone(settings));
        }
        let settings = Arc::new(RunSettings::from_json(&row.about)?);
        self.settings = Some((row.about, Arc::clone(&settings)));
        Ok(settings)
    }

    /// Loads the plan of a run, with the parameters that its journal begins with.
    pub fn load_plan(&mut self, row: &RunRow) -> Result<Plan, StoreError> {
        let mut plan = self.load_bare_plan(row)?;
        self.store.read_journal(&row.run, 0, &mut |batch| {
            let first = batch.records.first().map(|record| &record.event);
            if let Some(Event::RunStarted { parameters, rulings, .. }) = first {
                let ruled = plan.definition.with_rulings(rulings.clone());
                plan = ruled.plan_with_parameters(parameters.clone());
            }
            false
        })?;
        Ok(plan)
    }

    /// Loads the run in its present state.
    pub fn load_run(&mut self, row: &RunRow) -> Result<LoadedRun, StoreError> {
        let plan = self.load_bare_plan(row)?;
        match self.load_from_snapshot(row, &plan) {
            Some(loaded) => Ok(loaded),
            None => self.load_from_journal(row, plan),
        }
    }

    fn load_from_snapshot(&self, row: &RunRow, plan: &Plan) -> Option<LoadedRun> {
        let RunSnapshot { state, chain, ledger, .. } =
            RunSnapshot::parse(&self.store.read_snapshot(&row.run)?, &row.run)?;
        let snapshot = state.events;
        let mut projection = RunProjection::from_parts(plan, state, ledger, chain)?;
        // The last row in the snapshot tells if it belongs to this journal.
        let (mut fits, mut seen) = (false, false);
        let read = self.store.read_journal(&row.run, snapshot.checked_sub(1)?, &mut |batch| {
            fits = match std::mem::replace(&mut seen, true) {
                false => batch.chain == chain && batch.seq + batch.records.len() as u64 == snapshot,
                true => projection.apply_checked_row(&batch).is_ok(),
            };
            fits
        });
        (fits && read.is_ok()).then_some(LoadedRun { projection, snapshot })
    }

    fn load_from_journal(&self, row: &RunRow, plan: Plan) -> Result<LoadedRun, StoreError> {
        let mut projection = RunProjection::new(plan);
        replay_journal(self.store, &row.run, |batch| projection.apply_checked_row(batch))?;
        Ok(LoadedRun { projection, snapshot: 0 })
    }

    /// Loads the plan without its parameters.
    fn load_bare_plan(&mut self, row: &RunRow) -> Result<Plan, StoreError> {
        let definition = match self.definitions.get(&row.definition) {
            Some(known) => Arc::clone(known),
            None => {
                let read = parse_definition(&self.store.read_definition(row.definition)?)?;
                read.keep_stored_hash(row.definition);
                self.definitions.insert(row.definition, Arc::clone(&read));
                read
            }
        };
        Ok(Plan { parameters: Arc::default(), hash: definition.hash(), definition })
    }
}

/// Applies all rows of a journal. A row that cannot be applied means that the journal is damaged.
pub(super) fn replay_journal<E: fmt::Display>(
    store: &dyn Store,
    run: &RunId,
    mut apply: impl FnMut(&JournalBatch) -> Result<(), E>,
) -> Result<(), StoreError> {
    let mut broken = None;
    store.read_journal(run, 0, &mut |batch| {
        broken = apply(&batch).err();
        broken.is_none()
    })?;
    let damaged = |error| StoreError::Damaged(format!("the journal of `{run}` cannot be read: {error}"));
    broken.map_or(Ok(()), |error| Err(damaged(error)))
}

fn parse_definition(frozen: &[u8]) -> Result<Arc<PlanDefinition>, StoreError> {
    let damaged = |why: String| StoreError::Damaged(format!("the stored plan cannot be read: {why}"));
    let text = std::str::from_utf8(frozen).map_err(|error| damaged(error.to_string()))?;
    let checked = PlanDefinition::from_frozen_json(text);
    let why = || checked.problems.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>().join("; ");
    checked.definition.clone().ok_or_else(|| damaged(why()))
}

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
    pub(crate) chain: ContentHash,
    pub(crate) state: RunState,
    pub(crate) ledger: RunLedger,
}

impl RunSnapshot {
    /// Takes a snapshot of a run with no append in flight.
    pub fn new(run: &RunId, projection: &RunProjection) -> RunSnapshot {
        RunSnapshot {
            form: (FORM.0.to_owned(), FORM.1),
            run: run.clone(),
            chain: projection.chain(),
            state: projection.state().clone(),
            ledger: projection.ledger().clone(),
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
    pub(crate) fn parse(bytes: &[u8], run: &RunId) -> Option<RunSnapshot> {
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
pub(crate) struct SnapshotWriter(Option<JoinHandle<()>>);

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
    pub(crate) fn snapshot_if_grown(&mut self, key: OwnedRunKey) {
        let grown = |owned: &OwnedRun| EVENTS.max(owned.snapshot / GROWN);
        self.snapshot_past_threshold(key, grown);
    }

    /// Takes a snapshot of a long run that leaves this process.
    pub(crate) fn snapshot_on_leave(&mut self, key: OwnedRunKey) {
        self.snapshot_past_threshold(key, |_| EVENTS);
    }

    fn snapshot_past_threshold(&mut self, key: OwnedRunKey, new: impl Fn(&OwnedRun) -> u64) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let events = owned.driver.state().events;
        // The state includes an append in flight, which is not yet in the journal.
        if events < owned.snapshot + new(owned) || owned.appending.is_some() || !self.snapshot_writer.is_free() {
            return;
        }
        owned.snapshot = events;
        let snapshot = RunSnapshot::new(owned.run(), owned.driver.projection());
        self.snapshot_writer.write_snapshot(snapshot, Arc::clone(&self.store));
    }
}
