//! Launch and resume: the ways in which this process comes to own runs.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{Driver, RunInput, RunPhase},
    ids::RunId,
    plan::ContentHash,
};

use super::{ResumeError, RunLaunch, RunLoader, host_loop::HostLoop, load_run::LoadedRun, owned_run::OwnedRun};
use crate::store::{NewRun, RunClaim, StoreError};

impl HostLoop {
    /// Creates and starts runs. A run is created with its start row, so that a crash in between starts nothing.
    pub(crate) fn launch_runs(&mut self, begin: Vec<RunLaunch>) -> Result<(), StoreError> {
        // Runs of one definition share its stored form.
        let mut frozen: BTreeMap<ContentHash, Arc<[u8]>> = BTreeMap::new();
        let mut all: Vec<(OwnedRun, NewRun)> = Vec::with_capacity(begin.len());
        for begin in begin {
            all.push(self.prepare_launch(begin, &mut frozen));
        }
        let (mut runs, new): (Vec<OwnedRun>, Vec<NewRun>) = all.into_iter().unzip();
        let claims = self.store.create_runs(&new)?;
        for (mut owned, claim) in runs.drain(..).zip(claims) {
            owned.claim = claim;
            let key = self.insert_run(owned);
            self.queue_for_workers(key);
            self.finish_append(key);
        }
        Ok(())
    }

    fn prepare_launch(
        &mut self,
        begin: RunLaunch,
        frozen: &mut BTreeMap<ContentHash, Arc<[u8]>>,
    ) -> (OwnedRun, NewRun) {
        let RunLaunch { plan, start, settings, reused, settles } = begin;
        let (run, definition) = (start.run.clone(), Arc::clone(&plan.definition));
        let unborn = RunClaim { run: run.clone(), epoch: 0 };
        let mut owned = OwnedRun::new(unborn, Driver::new(plan), Arc::clone(&settings));
        let start = Box::new(start);
        let input = match start.forked_from {
            Some(_) => RunInput::Fork { start, reused },
            None => RunInput::Start(start),
        };
        owned.queue_input(input, None);
        // Workers are granted once the run is durable: until then it is queued.
        let append = owned.decide(self.clock.now(), 0);
        let head = append.as_ref().and_then(|append| append.head.clone());
        let write = || serde_json::to_vec(&definition.to_frozen()).expect("a definition serialises to JSON").into();
        let new = NewRun {
            run,
            definition: definition.hash(),
            frozen: frozen.entry(definition.hash()).or_insert_with(write).clone(),
            about: settings.to_json(),
            head: head.unwrap_or_else(|| owned.current_head()),
            open: append.as_ref().and_then(|append| append.open.clone()).unwrap_or_default(),
            audit: append.as_ref().map(|append| append.audit.clone()).unwrap_or_default(),
            first: append.map(|append| append.batch),
            settles,
        };
        (owned, new)
    }

    pub(crate) fn resume_runs(&mut self, runs: &[RunId]) -> Vec<Result<u64, ResumeError>> {
        let claims = match self.store.claim_runs(runs) {
            Ok(claims) => claims,
            Err(error) => return runs.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let had: Vec<RunId> = claims.iter().flatten().map(|claim| claim.run.clone()).collect();
        if !had.is_empty() {
            self.hands.reap_orphans(&had);
        }
        let store = Arc::clone(&self.store);
        let mut recall = RunLoader::new(&*store);
        let adopted = claims.into_iter().map(|claim| self.adopt_run(claim?, &mut recall)).collect();
        // Requests that arrived while no process owned the runs.
        self.read_requests();
        adopted
    }

    /// Takes over a claimed run and returns the number of its events.
    pub(crate) fn adopt_run(&mut self, claim: RunClaim, recall: &mut RunLoader<'_>) -> Result<u64, ResumeError> {
        match load_owned_run(&claim, recall) {
            Ok(mut owned) => {
                let events = owned.driver.state().events;
                owned.queue_input(RunInput::Recover, None);
                // Deadlines that passed while no process owned it are handled before new inputs.
                owned.queue_input(RunInput::Wake, None);
                self.insert_run(owned);
                Ok(events)
            }
            Err(ResumeError::Store(StoreError::Damaged(why))) => {
                self.store.quarantine(&claim.run, &why)?;
                Err(ResumeError::SetAside(why))
            }
            Err(error) => {
                self.store.release_runs(&[claim])?;
                Err(error)
            }
        }
    }
}

fn load_owned_run(claim: &RunClaim, recall: &mut RunLoader<'_>) -> Result<OwnedRun, ResumeError> {
    let run = &claim.run;
    let row = recall.find_row(run)?;
    let LoadedRun { projection, snapshot } = recall.load_run(&row)?;
    if projection.state().phase == RunPhase::New {
        return Err(StoreError::Damaged(format!("the journal of `{run}` is empty")).into());
    }
    let driver = Driver::from_projection(projection);
    let settings = recall.load_settings(row)?;
    let mut owned = OwnedRun::new(claim.clone(), driver, settings);
    owned.snapshot = snapshot;
    Ok(owned)
}
