//! Whatever can go wrong at any moment.

use std::sync::Arc;

use skein_core::{engine::Input, limits};

use super::World;
use crate::{faults::Fault, nonsense};

impl World {
    /// More signals than are kept for waits to come.
    pub(super) fn flood(&mut self) {
        let Some(name) = self.plan.definition.signals.first().cloned() else { return };
        for n in 0..=limits::KEPT_SIGNALS {
            let input = Input::Signal { name: name.clone(), payload: Arc::new(n.into()), to: None };
            self.say(input, false);
        }
    }

    /// Nonsense before the run has begun.
    pub(super) fn misbehave_before(&mut self) {
        if self.faults.strikes(Fault::Nonsense) {
            let input = nonsense::before(self.faults.rng());
            self.say(input, false);
        }
    }

    /// Whatever can go wrong at any moment.
    pub(super) fn misbehave(&mut self) {
        if self.faults.strikes(Fault::EarlyWake) {
            self.say(Input::Wake, false);
        }
        if self.faults.strikes(Fault::RepeatedWake) {
            self.say(Input::Wake, false);
            self.say(Input::Wake, false);
        }
        if self.faults.strikes(Fault::ClockForward) {
            self.skew += 86_400_000;
        }
        if self.faults.strikes(Fault::ClockBack) {
            self.skew -= 3_600_000;
        }
        if self.faults.strikes(Fault::Cancel) {
            self.say(Input::Cancel { by: "ann".into(), reason: None }, true);
            if self.faults.strikes(Fault::CancelAgain) {
                self.say(Input::Cancel { by: "bob".into(), reason: Some("too".into()) }, true);
            }
        }
        if self.faults.strikes(Fault::LateResult)
            && let Some((attempt, report)) = self.ended.last().cloned()
        {
            self.say(Input::Finished { attempt, report }, false);
        }
        let now = self.wall();
        if self.faults.strikes(Fault::HoldByHost)
            && let Some(input) = nonsense::hold(self.driver.state(), self.faults.rng(), now)
        {
            self.say(input, false);
        }
        if self.faults.strikes(Fault::SignalFlood) {
            self.flood();
        }
        if self.faults.strikes(Fault::BrokenInvariant) {
            self.say(Input::Break { message: "a test".into() }, false);
        }
        if self.faults.strikes(Fault::Nonsense) {
            self.talk_nonsense();
        }
        if self.faults.has(Fault::Nonsense) {
            for _ in 0..nonsense::rarity(self.driver.state()) {
                if self.rng.percent(25) {
                    self.talk_nonsense();
                }
            }
        }
    }

    pub(super) fn talk_nonsense(&mut self) {
        if let Some(input) = nonsense::anything(&self.plan, self.driver.state(), self.faults.rng()) {
            self.say(input, false);
        }
    }

    /// A run that ended with something not undone can be told to try again.
    pub(super) fn revive(&mut self) -> bool {
        if !self.faults.has(Fault::RetryUndo) || !self.faults.strikes(Fault::RetryUndo) {
            return false;
        }
        self.say(Input::RetryUndo { by: "ann".into() }, false);
        true
    }
}
