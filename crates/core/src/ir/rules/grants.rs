//! AIP-38: grants to principals. Everything else is denied, unless the policy's default is `allow`.

use serde::{Deserialize, Serialize};

use super::{
    finding::{PolicyDecision, PolicyFinding, combine_findings},
    request::{PolicyOperation, PolicyPrincipal, PolicyRequest, matches_pattern},
};
use crate::{
    ir::{Approver, is_default, is_one, one},
    time::Timestamp,
};

/// A policy of grants as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantPolicy {
    pub id: String,
    /// True if requests that no grant covers are allowed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allows: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<PolicyGrant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<PolicyRequirement>,
}

/// The permissions of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyGrant {
    pub principal: GrantPrincipal,
    pub actions: Vec<GrantAction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<GrantCondition>,
    /// The time at which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub revoked: bool,
}

/// A pattern of actions, and the scope that limits their changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantAction {
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantPrincipal {
    Anyone,
    User(String),
    Role(String),
    /// A principal in an unsupported notation.
    Other(String),
}

/// A condition that must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GrantCondition {
    ApprovalFrom {
        approvers: Vec<Approver>,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        quorum: u32,
    },
    /// A condition of an unsupported kind.
    Other(String),
}

/// A condition for some actions, or all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequirement {
    pub condition: GrantCondition,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applies_to: Vec<String>,
}

impl GrantPolicy {
    /// Evaluates one request.
    pub(super) fn judge(&self, request: &PolicyRequest<'_>) -> PolicyFinding {
        let (id, what, who) = (&self.id, request.operation.describe(), &request.principal.name);
        let granted = self.grants.iter().filter(|grant| grant.covers(request)).map(PolicyGrant::to_decision);
        let granted = granted.flatten().min_by_key(|decision| matches!(decision, PolicyDecision::Ask { .. }));
        let mut finding = match granted {
            Some(PolicyDecision::Ask { approvers, quorum }) => {
                let why = format!("the policy `{id}` grants {what} to {who} with an approval");
                PolicyFinding::new(PolicyDecision::Ask { approvers, quorum }, why)
            }
            Some(decision) => PolicyFinding::new(decision, format!("the policy `{id}` grants {what} to {who}")),
            None if self.allows => {
                PolicyFinding::new(PolicyDecision::Allow, format!("the policy `{id}` allows what it does not name"))
            }
            None => {
                PolicyFinding::new(PolicyDecision::Deny, format!("the policy `{id}` does not grant {what} to {who}"))
            }
        };
        for requirement in self.requirements.iter().filter(|one| one.is_applicable(request)) {
            finding = combine_findings(finding, requirement.judge(id, &what));
        }
        finding
    }
}

impl PolicyGrant {
    /// True if it applies to this request at this time.
    fn covers(&self, request: &PolicyRequest<'_>) -> bool {
        let is_in_force = !self.revoked && self.until.is_none_or(|until| request.now < until);
        let names = request.operation.action_names();
        let is_named = |action: &GrantAction| names.iter().any(|name| matches_pattern(&action.action, name));
        let is_covered = |action: &GrantAction| {
            is_named(action) && action.scope.as_ref().is_none_or(|scope| is_in_scope(scope, request.operation))
        };
        is_in_force && self.principal.matches(request.principal) && self.actions.iter().any(is_covered)
    }

    /// Returns the decision of the grant. None if a condition is not supported.
    fn to_decision(&self) -> Option<PolicyDecision> {
        let mut finding = PolicyFinding::new(PolicyDecision::Allow, "");
        for condition in &self.conditions {
            let GrantCondition::ApprovalFrom { approvers, quorum } = condition else { return None };
            let (approvers, quorum) = (approvers.clone(), *quorum);
            finding = combine_findings(finding, PolicyFinding::new(PolicyDecision::Ask { approvers, quorum }, ""));
        }
        Some(finding.decision).filter(|decision| *decision != PolicyDecision::Deny)
    }
}

/// True if everything that the operation changes is within a scope. For an operation without changes, true if its
/// subject is.
fn is_in_scope(scope: &str, operation: &PolicyOperation) -> bool {
    match &operation.mutates[..] {
        [] => !operation.changes && matches_pattern(scope, &operation.subject),
        all => all.iter().all(|name| matches_pattern(scope, name)),
    }
}

impl GrantPrincipal {
    fn matches(&self, principal: &PolicyPrincipal) -> bool {
        match self {
            GrantPrincipal::Anyone => true,
            GrantPrincipal::User(name) => *name == principal.name,
            GrantPrincipal::Role(role) => principal.roles.contains(role),
            GrantPrincipal::Other(_) => false,
        }
    }
}

impl PolicyRequirement {
    fn is_applicable(&self, request: &PolicyRequest<'_>) -> bool {
        let names = request.operation.action_names();
        let named = |pattern: &String| names.iter().any(|name| matches_pattern(pattern, name));
        self.applies_to.is_empty() || self.applies_to.iter().any(named)
    }

    fn judge(&self, id: &str, what: &str) -> PolicyFinding {
        match &self.condition {
            GrantCondition::ApprovalFrom { approvers, quorum } => {
                let decision = PolicyDecision::Ask { approvers: approvers.clone(), quorum: *quorum };
                PolicyFinding::new(decision, format!("the policy `{id}` requires approval for {what}"))
            }
            GrantCondition::Other(kind) => {
                let why = format!("the policy `{id}` requires `{kind}` for {what}, which nobody here can see to");
                PolicyFinding::new(PolicyDecision::Deny, why)
            }
        }
    }
}
