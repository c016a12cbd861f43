//! Folds one durable event into the state. The function is total: it evaluates no expression and no policy and cannot
//! refuse an event.
//!
//! Owns every change of [`RunState`]. Does not derive consequences: `decide` does, so that replay only has to apply
//! events.

mod instance;
mod step;
mod undo;
mod waitpoint;

use super::{
    Event,
    fold::StateFold,
    state::{RunCancellation, RunConclusion, RunPhase, RunState},
    transitions::StepPhase,
};
use crate::{plan::Plan, time::Timestamp};

/// Folds one event, decided at time `at`, into the state.
pub fn apply(plan: &Plan, state: &mut RunState, at: Timestamp, event: &Event) {
    state.events += 1;
    state.now = at;
    let mut fold = StateFold { plan, state, now: at };
    fold.apply_event(event);
    fold.state.commands.wake = fold.state.deadlines.first().map(|(time, _)| *time);
}

impl StateFold<'_> {
    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::RunStarted { start, definition, parameters, env, deadline, publish, rulings } => {
                self.state.definition = *definition;
                self.state.rulings = rulings.clone();
                self.apply_run_started(start, parameters, env, *deadline, publish);
            }
            Event::InstanceStarted { parent, part, input, env, deadline } => {
                self.apply_instance_started(*parent, *part, input.as_ref(), env, *deadline);
            }
            Event::InstanceHalted { instance, why, undo } => self.apply_instance_halted(*instance, why, *undo),
            Event::InstanceEnded { instance, end } => self.apply_instance_ended(*instance, end),
            Event::InstanceReused(reused) => self.apply_instance_reused(reused),
            Event::StepReused(reused) => self.apply_step_reused(reused),
            Event::StepReady { at } => {
                self.begin_visit(*at);
                self.make_ready(*at);
            }
            Event::StepOverdue { at } => {
                self.drop_step_deadline(*at);
                self.visit_state_mut(*at).stopping = Some(super::AttemptStopReason::Timeout);
            }
            Event::StepExpanded { at, items } => self.visit_state_mut(*at).items = Some(items.clone()),
            Event::StepEntered { at, deadline } => self.apply_step_entered(*at, *deadline),
            Event::AttemptStarted { attempt, mode, given, deadline } => {
                self.apply_attempt_started(*attempt, *mode, given.as_ref(), *deadline);
            }
            Event::StopAsked { attempt, why } => {
                self.state.commands.runs.remove(attempt);
                self.visit_state_mut(attempt.at).stopping = Some(*why);
                self.set_phase(attempt.at, StepPhase::Stopping);
            }
            Event::AttemptEnded { attempt, end, cost, proofs, .. } => {
                self.apply_attempt_ended(attempt, end, *cost, proofs);
            }
            Event::StepGoesOn { at, next } => self.apply_step_goes_on(*at, *next),
            Event::RetryScheduled { at, due, error } => self.apply_retry_scheduled(*at, *due, error),
            Event::StepHeld { .. }
            | Event::Opened { .. }
            | Event::Escalated { .. }
            | Event::Approved { .. }
            | Event::Decided { .. } => {
                self.apply_waitpoint_event(event);
            }
            Event::SignalKept { name, payload } => self.state.signals.push_back((name.clone(), payload.clone())),
            Event::SignalTaken { opening, name, payload, kept } => {
                self.close_waitpoint(*opening);
                let taken = self.state.signals.iter().position(|(kept, with)| kept == name && with == payload);
                if let Some(i) = taken.filter(|_| *kept) {
                    self.state.signals.remove(i);
                }
            }
            Event::StepEnded { .. } => self.apply_step_ended(event),
            Event::CancelAsked { by, reason } => {
                let cancel = RunCancellation { by: by.clone(), reason: reason.clone(), at: self.now };
                self.state.cancel.get_or_insert(cancel);
            }
            Event::Tampered { .. } => self.state.tampers += 1,
            Event::UndoBegan { of, targets, uncertain } => self.apply_undo_began(*of, targets, uncertain),
            Event::StepUndone { at, .. } => self.finish_undo_target(*at, None),
            Event::UndoFailed { at, error, .. } => self.finish_undo_target(*at, Some(error)),
            Event::UndoEnded { of, clean } => self.apply_undo_ended(*of, *clean),
            Event::RunDecided { status, output, error, degraded, publish, retry } => {
                self.state.phase = RunPhase::Decided;
                let end = RunConclusion {
                    status: *status,
                    output: output.clone(),
                    error: error.clone(),
                    degraded: *degraded,
                    at: self.now,
                    retry: *retry,
                };
                self.state.end = Some(end);
                self.state.commands.publish.extend(publish);
            }
            Event::PublicationEnded { item, .. } => {
                self.state.commands.publish.remove(item);
            }
            Event::Closed => self.state.phase = RunPhase::Closed,
            Event::Quarantined { message } => {
                self.state.phase = RunPhase::Quarantined;
                self.state.quarantine = Some(message.clone());
                self.state.deadlines.clear();
                self.state.in_flight.clear();
                self.state.ready.clear();
                self.state.entering.clear();
                self.state.undoable.clear();
                self.state.commands = super::WantedWork::default();
            }
        }
    }
}
