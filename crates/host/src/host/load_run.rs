//! Loads runs: from the last snapshot that matches the journal, or else from its beginning.
//!
//! Owns that both give the same result. A snapshot is only a cache, so one with any fault is not used.

use std::{collections::BTreeMap, fmt, sync::Arc};

use skein_core::{
    engine::{Driver, Event, JournalBatch, JournalError},
    ids::RunId,
    plan::{ContentHash, Plan, PlanDefinition},
};

use super::snapshot::RunSnapshot;
use crate::{
    store::{RunRow, Store, StoreError},
    workspace::Ledger,
};

/// Loads runs of one store. Runs of one definition share it.
pub struct RunLoader<'a> {
    store: &'a dyn Store,
    definitions: BTreeMap<ContentHash, Arc<PlanDefinition>>,
}

/// A run as its journal describes it.
#[derive(Debug)]
pub struct LoadedRun {
    pub driver: Driver,
    pub ledger: Ledger,
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
        RunLoader { store, definitions: BTreeMap::new() }
    }

    pub(super) fn find_row(&self, run: &RunId) -> Result<RunRow, StoreError> {
        self.store.find_run(run)?.ok_or_else(|| StoreError::Unknown(run.clone()))
    }

    /// Loads the plan of a run, with the parameters that its journal begins with.
    pub fn load_plan(&mut self, row: &RunRow) -> Result<Plan, StoreError> {
        let mut plan = self.load_bare_plan(row)?;
        self.store.read_journal(&row.run, 0, &mut |batch| {
            let first = batch.records.first().map(|record| &record.event);
            if let Some(Event::RunStarted { parameters, .. }) = first {
                plan = plan.definition.plan_with_parameters(parameters.clone());
            }
            false
        })?;
        Ok(plan)
    }

    /// Loads the run in its present state.
    pub fn load_run(&mut self, row: &RunRow) -> Result<LoadedRun, StoreError> {
        let plan = self.load_bare_plan(row)?;
        match self.load_from_snapshot(row, &plan) {
            Some(recalled) => Ok(recalled),
            None => self.load_from_journal(row, plan),
        }
    }

    fn load_from_snapshot(&self, row: &RunRow, plan: &Plan) -> Option<LoadedRun> {
        let RunSnapshot { state, chain, ledger, .. } =
            RunSnapshot::parse(&self.store.read_snapshot(&row.run)?, &row.run)?;
        let snapshot = state.events;
        let driver = Driver::from_state(plan, state, chain)?;
        let mut recalled = LoadedRun { driver, ledger, snapshot };
        // The last row in the snapshot tells if it belongs to this journal.
        let (mut fits, mut seen) = (false, false);
        let read = self.store.read_journal(&row.run, snapshot.checked_sub(1)?, &mut |batch| {
            fits = match std::mem::replace(&mut seen, true) {
                false => batch.chain == chain && batch.seq + batch.records.len() as u64 == snapshot,
                true => recalled.apply_batch(&batch).is_ok(),
            };
            fits
        });
        (fits && read.is_ok()).then_some(recalled)
    }

    fn load_from_journal(&self, row: &RunRow, plan: Plan) -> Result<LoadedRun, StoreError> {
        let run = &row.run;
        let mut recalled = LoadedRun { driver: Driver::new(plan), ledger: Ledger::new(), snapshot: 0 };
        let mut broken = None;
        self.store.read_journal(run, 0, &mut |batch| {
            broken = recalled.apply_batch(&batch).err();
            broken.is_none()
        })?;
        match broken {
            None => Ok(recalled),
            Some(error) => {
                Err(StoreError::Damaged(format!("the journal of `{run}` cannot be read: {error}")))
            }
        }
    }

    /// Loads the plan without its parameters.
    fn load_bare_plan(&mut self, row: &RunRow) -> Result<Plan, StoreError> {
        let definition = match self.definitions.get(&row.definition) {
            Some(known) => Arc::clone(known),
            None => {
                let read = parse_definition(&self.store.read_definition(row.definition)?)?;
                self.definitions.insert(row.definition, Arc::clone(&read));
                read
            }
        };
        Ok(Plan { parameters: Arc::default(), hash: definition.hash(), definition })
    }
}

impl LoadedRun {
    fn apply_batch(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        self.driver.replay_checked_batch(batch)?;
        batch.records.iter().for_each(|record| self.ledger.apply_record(record));
        Ok(())
    }
}

fn parse_definition(frozen: &[u8]) -> Result<Arc<PlanDefinition>, StoreError> {
    let damaged = |why: String| StoreError::Damaged(format!("the stored plan cannot be read: {why}"));
    let text = std::str::from_utf8(frozen).map_err(|error| damaged(error.to_string()))?;
    let checked = PlanDefinition::from_frozen_json(text);
    let why =
        || checked.problems.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>().join("; ");
    checked.definition.clone().ok_or_else(|| damaged(why()))
}
