//! The session of an agent over several attempts: the note that each attempt leaves, and the state that the next one
//! takes over.
//!
//! Owns the choice of attempts that resume a session, and the file of the note. The note is written before anyone relies
//! on it: the session, before the agent could have done much in it; the cost, as often as the agent reports it.

use serde::{Deserialize, Serialize};
use skein_core::engine::{AttemptId, AttemptMode, Cost};

use super::{AgentAdapter, AgentHome, TokenUsage};
use crate::{
    executor::attempt::spec::AttemptSpec,
    workspace::{RootFolder, RunDir, root::FilePathError},
};

/// The data that an attempt takes over from the previous one.
#[derive(Debug, Default)]
pub struct SessionCarryover {
    /// The session to resume.
    pub session: Option<String>,
    /// Costs that were never reported to the run.
    pub carried: Cost,
    /// The total usage of the session.
    pub total: TokenUsage,
}

impl SessionCarryover {
    pub fn load(job: &AttemptSpec, run: &RunDir, adapter: &dyn AgentAdapter, home: &AgentHome) -> SessionCarryover {
        let interrupted = matches!(job.mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore);
        let Some(note) = read_last_note(job, run) else { return SessionCarryover::default() };
        let mut carried = if interrupted { note.cost } else { Cost::default() };
        let mut total = note.total;
        let session = resumable_session(job, &note, adapter.agent_name());
        if interrupted && let Some(now) = session.as_ref().and_then(|session| adapter.read_session_usage(home, session))
        {
            // An interrupted agent may have spent more than it reported.
            carried.add(Cost { tokens: now.usage_since(total).total_tokens(), micro_usd: None });
            total = now;
        }
        let goes_on = match job.mode {
            AttemptMode::Resume => true,
            AttemptMode::Again => note.goes_on,
            AttemptMode::Fresh | AttemptMode::Rerun | AttemptMode::Restore => false,
        };
        match session.filter(|_| goes_on) {
            Some(session) => SessionCarryover { session: Some(session), carried, total },
            None => SessionCarryover { carried, ..SessionCarryover::default() },
        }
    }
}

/// True if its agent can resume a session.
pub fn has_session(job: &AttemptSpec, run: &RunDir) -> bool {
    let worker = job.agent().and_then(|agent| agent.worker.as_deref());
    read_last_note(job, run).zip(worker).is_some_and(|(note, worker)| resumable_session(job, &note, worker).is_some())
}

/// The session of a note, if the same agent can resume it. An agent that takes over starts a new one.
fn resumable_session(job: &AttemptSpec, note: &AgentNote, worker: &str) -> Option<String> {
    note.session.clone().filter(|_| note.worker == worker && job.relay.previous_agent().is_none())
}

/// The note about the agent of the previous attempt.
fn read_last_note(job: &AttemptSpec, run: &RunDir) -> Option<AgentNote> {
    (1..job.attempt.attempt).rev().find_map(|attempt| {
        let folder = run.find_attempt(AttemptId { attempt, ..job.attempt }).ok()??;
        AgentNote::read(folder.root())
    })
}

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
mod agent_note_tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootFolder::open(dir.path()).unwrap();
        assert_eq!(AgentNote::read(&root), None);
        let mut note = AgentNote { worker: "CODEX_CLI".into(), session: Some("s".into()), ..AgentNote::default() };
        note.write(&root).unwrap();
        assert_eq!(AgentNote::read(&root).as_ref(), Some(&note));
        (note.cost.tokens, note.goes_on) = (7, true);
        note.write_unsynced(&root).unwrap();
        assert_eq!(AgentNote::read(&root), Some(note));
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert_eq!(AgentNote::read(&root), None);
    }
}
