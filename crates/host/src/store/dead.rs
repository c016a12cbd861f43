//! Dead letters as a store knows them: what they say, their names, and what was done about them.

use std::fmt;

use super::StoreError;
use serde::{Deserialize, Serialize};
use skein_core::{engine::AttemptId, ids::RunId, ir::ErrorClass, time::Time};

/// A step that failed for good, written with the row of the journal that says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadRow {
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
    pub at: Time,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq)]
pub struct Dead {
    pub run: RunId,
    pub row: DeadRow,
    pub settled: Option<Settled>,
}

impl Dead {
    pub fn id(&self) -> DeadId {
        DeadId { run: self.run.clone(), number: self.row.number }
    }
}

/// Which dead letters are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichDead {
    /// The newest that nobody has seen to, at most so many.
    Open(u32),
    /// The newest, at most so many.
    Newest(u32),
    /// All of a run.
    Of(RunId),
}

/// The name of a dead letter: its run, a dot, and the number of the event that tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadId {
    pub run: RunId,
    pub number: u64,
}

impl fmt::Display for DeadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.number)
    }
}

/// What was done about a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    pub how: How,
    /// Who wanted that; nobody, where the run itself did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Someone wants to hear no more of it; perhaps why.
    Dropped(Option<String>),
    /// This run does it again.
    Rerun(RunId),
    /// The whole run is tried again.
    Retried,
}

impl Settled {
    /// Because the whole run is tried again.
    pub const RETRIED: Settled = Settled { how: How::Retried, by: None, at: None };
}

/// A dead letter that someone has seen to cannot be seen to again.
pub(super) fn seen_to(id: &DeadId, settled: &Settled) -> StoreError {
    StoreError::Failed(format!("the dead letter `{id}` {settled}"))
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            How::Dropped(_) => write!(f, "was dropped")?,
            How::Rerun(run) => write!(f, "is done again by run {run}")?,
            How::Retried => write!(f, "was left to the retry of its run")?,
        }
        if let Some(by) = &self.by {
            write!(f, ", as {by} wanted")?;
        }
        if let How::Dropped(Some(reason)) = &self.how {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
