//! How runs go: they are over, set aside, taken by someone else, or left.

use skein_core::ids::RunId;

use super::{Key, Told, owned::Owned, turn::Loop};

impl Loop {
    pub(super) fn close(&mut self, key: Key) {
        self.snapshot_of_last(key);
        if let Some(owned) = self.drop_run(key) {
            if !owned.let_go {
                // Whoever cannot let go of a run that is over holds nothing.
                let _ = self.store.release(std::slice::from_ref(&owned.claim));
            }
            (self.watcher)(Told::Closed { run: owned.run() });
        }
    }

    pub(super) fn set_aside(&mut self, key: Key) {
        if let Some(owned) = self.drop_run(key) {
            let why = owned.driver.state().quarantine.clone().unwrap_or_default();
            let _ = self.store.quarantine(owned.run(), &why);
            (self.watcher)(Told::SetAside { run: owned.run(), why: &why });
        }
    }

    pub(super) fn lose(&mut self, key: Key) {
        if let Some(owned) = self.drop_run(key) {
            (self.watcher)(Told::Lost { run: owned.run() });
        }
    }

    pub(super) fn leave(&mut self, runs: &[RunId]) {
        let mut claims = Vec::new();
        for key in runs.iter().filter_map(|run| self.by_id.get(run).copied()).collect::<Vec<_>>() {
            self.snapshot_of_last(key);
            claims.extend(self.drop_run(key).map(|owned| owned.claim));
        }
        if !claims.is_empty() {
            let _ = self.store.release(&claims);
        }
    }

    /// Lets go of a run because another process asked for it.
    pub(super) fn leave_as_asked(&mut self, run: &RunId) {
        if self.by_id.contains_key(run) {
            self.leave(std::slice::from_ref(run));
            (self.watcher)(Told::Left { run });
        }
    }

    /// Nothing of the run goes on here.
    pub(super) fn drop_run(&mut self, key: Key) -> Option<Owned> {
        self.schedule(key, None);
        self.retries.retain(|(_, of)| *of != key);
        let owned = self.runs.remove(&key)?;
        self.by_id.remove(owned.run());
        self.busy = self.busy.saturating_sub(owned.busy);
        for attempt in owned.driver.state().in_flight() {
            self.hands.stop(owned.run(), *attempt);
        }
        self.hands.forget(owned.run());
        Some(owned)
    }
}
