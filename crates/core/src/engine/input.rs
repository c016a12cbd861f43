//! What can be said to a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AttemptId, ReusedResult, StepAt, Waitpoint};
use crate::{
    ids::{RunId, SignalName},
    ir::{ErrorClass, HoldReason},
    limits,
    time::Timestamp,
};

/// An input, when it came, and how many workers may be started because of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedInput {
    pub at: Timestamp,
    pub grant: u32,
    pub input: RunInput,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RunInput {
    /// The run begins.
    Start(Box<RunStart>),
    /// The run begins with results of another.
    Fork { start: Box<RunStart>, reused: Vec<ReusedResult> },
    /// The host died and is back; nothing that was in flight is.
    Recover,
    /// Only the grant.
    Capacity,
    /// An attempt ended.
    Finished { attempt: AttemptId, report: AttemptReport },
    /// Someone answered a gate or a hold.
    Decide {
        opening: Waitpoint,
        decision: Verdict,
        by: DecisionActor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Something happened outside.
    Signal {
        name: SignalName,
        payload: Arc<Value>,
        /// The one wait that it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<StepAt>,
    },
    /// The host keeps a ready step from starting.
    Hold {
        step: StepAt,
        reason: HoldReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        message: String,
    },
    /// Time has passed.
    Wake,
    Cancel {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Something that was to be published is, or never will be.
    Published {
        item: Publication,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// What could not be undone is to be tried again.
    RetryUndo { by: String },
    /// Someone who may not, such as a worker, tried to say something. They were refused; this is only noted.
    Tampered { by: String, what: String },
    /// The run's own state makes no sense; it is set aside.
    Break { message: String },
}

/// Who a run is. Its parameters are in the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStart {
    pub run: RunId,
    /// The run that this one retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// Which try at the whole this is, counted from 1.
    pub attempt: u32,
    /// What expressions read as `context`.
    #[serde(default)]
    pub context: Value,
    /// The run whose results this one begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
}

/// Where a fork comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkOrigin {
    pub run: RunId,
    /// The first step that is done again, by its id.
    pub step: String,
}

impl RunStart {
    /// The first try at a run that comes from no other.
    pub fn new(run: RunId) -> RunStart {
        RunStart { run, retry_of: None, attempt: 1, context: Value::Null, forked_from: None }
    }
}

/// How an attempt ended and what it used up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptReport {
    pub end: AttemptEnd,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
    /// What was looked at of the step's evidence, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<EvidenceResult>,
    /// Who did it, where that was not who the step names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl AttemptReport {
    /// By whom the step names, with nothing to be proven.
    pub fn new(end: AttemptEnd, cost: Cost) -> AttemptReport {
        AttemptReport { end, cost, proofs: Vec::new(), by: None }
    }
}

/// Whether one piece of a step's evidence is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceResult {
    /// What had to be so.
    pub what: String,
    pub holds: bool,
    /// What was found, such as the end of what a command printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found: String,
}

impl EvidenceResult {
    /// Cut to what is kept.
    pub(super) fn into_bounded(self) -> EvidenceResult {
        let cut = |text: String, most: usize| match text.char_indices().nth(most) {
            Some((end, _)) => text[..end].to_owned(),
            None => text,
        };
        EvidenceResult {
            what: cut(self.what, limits::PROOF_CHARS),
            holds: self.holds,
            found: cut(self.found, limits::FOUND_CHARS),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AttemptEnd {
    Succeeded {
        output: Arc<Value>,
    },
    /// A check's finding.
    Checked {
        finding: CheckFinding,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fingerprints: Vec<String>,
        /// The end of its output, where it gave its finding without reasons of its own form.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<CheckOutput>,
    },
    Failed {
        class: ErrorClass,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        message: String,
        /// When it makes sense to try again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// The work is done, and what it changed does not fit what others changed meanwhile.
    Unmerged {
        output: Arc<Value>,
        message: String,
    },
    TimedOut,
    /// It was told to stop and did.
    Stopped,
    /// The host died under it.
    Interrupted,
    /// It could not begin or go on until someone or some time allows it.
    Blocked {
        reason: HoldReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        message: String,
    },
    /// Who did it cannot go on, and another takes over at once.
    HandedOver {
        to: String,
        message: String,
    },
}

/// The end of what a check printed or answered. Shown to people and to the next iteration; no rule reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckOutput {
    /// The exit status of a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl CheckOutput {
    /// The end of a text: the last whole lines that are kept of it.
    pub fn new(status: Option<i32>, text: &str) -> CheckOutput {
        let text = text.trim();
        let over = text.len().saturating_sub(limits::CHECK_OUTPUT_BYTES);
        let from = (over..=text.len()).find(|from| text.is_char_boundary(*from)).unwrap_or(over);
        let end = &text[from..];
        let whole = end.split_once('\n').filter(|_| over > 0).map_or(end, |(_, whole)| whole);
        CheckOutput { status, text: whole.to_owned() }
    }

    /// The line for a person: the first of a script, and the last of an answer, which has the decision.
    pub fn headline(&self) -> Option<&str> {
        let mut lines = self.text.lines().map(str::trim).filter(|line| !line.is_empty());
        if self.status.is_some() { lines.next() } else { lines.next_back() }
    }

    pub(super) fn into_bounded(self) -> CheckOutput {
        CheckOutput::new(self.status, &self.text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckFinding {
    Complete,
    Incomplete,
    /// The checker ended well and said nothing that can be read.
    Undecided,
    /// The work cannot go on without a person.
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approve,
    Reject,
}

/// Who decides, as the host knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionActor {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// What was spent: tokens, and money in millionths where it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cost {
    pub tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

impl Cost {
    pub fn is_zero(&self) -> bool {
        *self == Cost::default()
    }

    pub fn add(&mut self, other: Cost) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.micro_usd = match (self.micro_usd, other.micro_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
    }
}

/// Something to make known outside, once or more, to the same effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Publication {
    /// A hook of the workflow, by its number.
    Hook(u32),
    /// The files that the workflow gives.
    Files,
    /// The context folder's last state.
    Context,
    /// The run that retries this one.
    Retry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_check_keeps_its_end_and_has_a_headline() {
        let most = limits::CHECK_OUTPUT_BYTES;
        let long = CheckOutput { status: Some(1), text: format!("é{}", "x".repeat(most - 1)) };
        assert_eq!(long.into_bounded().text, "x".repeat(most - 1));
        let lines = CheckOutput::new(None, &format!("{}\none\ntwo\n", "x".repeat(most)));
        assert_eq!(lines.text, "one\ntwo");
        let of = |status| CheckOutput::new(status, "\n first \nmiddle\nlast\n\n");
        assert_eq!(of(Some(1)).text, "first \nmiddle\nlast");
        assert_eq!(of(Some(1)).into_bounded(), of(Some(1)));
        assert_eq!((of(Some(1)).headline(), of(None).headline()), (Some("first"), Some("last")));
        assert_eq!(CheckOutput::default().headline(), None);
    }

    #[test]
    fn costs_add_up_and_unknown_money_stays_unknown() {
        let of = |tokens, micro_usd| Cost { tokens, micro_usd };
        let mut cost = Cost::default();
        assert!(cost.is_zero());
        cost.add(of(3, None));
        assert_eq!(cost, of(3, None));
        cost.add(of(4, Some(7)));
        cost.add(of(u64::MAX, Some(1)));
        assert_eq!(cost, of(u64::MAX, Some(8)));
        assert!(!cost.is_zero() && !of(0, Some(0)).is_zero());
    }
}
