//! Refusals: the reasons why an input changes nothing.

use serde::{Deserialize, Serialize};

use crate::{ir::Approver, time::Timestamp};

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
