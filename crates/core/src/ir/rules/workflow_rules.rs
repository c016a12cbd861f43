//! The rules of a workflow, as its files say them, and their rulings for one run.
//!
//! A definition has the rules, so its hash depends on files alone. `judge` turns them into rulings for the principal
//! who starts a run, at its time. The rulings are in the first event of the run and hold for all of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    PolicyDocument, PolicyPrincipal, PolicyRequest,
    policy_document::{GovernancePolicy, PolicyDecision, PolicyFinding, PolicyOperation, combine_findings},
};
use crate::{
    ids::StepId,
    ir::{ApprovalHold, ApprovalRuling, Approver, ErrorClass, EscalationLevel, StepPolicy, is_default},
    time::Timestamp,
};

/// The reason of a denial before the policies of a step have been judged.
pub const NOT_JUDGED: &str = "its policies have not been judged for this run";

/// The policies of a workflow, and the steps that they apply to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowRules {
    /// Policies by the name that steps, tools and the project use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, PolicyDocument>,
    /// Governance by domain.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub governance: BTreeMap<String, GovernancePolicy>,
    /// Only steps to which a policy applies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<StepId, StepRules>,
}

/// The rules for the start of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRules {
    pub operation: PolicyOperation,
    pub rules: Vec<ApprovalRule>,
}

/// A condition for the start of a step, and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    pub condition: ApprovalCondition,
    /// The origin for people, such as `the step` or `skein.toml`.
    pub from: String,
}

/// The condition under which a step needs approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalCondition {
    Auto,
    PerStep,
    OnMutate,
    Always,
    /// A policy by its name.
    Policy(String),
    /// The governance of a domain.
    Governance(String),
}

/// The rulings for the steps of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunRulings(pub Vec<StepRuling>);

/// The decision about the start of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRuling {
    /// The number of the called workflow that contains the step; 0 for the root.
    #[serde(default, skip_serializing_if = "is_default")]
    pub workflow: u32,
    pub step: StepId,
    /// The approval that is required before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalHold>,
    /// The reason why the step may not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// The levels that release it, instead of those of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalation: Vec<EscalationLevel>,
    /// The rule that applies, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<ApprovalRuling>,
}

impl RunRulings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl WorkflowRules {
    /// Judges all steps for a principal at a time. `workflow` is the number of the workflow.
    pub fn judge(&self, workflow: u32, principal: &PolicyPrincipal, now: Timestamp) -> Vec<StepRuling> {
        let judge = |(step, rules): (&StepId, &StepRules)| {
            Some(StepRuling { workflow, ..self.judge_step(step, rules, principal, now)? })
        };
        self.steps.iter().filter_map(judge).collect()
    }

    /// Judges one step by all its rules: the strictest result counts. None if it has no rule.
    pub fn judge_step(
        &self,
        step: &StepId,
        rules: &StepRules,
        principal: &PolicyPrincipal,
        now: Timestamp,
    ) -> Option<StepRuling> {
        let request = PolicyRequest { principal, now, operation: &rules.operation };
        let findings: Vec<(&ApprovalRule, PolicyFinding)> =
            rules.rules.iter().map(|rule| (rule, self.judge_rule(&rule.condition, &request))).collect();
        // Among equally strict findings, the one with the stricter class is reported.
        let strictness = |(rule, finding): &&(&ApprovalRule, PolicyFinding)| {
            (finding.decision.strictness(), rule.condition.strictness())
        };
        let (reported, _) = findings.iter().max_by_key(strictness)?;
        let is_quiet = matches!(reported.condition, ApprovalCondition::Auto | ApprovalCondition::PerStep);
        let missing = rules.rules.iter().find_map(|rule| self.missing_policy(&rule.condition));
        let (class, from) = (self.class_word(&reported.condition), reported.from.clone());
        let PolicyFinding { decision, why } =
            findings.into_iter().map(|(_, finding)| finding).reduce(combine_findings)?;
        let missing = missing.map(str::to_owned);
        let ruling = (!is_quiet).then(|| ApprovalRuling { class, from, why: why.clone(), missing });
        Some(StepRuling::new(step, decision, why, ruling))
    }

    /// True if a policy applies to the step, and not only approval classes.
    pub fn has_policy_for(&self, rules: &StepRules) -> bool {
        rules.rules.iter().any(|rule| match &rule.condition {
            ApprovalCondition::Policy(name) => self.policies.contains_key(name),
            ApprovalCondition::Governance(_) => true,
            _ => false,
        })
    }

    fn judge_rule(&self, condition: &ApprovalCondition, request: &PolicyRequest<'_>) -> PolicyFinding {
        let anyone = || PolicyDecision::Ask { approvers: Vec::new(), quorum: 1 };
        match condition {
            ApprovalCondition::Auto | ApprovalCondition::PerStep => {
                PolicyFinding::new(PolicyDecision::Allow, "nobody is asked")
            }
            ApprovalCondition::OnMutate if !request.operation.changes => {
                PolicyFinding::new(PolicyDecision::Allow, "it changes nothing")
            }
            ApprovalCondition::OnMutate => match &request.operation.mutates[..] {
                [] => PolicyFinding::new(anyone(), "it may change something"),
                all => PolicyFinding::new(anyone(), format!("it changes {}", all.join(", "))),
            },
            ApprovalCondition::Always => PolicyFinding::new(anyone(), "somebody is asked every time"),
            ApprovalCondition::Policy(name) => match self.policies.get(name) {
                Some(policy) => policy.judge(request),
                None => PolicyFinding::new(anyone(), format!("there is no policy `{name}`")),
            },
            ApprovalCondition::Governance(domain) => match self.governance.get(domain) {
                Some(governance) => governance.judge(request),
                None => PolicyFinding::new(PolicyDecision::Deny, NOT_JUDGED),
            },
        }
    }

    fn missing_policy<'a>(&self, condition: &'a ApprovalCondition) -> Option<&'a str> {
        match condition {
            ApprovalCondition::Policy(name) if !self.policies.contains_key(name) => Some(name),
            _ => None,
        }
    }

    /// The approval class of a condition, as people write it. Governance is shown as a policy of its name.
    fn class_word(&self, condition: &ApprovalCondition) -> String {
        match condition {
            ApprovalCondition::Auto => "auto".to_owned(),
            ApprovalCondition::PerStep => "per-step".to_owned(),
            ApprovalCondition::OnMutate => "on-mutate".to_owned(),
            ApprovalCondition::Always => "always".to_owned(),
            ApprovalCondition::Policy(name) => format!("policy:{name}"),
            ApprovalCondition::Governance(domain) => {
                let name = self.governance.get(domain).map_or(domain, |governance| &governance.name);
                format!("policy:{name}")
            }
        }
    }
}

impl ApprovalCondition {
    fn strictness(&self) -> u8 {
        match self {
            ApprovalCondition::Auto | ApprovalCondition::PerStep => 0,
            ApprovalCondition::OnMutate => 1,
            ApprovalCondition::Policy(_) | ApprovalCondition::Governance(_) => 2,
            ApprovalCondition::Always => 3,
        }
    }
}

impl StepRuling {
    fn new(step: &StepId, decision: PolicyDecision, why: String, ruling: Option<ApprovalRuling>) -> StepRuling {
        let (approval, denied, escalation) = match decision {
            PolicyDecision::Allow => (None, None, Vec::new()),
            PolicyDecision::Ask { approvers, quorum } => {
                (Some(ApprovalHold { approvers, quorum, message: why, escalates: false }), None, Vec::new())
            }
            PolicyDecision::Escalate { levels, quorum } => {
                let approvers: Vec<Approver> = Vec::new();
                (Some(ApprovalHold { approvers, quorum, message: why, escalates: true }), None, levels)
            }
            PolicyDecision::Deny => (None, Some(why), Vec::new()),
        };
        StepRuling { workflow: 0, step: step.clone(), approval, denied, escalation, ruling }
    }

    /// Fills the ruling into the table that the engine reads.
    pub fn apply_to(&self, policy: &mut StepPolicy) {
        policy.approval.clone_from(&self.approval);
        policy.denied.clone_from(&self.denied);
        policy.ruling.clone_from(&self.ruling);
        if !self.escalation.is_empty() {
            policy.escalation.clone_from(&self.escalation);
        }
        // No approval can override the denial, unless an escalation names approvers.
        if self.denied.is_some() && policy.escalation.is_empty() {
            policy.holds.remove(&ErrorClass::Governance);
        }
    }
}
