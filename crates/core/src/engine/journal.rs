//! Journal rows: one batch of events for each append, chained by hash.
//!
//! Owns the form of a row and the check that rows follow one another. Does not know where rows are stored. The JSON of
//! a row is versioned; a reader rejects rows of a newer version.

use serde::{Deserialize, Serialize};

use super::Event;
use crate::{plan::ContentHash, time::Timestamp};

/// The version of rows that this code writes.
pub const VERSION: u32 = 1;

/// The row that one append adds to a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalBatch {
    pub version: u32,
    /// The number of its first event, counted from 0.
    pub seq: u64,
    pub records: Vec<JournalRecord>,
    /// The hash of the previous row and of this row's records.
    pub chain: ContentHash,
}

/// An event and the time at which it was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalRecord {
    pub at: Timestamp,
    pub event: Event,
}

/// The reason why rows are not a valid journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    #[error("row {seq} was written by a newer version ({version}; this one reads up to {VERSION})")]
    Newer { seq: u64, version: u32 },
    #[error("row {found} follows event {expected}: a row is missing or duplicated")]
    Gap { expected: u64, found: u64 },
    #[error("row {seq} is corrupted: its hash does not match")]
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

    /// Checks that this row follows `events` events whose last row has the hash `before`.
    pub fn check(&self, events: u64, before: ContentHash) -> Result<(), JournalError> {
        self.check_place(events)?;
        self.check_chain(hash_records(self.seq, before, &self.records))
    }

    /// Same as `check`, for records that are available as they were written, so that they are not serialised again.
    pub fn check_written(&self, events: u64, before: ContentHash, records: &[u8]) -> Result<(), JournalError> {
        self.check_place(events)?;
        let seq = format!("[{},", self.seq);
        self.check_chain(before.chain([seq.as_bytes(), records, b"]"]))
    }

    /// Checks that the first row of a journal starts a run of this definition.
    pub fn check_definition(&self, hash: ContentHash) -> Result<(), JournalError> {
        match self.records.first().map(|record| &record.event) {
            _ if self.seq > 0 => Ok(()),
            Some(Event::RunStarted { definition, .. }) if *definition == hash => Ok(()),
            Some(Event::Quarantined { .. }) => Ok(()),
            _ => Err(JournalError::OtherPlan),
        }
    }

    fn check_chain(&self, chain: ContentHash) -> Result<(), JournalError> {
        if chain == self.chain { Ok(()) } else { Err(JournalError::Chain { seq: self.seq }) }
    }

    /// Checks that this row has a readable version and follows `events` events.
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
