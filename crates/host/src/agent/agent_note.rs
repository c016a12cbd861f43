//! The note about an attempt's agent, from which another attempt can continue an interrupted session.
//!
//! Owns the file of the note. It is written before anyone relies on it: the session, before the agent could have done
//! much in it; the cost, as often as the agent reports it.

use serde::{Deserialize, Serialize};
use skein_core::engine::Cost;

use super::TokenUsage;
use crate::workspace::{RootFolder, root::FilePathError};

/// The file's name in the folder of an attempt.
const NAME: &str = "agent.json";
const BYTES: u64 = 64 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentNote {
    /// The name of the agent.
    pub worker: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The model that was requested, or that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The cost of the attempt, including the cost taken over from an earlier attempt.
    pub cost: Cost,
    /// The session's total usage, if the agent reports it.
    pub total: TokenUsage,
    /// True if the attempt has ended and another one continues its session.
    pub goes_on: bool,
}

impl AgentNote {
    /// Reads the note of the attempt with this folder. Returns `None` if it cannot be read.
    pub fn read(folder: &RootFolder) -> Option<AgentNote> {
        serde_json::from_slice(&folder.read_file(NAME, BYTES).ok()?).ok()
    }

    /// Writes the note, so that it survives a power loss.
    pub fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &self.to_bytes())
    }

    /// Writes the note, so that it survives a kill of the process.
    pub fn write_unsynced(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        let mut file = folder.create_file(NAME, false)?;
        // A failed write is repeated with the next note, or at the end.
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
