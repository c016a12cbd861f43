//! The state of a waitpoint: a gate, a wait or a hold, its approvers and its decision.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::null;
use crate::{
    engine::{StepAt, event::is_null},
    ir::{Approver, HoldReason},
    time::Timestamp,
};

/// A gate, a wait or a hold, which waits for a decision or a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitpointState {
    pub at: StepAt,
    pub kind: WaitpointKind,
    pub approvers: Vec<Approver>,
    /// The number of different people who have to approve; `approvals` lists those who did so far.
    pub quorum: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<(String, Timestamp)>,
    pub message: String,
    #[serde(default = "null", skip_serializing_if = "is_null")]
    pub shows: Arc<Value>,
    pub deadline: Option<Timestamp>,
    /// The number of escalations.
    pub escalations: u32,
    pub opened: Timestamp,
    /// The person who decided, and the time.
    pub decided: Option<(String, Timestamp)>,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitpointKind {
    Gate,
    Wait,
    Hold(HoldReason),
}
