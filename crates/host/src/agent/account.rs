//! Accounts whose limit is reached: until when, for every run that works with one.
//!
//! Owns a small file for each in the state folder. A step that may wait is not started before that time, so that one answer
//! is enough for all. Refuses to know the account itself: only a hash of what it is used by is kept.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use skein_core::time::Time;

use crate::workspace::{Root, root::PathError};

const FOLDER: &str = "accounts";
const BYTES: u64 = 4 * 1024;

/// An account, by what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account(String);

#[derive(Debug, Serialize, Deserialize)]
struct Limit {
    until: Time,
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
        let bytes = state.read(self.path(), BYTES).ok()?;
        let limit: Limit = serde_json::from_slice(&bytes).ok()?;
        (limit.until > now).then_some(limit.until)
    }

    /// Nothing can be had from it until then.
    pub fn limit(&self, state: &Root, until: Time) -> Result<(), PathError> {
        state.make_folders(FOLDER, true)?;
        state.replace(self.path(), &serde_json::to_vec(&Limit { until }).expect("it is JSON"))
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
        assert_eq!(ada.limited(&state, Time(5)), None);
        ada.limit(&state, Time(10)).unwrap();
        assert_eq!(ada.limited(&state, Time(5)), Some(Time(10)));
        assert_eq!(ada.limited(&state, Time(10)), None);
        assert_eq!(grace.limited(&state, Time(5)), None);
        assert_ne!(Account::of("OPENCODE", &[]), Account::of("CODEX_CLI", &[]));
    }
}
