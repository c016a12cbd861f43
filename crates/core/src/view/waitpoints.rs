//! The view of the waitpoints of a run: open gates, waits and holds.

use serde::Serialize;
use serde_json::Value;

use super::words;
use crate::{
    engine::{RunState, StepAt, StepPaths, Waitpoint, WaitpointKind, WaitpointState, format_utc},
    ir::{HoldReason, StepKindSpec, is_one},
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitpointView {
    /// The number that decisions use to name the waitpoint.
    pub number: u32,
    pub step: String,
    pub at: StepAt,
    pub kind: WaitpointViewKind,
    /// The reason of a hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<HoldReason>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub shows: Value,
    /// The people who may decide; empty: anyone.
    pub approvers: Vec<String>,
    /// The number of different people who have to approve; `approvals` lists those who did so far.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalView>,
    /// The signals, any one of which ends a wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    pub since: String,
    pub until: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
}

/// One of several required approvals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalView {
    pub by: String,
    pub at: String,
}

impl WaitpointView {
    /// Describes the approvals so far, if more than one is required.
    pub fn approval_progress(&self) -> Option<String> {
        (self.quorum > 1).then(|| format_progress(self.approvals.len(), self.quorum))
    }
}

pub(super) fn format_progress(given: usize, quorum: u32) -> String {
    format!("{given} of {quorum} approvals")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitpointViewKind {
    Gate,
    Wait,
    Hold,
}

/// Returns the open waitpoints, oldest first. A quarantined run accepts no decisions, so it has none.
pub(super) fn view_open_waitpoints(state: &RunState, names: &StepPaths) -> Vec<WaitpointView> {
    if state.quarantine.is_some() {
        return Vec::new();
    }
    let open = state.open_waitpoints();
    open.map(|(number, opening)| build_waitpoint_view(number, opening, names)).collect()
}

/// Returns one waitpoint, open or closed; none if the run has no such waitpoint.
pub fn view_waitpoint(state: &RunState, names: &StepPaths, number: Waitpoint) -> Option<WaitpointView> {
    state.waitpoint(number).map(|opening| build_waitpoint_view(number, opening, names))
}

fn build_waitpoint_view(number: Waitpoint, opening: &WaitpointState, names: &StepPaths) -> WaitpointView {
    let (kind, reason) = match opening.kind {
        WaitpointKind::Gate => (WaitpointViewKind::Gate, None),
        WaitpointKind::Wait => (WaitpointViewKind::Wait, None),
        WaitpointKind::Hold(reason) => (WaitpointViewKind::Hold, Some(reason)),
    };
    WaitpointView {
        number: number.0,
        step: names.step_path(opening.at),
        at: opening.at,
        kind,
        reason,
        message: opening.message.clone(),
        shows: (*opening.shows).clone(),
        approvers: words::approver_names(&opening.approvers),
        signals: awaited_signals(opening, names),
        since: format_utc(opening.opened),
        until: opening.deadline.map(format_utc),
        quorum: opening.quorum,
        approvals: opening
            .approvals
            .iter()
            .map(|(by, at)| ApprovalView { by: by.clone(), at: format_utc(*at) })
            .collect(),
        escalated: opening.escalations > 0,
    }
}

/// Returns the signals that end a wait.
pub(super) fn awaited_signals(opening: &WaitpointState, names: &StepPaths) -> Vec<String> {
    match &names.step(opening.at).kind {
        StepKindSpec::Wait(wait) if opening.kind == WaitpointKind::Wait => {
            wait.on.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    }
}
