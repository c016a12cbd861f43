//! What is open: a gate, a wait or a hold, who is asked, and who answered.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::null;
use crate::{
    engine::{StepAt, event::is_null},
    ir::{Approver, HoldReason},
    time::Time,
};

/// Something that waits for a decision or a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpeningState {
    pub at: StepAt,
    pub kind: OpeningKind,
    pub approvers: Vec<Approver>,
    /// How many different people have to approve, and who did so far.
    pub quorum: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<(String, Time)>,
    pub message: String,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub shows: Arc<Value>,
    pub deadline: Option<Time>,
    /// How often others were asked.
    pub escalations: u32,
    pub opened: Time,
    /// Who answered and when.
    pub decided: Option<(String, Time)>,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpeningKind {
    Gate,
    Wait,
    Hold(HoldReason),
}
