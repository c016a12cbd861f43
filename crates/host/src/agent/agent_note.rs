//! What is noted of an attempt's agent while it works, so that another can go on where it was cut off.
//!
//! Owns the one file of it. It is on disk before anyone relies on it: which session, before the agent could have done much
//! in it; what was spent, as often as it is told.

use serde::{Deserialize, Serialize};
use skein_core::engine::Cost;

use super::TokenUsage;
use crate::workspace::{RootFolder, root::FilePathError};

/// Its name in the folder of an attempt.
const NAME: &str = "agent.json";
const BYTES: u64 = 64 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentNote {
    /// Which agent it is.
    pub worker: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model that was asked for, or that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the attempt has spent, with what it took over from one before it.
    pub cost: Cost,
    /// What the session has spent in all, where the agent counts that.
    pub total: TokenUsage,
    /// The attempt has ended, and another goes on with the session.
    pub goes_on: bool,
}

impl AgentNote {
    /// The note of the attempt with this folder. One that cannot be read says nothing.
    pub fn read(folder: &RootFolder) -> Option<AgentNote> {
        serde_json::from_slice(&folder.read_file(NAME, BYTES).ok()?).ok()
    }

    /// Keeps it, so that it is there after a loss of power.
    pub fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &self.to_bytes())
    }

    /// Keeps it, so that it is there after the process was killed.
    pub fn write_unsynced(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        let mut file = folder.create_file(NAME, false)?;
        // What cannot be written now is written the next time, or at the end.
        let _ = std::io::Write::write_all(&mut file, &self.to_bytes());
        file.persist_unsynced()
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a note serialises to JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootFolder::open(dir.path()).unwrap();
        assert_eq!(AgentNote::read(&root), None);
        let mut note =
            AgentNote { worker: "CODEX_CLI".into(), session: Some("s".into()), ..AgentNote::default() };
        note.write(&root).unwrap();
        assert_eq!(AgentNote::read(&root).as_ref(), Some(&note));
        (note.cost.tokens, note.goes_on) = (7, true);
        note.write_unsynced(&root).unwrap();
        assert_eq!(AgentNote::read(&root), Some(note));
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert_eq!(AgentNote::read(&root), None);
    }
}
