//! The consequences of outcomes other than success: a word for programs, a text for people.

use std::fmt;

use serde::Serialize;
use skein_core::ir::{GateSpec, GateTimeout, OutcomeAction, OutcomeEffect, RunImpact, WaitTimeout};

use super::wording::{join_words, list_approvers, render_target};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeConsequence {
    Stop,
    StopAndUndo,
    CountAsSkipped,
    GoOn,
    SkipDependents,
    SkipDependentsAndFail,
    Cancel,
    Reject,
    Approve,
    /// Continue at a step, or at the end.
    Go(String),
    /// These people are asked.
    Escalate(Vec<String>),
}

impl OutcomeConsequence {
    /// Returns the consequence of an outcome that is not a success.
    pub fn from_effect(effect: OutcomeEffect) -> OutcomeConsequence {
        match effect {
            OutcomeEffect { then: OutcomeAction::Abort, .. } => OutcomeConsequence::Stop,
            OutcomeEffect { then: OutcomeAction::Undo, .. } => OutcomeConsequence::StopAndUndo,
            OutcomeEffect { as_skipped: true, .. } => OutcomeConsequence::CountAsSkipped,
            OutcomeEffect { satisfies: true, .. } => OutcomeConsequence::GoOn,
            OutcomeEffect { verdict: RunImpact::Failed, .. } => OutcomeConsequence::SkipDependentsAndFail,
            OutcomeEffect { .. } => OutcomeConsequence::SkipDependents,
        }
    }

    /// Returns the consequence of a gate that nobody decides in time.
    pub fn from_gate_timeout(gate: &GateSpec, expired: OutcomeEffect) -> OutcomeConsequence {
        match &gate.on_timeout {
            GateTimeout::Expire => OutcomeConsequence::from_effect(expired),
            GateTimeout::Reject => OutcomeConsequence::Reject,
            GateTimeout::Approve => OutcomeConsequence::Approve,
            GateTimeout::Cancel => OutcomeConsequence::Cancel,
            GateTimeout::Go(to) => OutcomeConsequence::Go(render_target(to)),
            GateTimeout::Escalate { .. } => {
                OutcomeConsequence::Escalate(list_approvers(gate.escalation_approvers().unwrap_or_default()))
            }
        }
    }

    /// Returns the consequence of a wait whose signal does not arrive in time.
    pub fn from_wait_timeout(timeout: &WaitTimeout, expired: OutcomeEffect) -> OutcomeConsequence {
        match timeout {
            WaitTimeout::Expire => OutcomeConsequence::from_effect(expired),
            WaitTimeout::Cancel => OutcomeConsequence::Cancel,
            WaitTimeout::Continue => OutcomeConsequence::GoOn,
            WaitTimeout::Go(to) => OutcomeConsequence::Go(render_target(to)),
        }
    }
}

impl fmt::Display for OutcomeConsequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutcomeConsequence::Stop => "the run stops",
            OutcomeConsequence::StopAndUndo => "the run stops and is undone",
            OutcomeConsequence::CountAsSkipped => "it counts as skipped",
            OutcomeConsequence::GoOn => "the run continues",
            OutcomeConsequence::SkipDependents => "its dependents are skipped",
            OutcomeConsequence::SkipDependentsAndFail => "its dependents are skipped, and the run fails",
            OutcomeConsequence::Cancel => "the run is cancelled",
            OutcomeConsequence::Reject => "it counts as rejected",
            OutcomeConsequence::Approve => "it is approved automatically",
            OutcomeConsequence::Go(to) => return write!(f, "it goes to {to}"),
            OutcomeConsequence::Escalate(to) if to.is_empty() => {
                "it waits for the same time again, when nobody may decide, and the run is cancelled"
            }
            OutcomeConsequence::Escalate(to) => {
                let others = join_words(to, "or");
                return write!(f, "it asks {others} for the same time again, then the run is cancelled");
            }
        })
    }
}
