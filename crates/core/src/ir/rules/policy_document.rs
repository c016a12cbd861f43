//! The three forms of a policy, the requests that they judge (a principal, an operation, a time), and the combination
//! of several results.

use serde::{Deserialize, Serialize};

use crate::{
    ir::{Approver, EscalationLevel, is_default, is_one, one},
    time::{Millis, Timestamp},
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

/// Grants to principals (AIP-38) as their file describes them. Everything else is denied, unless `allows` is set.
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
    fn judge(&self, request: &PolicyRequest<'_>) -> PolicyFinding {
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

/// One rule (AIP-7) as its file describes it.
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
    fn judge(&self, request: &PolicyRequest<'_>) -> PolicyFinding {
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

/// The permission for everything. `OVERRIDE` is the permission to release held steps.
const ADMIN: &str = "admin";
const OVERRIDE: &str = "override";

/// The governance of a domain as its file describes it: read and write access by role, and the approvers of exceptions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GovernancePolicy {
    pub name: String,
    pub domain: String,
    /// The governance that provides the fields that are absent here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// None if the file has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<Vec<GovernanceRole>>,
    /// The role of principals without any of these roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_role: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<EscalationPath>,
    /// The first level to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// True if people may release a step that a rule holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_time: Option<Millis>,
}

/// A role and its permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GovernanceRole {
    pub name: String,
    pub permissions: Vec<String>,
}

/// A level of escalation: its role and its timeout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EscalationPath {
    pub level: u32,
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
}

impl GovernancePolicy {
    /// Fills in absent fields from the governance that it extends.
    #[must_use]
    pub fn inherit_from(mut self, parent: GovernancePolicy) -> GovernancePolicy {
        if self.roles.is_none() {
            (self.roles, self.default_role) = (parent.roles, parent.default_role);
        }
        if self.paths.is_empty() {
            (self.paths, self.first) = (parent.paths, parent.first);
        }
        self.overrides = self.overrides.or(parent.overrides);
        self.response_time = self.response_time.or(parent.response_time);
        self.extends = parent.extends;
        self
    }

    /// True if people may release a step that it holds.
    pub fn may_override(&self) -> bool {
        self.overrides.unwrap_or(true)
    }

    /// Returns the levels of escalation in order. Roles with the permission to override are on every level.
    pub fn escalation_levels(&self) -> Vec<EscalationLevel> {
        let roles = self.roles.iter().flatten().filter(|role| role.has_permission(OVERRIDE));
        let overriders: Vec<Approver> = roles.map(|role| Approver::Role(role.name.clone())).collect();
        let first = self.first.unwrap_or(0);
        let mut paths: Vec<&EscalationPath> = self.paths.iter().filter(|path| path.level >= first).collect();
        paths.sort_by_key(|path| path.level);
        let mut levels: Vec<EscalationLevel> = paths
            .into_iter()
            .map(|path| {
                let first = Approver::Role(path.role.clone());
                let others = overriders.iter().filter(|other| **other != first).cloned();
                let approvers = std::iter::once(first.clone()).chain(others).collect();
                EscalationLevel { approvers, timeout: path.timeout }
            })
            .collect();
        if levels.is_empty() && !overriders.is_empty() {
            levels.push(EscalationLevel { approvers: overriders, timeout: None });
        }
        if let Some(last) = levels.last_mut() {
            last.timeout = last.timeout.or(self.response_time);
        }
        levels
    }

    /// Evaluates one request.
    pub(super) fn judge(&self, request: &PolicyRequest<'_>) -> PolicyFinding {
        let (name, principal) = (&self.name, request.principal);
        let Some(roles) = &self.roles else {
            return PolicyFinding::new(PolicyDecision::Allow, format!("the governance `{name}` lets anyone"));
        };
        let has_role = |role: &GovernanceRole| principal.roles.contains(&role.name);
        let has_any = roles.iter().any(has_role);
        let is_default_role = |role: &GovernanceRole| self.default_role.as_ref() == Some(&role.name);
        let applies = |role: &GovernanceRole| if has_any { has_role(role) } else { is_default_role(role) };
        let needed = if request.operation.changes { "write" } else { "read" };
        if roles.iter().any(|role| applies(role) && role.has_permission(needed)) {
            return PolicyFinding::new(
                PolicyDecision::Allow,
                format!("the governance `{name}` lets {} {needed}", principal.name),
            );
        }
        let why = format!("the governance `{name}` does not let {} {needed}", principal.name);
        match self.escalation_levels() {
            levels if !levels.is_empty() && self.may_override() => {
                PolicyFinding::new(PolicyDecision::Escalate { levels, quorum: 1 }, why)
            }
            _ => PolicyFinding::new(PolicyDecision::Deny, why),
        }
    }
}

impl GovernanceRole {
    fn has_permission(&self, needed: &str) -> bool {
        self.permissions.iter().any(|one| one == needed || one == ADMIN || one == "*")
    }
}

/// The principal that starts a run, as the project knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPrincipal {
    pub name: String,
    pub roles: Vec<String>,
}

/// The operation of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyOperation {
    /// The class of the operation: `tool.call`, `agent.run` or `command.run`.
    pub class: String,
    /// The action, if the operation has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The tool, the agent or the program.
    pub subject: String,
    /// The names of the things that it changes, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutates: Vec<String>,
    /// True if it changes anything.
    #[serde(default, skip_serializing_if = "is_default")]
    pub changes: bool,
    /// From 0 (only reads) to 3 (irreversible).
    #[serde(default, skip_serializing_if = "is_default")]
    pub risk: u8,
}

/// One operation that a principal wants to run.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequest<'a> {
    pub principal: &'a PolicyPrincipal,
    pub now: Timestamp,
    pub operation: &'a PolicyOperation,
}

impl PolicyOperation {
    /// The names by which a grant may refer to it, such as `mail:send` and `tool:mailer`.
    pub fn action_names(&self) -> Vec<String> {
        let kind = self.class.split('.').next().unwrap_or_default();
        let subject = format!("{kind}:{}", self.subject);
        self.action.clone().into_iter().chain([subject]).collect()
    }

    /// Returns its name for messages.
    pub fn describe(&self) -> String {
        self.action_names().swap_remove(0)
    }
}

/// True if a name matches a pattern, in which each star stands for any text, also an empty one.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyDecision {
    Allow,
    /// `quorum` of the approvers must approve; without approvers, anyone may.
    Ask {
        approvers: Vec<Approver>,
        quorum: u32,
    },
    /// Held until the approvers of a level release it.
    Escalate {
        levels: Vec<EscalationLevel>,
        quorum: u32,
    },
    Deny,
}

impl PolicyDecision {
    pub fn escalate_to(to: Vec<Approver>, quorum: u32) -> PolicyDecision {
        PolicyDecision::Escalate { levels: vec![EscalationLevel { approvers: to, timeout: None }], quorum }
    }

    pub fn strictness(&self) -> u8 {
        match self {
            PolicyDecision::Allow => 0,
            PolicyDecision::Ask { .. } => 1,
            PolicyDecision::Escalate { .. } => 2,
            PolicyDecision::Deny => 3,
        }
    }
}

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFinding {
    pub decision: PolicyDecision,
    pub why: String,
}

impl PolicyFinding {
    pub fn new(decision: PolicyDecision, why: impl Into<String>) -> PolicyFinding {
        PolicyFinding { decision, why: why.into() }
    }
}

/// Returns the stricter of two findings. If both ask, only approvers of both may approve, and the larger quorum counts.
pub fn combine_findings(one: PolicyFinding, other: PolicyFinding) -> PolicyFinding {
    let (first, second) = match other.decision.strictness() > one.decision.strictness() {
        true => (other, one),
        false => (one, other),
    };
    match (&first.decision, &second.decision) {
        (PolicyDecision::Ask { approvers, quorum }, PolicyDecision::Ask { approvers: others, quorum: more }) => {
            let both = match (approvers.is_empty(), others.is_empty()) {
                (_, true) => approvers.clone(),
                (true, false) => others.clone(),
                (false, false) => approvers.iter().filter(|one| others.contains(one)).cloned().collect(),
            };
            if both.is_empty() && !others.is_empty() {
                let why = format!("{}, and {}: nobody may answer for both", first.why, second.why);
                return PolicyFinding::new(PolicyDecision::Deny, why);
            }
            let why = match others.is_empty() || second.why == first.why {
                true => first.why.clone(),
                false => format!("{}, and {}", first.why, second.why),
            };
            PolicyFinding::new(PolicyDecision::Ask { approvers: both, quorum: *quorum.max(more) }, why)
        }
        (PolicyDecision::Escalate { levels, quorum }, PolicyDecision::Ask { quorum: more, .. }) => {
            let decision = PolicyDecision::Escalate { levels: levels.clone(), quorum: *quorum.max(more) };
            PolicyFinding::new(decision, first.why.clone())
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;
    use super::*;

    fn role(name: &str) -> Approver {
        Approver::Role(name.to_owned())
    }

    fn ask(approvers: Vec<Approver>, quorum: u32, why: &str) -> PolicyFinding {
        PolicyFinding::new(PolicyDecision::Ask { approvers, quorum }, why)
    }

    #[test]
    fn the_most_restrictive_wins() {
        let allow = PolicyFinding::new(PolicyDecision::Allow, "a");
        let deny = PolicyFinding::new(PolicyDecision::Deny, "d");
        let up = PolicyFinding::new(PolicyDecision::escalate_to(vec![role("lead")], 1), "e");
        assert_eq!(combine_findings(allow.clone(), deny.clone()), deny);
        assert_eq!(combine_findings(deny.clone(), up.clone()), deny);
        assert_eq!(combine_findings(up.clone(), allow.clone()), up);
        assert_eq!(combine_findings(allow.clone(), ask(vec![], 1, "b")).why, "b");
        let both = combine_findings(ask(vec![], 3, "b"), up);
        assert_eq!(both.decision, PolicyDecision::escalate_to(vec![role("lead")], 3));
    }

    #[test]
    fn who_is_asked_may_answer_for_all_who_ask() {
        let (legal, money) = (ask(vec![role("legal")], 1, "l"), ask(vec![role("finance")], 2, "f"));
        let anyone = ask(vec![], 1, "x");
        assert_eq!(combine_findings(anyone, money.clone()).decision, money.decision);
        assert_eq!(combine_findings(legal.clone(), money).decision, PolicyDecision::Deny);
        let more = combine_findings(legal, ask(vec![role("finance"), role("legal")], 2, "m"));
        assert_eq!(more.decision, PolicyDecision::Ask { approvers: vec![role("legal")], quorum: 2 });
        assert_eq!(more.why, "l, and m");
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, wanted) in [
            ("mail:send", "mail:send", true),
            ("mail:send", "mail:sends", false),
            ("mail:*", "mail:send", true),
            ("mail:*", "mailer:send", false),
            ("*", "", true),
            ("tool.*", "tool.call", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("*x", "x", true),
            ("aa*a", "aa", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
