//! What happens when a step does not simply succeed: a word for programs, words for people.

use std::fmt;

use serde::Serialize;
use skein_core::ir::{Effect, Gate, GateTimeout, Then, Verdict, WaitTimeout};

use super::words::{approvers, listed, target};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Stop,
    StopAndUndo,
    CountAsSkipped,
    GoOn,
    SkipDependents,
    SkipDependentsAndFail,
    Cancel,
    Reject,
    Approve,
    /// To a step, or to the end.
    Go(String),
    /// These are asked.
    Escalate(Vec<String>),
}

impl Ending {
    /// Of an outcome that is no success.
    pub fn of(effect: Effect) -> Ending {
        match effect {
            Effect { then: Then::Abort, .. } => Ending::Stop,
            Effect { then: Then::Undo, .. } => Ending::StopAndUndo,
            Effect { as_skipped: true, .. } => Ending::CountAsSkipped,
            Effect { satisfies: true, .. } => Ending::GoOn,
            Effect { verdict: Verdict::Failed, .. } => Ending::SkipDependentsAndFail,
            Effect { .. } => Ending::SkipDependents,
        }
    }

    /// Of a gate that nobody decides in time.
    pub fn of_gate(gate: &Gate, expired: Effect) -> Ending {
        match &gate.on_timeout {
            GateTimeout::Expire => Ending::of(expired),
            GateTimeout::Reject => Ending::Reject,
            GateTimeout::Approve => Ending::Approve,
            GateTimeout::Cancel => Ending::Cancel,
            GateTimeout::Go(to) => Ending::Go(target(to)),
            GateTimeout::Escalate { .. } => {
                Ending::Escalate(approvers(gate.escalation().unwrap_or_default()))
            }
        }
    }

    /// Of a wait whose signal does not come in time.
    pub fn of_wait(timeout: &WaitTimeout, expired: Effect) -> Ending {
        match timeout {
            WaitTimeout::Expire => Ending::of(expired),
            WaitTimeout::Cancel => Ending::Cancel,
            WaitTimeout::Continue => Ending::GoOn,
            WaitTimeout::Go(to) => Ending::Go(target(to)),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::Stop => "the run stops",
            Ending::StopAndUndo => "the run stops and is undone",
            Ending::CountAsSkipped => "it counts as skipped",
            Ending::GoOn => "the run goes on",
            Ending::SkipDependents => "what depends on it is skipped",
            Ending::SkipDependentsAndFail => "what depends on it is skipped, and the run fails",
            Ending::Cancel => "the run is cancelled",
            Ending::Reject => "it counts as rejected",
            Ending::Approve => "it opens by itself",
            Ending::Go(to) => return write!(f, "it goes to {to}"),
            Ending::Escalate(to) if to.is_empty() => {
                "it waits for as long again, nobody may decide then, and the run is cancelled"
            }
            Ending::Escalate(to) => {
                let others = listed(to, "or");
                return write!(f, "it asks {others} for as long again, then the run is cancelled");
            }
        })
    }
}
