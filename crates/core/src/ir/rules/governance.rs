//! The governance of a domain: read and write access by role, and the approvers of exceptions.

use serde::{Deserialize, Serialize};

use super::{
    finding::{PolicyDecision, PolicyFinding},
    request::PolicyRequest,
};
use crate::{
    ir::{Approver, EscalationLevel},
    time::Millis,
};

/// The permission for everything. `OVERRIDE` is the permission to release held steps.
const ADMIN: &str = "admin";
const OVERRIDE: &str = "override";

/// A governance resource as its file describes it.
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
