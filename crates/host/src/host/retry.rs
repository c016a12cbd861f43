//! Retry of a whole run: when it is due, a new run that is linked to the one that failed begins.
//!
//! Owns when, under which name, and that it happens once: the name follows from the run's own, so whoever does this again
//! after a crash finds the run that was made before.

use std::sync::Arc;

use skein_core::{
    engine::{InstanceIx, Publication, RunInput, RunStart},
    ids::RunId,
    time::Timestamp,
};

use super::{
    HostEvent, OwnedRunKey, RunLaunch, RunLoader,
    host_loop::HostLoop,
    owned_run::{AnswerRecipient, OwnedRun},
};
use crate::store::{ClaimError, RunRow};

/// How the end of a retry that is not wanted begins.
pub(super) const CALLED_OFF: &str = "called off by ";

impl HostLoop {
    /// A run is to be retried: not before its time.
    pub(super) fn schedule_retry(&mut self, key: OwnedRunKey) {
        let Some(owned) = self.runs.get(&key) else { return };
        let due = owned.driver.state().end.as_ref().and_then(|end| end.retry);
        self.retries.insert((due.unwrap_or(Timestamp(0)), key));
    }

    /// Begins the runs that are due.
    pub(super) fn start_due_retries(&mut self) {
        if self.retries.is_empty() {
            return;
        }
        let now = self.clock.now();
        while let Some((due, key)) = self.retries.first().copied().filter(|(due, _)| *due <= now) {
            self.retries.remove(&(due, key));
            let failed = self.retry_run(key).err();
            self.queue_input(key, RunInput::Published { item: Publication::Retry, failed }, None);
        }
    }

    /// Whoever cancels a run that is over and waits to be retried does not want it retried. Whether that was so.
    pub(super) fn cancel_retry(&mut self, key: OwnedRunKey, by: &str) -> bool {
        let before = self.retries.len();
        self.retries.retain(|(_, of)| *of != key);
        if self.retries.len() == before {
            return false;
        }
        let failed = Some(format!("{CALLED_OFF}{by}"));
        self.queue_input(key, RunInput::Published { item: Publication::Retry, failed }, None);
        true
    }

    fn retry_run(&mut self, key: OwnedRunKey) -> Result<(), String> {
        let Some(owned) = self.runs.get(&key) else { return Ok(()) };
        let (of, begin) = (owned.run().clone(), build_retry_launch(owned)?);
        let run = begin.start.run.clone();
        let here = match self.store.find_run(&run).map_err(|error| error.to_string())? {
            None => {
                let plan = self.hands.prepare_retry(&run, &begin.plan, &begin.about)?;
                self.launch_runs(vec![RunLaunch { plan, ..begin }])
                    .map(|()| true)
                    .map_err(|error| error.to_string())?
            }
            Some(row) => self.adopt_existing_retry(&row, &begin)?,
        };
        if here {
            (self.watcher)(HostEvent::Retries { run: &of, by: &run });
        }
        Ok(())
    }

    /// The run was made before a crash. It goes on here, if nobody else has it; whether it does.
    fn adopt_existing_retry(&mut self, row: &RunRow, begin: &RunLaunch) -> Result<bool, String> {
        if row.definition != begin.plan.definition.hash() {
            return Err(format!("there is another run `{}` already", row.run));
        }
        if row.head.closed {
            return Ok(false);
        }
        if self.by_id.contains_key(&row.run) {
            return Ok(true);
        }
        match self.claim_run(&row.run) {
            Ok(claim) => {
                self.hands.reap_orphans(std::slice::from_ref(&row.run));
                let store = Arc::clone(&self.store);
                let adopted = self.adopt_run(claim, &mut RunLoader::new(&*store));
                adopted.map(|_| true).map_err(|error| error.to_string())
            }
            Err(ClaimError::Owned(_)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn claim_run(&self, run: &RunId) -> Result<crate::store::RunClaim, ClaimError> {
        let mut claims = self.store.claim_runs(std::slice::from_ref(run))?;
        claims.pop().unwrap_or_else(|| Err(ClaimError::Unknown(run.clone())))
    }

    /// Answers without asking the run.
    pub(super) fn answer_ok(&mut self, asker: Option<AnswerRecipient>) {
        match asker {
            Some(AnswerRecipient::Here(reply)) => {
                let _ = reply.send(Ok(()));
            }
            Some(AnswerRecipient::Request(letter)) => {
                // The letter stays, and is answered when it is seen again.
                let _ = self.store.answer_request(letter, &super::RequestAnswer::Done.to_bytes());
            }
            None => {}
        }
    }
}

/// The run that retries this one: the same workflow and parameters, as the next try.
fn build_retry_launch(owned: &OwnedRun) -> Result<RunLaunch, String> {
    let state = owned.driver.state();
    let start = state.start.as_ref().ok_or("the run has not begun")?;
    let parameters = state.home_instance(InstanceIx::ROOT).input.clone();
    let plan = owned.driver.plan().definition.bind((*parameters).clone());
    let plan = plan.map_err(|problems| problems.first().map(|p| p.message.clone()).unwrap_or_default())?;
    let start = RunStart {
        run: derive_retry_id(&start.run, start.attempt)?,
        retry_of: Some(start.run.clone()),
        attempt: start.attempt.saturating_add(1),
        context: start.context.clone(),
        // All of it is tried again, whatever it began with.
        forked_from: None,
    };
    Ok(RunLaunch::new(plan, start, (*owned.about).clone()))
}

/// The first run's name and which try it is.
fn derive_retry_id(run: &RunId, attempt: u32) -> Result<RunId, String> {
    let own = format!("-{attempt}");
    let first = run.as_str().strip_suffix(own.as_str()).filter(|_| attempt > 1).unwrap_or(run.as_str());
    RunId::new(format!("{first}-{}", attempt.saturating_add(1))).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_retry_follows_from_the_run() {
        let next =
            |run: &str, attempt| derive_retry_id(&RunId::new(run).unwrap(), attempt).unwrap().to_string();
        assert_eq!(next("k3f9", 1), "k3f9-2");
        assert_eq!(next("k3f9-2", 2), "k3f9-3");
        assert_eq!(next("k3f9-1", 1), "k3f9-1-2");
        assert_eq!(next("odd", 4), "odd-5");
        assert!(derive_retry_id(&RunId::new("x".repeat(255)).unwrap(), 1).is_err());
    }
}
