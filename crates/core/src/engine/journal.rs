//! The journal's rows: one batch of events for each append, chained by hash.
//!
//! Owns the form of a row and the check that rows follow one another. Refuses to know where they are kept. The JSON of
//! a row is versioned; a reader refuses what is newer than itself.

use serde::{Deserialize, Serialize};

use super::Event;
use crate::{plan::ContentHash, time::Timestamp};

/// The version of rows that this code writes.
pub const VERSION: u32 = 1;

/// What one append adds to a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalBatch {
    pub version: u32,
    /// The number of its first event, counted from 0.
    pub seq: u64,
    pub records: Vec<JournalRecord>,
    /// The hash of the row before it and of its own records.
    pub chain: ContentHash,
}

/// An event and when it was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalRecord {
    pub at: Timestamp,
    pub event: Event,
}

/// Why rows are not a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("row {seq} was written by a newer version ({version}; this one reads up to {VERSION})")]
    Newer { seq: u64, version: u32 },
    #[error("row {found} follows event {expected}: something is missing or there twice")]
    Gap { expected: u64, found: u64 },
    #[error("row {seq} is not what was written: its hash does not fit")]
    Chain { seq: u64 },
    #[error("row {seq} has no event")]
    Empty { seq: u64 },
    #[error("the journal does not begin with the start of a run of this plan")]
    OtherPlan,
}

impl JournalBatch {
    pub fn new(seq: u64, before: ContentHash, records: Vec<JournalRecord>) -> JournalBatch {
        let chain = hash_records(seq, before, &records);
        JournalBatch { version: VERSION, seq, records, chain }
    }

    /// Whether this row follows these many events that end with this hash.
    pub fn check(&self, events: u64, before: ContentHash) -> Result<(), JournalError> {
        self.check_place(events)?;
        self.check_chain(hash_records(self.seq, before, &self.records))
    }

    /// The same, where the records are at hand as they were written: those need not be written again to be hashed.
    pub fn check_written(
        &self,
        events: u64,
        before: ContentHash,
        records: &[u8],
    ) -> Result<(), JournalError> {
        self.check_place(events)?;
        let seq = format!("[{},", self.seq);
        self.check_chain(before.chain([seq.as_bytes(), records, b"]"]))
    }

    fn check_chain(&self, chain: ContentHash) -> Result<(), JournalError> {
        if chain == self.chain { Ok(()) } else { Err(JournalError::Chain { seq: self.seq }) }
    }

    /// Whether this row can be read, and follows these many events.
    pub(super) fn check_place(&self, events: u64) -> Result<(), JournalError> {
        let JournalBatch { version, seq, .. } = *self;
        if version > VERSION {
            return Err(JournalError::Newer { seq, version });
        }
        if seq != events {
            return Err(JournalError::Gap { expected: events, found: seq });
        }
        if self.records.is_empty() {
            return Err(JournalError::Empty { seq });
        }
        Ok(())
    }
}

fn hash_records(seq: u64, before: ContentHash, records: &[JournalRecord]) -> ContentHash {
    let bytes = serde_json::to_vec(&(seq, records)).expect("records serialise to JSON");
    before.chain([&bytes[..]])
}
