//! What a policy says of a request: one function for every shape, and how several findings become one.
//!
//! Pure: who asks, what for and the time come in with the request.

use skein_core::ir::{Approver, Level};

use super::{Policy, request::Request};

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    /// So many of these have to approve; nobody named: anyone.
    Ask {
        approvers: Vec<Approver>,
        quorum: u32,
    },
    /// Stopped, until those of a level let it go on.
    Escalate {
        levels: Vec<Level>,
        quorum: u32,
    },
    Deny,
}

impl Decision {
    pub fn escalate(to: Vec<Approver>, quorum: u32) -> Decision {
        Decision::Escalate { levels: vec![Level { approvers: to, timeout: None }], quorum }
    }

    pub fn strictness(&self) -> u8 {
        match self {
            Decision::Allow => 0,
            Decision::Ask { .. } => 1,
            Decision::Escalate { .. } => 2,
            Decision::Deny => 3,
        }
    }
}

/// A decision, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub decision: Decision,
    pub why: String,
}

impl Finding {
    pub fn new(decision: Decision, why: impl Into<String>) -> Finding {
        Finding { decision, why: why.into() }
    }
}

impl Policy {
    /// What it says of one request.
    pub(crate) fn judge(&self, request: &Request<'_>) -> Finding {
        match self {
            Policy::Grants(grants) => grants.judge(request),
            Policy::Rule(rule) => rule.judge(request),
            Policy::Governance(governance) => governance.judge(request),
        }
    }
}

/// The strictest of two findings. Where both ask, who may answer for both is asked, and as many as either wants.
pub(crate) fn strictest(one: Finding, other: Finding) -> Finding {
    let (first, second) = match other.decision.strictness() > one.decision.strictness() {
        true => (other, one),
        false => (one, other),
    };
    match (&first.decision, &second.decision) {
        (Decision::Ask { approvers, quorum }, Decision::Ask { approvers: others, quorum: more }) => {
            let both = match (approvers.is_empty(), others.is_empty()) {
                (_, true) => approvers.clone(),
                (true, false) => others.clone(),
                (false, false) => approvers.iter().filter(|one| others.contains(one)).cloned().collect(),
            };
            if both.is_empty() && !others.is_empty() {
                let why = format!("{}, and {}: nobody may answer for both", first.why, second.why);
                return Finding::new(Decision::Deny, why);
            }
            let why = match others.is_empty() || second.why == first.why {
                true => first.why.clone(),
                false => format!("{}, and {}", first.why, second.why),
            };
            Finding::new(Decision::Ask { approvers: both, quorum: *quorum.max(more) }, why)
        }
        (Decision::Escalate { levels, quorum }, Decision::Ask { quorum: more, .. }) => {
            let decision = Decision::Escalate { levels: levels.clone(), quorum: *quorum.max(more) };
            Finding::new(decision, first.why.clone())
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str) -> Approver {
        Approver::Role(name.to_owned())
    }

    fn ask(approvers: Vec<Approver>, quorum: u32, why: &str) -> Finding {
        Finding::new(Decision::Ask { approvers, quorum }, why)
    }

    #[test]
    fn the_most_restrictive_wins() {
        let allow = Finding::new(Decision::Allow, "a");
        let deny = Finding::new(Decision::Deny, "d");
        let up = Finding::new(Decision::escalate(vec![role("lead")], 1), "e");
        assert_eq!(strictest(allow.clone(), deny.clone()), deny);
        assert_eq!(strictest(deny.clone(), up.clone()), deny);
        assert_eq!(strictest(up.clone(), allow.clone()), up);
        assert_eq!(strictest(allow.clone(), ask(vec![], 1, "b")).why, "b");
        let both = strictest(ask(vec![], 3, "b"), up);
        assert_eq!(both.decision, Decision::escalate(vec![role("lead")], 3));
    }

    #[test]
    fn who_is_asked_may_answer_for_all_who_ask() {
        let (legal, money) = (ask(vec![role("legal")], 1, "l"), ask(vec![role("finance")], 2, "f"));
        let anyone = ask(vec![], 1, "x");
        assert_eq!(strictest(anyone, money.clone()).decision, money.decision);
        assert_eq!(strictest(legal.clone(), money).decision, Decision::Deny);
        let more = strictest(legal, ask(vec![role("finance"), role("legal")], 2, "m"));
        assert_eq!(more.decision, Decision::Ask { approvers: vec![role("legal")], quorum: 2 });
        assert_eq!(more.why, "l, and m");
    }
}
