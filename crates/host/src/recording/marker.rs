//! The marker of a recorded or replayed attempt: a file in the folder of the attempt.
//!
//! Owns the count: an interrupted attempt has no end and is not counted as recorded.

use serde::{Deserialize, Serialize};
use skein_core::engine::{AttemptId, AttemptMode};

use crate::workspace::{RootFolder, RunDir, root::FilePathError};

const NAME: &str = "tape.json";
const BYTES: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingMarker {
    /// The attempt's place in the recording.
    pub place: String,
    /// The reason why it is not completely recorded, or cannot be replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl RecordingMarker {
    pub fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &serde_json::to_vec(self).expect("it is JSON"))
    }

    fn read(folder: &RootFolder) -> Option<RecordingMarker> {
        serde_json::from_slice(&folder.read_file(NAME, BYTES).ok()?).ok()
    }
}

/// Returns the number of this attempt among those that ended, from 1.
pub fn attempt_ordinal(run: &RunDir, attempt: AttemptId, mode: AttemptMode) -> Result<u32, FilePathError> {
    let mut n = 1;
    for before in 1..attempt.attempt {
        let Some(folder) = run.find_attempt(AttemptId { attempt: before, ..attempt })? else { continue };
        let interrupted = matches!(mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore);
        if interrupted && before + 1 == attempt.attempt {
            // The end was written here, but never reported to the run.
            folder.root().remove(NAME)?;
        }
        n += u32::from(RecordingMarker::read(folder.root()).is_some());
    }
    Ok(n)
}

/// Reads all markers of a run.
pub fn read_markers(run: &RunDir) -> Result<Vec<RecordingMarker>, FilePathError> {
    let mut all = Vec::new();
    for attempt in run.list_attempts()? {
        all.extend(run.find_attempt(attempt)?.and_then(|folder| RecordingMarker::read(folder.root())));
    }
    all.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(all)
}
