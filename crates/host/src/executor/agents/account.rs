//! The rate limits of agent accounts, shared by all runs that use the same account.
//!
//! Owns one small file per account in the state folder. A step that may wait is not started before the limit ends, so
//! one rate-limit answer is enough for all steps. Waiting steps continue one after another, in the order in which they
//! arrived. Does not know the account itself: only a hash of the variables that it is used with is stored.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use skein_core::{
    limits,
    time::{Millis, Timestamp},
};

use crate::workspace::{RootFolder, root::FilePathError};

const FOLDER: &str = "accounts";
const BYTES: u64 = 4 * 1024;

/// An agent account, identified by a hash of its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAccount(String);

#[derive(Debug, Serialize, Deserialize)]
struct AccountLimit {
    until: Timestamp,
    /// The number of callers that were told to wait for the limit.
    #[serde(default)]
    waiting: u64,
}

impl AgentAccount {
    /// Returns the account of an agent that is given these variables.
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

    /// Returns the time until which the account is limited, if that is known and in the future.
    pub fn limited_until(&self, state: &RootFolder, now: Timestamp) -> Option<Timestamp> {
        self.read_limit(state, now).map(|limit| limit.until)
    }

    /// Adds a caller to the queue and returns its turn, if the account is limited now.
    pub fn reserve_turn(&self, state: &RootFolder, now: Timestamp) -> Option<Timestamp> {
        let limit = self.read_limit(state, now)?;
        Some(self.join_queue(state, limit.until, limit.waiting))
    }

    /// Records that the account is limited until `until`, and returns the turn of the caller that got this answer.
    pub fn record_limit(&self, state: &RootFolder, until: Timestamp, now: Timestamp) -> Timestamp {
        let before = self.read_limit(state, now).map_or(0, |limit| limit.waiting);
        self.join_queue(state, until, before)
    }

    /// Removes the limit: the account answered although it was recorded as limited, so nobody else has to wait for it.
    pub fn forget_limit(&self, state: &RootFolder) {
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
