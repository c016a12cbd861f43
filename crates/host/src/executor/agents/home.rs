//! The state that an agent keeps between attempts: its home folder, its sessions, and the rate limits of its account.
//!
//! Owns one home per step of a run, empty at first except for the user's login. The login is a link to the user's own
//! file, so that a refreshed token reaches the user, too; a file that replaced the link is copied back. Owns the note
//! of each attempt, from which the next one resumes the session: the session is written before the agent could have
//! done much in it, the cost as often as the agent reports it. Owns one small file per account in the state folder, so
//! that one rate-limit answer is enough for all steps of all runs; only a hash of the account's variables is stored,
//! and waiting steps continue one after another, in the order in which they arrived.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptMode, Cost},
    limits,
    time::{Millis, Timestamp},
};

use crate::{
    executor::{
        agents::{AgentAdapter, TokenUsage},
        attempt::{AttemptContext, spec::AttemptSpec},
    },
    workspace::{RootFolder, root::FilePathError},
};

/// The folder of an agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentHome {
    /// `None` means the user's own home, which is used as it is.
    pub path: Option<PathBuf>,
}

/// The location of a user's login, and its place in an agent's home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginLink {
    pub from: Option<PathBuf>,
    pub to: &'static str,
}

impl AgentHome {
    /// Creates or opens the home of an agent at this path, ready to be used.
    pub fn open(path: &Path, login: &LoginLink) -> io::Result<AgentHome> {
        let place = path.join(login.to);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        let home = AgentHome { path: Some(path.to_owned()) };
        home.restore_login(login)?;
        if let Some(from) = login.from.as_deref().filter(|from| from.is_file()) {
            match fs::read_link(&place) {
                Ok(to) if to == from => {}
                _ => {
                    remove_if_exists(&place)?;
                    symlink(from, &place)?;
                }
            }
        }
        Ok(home)
    }

    /// Returns the user's own home.
    pub(crate) fn user_home() -> AgentHome {
        AgentHome { path: None }
    }

    /// Copies a login that replaced the link back to the user's file.
    pub(crate) fn restore_login(&self, login: &LoginLink) -> io::Result<()> {
        let (Some(path), Some(from)) = (&self.path, &login.from) else { return Ok(()) };
        let place = path.join(login.to);
        if !fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_file()) || !from.is_file() {
            return Ok(());
        }
        let bytes = fs::read(&place)?;
        let mut beside = from.clone().into_os_string();
        beside.push(".skein-new");
        let beside = PathBuf::from(beside);
        remove_if_exists(&beside)?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        io::Write::write_all(&mut file, &bytes)?;
        file.sync_all()?;
        fs::rename(&beside, from)?;
        fs::remove_file(&place)?;
        symlink(from, &place)
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns a folder of the user: the value of a variable, or a folder below their home.
pub(crate) fn user_folder(variable: &str, below: &str) -> Option<PathBuf> {
    let own = env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(below))).filter(|path| path.is_absolute())
}

const FOLDER: &str = "accounts";
const BYTES: u64 = 4 * 1024;

/// An agent account, identified by a hash of its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentAccount(String);

#[derive(Debug, Serialize, Deserialize)]
struct AccountLimit {
    until: Timestamp,
    /// The number of callers that were told to wait for the limit.
    #[serde(default)]
    waiting: u64,
}

impl AgentAccount {
    /// Returns the account of an agent that is given these variables.
    pub(crate) fn from_variables(worker: &str, given: &[(OsString, OsString)]) -> AgentAccount {
        let mut hash = blake3::Hasher::new();
        for (name, value) in given {
            for part in [name, value] {
                hash.update(part.as_encoded_bytes()).update(&[0]);
            }
        }
        let hash = hash.finalize().to_hex();
        AgentAccount(format!("{worker}-{}", &hash.as_str()[..16]))
    }

    fn file_path(&self) -> String {
        format!("{FOLDER}/{}.json", self.0)
    }

    /// Returns the time until which the account is limited, if that is known and in the future.
    pub(crate) fn limited_until(&self, state: &RootFolder, now: Timestamp) -> Option<Timestamp> {
        self.read_limit(state, now).map(|limit| limit.until)
    }

    /// Adds a caller to the queue and returns its turn, if the account is limited now.
    pub(crate) fn reserve_turn(&self, state: &RootFolder, now: Timestamp) -> Option<Timestamp> {
        let limit = self.read_limit(state, now)?;
        Some(self.join_queue(state, limit.until, limit.waiting))
    }

    /// Records that the account is limited until `until`, and returns the turn of the caller that got this answer.
    pub(crate) fn record_limit(&self, state: &RootFolder, until: Timestamp, now: Timestamp) -> Timestamp {
        let before = self.read_limit(state, now).map_or(0, |limit| limit.waiting);
        self.join_queue(state, until, before)
    }

    /// Removes the limit: the account answered although it was recorded as limited, so nobody else has to wait for it.
    pub(crate) fn forget_limit(&self, state: &RootFolder) {
        // If the removal fails, other callers wait until the recorded time.
        let _ = state.remove(self.file_path());
    }

    fn read_limit(&self, state: &RootFolder, now: Timestamp) -> Option<AccountLimit> {
        let bytes = state.read_file(self.file_path(), BYTES).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|limit: &AccountLimit| limit.until > now)
    }

    /// Adds one caller to a queue of `before` others. Two callers that arrive at the same time may get the same turn;
    /// then both ask.
    fn join_queue(&self, state: &RootFolder, until: Timestamp, before: u64) -> Timestamp {
        let limit = AccountLimit { until, waiting: before.saturating_add(1) };
        // A caller that does not see the limit finds out from the service itself.
        let _ = self.write_limit(state, &limit);
        until.saturating_add(Millis(before.saturating_mul(limits::ACCOUNT_APART)))
    }

    fn write_limit(&self, state: &RootFolder, limit: &AccountLimit) -> Result<(), FilePathError> {
        state.make_folders(FOLDER, true)?;
        state.replace_file(self.file_path(), &serde_json::to_vec(limit).expect("it is JSON"))
    }
}

/// The data that an attempt takes over from the previous one.
#[derive(Debug, Default)]
pub(crate) struct SessionCarryover {
    /// The session to resume.
    pub session: Option<String>,
    /// Costs that were never reported to the run.
    pub carried: Cost,
    /// The total usage of the session.
    pub total: TokenUsage,
}

impl SessionCarryover {
    pub(crate) fn load(attempt: &AttemptContext, adapter: &dyn AgentAdapter, home: &AgentHome) -> SessionCarryover {
        let job = &attempt.job;
        let interrupted = matches!(job.mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore);
        let Some(note) = read_last_note(attempt) else { return SessionCarryover::default() };
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
pub(crate) fn has_session(attempt: &AttemptContext) -> bool {
    let job = &attempt.job;
    let worker = job.agent().and_then(|agent| agent.worker.as_deref());
    read_last_note(attempt).zip(worker).is_some_and(|(note, worker)| resumable_session(job, &note, worker).is_some())
}

/// The session of a note, if the same agent can resume it. An agent that takes over starts a new one.
fn resumable_session(job: &AttemptSpec, note: &AgentNote, worker: &str) -> Option<String> {
    note.session.clone().filter(|_| note.worker == worker && job.agent_task.fallback.previous_agent().is_none())
}

/// The note about the agent of the previous attempt.
fn read_last_note(attempt: &AttemptContext) -> Option<AgentNote> {
    attempt.earlier_attempts().find_map(|files| AgentNote::read(files.root()))
}

/// The file's name in the folder of an attempt.
const NAME: &str = "agent.json";
const SESSION_BYTES: u64 = 64 * 1024;

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
        serde_json::from_slice(&folder.read_file(NAME, SESSION_BYTES).ok()?).ok()
    }

    /// Writes the note, so that it survives a power loss.
    pub fn write(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        folder.replace_file(NAME, &self.to_bytes())
    }

    /// Writes the note, so that it survives a kill of the process.
    pub(crate) fn write_unsynced(&self, folder: &RootFolder) -> Result<(), FilePathError> {
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

#[cfg(test)]
mod account_tests {
    use super::*;

    #[test]
    fn a_limit_holds_until_its_time_and_for_its_account() {
        let dir = tempfile::tempdir().unwrap();
        let state = RootFolder::open(dir.path()).unwrap();
        let (ada, grace) = (
            AgentAccount::from_variables("CLAUDE_CODE", &[("KEY".into(), "ada".into())]),
            AgentAccount::from_variables("CLAUDE_CODE", &[("KEY".into(), "grace".into())]),
        );
        assert_eq!(ada.reserve_turn(&state, Timestamp(5)), None);
        assert_eq!(ada.record_limit(&state, Timestamp(10), Timestamp(5)), Timestamp(10));
        assert_eq!(ada.reserve_turn(&state, Timestamp(10)), None);
        assert_eq!(grace.reserve_turn(&state, Timestamp(5)), None);
        assert_eq!(ada.limited_until(&state, Timestamp(5)), Some(Timestamp(10)));
        ada.forget_limit(&state);
        assert_eq!(ada.limited_until(&state, Timestamp(5)), None);
        assert_ne!(AgentAccount::from_variables("OPENCODE", &[]), AgentAccount::from_variables("CODEX_CLI", &[]));
    }

    #[test]
    fn those_that_wait_have_their_turns_in_the_order_in_which_they_came() {
        let dir = tempfile::tempdir().unwrap();
        let state = RootFolder::open(dir.path()).unwrap();
        let account = AgentAccount::from_variables("CLAUDE_CODE", &[]);
        let apart = i64::try_from(limits::ACCOUNT_APART).unwrap();
        assert_eq!(account.record_limit(&state, Timestamp(100), Timestamp(5)), Timestamp(100));
        assert_eq!(account.reserve_turn(&state, Timestamp(6)), Some(Timestamp(100 + apart)));
        // An attempt that was already working, and gets the same answer.
        assert_eq!(account.record_limit(&state, Timestamp(101), Timestamp(7)), Timestamp(101 + 2 * apart));
        // The first one asks again and is still limited: it stays the first.
        assert_eq!(account.record_limit(&state, Timestamp(500), Timestamp(102)), Timestamp(500));
        assert_eq!(account.reserve_turn(&state, Timestamp(103)), Some(Timestamp(500 + apart)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_used_where_it_is_and_nothing_else_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let person = dir.path().join("person");
        fs::create_dir_all(&person).unwrap();
        fs::write(person.join("auth.json"), "old").unwrap();
        fs::write(person.join("config.toml"), "evil").unwrap();
        let login = LoginLink { from: Some(person.join("auth.json")), to: "in/auth.json" };
        let home = AgentHome::open(&dir.path().join("home"), &login).unwrap();
        let place = dir.path().join("home/in/auth.json");
        assert_eq!(fs::read_to_string(&place).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 1);
        // Written through the link.
        fs::write(&place, "new").unwrap();
        assert_eq!(fs::read_to_string(person.join("auth.json")).unwrap(), "new");
        // Replaced, as with a rename.
        fs::remove_file(&place).unwrap();
        fs::write(&place, "newer").unwrap();
        home.restore_login(&login).unwrap();
        assert_eq!(fs::read_to_string(person.join("auth.json")).unwrap(), "newer");
        assert!(fs::symlink_metadata(&place).unwrap().is_symlink());
        // Opened again, as after a restart of the host.
        AgentHome::open(&dir.path().join("home"), &login).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "newer");
    }

    #[test]
    fn without_a_login_a_home_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        for from in [None, Some(dir.path().join("nothing"))] {
            let login = LoginLink { from, to: "auth.json" };
            AgentHome::open(&dir.path().join("home"), &login).unwrap().restore_login(&login).unwrap();
            assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 0);
        }
    }
}
