//! Faults that can strike at any moment.

use std::sync::Arc;

use skein_core::{engine::RunInput, limits};

use super::SimulatedWorld;
use crate::{faults::InjectedFault, nonsense};

impl SimulatedWorld {
    /// Sends more signals than are kept for later waits.
    pub(super) fn flood_signals(&mut self) {
        let Some(name) = self.plan.definition.signals.first().cloned() else { return };
        for n in 0..=limits::KEPT_SIGNALS {
            let input = RunInput::Signal { name: name.clone(), payload: Arc::new(n.into()), to: None };
            self.send_input(input, false);
        }
    }

    /// Sends nonsense before the run has started.
    pub(super) fn inject_faults_before_start(&mut self) {
        if self.faults.strikes(InjectedFault::Nonsense) {
            let input = nonsense::draw_input_before_start(self.faults.rng());
            self.send_input(input, false);
        }
    }

    /// Injects the faults that can strike at any moment.
    pub(super) fn inject_faults(&mut self) {
        if self.faults.strikes(InjectedFault::EarlyWake) {
            self.send_input(RunInput::Wake, false);
        }
        if self.faults.strikes(InjectedFault::RepeatedWake) {
            self.send_input(RunInput::Wake, false);
            self.send_input(RunInput::Wake, false);
        }
        if self.faults.strikes(InjectedFault::ClockForward) {
            self.skew += 86_400_000;
        }
        if self.faults.strikes(InjectedFault::ClockBack) {
            self.skew -= 3_600_000;
        }
        if self.faults.strikes(InjectedFault::Cancel) {
            self.send_input(RunInput::Cancel { by: "ann".into(), reason: None }, true);
            if self.faults.strikes(InjectedFault::CancelAgain) {
                self.send_input(RunInput::Cancel { by: "bob".into(), reason: Some("too".into()) }, true);
            }
        }
        if self.faults.strikes(InjectedFault::LateResult)
            && let Some((attempt, report)) = self.ended.last().cloned()
        {
            self.send_input(RunInput::Finished { attempt, report }, false);
        }
        let now = self.wall_clock();
        if self.faults.strikes(InjectedFault::HoldByHost)
            && let Some(input) = nonsense::draw_host_hold(self.driver.state(), self.faults.rng(), now)
        {
            self.send_input(input, false);
        }
        if self.faults.strikes(InjectedFault::SignalFlood) {
            self.flood_signals();
        }
        if self.faults.strikes(InjectedFault::BrokenInvariant) {
            self.send_input(RunInput::Break { message: "a test".into() }, false);
        }
        if self.faults.strikes(InjectedFault::Nonsense) {
            self.send_nonsense();
        }
        if self.faults.can_strike(InjectedFault::Nonsense) {
            for _ in 0..nonsense::count_extra_tries(self.driver.state()) {
                if self.rng.chance_percent(25) {
                    self.send_nonsense();
                }
            }
        }
    }

    pub(super) fn send_nonsense(&mut self) {
        if let Some(input) = nonsense::draw_any_input(&self.plan, self.driver.state(), self.faults.rng()) {
            self.send_input(input, false);
        }
    }

    /// Requests a retry of the undo, if a run ended with steps that were not undone.
    pub(super) fn retry_undo(&mut self) -> bool {
        if !self.faults.can_strike(InjectedFault::RetryUndo) || !self.faults.strikes(InjectedFault::RetryUndo) {
            return false;
        }
        self.send_input(RunInput::RetryUndo { by: "ann".into() }, false);
        true
    }
}
