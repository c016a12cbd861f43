//! Skips delays in a replay, because the result of the wait is recorded.

use super::{host_loop::HostLoop, owned_run::OwnedRun};

impl HostLoop {
    /// If every run is a replay and only waits for retries, moves the clock forward to the next one.
    pub(super) fn skip_replay_delays(&self) {
        let waits = |owned: &OwnedRun| {
            let replayed = owned.about.get("replay").is_some();
            replayed && owned.appending.is_none() && owned.driver.state().in_flight().is_empty()
        };
        if self.runs.is_empty() || !self.runs.values().all(waits) {
            return;
        }
        let pauses = self.runs.values().filter_map(|owned| owned.driver.state().pauses_until());
        if let Some(next) = pauses.chain(self.retries.first().map(|(due, _)| *due)).min() {
            self.clock.set_forward(next);
        }
    }
}
