//! Policies: permissions, required approvals, and the approvers of exceptions.
//!
//! Owns the three forms of a policy (grants, rules and governance), the function that judges a request by each, and the
//! rules of a workflow, which are judged when a run is bound. Pure: a request contains the principal, the operation
//! and the time. Does not know the files that policies are read from.

mod finding;
mod governance;
mod grants;
mod request;
mod rule;
mod workflow_rules;

use serde::{Deserialize, Serialize};

pub use finding::{PolicyDecision, PolicyFinding, combine_findings};
pub use governance::{EscalationPath, GovernancePolicy, GovernanceRole};
pub use grants::{GrantAction, GrantCondition, GrantPolicy, GrantPrincipal, PolicyGrant, PolicyRequirement};
pub use request::{PolicyOperation, PolicyPrincipal, PolicyRequest};
pub use rule::{PolicyRule, RuleEffect};
pub use workflow_rules::{
    ApprovalCondition, ApprovalRule, NOT_JUDGED, RunRulings, StepRules, StepRuling, WorkflowRules,
};

/// A policy of any form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyDocument {
    Grants(GrantPolicy),
    Rule(PolicyRule),
    Governance(GovernancePolicy),
}

impl PolicyDocument {
    /// Evaluates one request.
    pub fn judge(&self, request: &PolicyRequest<'_>) -> PolicyFinding {
        match self {
            PolicyDocument::Grants(grants) => grants.judge(request),
            PolicyDocument::Rule(rule) => rule.judge(request),
            PolicyDocument::Governance(governance) => governance.judge(request),
        }
    }
}
