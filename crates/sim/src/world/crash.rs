//! The host dies, and comes back with nothing but its journal.

use skein_core::{
    engine::{Driver, Input, RunPhase},
    time::Millis,
};

use super::{Happening, World};
use crate::{faults::Fault, script::Move};

impl World {
    /// The host dies and comes back.
    pub(super) fn crash(&mut self, row_lost: bool) {
        self.moves.push(Move::Crash { row_lost });
        self.appending = false;
        for attempt in std::mem::take(&mut self.workers).into_keys() {
            if self.faults.strikes(Fault::WorkerOutlivesHost) {
                let report = self.how_it_ends(attempt);
                let after = self.soon(2_000);
                self.at(after, Happening::Late(attempt, report));
            }
        }
        // What was on its way inside the host is gone; what people will say is not.
        self.queue.retain(|_, what| {
            let published = matches!(what, Happening::Say(Input::Published { .. }));
            matches!(what, Happening::Say(_) | Happening::Decide(_) | Happening::Late(..)) && !published
        });
        self.steady = self.steady.after(Millis(1 + self.rng.below(10_000)));
        match Driver::replay(self.plan.clone(), &self.rows) {
            Ok(driver) => self.driver = driver,
            Err(error) => {
                self.violation.get_or_insert(format!("I2: the journal does not replay: {error}"));
                return;
            }
        }
        self.wake = None;
        if let Err(violation) = self.watch.replayed(&self.driver) {
            self.violation.get_or_insert(violation);
        }
        self.reopen();
        let owed: Vec<Input> = std::mem::take(&mut self.owed).into_values().collect();
        if self.driver.state().phase != RunPhase::New {
            self.say(Input::Recover, false);
        }
        for input in owed.into_iter().filter(|input| !matches!(input, Input::Published { .. })) {
            self.say(input, true);
        }
    }
}
