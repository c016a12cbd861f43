//! AIP-7: one rule, with its effect on matching requests, its approvers and its quorum.

use serde::{Deserialize, Serialize};

use super::{
    finding::{PolicyDecision, PolicyFinding},
    request::{PolicyOperation, PolicyRequest, matches_pattern},
};
use crate::ir::{Approver, is_default, is_one, one};

/// A rule as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    pub slug: String,
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub least_risk: u8,
    pub effect: RuleEffect,
    /// The approvers; empty: anyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<Approver>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
}

/// The effect of a rule on matching requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    Allow,
    Deny,
    RequireApproval,
    Escalate,
}

impl PolicyRule {
    /// Evaluates one request.
    pub(super) fn judge(&self, request: &PolicyRequest<'_>) -> PolicyFinding {
        let name = &self.slug;
        if !self.matches(request) {
            let why = format!("the policy `{name}` says nothing of {}", request.operation.describe());
            return PolicyFinding::new(PolicyDecision::Ask { approvers: Vec::new(), quorum: 1 }, why);
        }
        let quorum = self.quorum;
        let (decision, word) = match self.effect {
            RuleEffect::Allow => (PolicyDecision::Allow, "allows it"),
            RuleEffect::Deny => (PolicyDecision::Deny, "denies it"),
            RuleEffect::RequireApproval => {
                (PolicyDecision::Ask { approvers: self.signers.clone(), quorum }, "requires approval")
            }
            RuleEffect::Escalate => (PolicyDecision::escalate_to(self.signers.clone(), quorum), "escalates it"),
        };
        PolicyFinding::new(decision, format!("the policy `{name}` {word}"))
    }

    fn matches(&self, request: &PolicyRequest<'_>) -> bool {
        let PolicyOperation { class, action, subject, risk, .. } = request.operation;
        let matches_action = |name: &str| matches_pattern(&self.action, name);
        let subject_matches = self.subject.as_ref().is_none_or(|pattern| matches_pattern(pattern, subject));
        (matches_action(class) || action.as_ref().is_some_and(|action| matches_action(&action.replace(':', "."))))
            && subject_matches
            && *risk >= self.least_risk
    }
}
