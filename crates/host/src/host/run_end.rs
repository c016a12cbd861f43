//! The ways in which the host gives up a run: closed, quarantined, lost to another process, or released.

use skein_core::ids::RunId;

use super::{HostEvent, OwnedRunKey, host_loop::HostLoop, owned_run::OwnedRun};

impl HostLoop {
    pub(super) fn close_run(&mut self, key: OwnedRunKey) {
        self.snapshot_on_leave(key);
        if let Some(owned) = self.drop_run(key) {
            if !owned.let_go {
                // A failed release is harmless: the run is over.
                let _ = self.store.release_runs(std::slice::from_ref(&owned.claim));
            }
            (self.watcher)(HostEvent::Closed { run: owned.run() });
        }
    }

    pub(super) fn quarantine_run(&mut self, key: OwnedRunKey) {
        if let Some(owned) = self.drop_run(key) {
            let why = owned.driver.state().quarantine.clone().unwrap_or_default();
            let _ = self.store.quarantine(owned.run(), &why);
            (self.watcher)(HostEvent::SetAside { run: owned.run(), why: &why });
        }
    }

    pub(super) fn lose_run(&mut self, key: OwnedRunKey) {
        if let Some(owned) = self.drop_run(key) {
            (self.watcher)(HostEvent::Lost { run: owned.run() });
        }
    }

    pub(super) fn leave_runs(&mut self, runs: &[RunId]) {
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
    pub(super) fn leave_on_request(&mut self, run: &RunId) {
        if self.by_id.contains_key(run) {
            self.leave_runs(std::slice::from_ref(run));
            (self.watcher)(HostEvent::Left { run });
        }
    }

    /// Drops a run and stops its attempts.
    pub(super) fn drop_run(&mut self, key: OwnedRunKey) -> Option<OwnedRun> {
        self.schedule_wake(key, None);
        self.retries.retain(|(_, of)| *of != key);
        let owned = self.runs.remove(&key)?;
        self.by_id.remove(owned.run());
        self.busy = self.busy.saturating_sub(owned.busy);
        for attempt in owned.driver.state().in_flight() {
            self.hands.stop_attempt(owned.run(), *attempt);
        }
        self.hands.forget_run(owned.run());
        Some(owned)
    }
}
