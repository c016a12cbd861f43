//! Dead letters in the store: their contents, identifiers and settlements.

use std::fmt;

use super::StoreError;
use serde::{Deserialize, Serialize};
use skein_core::{engine::AttemptId, ids::RunId, ir::ErrorClass, time::Timestamp};

/// A step that failed permanently, written with the journal row that records the failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterRow {
    /// The number of the event that recorded the failure.
    pub number: u64,
    /// The path of the step.
    pub step: String,
    pub class: ErrorClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
    /// The number of attempts in that visit of the step.
    pub attempts: u32,
    /// The last of these attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    pub run: RunId,
    pub row: DeadLetterRow,
    pub settled: Option<DeadLetterSettlement>,
}

impl DeadLetter {
    pub fn id(&self) -> DeadLetterId {
        DeadLetterId { run: self.run.clone(), number: self.row.number }
    }
}

/// A selection of dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterSelection {
    /// The newest unsettled ones, at most this many.
    Open(u32),
    /// The newest, at most this many.
    Newest(u32),
    /// All dead letters of a run.
    InRun(RunId),
}

/// The identifier of a dead letter: its run, a dot, and the number of the event that recorded the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterId {
    pub run: RunId,
    pub number: u64,
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.number)
    }
}

/// The resolution of a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterSettlement {
    pub how: SettlementKind,
    /// The person who requested it; none if the run settled it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettlementKind {
    /// Dropped by a person, with an optional reason.
    Dropped(Option<String>),
    /// This run repeats the step.
    Rerun(RunId),
    /// The whole run is retried.
    Retried,
}

impl DeadLetterSettlement {
    /// The settlement by a retry of the whole run.
    pub const RETRIED: DeadLetterSettlement = DeadLetterSettlement { how: SettlementKind::Retried, by: None, at: None };
}

/// The error for settling a dead letter that is already settled.
pub fn already_settled_error(id: &DeadLetterId, settled: &DeadLetterSettlement) -> StoreError {
    StoreError::Failed(format!("the dead letter `{id}` {settled}"))
}

impl fmt::Display for DeadLetterSettlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            SettlementKind::Dropped(_) => write!(f, "was dropped")?,
            SettlementKind::Rerun(run) => write!(f, "is rerun by run {run}")?,
            SettlementKind::Retried => write!(f, "is covered by the retry of its run")?,
        }
        if let Some(by) = &self.by {
            write!(f, ", requested by {by}")?;
        }
        if let SettlementKind::Dropped(Some(reason)) = &self.how {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
