//! The surroundings of the driver: people, who see open waitpoints, answer or not, and send signals; faults that can
//! strike at any moment; and crashes, after which the host restarts with only its journal.

use std::sync::Arc;

use skein_core::{
    engine::{DecisionActor, Driver, Event, RunInput, RunPhase, Verdict, Waitpoint, WaitpointKind},
    ir::StepKindSpec,
    limits,
    time::Millis,
};

use crate::{
    faults::{self, InjectedFault},
    outcome,
    rule_monitor::DriverMove,
    world::{SimulatedWorld, WorldEvent},
};

impl SimulatedWorld {
    pub(super) fn send_decision(&mut self, opening: Waitpoint) {
        let Some(asked) = self.watch.paths.waitpoint_identity(opening) else { return };
        let Some(answer) = outcome::draw_decision(self.seed, &asked) else { return };
        let Some(open) = self.driver.state().waitpoint(opening) else { return };
        let mut people = outcome::allowed_actors(&open.approvers, open.quorum);
        let input = |decision, by: &DecisionActor| {
            let (by, reason) = (by.clone(), answer.reason.clone());
            RunInput::Decide { opening, decision, by, reason }
        };
        // All required approvers but the last; sometimes one approves twice.
        let last = people.pop().unwrap_or_else(|| outcome::allowed_actor(&[]));
        let before = if answer.decision == Verdict::Approve { people.len() } else { people.len() / 2 };
        for by in &people[..before] {
            self.send_input(input(Verdict::Approve, by), true);
            if self.rng.chance_percent(20) {
                self.send_input(input(Verdict::Approve, by), true);
            }
        }
        let first = input(answer.decision, &last);
        if self.faults.strikes(InjectedFault::RacingDecisions) {
            let other = match answer.decision {
                Verdict::Approve => Verdict::Reject,
                Verdict::Reject => Verdict::Approve,
            };
            let second = input(other, &last);
            let swapped = self.rng.chance_percent(50);
            self.send_input(if swapped { second.clone() } else { first.clone() }, true);
            return self.send_input(if swapped { first } else { second }, true);
        }
        self.send_input(first, true);
    }

    /// Schedules the reactions of people to an opened waitpoint.
    pub(super) fn schedule_reactions(&mut self, event: &Event) {
        match event {
            Event::Opened { at, opening, .. } => {
                if let StepKindSpec::Wait(wait) = &self.step_definition(*at).kind {
                    let Some(asked) = self.watch.paths.waitpoint_identity(*opening) else { return };
                    let Some(sent) = outcome::draw_signal(self.seed, &asked, wait) else { return };
                    let input = RunInput::Signal { name: sent.name, payload: sent.payload.into(), to: Some(*at) };
                    self.schedule_event(sent.after, WorldEvent::Say(input));
                } else {
                    self.schedule_decision(*opening);
                }
            }
            Event::StepHeld { opening, .. } => self.schedule_decision(*opening),
            _ => {}
        }
    }

    fn schedule_decision(&mut self, opening: Waitpoint) {
        let Some(asked) = self.watch.paths.waitpoint_identity(opening) else { return };
        if let Some(answer) = outcome::draw_decision(self.seed, &asked) {
            self.schedule_event(answer.after, WorldEvent::Decide(opening));
        }
    }

    /// Schedules answers to all open waitpoints again.
    fn reschedule_waitpoints(&mut self) {
        let open: Vec<(Waitpoint, WaitpointKind)> = (0..)
            .map(Waitpoint)
            .zip(&self.driver.state().openings)
            .filter(|(_, state)| !state.closed)
            .map(|(opening, state)| (opening, state.kind))
            .collect();
        for (opening, kind) in open {
            if kind != WaitpointKind::Wait {
                self.schedule_decision(opening);
            } else if let Some(state) = self.driver.state().waitpoint(opening) {
                let (at, shows) = (state.at, state.shows.clone());
                let event = Event::Opened {
                    at,
                    opening,
                    deadline: None,
                    approvers: Vec::new(),
                    quorum: 1,
                    message: String::new(),
                    shows,
                };
                self.schedule_reactions(&event);
            }
        }
    }

    pub(super) fn schedule_stray_signals(&mut self) {
        if !self.faults.can_strike(InjectedFault::StraySignal) {
            return;
        }
        let names = self.plan.definition.signals.iter().cloned();
        for sent in outcome::draw_stray_signals(self.seed, names) {
            self.faults.record_fault(InjectedFault::StraySignal);
            let input = RunInput::Signal { name: sent.name, payload: sent.payload.into(), to: None };
            self.schedule_event(sent.after, WorldEvent::Say(input));
        }
    }
}

impl SimulatedWorld {
    /// Sends more signals than are kept for later waits.
    fn flood_signals(&mut self) {
        let Some(name) = self.plan.definition.signals.first().cloned() else { return };
        for n in 0..=limits::KEPT_SIGNALS {
            let input = RunInput::Signal { name: name.clone(), payload: Arc::new(n.into()), to: None };
            self.send_input(input, false);
        }
    }

    /// Sends nonsense before the run has started.
    pub(super) fn inject_faults_before_start(&mut self) {
        if self.faults.strikes(InjectedFault::Nonsense) {
            let input = faults::draw_input_before_start(self.faults.rng());
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
            && let Some(input) = faults::draw_host_hold(self.driver.state(), self.faults.rng(), now)
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
            for _ in 0..faults::count_extra_tries(self.driver.state()) {
                if self.rng.chance_percent(25) {
                    self.send_nonsense();
                }
            }
        }
    }

    fn send_nonsense(&mut self) {
        if let Some(input) = faults::draw_any_input(&self.plan, self.driver.state(), self.faults.rng()) {
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
