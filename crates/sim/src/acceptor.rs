//! The acceptor of histories: reads a run's events in order and reports the first event that the rules forbid.
//!
//! Owns a second, naive bookkeeping of a run (plain maps, searched whenever convenient), written from
//! `docs/design/semantics.md` and the events alone. Shares only the event types, the plan and the evaluation of
//! expressions with the engine. If the rules leave a choice, every choice is accepted.

mod attempts;
mod composites;
mod instances;
mod run;
mod state;
mod step_ends;
mod undo;
mod waitpoints;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skein_core::{
    engine::{BudgetOwner, Cost, Event, Publication, RunStart, UndoWalk},
    ids::SignalName,
    ir::RunStatus,
    limits,
    plan::Plan,
    time::Timestamp,
};

use self::state::{AcceptorInstance, AcceptorWaitpoint, AcceptorWalk};
use crate::violation::{RuleResult, ensure};

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcceptorPhase {
    New,
    Going,
    Decided,
    Closed,
    Quarantined,
}

/// Checks the history of one run.
#[derive(Debug)]
pub(crate) struct Acceptor {
    plan: Plan,
    phase: AcceptorPhase,
    now: Timestamp,
    start: Option<RunStart>,
    instances: Vec<AcceptorInstance>,
    openings: Vec<AcceptorWaitpoint>,
    /// Signals that no wait has taken, oldest first.
    kept: Vec<(SignalName, Value)>,
    walks: BTreeMap<UndoWalk, AcceptorWalk>,
    /// The number of completed steps, which defines their order.
    completions: u64,
    spent: Cost,
    /// The cost at which each renewed budget starts to count.
    renewed: BTreeMap<BudgetOwner, Cost>,
    publish: BTreeSet<Publication>,
    cancel_asked: bool,
    /// True while all events so far reuse results of another run.
    reuses: bool,
    tampers: u32,
    status: Option<RunStatus>,
    events: u64,
}

impl Acceptor {
    pub(crate) fn new(plan: Plan) -> Acceptor {
        Acceptor {
            plan,
            phase: AcceptorPhase::New,
            now: Timestamp::default(),
            start: None,
            instances: Vec::new(),
            openings: Vec::new(),
            kept: Vec::new(),
            walks: BTreeMap::new(),
            completions: 0,
            spent: Cost::default(),
            renewed: BTreeMap::new(),
            publish: BTreeSet::new(),
            cancel_asked: false,
            reuses: false,
            tampers: 0,
            status: None,
            events: 0,
        }
    }

    /// Accepts the next event of the run, or returns the rule that it breaks.
    pub(crate) fn accept(&mut self, at: Timestamp, event: &Event) -> RuleResult {
        self.now = at;
        self.events += 1;
        let taken = self.check_phase_allows(event).and_then(|()| self.dispatch_event(event));
        self.reuses = match event {
            Event::RunStarted { start, .. } => start.forked_from.is_some(),
            Event::InstanceReused(_) | Event::StepReused(_) => self.reuses,
            _ => false,
        };
        taken.map_err(|why| {
            let shown = serde_json::to_string(event).unwrap_or_default();
            format!("event {}: {why}: {shown}", self.events).into()
        })
    }

    /// Checks that a finished history is closed or quarantined, or waits for a named thing.
    pub(crate) fn check_finished(&self) -> RuleResult {
        match self.phase {
            AcceptorPhase::New => Err("the history is empty".into()),
            AcceptorPhase::Closed | AcceptorPhase::Quarantined => Ok(()),
            AcceptorPhase::Decided => {
                Err(format!("the run is decided but not closed; left to publish: {:?}", self.publish).into())
            }
            AcceptorPhase::Going if self.waits_for_something() => Ok(()),
            AcceptorPhase::Going => Err("the run has not ended and waits for nothing".into()),
        }
    }

    /// Checks that the phase of the run allows an event of this kind.
    fn check_phase_allows(&self, event: &Event) -> RuleResult {
        let starts = matches!(event, Event::RunStarted { .. });
        let aside = matches!(event, Event::Quarantined { .. });
        ensure!((self.phase == AcceptorPhase::New) == starts || aside, "a run starts once, with its first event");
        ensure!(self.phase != AcceptorPhase::Quarantined, "the run is quarantined");
        if matches!(self.phase, AcceptorPhase::Decided | AcceptorPhase::Closed) {
            let published =
                matches!(event, Event::PublicationEnded { .. } | Event::Closed) && self.phase == AcceptorPhase::Decided;
            let again = self.status == Some(RunStatus::UndoFailed) && self.is_about_undo(event);
            // While an undo is retried the run has not ended: it still records cancel requests and tampering.
            let noted = matches!(event, Event::CancelAsked { .. } | Event::Tampered { .. })
                && self.walks.values().any(|walk| !walk.over);
            ensure!(published || aside || again || noted, "the run has been decided");
        }
        Ok(())
    }

    fn dispatch_event(&mut self, event: &Event) -> RuleResult {
        match event {
            Event::RunStarted { .. } => self.accept_run_started(event),
            Event::InstanceStarted { parent, part, input, env, deadline } => {
                self.accept_instance_started(*parent, *part, input.as_deref(), env, *deadline)
            }
            Event::InstanceHalted { instance, why, undo } => self.accept_instance_halted(*instance, why, *undo),
            Event::InstanceEnded { instance, end } => self.accept_instance_ended(*instance, end),
            Event::StepReady { at } => self.accept_step_ready(*at),
            Event::StepExpanded { at, items } => self.accept_step_expanded(*at, items),
            Event::StepOverdue { at } => self.accept_step_overdue(*at),
            Event::StepEntered { at, deadline } => self.accept_step_entered(*at, *deadline),
            Event::AttemptStarted { attempt, mode, given, deadline } => {
                self.accept_attempt_started(*attempt, *mode, given.as_deref(), *deadline)
            }
            Event::StopAsked { attempt, why } => self.accept_stop_asked(*attempt, *why),
            Event::AttemptEnded { attempt, end, cost, proofs, .. } => {
                self.check_evidence(*attempt, end, proofs)?;
                self.accept_attempt_ended(*attempt, end, *cost)
            }
            Event::StepGoesOn { at, next } => self.accept_step_goes_on(*at, *next),
            Event::RetryScheduled { at, due, error } => self.accept_retry_scheduled(*at, *due, error),
            Event::StepHeld { at, opening, reason, until, approvers, quorum, next, .. } => {
                self.accept_step_held(*at, *opening, *reason, *until, (approvers, *quorum), *next)
            }
            Event::Opened { at, opening, deadline, approvers, quorum, .. } => {
                self.accept_opened(*at, *opening, *deadline, (approvers, *quorum))
            }
            Event::Escalated { opening, deadline, approvers } => self.accept_escalated(*opening, *deadline, approvers),
            Event::Approved { opening, by, .. } => self.accept_approved(*opening, by),
            Event::Decided { opening, decision, by, reason, grants } => {
                self.check_budget_grants(*opening, *decision, by, grants)?;
                self.accept_decided(*opening, *decision, by, reason.as_deref())
            }
            Event::SignalKept { name, payload } => self.accept_signal_kept(name, payload),
            Event::SignalTaken { opening, name, payload, kept } => {
                self.accept_signal_taken(*opening, name, payload, *kept)
            }
            Event::StepEnded { .. } => self.accept_step_ended(event),
            Event::InstanceReused(reused) => self.accept_instance_reused(reused),
            Event::StepReused(reused) => self.accept_step_reused(reused),
            Event::CancelAsked { .. } => {
                self.cancel_asked = true;
                Ok(())
            }
            Event::Tampered { .. } => {
                self.tampers += 1;
                ensure!(self.tampers <= limits::TAMPERS, "too many tamper events");
                Ok(())
            }
            Event::UndoBegan { of, targets, uncertain } => self.accept_undo_began(*of, targets, uncertain),
            Event::StepUndone { at, visit } => self.accept_step_undone(*at, *visit),
            Event::UndoFailed { at, visit, error } => self.accept_undo_failed(*at, *visit, error),
            Event::UndoEnded { of, clean } => self.accept_undo_ended(*of, *clean),
            Event::RunDecided { status, output, degraded, publish, retry, .. } => {
                self.accept_run_decided(*status, output, *degraded, publish, *retry)
            }
            Event::PublicationEnded { item, .. } => {
                ensure!(self.publish.remove(item), "that publication is not pending");
                Ok(())
            }
            Event::Closed => self.accept_closed(),
            Event::Quarantined { .. } => {
                self.phase = AcceptorPhase::Quarantined;
                Ok(())
            }
        }
    }
}
