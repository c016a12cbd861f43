//! Begin and resume: how runs come to be owned here.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{Driver, Input, RunPhase},
    ids::RunId,
    plan::Hash,
};

use super::{Begin, Recall, ResumeError, owned::Owned, recall::Recalled, turn::Loop};
use crate::{
    store::{Claim, NewRun, StoreError},
    workspace::Ledger,
};

impl Loop {
    /// A run comes to be with the row that starts it, so that whoever dies in between has begun nothing.
    pub(super) fn begin(&mut self, begin: Vec<Begin>) -> Result<(), StoreError> {
        // Runs of one definition share its stored form.
        let mut frozen: BTreeMap<Hash, Arc<[u8]>> = BTreeMap::new();
        let mut all: Vec<(Owned, NewRun)> = Vec::with_capacity(begin.len());
        for begin in begin {
            all.push(self.begin_one(begin, &mut frozen));
        }
        let (mut runs, new): (Vec<Owned>, Vec<NewRun>) = all.into_iter().unzip();
        let claims = self.store.create(&new)?;
        for (mut owned, claim) in runs.drain(..).zip(claims) {
            owned.claim = claim;
            let key = self.own(owned);
            self.stand_in_line(key);
            self.durable(key);
        }
        Ok(())
    }

    fn begin_one(&mut self, begin: Begin, frozen: &mut BTreeMap<Hash, Arc<[u8]>>) -> (Owned, NewRun) {
        let Begin { plan, start, about, reused, settles } = begin;
        let (run, definition) = (start.run.clone(), Arc::clone(&plan.definition));
        let unborn = Claim { run: run.clone(), epoch: 0 };
        let mut owned = Owned::new(unborn, Driver::new(plan), Ledger::new(), Arc::new(about.clone()));
        let start = Box::new(start);
        let input = match start.forked_from {
            Some(_) => Input::Fork { start, reused },
            None => Input::Start(start),
        };
        owned.queue(input, None);
        // Workers are granted once the run is durable: until then it is queued.
        let append = owned.decide(self.clock.now(), 0);
        let head = append.as_ref().and_then(|append| append.head.clone());
        let write =
            || serde_json::to_vec(&definition.frozen()).expect("a definition serialises to JSON").into();
        let new = NewRun {
            run,
            definition: definition.hash(),
            frozen: frozen.entry(definition.hash()).or_insert_with(write).clone(),
            about,
            head: head.unwrap_or_else(|| owned.head()),
            open: append.as_ref().and_then(|append| append.open.clone()).unwrap_or_default(),
            audit: append.as_ref().map(|append| append.audit.clone()).unwrap_or_default(),
            first: append.map(|append| append.batch),
            settles,
        };
        (owned, new)
    }

    pub(super) fn resume(&mut self, runs: &[RunId]) -> Vec<Result<u64, ResumeError>> {
        let claims = match self.store.claim(runs) {
            Ok(claims) => claims,
            Err(error) => return runs.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let had: Vec<RunId> = claims.iter().flatten().map(|claim| claim.run.clone()).collect();
        if !had.is_empty() {
            self.hands.clear(&had);
        }
        let store = Arc::clone(&self.store);
        let mut recall = Recall::new(&*store);
        let adopted = claims.into_iter().map(|claim| self.adopt(claim?, &mut recall)).collect();
        // What was said to them while nobody listened.
        self.read_letters();
        adopted
    }

    /// Takes over a run that was claimed, and returns how many events it has.
    pub(super) fn adopt(&mut self, claim: Claim, recall: &mut Recall<'_>) -> Result<u64, ResumeError> {
        match recalled(&claim, recall) {
            Ok(mut owned) => {
                let events = owned.driver.state().events;
                owned.queue(Input::Recover, None);
                // What became due while nobody had it comes before whatever is said to it now.
                owned.queue(Input::Wake, None);
                self.own(owned);
                Ok(events)
            }
            Err(StoreError::Damaged(why)) => {
                self.store.quarantine(&claim.run, &why)?;
                Err(ResumeError::SetAside(why))
            }
            Err(error) => {
                self.store.release(&[claim])?;
                Err(error.into())
            }
        }
    }
}

fn recalled(claim: &Claim, recall: &mut Recall<'_>) -> Result<Owned, StoreError> {
    let run = &claim.run;
    let row = recall.row(run)?;
    let Recalled { mut driver, ledger, snapshot } = recall.run(&row)?;
    if driver.state().phase == RunPhase::New {
        return Err(StoreError::Damaged(format!("the journal of `{run}` is empty")));
    }
    driver.recalled();
    let mut owned = Owned::new(claim.clone(), driver, ledger, Arc::new(row.about));
    owned.snapshot = snapshot;
    Ok(owned)
}
