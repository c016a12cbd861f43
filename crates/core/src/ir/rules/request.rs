//! The request that a policy judges (the principal, the operation and the time), its result, and the combination of
//! several results.

use serde::{Deserialize, Serialize};

use crate::{
    ir::{Approver, EscalationLevel, is_default},
    time::Timestamp,
};

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
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
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
