//! Accounts whose limit is reached: until when, for every run that works with one.
//!
//! Owns a small file for each in the state folder. A step that may wait is not started before that time, so that one answer
//! is enough for all; those that wait go on one after another, in the order in which they came. Refuses to know the account
//! itself: only a hash of what it is used by is kept.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use skein_core::{
    limits,
    time::{Millis, Timestamp},
};

use crate::workspace::{RootFolder, root::FilePathError};

const FOLDER: &str = "accounts";
const BYTES: u64 = 4 * 1024;

/// An account, by what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAccount(String);

#[derive(Debug, Serialize, Deserialize)]
struct AccountLimit {
    until: Timestamp,
    /// How many have been told to wait for it.
    #[serde(default)]
    waiting: u64,
}

impl AgentAccount {
    /// The account of an agent that is given these variables.
    pub fn from_variables(worker: &str, given: &[(OsString, OsString)]) -> AgentAccount {
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

    /// Until when nothing can be had from it, if that is known and still to come.
    pub fn limited_until(&self, state: &RootFolder, now: Timestamp) -> Option<Timestamp> {
        self.read_limit(state, now).map(|limit| limit.until)
    }

    /// When it is the turn of one that comes now, if nothing can be had from it yet.
    pub fn reserve_turn(&self, state: &RootFolder, now: Timestamp) -> Option<Timestamp> {
        let limit = self.read_limit(state, now)?;
        Some(self.join_queue(state, limit.until, limit.waiting))
    }

    /// Nothing can be had from it until then. When it is the turn of one that was told so.
    pub fn record_limit(&self, state: &RootFolder, until: Timestamp, now: Timestamp) -> Timestamp {
        let before = self.read_limit(state, now).map_or(0, |limit| limit.waiting);
        self.join_queue(state, until, before)
    }

    /// It answered although it was said to be limited: nobody else has to wait for it.
    pub fn forget_limit(&self, state: &RootFolder) {
        // If it stays, others wait for the time that it names.
        let _ = state.remove(self.file_path());
    }

    fn read_limit(&self, state: &RootFolder, now: Timestamp) -> Option<AccountLimit> {
        let bytes = state.read_file(self.file_path(), BYTES).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|limit: &AccountLimit| limit.until > now)
    }

    /// One more waits, after so many others. Two that come at once may have the same turn, and then both ask.
    fn join_queue(&self, state: &RootFolder, until: Timestamp, before: u64) -> Timestamp {
        let limit = AccountLimit { until, waiting: before.saturating_add(1) };
        // Who is not told finds out for itself.
        let _ = self.write_limit(state, &limit);
        until.saturating_add(Millis(before.saturating_mul(limits::ACCOUNT_APART)))
    }

    fn write_limit(&self, state: &RootFolder, limit: &AccountLimit) -> Result<(), FilePathError> {
        state.make_folders(FOLDER, true)?;
        state.replace_file(self.file_path(), &serde_json::to_vec(limit).expect("it is JSON"))
    }
}

#[cfg(test)]
mod tests {
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
        assert_ne!(
            AgentAccount::from_variables("OPENCODE", &[]),
            AgentAccount::from_variables("CODEX_CLI", &[])
        );
    }

    #[test]
    fn those_that_wait_have_their_turns_in_the_order_in_which_they_came() {
        let dir = tempfile::tempdir().unwrap();
        let state = RootFolder::open(dir.path()).unwrap();
        let account = AgentAccount::from_variables("CLAUDE_CODE", &[]);
        let apart = i64::try_from(limits::ACCOUNT_APART).unwrap();
        assert_eq!(account.record_limit(&state, Timestamp(100), Timestamp(5)), Timestamp(100));
        assert_eq!(account.reserve_turn(&state, Timestamp(6)), Some(Timestamp(100 + apart)));
        // One that was at work already, and is told the same.
        assert_eq!(account.record_limit(&state, Timestamp(101), Timestamp(7)), Timestamp(101 + 2 * apart));
        // The first asks again, and nothing can be had yet: it stays the first.
        assert_eq!(account.record_limit(&state, Timestamp(500), Timestamp(102)), Timestamp(500));
        assert_eq!(account.reserve_turn(&state, Timestamp(103)), Some(Timestamp(500 + apart)));
    }
}
