//! Approval before a step starts: the approvers, the release of governance holds, and the rule that applies.

use serde::{Deserialize, Serialize};

use super::{Approver, HoldReason, is_default};
use crate::time::Millis;

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
