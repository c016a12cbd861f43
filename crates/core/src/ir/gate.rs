//! Steps that wait: gates for a person's decision, waits for a signal.

use serde::{Deserialize, Serialize};

use super::{
    RouteTarget,
    approval::{is_one, one},
};
use crate::{expr::Expr, ids::SignalName, time::Millis};

/// Waits for a person. Opens only by a decision of an authorised person, or by a timeout that allows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    pub message: Expr,
    /// The values that the person should review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<Expr>,
    /// Any one of these suffices. Empty: anyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// The number of different people who must approve. A single rejection rejects.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub on_timeout: GateTimeout,
    /// The target to route to instead of `next`. Only in a routed scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_approve: Option<RouteTarget>,
    /// None: a rejection fails the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reject: Option<RouteTarget>,
}

impl GateSpec {
    /// Returns the approvers that an escalation asks: those it names, or else the same as before. None if the gate does
    /// not escalate.
    pub fn escalation_approvers(&self) -> Option<&[Approver]> {
        match &self.on_timeout {
            GateTimeout::Escalate { to } if to.is_empty() => Some(&self.approvers),
            GateTimeout::Escalate { to } => Some(to),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approver {
    Role(String),
    User(String),
}

/// The action of a gate when nobody decides in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GateTimeout {
    /// The step ends as timed out.
    Expire,
    Reject,
    /// Opens by itself, only if the host allows it.
    Approve,
    /// Cancels the workflow that the gate belongs to.
    Cancel,
    Go(RouteTarget),
    /// Asks others for as long again, then cancels. If none are named, the same people are asked again.
    Escalate {
        to: Vec<Approver>,
    },
}

/// Waits for an external event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Any one of these signals ends the wait.
    pub on: Vec<SignalName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub on_timeout: WaitTimeout,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitTimeout {
    /// The step ends as timed out.
    Expire,
    /// Cancels the workflow that the wait belongs to.
    Cancel,
    /// The step succeeds without a signal.
    Continue,
    Go(RouteTarget),
}
