//! Steps that wait: gates for a person's decision, waits for a signal.

use serde::{Deserialize, Serialize};

use super::{
    RouteTarget,
    approval::{is_one, one},
};
use crate::{expr::Expr, ids::SignalName, time::Millis};

/// Waits for a person. Opens only by a decision of someone who may give it, or by a timeout that says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSpec {
    pub message: Expr,
    /// What the person should look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<Expr>,
    /// Any one of these suffices; none: anyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// How many different people have to approve. One rejects for all.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    pub on_timeout: GateTimeout,
    /// Where the cursor goes instead of `next`. Only in a routed scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_approve: Option<RouteTarget>,
    /// None: a rejection is the step's failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reject: Option<RouteTarget>,
}

impl GateSpec {
    /// Returns the approvers that an escalation asks: those it names, or else the same as before. None: it does not escalate.
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

/// What a gate does when nobody decides in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GateTimeout {
    /// The step ends as timed out.
    Expire,
    Reject,
    /// Opens by itself, only where the host allows it.
    Approve,
    /// Cancels the workflow that the gate belongs to.
    Cancel,
    Go(RouteTarget),
    /// Asks others for as long again, then cancels. Nobody named: the same people are asked again.
    Escalate {
        to: Vec<Approver>,
    },
}

/// Waits for an outside event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSpec {
    /// Any one of these ends it.
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
    /// The step succeeds with no signal.
    Continue,
    Go(RouteTarget),
}
