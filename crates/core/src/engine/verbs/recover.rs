//! Recover: the host is back, and nothing that was in flight is.

use crate::engine::{AttemptEnd, AttemptId, Cost, Report, Role, decide::Decision, transitions::Phase};

impl Decision<'_> {
    /// Every attempt in flight was interrupted; one that was being stopped has stopped.
    pub(in crate::engine) fn recover(&mut self) {
        let lost: Vec<AttemptId> = self.state.in_flight().iter().copied().collect();
        for attempt in lost {
            let stopping = attempt.role != Role::Undo && self.state.step(attempt.at).phase == Phase::Stopping;
            let end = if stopping { AttemptEnd::Stopped } else { AttemptEnd::Interrupted };
            self.ended(attempt, Report::new(end, Cost::default()));
            self.follow();
        }
    }
}
