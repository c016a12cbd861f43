//! Who is asked before a step starts, who may release what governance holds, and which rule says so.

use serde::{Deserialize, Serialize};

use super::{Approver, HoldReason, is_default};
use crate::time::Millis;

/// Who is asked before a step starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalHold {
    /// None: anyone. Of an escalation, those of the step's levels count instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// How many different people have to approve. One rejects for all.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// Why they are asked; empty: only because it is so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether it is a hold for governance, which those of the step's levels release.
    #[serde(default, skip_serializing_if = "is_default")]
    pub escalates: bool,
}

impl Default for ApprovalHold {
    fn default() -> ApprovalHold {
        ApprovalHold { approvers: Vec::new(), quorum: 1, message: String::new(), escalates: false }
    }
}

impl ApprovalHold {
    /// Any one of these.
    pub fn with_approvers(approvers: Vec<Approver>) -> ApprovalHold {
        ApprovalHold { approvers, ..ApprovalHold::default() }
    }

    pub fn reason(&self) -> HoldReason {
        if self.escalates { HoldReason::Governance } else { HoldReason::Approval }
    }
}

/// Who is asked about a hold for governance, and for how long before others are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationLevel {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<Approver>,
    /// Then those of the next level; after the last, the step has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
}

/// Which rule holds for the start of a step, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRuling {
    /// The class, such as `on-mutate` or `policy:payments`.
    pub class: String,
    /// Who says so, such as `the step` or `skein.toml`.
    pub from: String,
    pub why: String,
    /// A policy that is named and not there. A run cannot begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// How many approvals are needed where nothing is said.
pub(crate) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(crate) fn is_one(quorum: &u32) -> bool {
    *quorum == 1
}
