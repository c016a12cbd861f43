//! The end of a run in this process, and the retry of a whole run.
//!
//! Owns the ways in which the host gives up a run: closed, quarantined, lost to another process, or released. Owns the
//! time and the name of a retry, and that it happens once: the name is derived from the failed run's name, so that a
//! process that repeats this after a crash finds the run that was created before.

use std::sync::Arc;

use skein_core::{
    engine::{InstanceIx, Publication, RunInput, RunStart},
    ids::{IdError, RunId},
    time::Timestamp,
};

use super::{HostEvent, OwnedRunKey, ResumeError, RunLaunch, RunLoader, host_loop::HostLoop, owned_run::OwnedRun};
use crate::{
    executor_api::RetryFilesError,
    store::{ClaimError, RunClaim, RunRow, StoreError},
};

/// The prefix of the failure text of a retry that a person cancelled.
pub(crate) const CALLED_OFF: &str = "called off by ";

/// The reason why a run was not retried.
#[derive(Debug, thiserror::Error)]
enum RetryError {
    #[error("the run has not started")]
    NotStarted,
    /// The parameters no longer bind. Holds the first problem.
    #[error("{0}")]
    Parameters(String),
    #[error("there is another run `{0}` already")]
    Taken(RunId),
    #[error(transparent)]
    Name(#[from] IdError),
    #[error(transparent)]
    Files(#[from] RetryFilesError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl HostLoop {
    /// Schedules the retry of a run.
    pub(crate) fn schedule_retry(&mut self, key: OwnedRunKey) {
        let Some(owned) = self.runs.get(&key) else { return };
        let due = owned.driver.state().end.as_ref().and_then(|end| end.retry);
        self.retries.insert((due.unwrap_or(Timestamp(0)), key));
    }

    /// Starts the retries that are due.
    pub(crate) fn start_due_retries(&mut self) {
        if self.retries.is_empty() {
            return;
        }
        let now = self.clock.now();
        while let Some((due, key)) = self.retries.first().copied().filter(|(due, _)| *due <= now) {
            self.retries.remove(&(due, key));
            let failed = self.retry_run(key).err().map(|error| error.to_string());
            self.queue_input(key, RunInput::Published { item: Publication::Retry, failed }, None);
        }
    }

    /// Cancels the pending retry of a run that is over. Returns false if there was none.
    pub(crate) fn cancel_retry(&mut self, key: OwnedRunKey, by: &str) -> bool {
        let before = self.retries.len();
        self.retries.retain(|(_, of)| *of != key);
        if self.retries.len() == before {
            return false;
        }
        let failed = Some(format!("{CALLED_OFF}{by}"));
        self.queue_input(key, RunInput::Published { item: Publication::Retry, failed }, None);
        true
    }

    fn retry_run(&mut self, key: OwnedRunKey) -> Result<(), RetryError> {
        let Some(owned) = self.runs.get(&key) else { return Ok(()) };
        let (of, begin) = (owned.run().clone(), build_retry_launch(owned)?);
        let run = begin.start.run.clone();
        let here = match self.store.find_run(&run)? {
            None => {
                let plan = self.executor.prepare_retry(&run, &begin.plan, &begin.settings)?;
                self.launch_runs(vec![RunLaunch { plan, ..begin }])?;
                true
            }
            Some(row) => self.adopt_existing_retry(&row, &begin)?,
        };
        if here {
            (self.watcher)(HostEvent::Retries { run: &of, by: &run });
        }
        Ok(())
    }

    /// Takes over a run that was created before a crash. Returns false if it is over or another process owns it.
    fn adopt_existing_retry(&mut self, row: &RunRow, begin: &RunLaunch) -> Result<bool, RetryError> {
        if row.definition != begin.plan.definition.hash() {
            return Err(RetryError::Taken(row.run.clone()));
        }
        if row.head.closed {
            return Ok(false);
        }
        if self.by_id.contains_key(&row.run) {
            return Ok(true);
        }
        match self.claim_run(&row.run) {
            Ok(claim) => {
                self.executor.reap_orphans(std::slice::from_ref(&row.run));
                let store = Arc::clone(&self.store);
                self.adopt_run(claim, &mut RunLoader::new(&*store))?;
                Ok(true)
            }
            Err(ClaimError::Owned(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn claim_run(&self, run: &RunId) -> Result<RunClaim, ClaimError> {
        let mut claims = self.store.claim_runs(std::slice::from_ref(run))?;
        claims.pop().unwrap_or_else(|| Err(ClaimError::Unknown(run.clone())))
    }
}

/// Builds the run that retries this one: the same workflow and parameters, as the next attempt.
fn build_retry_launch(owned: &OwnedRun) -> Result<RunLaunch, RetryError> {
    let state = owned.driver.state();
    let start = state.start.as_ref().ok_or(RetryError::NotStarted)?;
    let parameters = state.home_instance(InstanceIx::ROOT).input.clone();
    let plan = owned.driver.plan().definition.bind((*parameters).clone());
    let plan = plan
        .map_err(|problems| RetryError::Parameters(problems.first().map(|p| p.message.clone()).unwrap_or_default()))?;
    let start = RunStart {
        run: derive_retry_id(&start.run, start.attempt)?,
        retry_of: Some(start.run.clone()),
        attempt: start.attempt.saturating_add(1),
        context: start.context.clone(),
        // All of it is run again, whatever results it reused.
        forked_from: None,
    };
    Ok(RunLaunch::new(plan, start, Arc::clone(&owned.settings)))
}

/// Returns the first run's name with the number of the attempt.
fn derive_retry_id(run: &RunId, attempt: u32) -> Result<RunId, IdError> {
    let own = format!("-{attempt}");
    let first = run.as_str().strip_suffix(own.as_str()).filter(|_| attempt > 1).unwrap_or(run.as_str());
    RunId::new(format!("{first}-{}", attempt.saturating_add(1)))
}

impl HostLoop {
    pub(crate) fn close_run(&mut self, key: OwnedRunKey) {
        self.snapshot_on_leave(key);
        if let Some(owned) = self.drop_run(key) {
            if !owned.let_go {
                // A failed release is harmless: the run is over.
                let _ = self.store.release_runs(std::slice::from_ref(&owned.claim));
            }
            (self.watcher)(HostEvent::Closed { run: owned.run() });
        }
    }

    pub(crate) fn quarantine_run(&mut self, key: OwnedRunKey) {
        if let Some(owned) = self.drop_run(key) {
            let why = owned.driver.state().quarantine.clone().unwrap_or_default();
            let _ = self.store.quarantine(owned.run(), &why);
            (self.watcher)(HostEvent::SetAside { run: owned.run(), why: &why });
        }
    }

    pub(crate) fn lose_run(&mut self, key: OwnedRunKey) {
        if let Some(owned) = self.drop_run(key) {
            (self.watcher)(HostEvent::Lost { run: owned.run() });
        }
    }

    pub(crate) fn leave_runs(&mut self, runs: &[RunId]) {
        let mut claims = Vec::new();
        for key in runs.iter().filter_map(|run| self.by_id.get(run).copied()).collect::<Vec<_>>() {
            self.snapshot_on_leave(key);
            claims.extend(self.drop_run(key).map(|owned| owned.claim));
        }
        if !claims.is_empty() {
            let _ = self.store.release_runs(&claims);
        }
    }

    /// Releases a run because another process asked for it.
    pub(crate) fn leave_on_request(&mut self, run: &RunId) {
        if self.by_id.contains_key(run) {
            self.leave_runs(std::slice::from_ref(run));
            (self.watcher)(HostEvent::Left { run });
        }
    }

    /// Drops a run and stops its attempts.
    pub(crate) fn drop_run(&mut self, key: OwnedRunKey) -> Option<OwnedRun> {
        self.schedule_wake(key, None);
        self.retries.retain(|(_, of)| *of != key);
        let owned = self.runs.remove(&key)?;
        self.by_id.remove(owned.run());
        self.busy = self.busy.saturating_sub(owned.busy);
        for attempt in owned.driver.state().in_flight() {
            self.executor.stop_attempt(owned.run(), *attempt);
        }
        self.executor.forget_run(owned.run());
        Some(owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_retry_follows_from_the_run() {
        let next = |run: &str, attempt| derive_retry_id(&RunId::new(run).unwrap(), attempt).unwrap().to_string();
        assert_eq!(next("k3f9", 1), "k3f9-2");
        assert_eq!(next("k3f9-2", 2), "k3f9-3");
        assert_eq!(next("k3f9-1", 1), "k3f9-1-2");
        assert_eq!(next("odd", 4), "odd-5");
        assert!(derive_retry_id(&RunId::new("x".repeat(255)).unwrap(), 1).is_err());
    }
}
