//! Begin and resume: how runs come to be owned here.

use std::sync::Arc;

use skein_core::{
    engine::{Driver, Input},
    ids::RunId,
    plan::{Definition, Plan},
};

use super::{Begin, ResumeError, owned::Owned, turn::Loop};
use crate::store::{Claim, NewRun, StoreError};

impl Loop {
    pub(super) fn begin(&mut self, begin: Begin) {
        let Begin { plan, start, about } = begin;
        let frozen = serde_json::to_vec(&plan.definition.frozen()).expect("a definition serialises to JSON");
        let new = Arc::new(NewRun {
            run: start.run.clone(),
            definition: plan.definition.hash,
            frozen: frozen.into(),
            about: about.clone(),
        });
        let mut owned = Owned::new(new.claim(), Driver::new(plan), Arc::new(about), Some(new));
        owned.queue(Input::Start(Box::new(start)), None);
        self.own(owned);
    }

    pub(super) fn resume(&mut self, runs: &[RunId]) -> Vec<Result<(), ResumeError>> {
        let claims = match self.store.claim(runs) {
            Ok(claims) => claims,
            Err(error) => return runs.iter().map(|_| Err(error.clone().into())).collect(),
        };
        claims.into_iter().map(|claim| self.adopt(claim?)).collect()
    }

    fn adopt(&mut self, claim: Claim) -> Result<(), ResumeError> {
        match self.recall(&claim) {
            Ok(mut owned) => {
                self.hands.clear(&claim.run);
                owned.queue(Input::Recover, None);
                self.own(owned);
                Ok(())
            }
            Err(StoreError::Damaged(why)) => {
                self.store.quarantine(&claim.run, &why)?;
                Err(ResumeError::SetAside(why))
            }
            Err(error) => {
                self.store.release(&claim)?;
                Err(error.into())
            }
        }
    }

    /// The run as its journal tells it.
    fn recall(&self, claim: &Claim) -> Result<Owned, StoreError> {
        let run = &claim.run;
        let row = self.store.run(run)?.ok_or_else(|| StoreError::Unknown(run.clone()))?;
        let definition = definition(&self.store.definition(row.definition)?)?;
        let plan: Plan = Plan { parameters: Arc::default(), hash: definition.hash, definition };
        let mut driver = Driver::new(plan);
        let mut broken = None;
        self.store.read(run, 0, &mut |batch| {
            broken = driver.recall(&batch).err();
            broken.is_none()
        })?;
        if let Some(error) = broken {
            return Err(StoreError::Damaged(format!("the journal of `{run}` cannot be read: {error}")));
        }
        driver.recalled();
        Ok(Owned::new(claim.clone(), driver, Arc::new(row.about), None))
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
