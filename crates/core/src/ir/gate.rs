//! Waits of a step: gates for a person's decision, waits for a signal, and the approval before a step starts.

use serde::{Deserialize, Serialize};

use crate::{
    expr::Expr,
    ids::SignalName,
    ir::{HoldReason, RouteTarget, is_default},
    time::Millis,
};

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

/// The approval that is required before a step starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalHold {
    /// Empty: anyone. For an escalation, the approvers of the step's levels apply instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// The number of different people who must approve. A single rejection rejects.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// The reason for the hold; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// True for a governance hold, which the approvers of the step's levels release.
    #[serde(default, skip_serializing_if = "is_default")]
    pub escalates: bool,
}

impl Default for ApprovalHold {
    fn default() -> ApprovalHold {
        ApprovalHold { approvers: Vec::new(), quorum: 1, message: String::new(), escalates: false }
    }
}

impl ApprovalHold {
    /// Creates a hold that any one of these approvers can release.
    pub fn with_approvers(approvers: Vec<Approver>) -> ApprovalHold {
        ApprovalHold { approvers, ..ApprovalHold::default() }
    }

    pub fn reason(&self) -> HoldReason {
        if self.escalates { HoldReason::Governance } else { HoldReason::Approval }
    }
}

/// The approvers that are asked about a governance hold, and the time before the next level is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationLevel {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// Afterwards the next level is asked; after the last level, the step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
}

/// The approval rule that applies to the start of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRuling {
    /// The class, such as `on-mutate` or `policy:payments`.
    pub class: String,
    /// The source of the rule, such as `the step` or `skein.toml`.
    pub from: String,
    pub why: String,
    /// A policy that is named but not defined. A run cannot start with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The default quorum.
pub(crate) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(crate) fn is_one(quorum: &u32) -> bool {
    *quorum == 1
}
