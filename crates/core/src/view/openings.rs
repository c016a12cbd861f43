//! What a run waits for: gates, waits and holds that are open.

use serde::Serialize;
use serde_json::Value;

use super::{Names, words};
use crate::{
    engine::{Opening, OpeningKind, OpeningState, RunState, StepAt, utc},
    ir::{HoldReason, Kind, is_one},
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpeningView {
    /// What a decision names.
    pub number: u32,
    pub step: String,
    pub at: StepAt,
    pub kind: WaitsFor,
    /// Of a hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<HoldReason>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub shows: Value,
    /// Who may decide; nobody named: anyone.
    pub approvers: Vec<String>,
    /// How many different people have to approve, and who did so far.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalView>,
    /// Any one of these ends a wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    pub since: String,
    pub until: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
}

/// One approval of several that are needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalView {
    pub by: String,
    pub at: String,
}

impl OpeningView {
    /// How far it is from being approved, where more than one has to.
    pub fn progress(&self) -> Option<String> {
        (self.quorum > 1).then(|| progress(self.approvals.len(), self.quorum))
    }
}

pub(super) fn progress(given: usize, quorum: u32) -> String {
    format!("{given} of {quorum} approvals")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    Gate,
    Wait,
    Hold,
}

/// Everything that is open, oldest first. Of a run that was set aside nothing is: it takes no answer.
pub(super) fn open(state: &RunState, names: &Names) -> Vec<OpeningView> {
    if state.quarantine.is_some() {
        return Vec::new();
    }
    let numbered = (0..).zip(&state.openings).filter(|(_, opening)| !opening.closed);
    numbered.map(|(number, opening)| view(number, opening, names)).collect()
}

/// One opening as it is, answered or not; none if the run has no such.
pub fn opening(state: &RunState, names: &Names, number: Opening) -> Option<OpeningView> {
    state.opening(number).map(|opening| view(number.0, opening, names))
}

fn view(number: u32, opening: &OpeningState, names: &Names) -> OpeningView {
    let (kind, reason) = match opening.kind {
        OpeningKind::Gate => (WaitsFor::Gate, None),
        OpeningKind::Wait => (WaitsFor::Wait, None),
        OpeningKind::Hold(reason) => (WaitsFor::Hold, Some(reason)),
    };
    OpeningView {
        number,
        step: names.step(opening.at),
        at: opening.at,
        kind,
        reason,
        message: opening.message.clone(),
        shows: (*opening.shows).clone(),
        approvers: words::people(&opening.approvers),
        signals: signals(opening, names),
        since: utc(opening.opened),
        until: opening.deadline.map(utc),
        quorum: opening.quorum,
        approvals: opening
            .approvals
            .iter()
            .map(|(by, at)| ApprovalView { by: by.clone(), at: utc(*at) })
            .collect(),
        escalated: opening.escalations > 0,
    }
}

/// The signals that end a wait.
pub(super) fn signals(opening: &OpeningState, names: &Names) -> Vec<String> {
    let step = names.definition().scope(names.scope(opening.at.0)).step(opening.at.1);
    match &step.kind {
        Kind::Wait(wait) if opening.kind == OpeningKind::Wait => {
            wait.on.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    }
}
