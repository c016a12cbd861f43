//! Observations about an attempt besides its end: kept in its folder, shown in the context.

use serde::{Deserialize, Serialize};
use skein_core::{engine::AttemptId, limits};

use crate::workspace::{AttemptDir, RunDir, root::FilePathError};

/// An observation, with the fields of the format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerObservation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Paths in the workspace.
    pub files_changed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Longer summaries are cut in the middle; this many characters of the beginning and of the end stay.
const SUMMARY: usize = 4_000;
const SUMMARY_PART: usize = 1_000;

impl WorkerObservation {
    /// Returns a summary as the format requires: complete if it is short, else its beginning and its end.
    pub fn shorten_summary(text: &str) -> String {
        let count = text.chars().count();
        if count <= SUMMARY {
            return text.to_owned();
        }
        let first: String = text.chars().take(SUMMARY_PART).collect();
        let last: String = text.chars().skip(count - SUMMARY_PART).collect();
        format!("{first}...{last}")
    }
}

impl AttemptDir {
    /// Stores an observation, which must not be longer than a value may be.
    pub fn save_observation(&self, seen: &WorkerObservation) -> Result<(), FilePathError> {
        self.write_observation(&serde_json::to_vec(seen).expect("an observation is plain data"))
    }

    /// Loads the observation. Returns `None` if there is none, or if it cannot be parsed.
    pub fn load_observation(&self) -> Result<Option<WorkerObservation>, FilePathError> {
        let bytes = self.read_observation(limits::VALUE_BYTES as u64)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

pub(super) fn find_observation(run: &RunDir, attempt: AttemptId) -> Result<Option<WorkerObservation>, FilePathError> {
    run.find_attempt(attempt)?.map_or(Ok(None), |files| files.load_observation())
}
