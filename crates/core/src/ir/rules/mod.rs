//! Policies: permissions, required approvals, and the approvers of exceptions.
//!
//! Owns the three forms of a policy (grants, rules and governance), the function that judges a request by each, and the
//! rules of a workflow, which are judged when a run is bound. Pure: a request contains the principal, the operation
//! and the time. Does not know the files that policies are read from.

mod policy_document;
mod workflow_rules;

pub use policy_document::{
    EscalationPath, GovernancePolicy, GovernanceRole, GrantAction, GrantCondition, GrantPolicy, GrantPrincipal,
    PolicyDecision, PolicyDocument, PolicyFinding, PolicyGrant, PolicyOperation, PolicyPrincipal, PolicyRequest,
    PolicyRequirement, PolicyRule, RuleEffect, combine_findings,
};
pub use workflow_rules::{
    ApprovalCondition, ApprovalRule, NOT_JUDGED, RunRulings, StepRules, StepRuling, WorkflowRules,
};
