//! Reading runs back: from the last snapshot that fits the journal, else from the beginning of it.
//!
//! Owns that both give the same. A snapshot is only a cache, so whatever is wrong with one means that it is not used.

use std::{collections::BTreeMap, fmt, sync::Arc};

use skein_core::{
    engine::{Batch, Driver, Event, JournalError},
    ids::RunId,
    plan::{Definition, Hash, Plan},
};

use super::snapshot::Snapshot;
use crate::{
    store::{RunRow, Store, StoreError},
    workspace::Ledger,
};

/// Reads runs of one store back. Those of one definition share it.
pub struct Recall<'a> {
    store: &'a dyn Store,
    definitions: BTreeMap<Hash, Arc<Definition>>,
}

/// A run as its journal tells it.
#[derive(Debug)]
pub struct Recalled {
    pub driver: Driver,
    pub ledger: Ledger,
    /// How many of its events were in the snapshot that was used.
    pub snapshot: u64,
}

impl fmt::Debug for Recall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall").field("definitions", &self.definitions.keys()).finish_non_exhaustive()
    }
}

impl<'a> Recall<'a> {
    pub fn new(store: &'a dyn Store) -> Recall<'a> {
        Recall { store, definitions: BTreeMap::new() }
    }

    pub(super) fn row(&self, run: &RunId) -> Result<RunRow, StoreError> {
        self.store.run(run)?.ok_or_else(|| StoreError::Unknown(run.clone()))
    }

    /// The plan of a run, with the parameters that its journal begins with.
    pub fn plan(&mut self, row: &RunRow) -> Result<Plan, StoreError> {
        let mut plan = self.bare(row)?;
        self.store.read(&row.run, 0, &mut |batch| {
            let first = batch.records.first().map(|record| &record.event);
            if let Some(Event::RunStarted { parameters, .. }) = first {
                plan = plan.definition.given(parameters.clone());
            }
            false
        })?;
        Ok(plan)
    }

    /// The run as it is now.
    pub fn run(&mut self, row: &RunRow) -> Result<Recalled, StoreError> {
        let plan = self.bare(row)?;
        match self.by_snapshot(row, &plan) {
            Some(recalled) => Ok(recalled),
            None => self.by_journal(row, plan),
        }
    }

    fn by_snapshot(&self, row: &RunRow, plan: &Plan) -> Option<Recalled> {
        let Snapshot { state, chain, ledger, .. } =
            Snapshot::read(&self.store.snapshot(&row.run)?, &row.run)?;
        let snapshot = state.events;
        let driver = Driver::from_state(plan, state, chain)?;
        let mut recalled = Recalled { driver, ledger, snapshot };
        // The last row that it holds says whether it is of this journal.
        let (mut fits, mut seen) = (false, false);
        let read = self.store.read(&row.run, snapshot.checked_sub(1)?, &mut |batch| {
            fits = match std::mem::replace(&mut seen, true) {
                false => batch.chain == chain && batch.seq + batch.records.len() as u64 == snapshot,
                true => recalled.take(&batch).is_ok(),
            };
            fits
        });
        (fits && read.is_ok()).then_some(recalled)
    }

    fn by_journal(&self, row: &RunRow, plan: Plan) -> Result<Recalled, StoreError> {
        let run = &row.run;
        let mut recalled = Recalled { driver: Driver::new(plan), ledger: Ledger::new(), snapshot: 0 };
        let mut broken = None;
        self.store.read(run, 0, &mut |batch| {
            broken = recalled.take(&batch).err();
            broken.is_none()
        })?;
        match broken {
            None => Ok(recalled),
            Some(error) => {
                Err(StoreError::Damaged(format!("the journal of `{run}` cannot be read: {error}")))
            }
        }
    }

    /// The plan without its parameters.
    fn bare(&mut self, row: &RunRow) -> Result<Plan, StoreError> {
        let definition = match self.definitions.get(&row.definition) {
            Some(known) => Arc::clone(known),
            None => {
                let read = definition(&self.store.definition(row.definition)?)?;
                self.definitions.insert(row.definition, Arc::clone(&read));
                read
            }
        };
        Ok(Plan { parameters: Arc::default(), hash: definition.hash(), definition })
    }
}

impl Recalled {
    fn take(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.driver.recall_checked(batch)?;
        batch.records.iter().for_each(|record| self.ledger.feed(record));
        Ok(())
    }
}

fn definition(frozen: &[u8]) -> Result<Arc<Definition>, StoreError> {
    let damaged = |why: String| StoreError::Damaged(format!("the stored plan cannot be read: {why}"));
    let text = std::str::from_utf8(frozen).map_err(|error| damaged(error.to_string()))?;
    let checked = Definition::from_frozen_json(text);
    let why =
        || checked.problems.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>().join("; ");
    checked.definition.clone().ok_or_else(|| damaged(why()))
}
