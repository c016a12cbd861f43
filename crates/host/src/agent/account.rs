//! Accounts whose limit is reached: until when, for every run that works with one.
//!
//! Owns a small file for each in the state folder. A step that may wait is not started before that time, so that one answer
//! is enough for all; those that wait go on one after another, in the order in which they came. Refuses to know the account
//! itself: only a hash of what it is used by is kept.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use skein_core::{
    limits,
    time::{Millis, Time},
};

use crate::workspace::{Root, root::PathError};

const FOLDER: &str = "accounts";
const BYTES: u64 = 4 * 1024;

/// An account, by what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account(String);

#[derive(Debug, Serialize, Deserialize)]
struct Limit {
    until: Time,
    /// How many have been told to wait for it.
    #[serde(default)]
    waiting: u64,
}

impl Account {
    /// The account of an agent that is given these variables.
    pub fn of(worker: &str, given: &[(OsString, OsString)]) -> Account {
        let mut hash = blake3::Hasher::new();
        for (name, value) in given {
            for part in [name, value] {
                hash.update(part.as_encoded_bytes()).update(&[0]);
            }
        }
        let hash = hash.finalize().to_hex();
        Account(format!("{worker}-{}", &hash.as_str()[..16]))
    }

    fn path(&self) -> String {
        format!("{FOLDER}/{}.json", self.0)
    }

    /// Until when nothing can be had from it, if that is known and still to come.
    pub fn limited(&self, state: &Root, now: Time) -> Option<Time> {
        self.known(state, now).map(|limit| limit.until)
    }

    /// When it is the turn of one that comes now, if nothing can be had from it yet.
    pub fn turn(&self, state: &Root, now: Time) -> Option<Time> {
        let limit = self.known(state, now)?;
        Some(self.stand(state, limit.until, limit.waiting))
    }

    /// Nothing can be had from it until then. When it is the turn of one that was told so.
    pub fn limit(&self, state: &Root, until: Time, now: Time) -> Time {
        let before = self.known(state, now).map_or(0, |limit| limit.waiting);
        self.stand(state, until, before)
    }

    /// It answered although it was said to be limited: nobody else has to wait for it.
    pub fn forget_limit(&self, state: &Root) {
        // If it stays, others wait for the time that it names.
        let _ = state.remove(self.path());
    }

    fn known(&self, state: &Root, now: Time) -> Option<Limit> {
        let bytes = state.read(self.path(), BYTES).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|limit: &Limit| limit.until > now)
    }

    /// One more waits, after so many others. Two that come at once may have the same turn, and then both ask.
    fn stand(&self, state: &Root, until: Time, before: u64) -> Time {
        let limit = Limit { until, waiting: before.saturating_add(1) };
        // Who is not told finds out for itself.
        let _ = self.write(state, &limit);
        until.after(Millis(before.saturating_mul(limits::ACCOUNT_APART)))
    }

    fn write(&self, state: &Root, limit: &Limit) -> Result<(), PathError> {
        state.make_folders(FOLDER, true)?;
        state.replace(self.path(), &serde_json::to_vec(limit).expect("it is JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_until_its_time_and_for_its_account() {
        let dir = tempfile::tempdir().unwrap();
        let state = Root::open(dir.path()).unwrap();
        let (ada, grace) = (
            Account::of("CLAUDE_CODE", &[("KEY".into(), "ada".into())]),
            Account::of("CLAUDE_CODE", &[("KEY".into(), "grace".into())]),
        );
        assert_eq!(ada.turn(&state, Time(5)), None);
        assert_eq!(ada.limit(&state, Time(10), Time(5)), Time(10));
        assert_eq!(ada.turn(&state, Time(10)), None);
        assert_eq!(grace.turn(&state, Time(5)), None);
        assert_eq!(ada.limited(&state, Time(5)), Some(Time(10)));
        ada.forget_limit(&state);
        assert_eq!(ada.limited(&state, Time(5)), None);
        assert_ne!(Account::of("OPENCODE", &[]), Account::of("CODEX_CLI", &[]));
    }

    #[test]
    fn those_that_wait_have_their_turns_in_the_order_in_which_they_came() {
        let dir = tempfile::tempdir().unwrap();
        let state = Root::open(dir.path()).unwrap();
        let account = Account::of("CLAUDE_CODE", &[]);
        let apart = i64::try_from(limits::ACCOUNT_APART).unwrap();
        assert_eq!(account.limit(&state, Time(100), Time(5)), Time(100));
        assert_eq!(account.turn(&state, Time(6)), Some(Time(100 + apart)));
        // One that was at work already, and is told the same.
        assert_eq!(account.limit(&state, Time(101), Time(7)), Time(101 + 2 * apart));
        // The first asks again, and nothing can be had yet: it stays the first.
        assert_eq!(account.limit(&state, Time(500), Time(102)), Time(500));
        assert_eq!(account.turn(&state, Time(103)), Some(Time(500 + apart)));
    }
}
