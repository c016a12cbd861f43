//! Dead letters as a store knows them: what they say, their names, and what was done about them.

use std::fmt;

use super::StoreError;
use serde::{Deserialize, Serialize};
use skein_core::{engine::AttemptId, ids::RunId, ir::ErrorClass, time::Timestamp};

/// A step that failed for good, written with the row of the journal that says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterRow {
    /// The number of the event that tells of it.
    pub number: u64,
    /// The path of the step.
    pub step: String,
    pub class: ErrorClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
    /// How often it was tried in that visit.
    pub attempts: u32,
    /// The last of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    pub at: Timestamp,
}

/// A dead letter.
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

/// Which dead letters are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterSelection {
    /// The newest that nobody has seen to, at most so many.
    Open(u32),
    /// The newest, at most so many.
    Newest(u32),
    /// All of a run.
    InRun(RunId),
}

/// The name of a dead letter: its run, a dot, and the number of the event that tells of it.
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

/// What was done about a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterSettlement {
    pub how: SettlementKind,
    /// Who wanted that; nobody, where the run itself did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettlementKind {
    /// Someone wants to hear no more of it; perhaps why.
    Dropped(Option<String>),
    /// This run does it again.
    Rerun(RunId),
    /// The whole run is tried again.
    Retried,
}

impl DeadLetterSettlement {
    /// Because the whole run is tried again.
    pub const RETRIED: DeadLetterSettlement =
        DeadLetterSettlement { how: SettlementKind::Retried, by: None, at: None };
}

/// A dead letter that someone has seen to cannot be seen to again.
pub(super) fn already_settled_error(id: &DeadLetterId, settled: &DeadLetterSettlement) -> StoreError {
    StoreError::Failed(format!("the dead letter `{id}` {settled}"))
}

impl fmt::Display for DeadLetterSettlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            SettlementKind::Dropped(_) => write!(f, "was dropped")?,
            SettlementKind::Rerun(run) => write!(f, "is done again by run {run}")?,
            SettlementKind::Retried => write!(f, "was left to the retry of its run")?,
        }
        if let Some(by) = &self.by {
            write!(f, ", as {by} wanted")?;
        }
        if let SettlementKind::Dropped(Some(reason)) = &self.how {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
