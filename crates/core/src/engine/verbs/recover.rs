//! Recover: handles the restart of the host, after which no attempt is in flight.

use crate::engine::{
    AttemptEnd, AttemptId, AttemptReport, AttemptRole, Cost, decide::DecideContext, transitions::StepPhase,
};

impl DecideContext<'_> {
    /// Ends every attempt in flight as interrupted, or as stopped if it was being stopped.
    pub(in crate::engine) fn recover_attempts(&mut self) {
        let lost: Vec<AttemptId> = self.state.in_flight().iter().copied().collect();
        for attempt in lost {
            let stopping =
                attempt.role != AttemptRole::Undo && self.state.step(attempt.at).phase == StepPhase::Stopping;
            let end = if stopping { AttemptEnd::Stopped } else { AttemptEnd::Interrupted };
            self.record_attempt_end(attempt, AttemptReport::new(end, Cost::default()));
            self.follow_consequences();
        }
    }
}
