//! People: they see what is open, answer or not, and send signals.

use skein_core::{
    engine::{Actor, Decision, Event, Input, Opening, OpeningKind},
    ir::Kind,
};

use super::{Happening, World};
use crate::{faults::Fault, outcome};

impl World {
    pub(super) fn decide(&mut self, opening: Opening) {
        let Some(asked) = self.watch.paths.asked(opening) else { return };
        let Some(answer) = outcome::answer(self.seed, &asked) else { return };
        let Some(open) = self.driver.state().opening(opening) else { return };
        let mut people = outcome::actors(&open.approvers, open.quorum);
        let input = |decision, by: &Actor| {
            let (by, reason) = (by.clone(), answer.reason.clone());
            Input::Decide { opening, decision, by, reason }
        };
        // All but the last of those who have to approve; somebody says it twice now and then.
        let last = people.pop().unwrap_or_else(|| outcome::actor(&[]));
        let before = if answer.decision == Decision::Approve { people.len() } else { people.len() / 2 };
        for by in &people[..before] {
            self.say(input(Decision::Approve, by), true);
            if self.rng.percent(20) {
                self.say(input(Decision::Approve, by), true);
            }
        }
        let first = input(answer.decision, &last);
        if self.faults.strikes(Fault::RacingDecisions) {
            let other = match answer.decision {
                Decision::Approve => Decision::Reject,
                Decision::Reject => Decision::Approve,
            };
            let second = input(other, &last);
            let swapped = self.rng.percent(50);
            self.say(if swapped { second.clone() } else { first.clone() }, true);
            return self.say(if swapped { first } else { second }, true);
        }
        self.say(first, true);
    }

    /// People see what was opened, and answer or not.
    pub(super) fn people_notice(&mut self, event: &Event) {
        match event {
            Event::Opened { at, opening, .. } => {
                if let Kind::Wait(wait) = &self.step(*at).kind {
                    let Some(asked) = self.watch.paths.asked(*opening) else { return };
                    let Some(sent) = outcome::signal(self.seed, &asked, wait) else { return };
                    let input =
                        Input::Signal { name: sent.name, payload: sent.payload.into(), to: Some(*at) };
                    self.at(sent.after, Happening::Say(input));
                } else {
                    self.schedule_answer(*opening);
                }
            }
            Event::StepHeld { opening, .. } => self.schedule_answer(*opening),
            _ => {}
        }
    }

    pub(super) fn schedule_answer(&mut self, opening: Opening) {
        let Some(asked) = self.watch.paths.asked(opening) else { return };
        if let Some(answer) = outcome::answer(self.seed, &asked) {
            self.at(answer.after, Happening::Decide(opening));
        }
    }

    /// People look again at what is open.
    pub(super) fn reopen(&mut self) {
        let open: Vec<(Opening, OpeningKind)> = (0..)
            .map(Opening)
            .zip(&self.driver.state().openings)
            .filter(|(_, state)| !state.closed)
            .map(|(opening, state)| (opening, state.kind))
            .collect();
        for (opening, kind) in open {
            if kind != OpeningKind::Wait {
                self.schedule_answer(opening);
            } else if let Some(state) = self.driver.state().opening(opening) {
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
                self.people_notice(&event);
            }
        }
    }

    pub(super) fn strays(&mut self) {
        if !self.faults.has(Fault::StraySignal) {
            return;
        }
        let names = self.plan.definition.signals.iter().cloned();
        for sent in outcome::stray_signals(self.seed, names) {
            self.faults.note(Fault::StraySignal);
            let input = Input::Signal { name: sent.name, payload: sent.payload.into(), to: None };
            self.at(sent.after, Happening::Say(input));
        }
    }
}
