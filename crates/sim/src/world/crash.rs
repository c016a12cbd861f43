//! Crashes: the host dies, and restarts with only its journal.

use skein_core::{
    engine::{Driver, RunInput, RunPhase},
    time::Millis,
};

use super::{SimulatedWorld, WorldEvent};
use crate::{faults::InjectedFault, script::DriverMove};

impl SimulatedWorld {
    /// Kills the host and restarts it.
    pub(super) fn crash_host(&mut self, row_lost: bool) {
        self.moves.push(DriverMove::Crash { row_lost });
        self.appending = false;
        for attempt in std::mem::take(&mut self.workers).into_keys() {
            if self.faults.strikes(InjectedFault::WorkerOutlivesHost) {
                let report = self.draw_report(attempt);
                let after = self.draw_short_delay(2_000);
                self.schedule_event(after, WorldEvent::Late(attempt, report));
            }
        }
        // Events inside the host are lost; future inputs of people are not.
        self.queue.retain(|_, what| {
            let published = matches!(what, WorldEvent::Say(RunInput::Published { .. }));
            matches!(what, WorldEvent::Say(_) | WorldEvent::Decide(_) | WorldEvent::Late(..)) && !published
        });
        self.steady = self.steady.saturating_add(Millis(1 + self.rng.next_below(10_000)));
        match Driver::replay(self.plan.clone(), &self.rows) {
            Ok(driver) => self.driver = driver,
            Err(error) => {
                self.violation.get_or_insert(format!("I2: the journal does not replay: {error}").into());
                return;
            }
        }
        self.wake = None;
        if let Err(violation) = self.watch.check_replayed(&self.driver) {
            self.violation.get_or_insert(violation);
        }
        self.reschedule_waitpoints();
        let owed: Vec<RunInput> = std::mem::take(&mut self.owed).into_values().collect();
        if self.driver.state().phase != RunPhase::New {
            self.send_input(RunInput::Recover, false);
        }
        for input in owed.into_iter().filter(|input| !matches!(input, RunInput::Published { .. })) {
            self.send_input(input, true);
        }
    }
}
