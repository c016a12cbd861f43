//! Dead letters as a store knows them: what they say, their names, and what was done about them.

use std::{fmt, str::FromStr};

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

impl FromStr for DeadId {
    type Err = ();

    fn from_str(text: &str) -> Result<DeadId, ()> {
        let (run, number) = text.rsplit_once('.').ok_or(())?;
        Ok(DeadId { run: RunId::new(run).map_err(drop)?, number: number.parse().map_err(drop)? })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_run_and_a_number() {
        let id: DeadId = "k3.f9.17".parse().unwrap();
        assert_eq!((id.run.as_str(), id.number), ("k3.f9", 17));
        assert_eq!(id.to_string(), "k3.f9.17");
        for bad in ["", "17", "k3.", "k3.x", ".1", "k3.-1"] {
            assert!(bad.parse::<DeadId>().is_err(), "{bad}");
        }
    }
}
