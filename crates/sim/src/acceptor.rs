//! The acceptor of histories: reads a run's events one after another and says which one the rules forbid.
//!
//! Owns a second, naive bookkeeping of a run (plain maps, searched whenever convenient), written from
//! `docs/design/semantics.md` and the events alone. Shares nothing with the engine but the event's types, the plan and
//! the evaluation of expressions. Where the rules leave a choice, every choice is accepted.

mod after;
mod arrive;
mod attempts;
mod book;
mod ends;
mod env;
mod halts;
mod inside;
mod openings;
mod reuse;
mod run;
mod settle;
mod undo;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skein_core::{
    engine::{BudgetOwner, Cost, Event, Publication, Start, Walk},
    ids::SignalName,
    ir::RunStatus,
    limits,
    plan::Plan,
    time::Time,
};

use self::book::{Inst, Open, WalkBook};

/// Says no with a reason unless something holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}
pub(crate) use ensure;

type Verdict = Result<(), String>;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Going,
    Decided,
    Closed,
    Quarantined,
}

/// Reads the history of one run.
#[derive(Debug)]
pub struct Acceptor {
    plan: Plan,
    phase: Phase,
    now: Time,
    start: Option<Start>,
    instances: Vec<Inst>,
    openings: Vec<Open>,
    /// Signals nobody has taken, oldest first.
    kept: Vec<(SignalName, Value)>,
    walks: BTreeMap<Walk, WalkBook>,
    /// How many steps have been completed, for their order.
    completions: u64,
    spent: Cost,
    /// The costs from which renewed budgets count.
    renewed: BTreeMap<BudgetOwner, Cost>,
    publish: BTreeSet<Publication>,
    cancel_asked: bool,
    /// Nothing has happened yet that was not taken over from another run.
    reuses: bool,
    tampers: u32,
    status: Option<RunStatus>,
    events: u64,
}

impl Acceptor {
    pub fn new(plan: Plan) -> Acceptor {
        Acceptor {
            plan,
            phase: Phase::New,
            now: Time::default(),
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

    /// Takes the next event of the run, or says which rule it breaks.
    pub fn accept(&mut self, at: Time, event: &Event) -> Result<(), String> {
        self.now = at;
        self.events += 1;
        let taken = self.timely(event).and_then(|()| self.one(event));
        self.reuses = match event {
            Event::RunStarted { start, .. } => start.forked_from.is_some(),
            Event::InstanceReused(_) | Event::StepReused(_) => self.reuses,
            _ => false,
        };
        taken.map_err(|why| {
            let shown = serde_json::to_string(event).unwrap_or_default();
            format!("event {}: {why}: {shown}", self.events)
        })
    }

    /// What must hold of a history that is over: it is closed, or set aside, or waits for something that has a name.
    pub fn finish(&self) -> Result<(), String> {
        match self.phase {
            Phase::New => Err("nothing happened".into()),
            Phase::Closed | Phase::Quarantined => Ok(()),
            Phase::Decided => Err(format!("decided, and not closed; left to publish: {:?}", self.publish)),
            Phase::Going if self.waits_for_something() => Ok(()),
            Phase::Going => Err("neither at an end nor waiting for anything".into()),
        }
    }

    /// How the run ended, if it has.
    pub fn status(&self) -> Option<RunStatus> {
        self.status
    }

    /// Whether an event of this sort can come now at all.
    fn timely(&self, event: &Event) -> Verdict {
        let starts = matches!(event, Event::RunStarted { .. });
        let aside = matches!(event, Event::Quarantined { .. });
        ensure!((self.phase == Phase::New) == starts || aside, "a run starts once, with its first event");
        ensure!(self.phase != Phase::Quarantined, "the run was set aside");
        if matches!(self.phase, Phase::Decided | Phase::Closed) {
            let published = matches!(event, Event::PublicationEnded { .. } | Event::Closed)
                && self.phase == Phase::Decided;
            let again = self.status == Some(RunStatus::UndoFailed) && self.is_about_undo(event);
            // A run whose undo is tried again has not ended: it can be told to cancel or be tampered with, and takes note.
            let noted = matches!(event, Event::CancelAsked { .. } | Event::Tampered { .. })
                && self.walks.values().any(|walk| !walk.over);
            ensure!(published || aside || again || noted, "the run has been decided");
        }
        Ok(())
    }

    fn one(&mut self, event: &Event) -> Verdict {
        match event {
            Event::RunStarted { .. } => self.run_started(event),
            Event::InstanceStarted { parent, part, input, env, deadline } => {
                self.instance_started(*parent, *part, input.as_deref(), env, *deadline)
            }
            Event::InstanceHalted { instance, why, undo } => self.instance_halted(*instance, why, *undo),
            Event::InstanceEnded { instance, end } => self.instance_ended(*instance, end),
            Event::StepReady { at } => self.step_ready(*at),
            Event::StepExpanded { at, items } => self.step_expanded(*at, items),
            Event::StepOverdue { at } => self.step_overdue(*at),
            Event::StepEntered { at, deadline } => self.step_entered(*at, *deadline),
            Event::AttemptStarted { attempt, mode, given, deadline } => {
                self.attempt_started(*attempt, *mode, given.as_deref(), *deadline)
            }
            Event::StopAsked { attempt, why } => self.stop_asked(*attempt, *why),
            Event::AttemptEnded { attempt, end, cost, proofs, .. } => {
                self.proven(*attempt, end, proofs)?;
                self.attempt_ended(*attempt, end, *cost)
            }
            Event::StepGoesOn { at, next } => self.step_goes_on(*at, *next),
            Event::RetryScheduled { at, due, error } => self.retry_scheduled(*at, *due, error),
            Event::StepHeld { at, opening, reason, until, approvers, quorum, next, .. } => {
                self.step_held(*at, *opening, *reason, *until, (approvers, *quorum), *next)
            }
            Event::Opened { at, opening, deadline, approvers, quorum, .. } => {
                self.opened(*at, *opening, *deadline, (approvers, *quorum))
            }
            Event::Escalated { opening, deadline, approvers } => {
                self.escalated(*opening, *deadline, approvers)
            }
            Event::Approved { opening, by, .. } => self.approved(*opening, by),
            Event::Decided { opening, decision, by, reason, grants } => {
                self.renews(*opening, *decision, by, grants)?;
                self.decided(*opening, *decision, by, reason.as_deref())
            }
            Event::SignalKept { name, payload } => self.signal_kept(name, payload),
            Event::SignalTaken { opening, name, payload, kept } => {
                self.signal_taken(*opening, name, payload, *kept)
            }
            Event::StepEnded { .. } => self.step_ended(event),
            Event::InstanceReused(reused) => self.instance_reused(reused),
            Event::StepReused(reused) => self.step_reused(reused),
            Event::CancelAsked { .. } => {
                self.cancel_asked = true;
                Ok(())
            }
            Event::Tampered { .. } => {
                self.tampers += 1;
                ensure!(self.tampers <= limits::TAMPERS, "too much is noted");
                Ok(())
            }
            Event::UndoBegan { of, targets, uncertain } => self.undo_began(*of, targets, uncertain),
            Event::StepUndone { at, visit } => self.step_undone(*at, *visit),
            Event::UndoFailed { at, visit, error } => self.undo_failed(*at, *visit, error),
            Event::UndoEnded { of, clean } => self.undo_ended(*of, *clean),
            Event::RunDecided { status, output, degraded, publish, retry, .. } => {
                self.run_decided(*status, output, *degraded, publish, *retry)
            }
            Event::PublicationEnded { item, .. } => {
                ensure!(self.publish.remove(item), "nothing like that is to be published");
                Ok(())
            }
            Event::Closed => self.closed(),
            Event::Quarantined { .. } => {
                self.phase = Phase::Quarantined;
                Ok(())
            }
        }
    }
}
