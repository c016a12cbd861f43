//! Inputs of a run, and the reasons why one is refused.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AttemptId, ReusedResult, StepAt, Waitpoint};
use crate::{
    ids::{RunId, SignalName},
    ir::{Approver, ErrorClass, HoldReason},
    limits,
    time::Timestamp,
};

/// An input, its time, and the number of workers that may be started because of it.
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
    /// Starts the run.
    Start(Box<RunStart>),
    /// Starts the run with results of another one.
    Fork { start: Box<RunStart>, reused: Vec<ReusedResult> },
    /// The host restarted after a crash; no attempt is in flight any more.
    Recover,
    /// No input, only a grant of workers.
    Capacity,
    /// An attempt ended.
    Finished { attempt: AttemptId, report: AttemptReport },
    /// A person decided a gate or a hold.
    Decide {
        opening: Waitpoint,
        decision: Verdict,
        by: DecisionActor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A signal from outside the run.
    Signal {
        name: SignalName,
        payload: Arc<Value>,
        /// The only wait that the signal is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<StepAt>,
    },
    /// The host holds a ready step.
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
    /// A publication succeeded, or failed for good.
    Published {
        item: Publication,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// Retries the undos that failed.
    RetryUndo { by: String },
    /// A caller without permission, such as a worker, tried to change the run and was refused. This only records it.
    Tampered { by: String, what: String },
    /// The state of the run is inconsistent; the run is quarantined.
    Break { message: String },
}

/// The identity of a run. Its parameters are in the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStart {
    pub run: RunId,
    /// The run that this one retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// The number of this try of the whole workflow, counted from 1.
    pub attempt: u32,
    /// The value that expressions read as `context`.
    #[serde(default)]
    pub context: Value,
    /// The run whose results this one begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
}

/// The run and the step that a fork starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkOrigin {
    pub run: RunId,
    /// The first step that is rerun, by its id.
    pub step: String,
}

impl RunStart {
    /// Creates the first try of a run that is not a fork.
    pub fn new(run: RunId) -> RunStart {
        RunStart { run, retry_of: None, attempt: 1, context: Value::Null, forked_from: None }
    }
}

/// The end of an attempt and its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptReport {
    pub end: AttemptEnd,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
    /// The results of checking the step's evidence, in declaration order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<EvidenceResult>,
    /// The agent that did the work, if it is not the one that the step names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl AttemptReport {
    /// Creates a report without evidence, by the agent that the step names.
    pub fn new(end: AttemptEnd, cost: Cost) -> AttemptReport {
        AttemptReport { end, cost, proofs: Vec::new(), by: None }
    }
}

/// The result of checking one piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceResult {
    /// The requirement.
    pub what: String,
    pub holds: bool,
    /// The observation, such as the end of a command's output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found: String,
}

impl EvidenceResult {
    /// Truncates the texts to the limits of the journal.
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
        /// The end of its output, if the check did not give its reasons in the structured form.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<CheckOutput>,
    },
    Failed {
        class: ErrorClass,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        message: String,
        /// The earliest time at which a retry makes sense.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// The work is done, but its changes conflict with changes that others made meanwhile.
    Unmerged {
        output: Arc<Value>,
        message: String,
    },
    TimedOut,
    /// The worker was told to stop and did.
    Stopped,
    /// The host crashed during the attempt.
    Interrupted,
    /// The attempt cannot start or continue until a person or a time allows it.
    Blocked {
        reason: HoldReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        message: String,
    },
    /// The agent cannot continue, and another one takes over at once.
    HandedOver {
        to: String,
        message: String,
    },
}

/// The end of the output of a check. It is shown to people and to the next iteration; no rule reads it.
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
    /// Keeps the end of a text: as many of its last whole lines as the limit allows.
    pub fn new(status: Option<i32>, text: &str) -> CheckOutput {
        let text = text.trim();
        let over = text.len().saturating_sub(limits::CHECK_OUTPUT_BYTES);
        let from = (over..=text.len()).find(|from| text.is_char_boundary(*from)).unwrap_or(over);
        let end = &text[from..];
        let whole = end.split_once('\n').filter(|_| over > 0).map_or(end, |(_, whole)| whole);
        CheckOutput { status, text: whole.to_owned() }
    }

    /// Returns one line for people: the first line of a script's output, or the last line of an answer, which holds the
    /// decision.
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
    /// The check succeeded, but its finding cannot be read.
    Undecided,
    /// The work cannot continue without a person.
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approve,
    Reject,
}

/// The person who decides, as authenticated by the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionActor {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// The name of the actor in decisions that a timeout makes.
pub const TIMEOUT_ACTOR: &str = "system:timeout";

/// A cost: tokens, and money in millionths of a dollar if known.
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

/// An effect outside the run that is published. Publishing is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Publication {
    /// A hook of the workflow, by its number.
    Hook(u32),
    /// The files that the workflow exports.
    Files,
    /// The final state of the context folder.
    Context,
    /// The run that retries this one.
    Retry,
}

/// The reason why an input was refused. A refused input leaves no trace in the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Refusal {
    #[error("the run has not been started")]
    NotStarted,
    #[error("the run has been started already")]
    AlreadyStarted,
    #[error("the run is over")]
    Ended,
    #[error("the run was set aside because its state is inconsistent: {message}")]
    Quarantined { message: String },
    #[error("there is no such attempt")]
    UnknownAttempt,
    #[error("the attempt has ended already")]
    LateResult,
    #[error("only a check has a finding")]
    WrongReport,
    #[error("there is no such waitpoint")]
    UnknownOpening,
    #[error("decided already by {by} at {}", super::format_utc(*at))]
    AlreadyDecided { by: String, at: Timestamp },
    #[error(
        "{by} already approved it at {}; {given} of {quorum} approvals are given, and the next must come from another person",
        super::format_utc(*at)
    )]
    ApprovedAlready { by: String, at: Timestamp, given: u32, quorum: u32 },
    #[error("it is no longer open")]
    NotOpen,
    #[error("this waits for a signal, not for a decision")]
    NotADecision,
    #[error("you are `{by}`; `{step}` needs {}", describe_approvers(approvers))]
    NotAllowed { by: String, step: String, approvers: Vec<Approver> },
    #[error("no step of this workflow waits for that signal")]
    UnknownSignal,
    #[error("too many signals are waiting to be delivered")]
    TooManySignals,
    #[error("that step is not waiting for this signal")]
    NotWaiting,
    #[error("it does not match the declared outputs of `{step}`: {message}; the step keeps waiting")]
    OutputInvalid { step: String, message: String },
    #[error("there is no such step")]
    UnknownStep,
    #[error("only a step that is ready to start can be held")]
    NotReady,
    #[error("this publication is not pending")]
    NotPublishing,
    #[error("nothing is left to undo")]
    NothingToUndo,
}

fn describe_approvers(approvers: &[Approver]) -> String {
    if approvers.is_empty() {
        return "an approver, and none is named".to_owned();
    }
    let names: Vec<String> = approvers
        .iter()
        .map(|approver| match approver {
            Approver::Role(role) => format!("the role `{role}` (`[roles] {role}` in skein.toml)"),
            Approver::User(user) => format!("the user `{user}`"),
        })
        .collect();
    names.join(" or ")
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
