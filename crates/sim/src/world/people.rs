//! People: they see open waitpoints, answer or not, and send signals.

use skein_core::{
    engine::{DecisionActor, Event, RunInput, Verdict, Waitpoint, WaitpointKind},
    ir::StepKindSpec,
};

use super::{SimulatedWorld, WorldEvent};
use crate::{faults::InjectedFault, outcome};

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

    pub(super) fn schedule_decision(&mut self, opening: Waitpoint) {
        let Some(asked) = self.watch.paths.waitpoint_identity(opening) else { return };
        if let Some(answer) = outcome::draw_decision(self.seed, &asked) {
            self.schedule_event(answer.after, WorldEvent::Decide(opening));
        }
    }

    /// Schedules answers to all open waitpoints again.
    pub(super) fn reschedule_waitpoints(&mut self) {
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
