//! The store of runs: their journals, their owners, and the requests sent to them from outside.
//!
//! Owns three guarantees: an acknowledged append survives, a run has one owner at a time, and an owner that lost its
//! run learns so at its next append. Does not know the meaning of events: rows, requests and answers are bytes with a
//! position, and the caller supplies the list entries ([`RunHead`]) and audit records. The trait is small, so that a
//! store shared by many machines can replace the one on this disk; the `conformance` tests check every implementation.

mod records;
mod sqlite;

use std::{fmt, time::Duration};

use skein_core::{engine::JournalBatch, ids::RunId, plan::ContentHash};

use crate::audit::AuditEntry;

pub use records::{
    AppendCallback, AppendError, DeadLetter, DeadLetterId, DeadLetterRow, DeadLetterSelection, DeadLetterSettlement,
    InboxRequest, InboxRequestId, JournalAppend, MAX_PENDING_REQUESTS, MAX_REQUEST_BYTES, NewRun, NoticeCallback,
    RunClaim, RunHead, RunList, RunOwner, RunRow, RunSelection, SettlementKind, StoreNotice, WaitpointRow,
    already_settled_error, request_limit_error,
};
pub(crate) use sqlite::configure_connection;
pub use sqlite::{
    DatabaseCheck, FileSystem, SqliteStore, StateRegistry, StoreOpenError, UntrustedState, inspect_file_system,
    is_shortened,
};

/// An audit record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAuditRecord {
    /// The position in the audit.
    pub seq: u64,
    pub line: Vec<u8>,
}

/// A store of runs. Every method may be called from any thread.
pub trait Store: Send + Sync + fmt::Debug {
    /// Creates runs owned by this process, with the first rows of their journals: all of them or none.
    fn create_runs(&self, new: &[NewRun]) -> Result<Vec<RunClaim>, StoreError>;

    /// Claims runs that have no living owner. Each claim succeeds or fails on its own.
    fn claim_runs(&self, runs: &[RunId]) -> Result<Vec<Result<RunClaim, ClaimError>>, StoreError>;

    /// Releases runs, all of them or none. A claim that has already ended counts as released.
    fn release_runs(&self, claims: &[RunClaim]) -> Result<(), StoreError>;

    /// Appends a row to the journal of a run. The caller gives the rows of one run one at a time.
    fn append(&self, append: JournalAppend, done: AppendCallback);

    /// Appends like `append`, for a caller that only waits for the row: it may be written before this returns.
    fn append_and_wait(&self, append: JournalAppend, done: AppendCallback) {
        self.append(append, done);
    }

    /// Reads the rows of a run, starting with the row that contains or follows event `from`, until `each` returns
    /// false. Each row is checked against the previous one.
    fn read_journal(
        &self,
        run: &RunId,
        from: u64,
        each: &mut dyn FnMut(JournalBatch) -> bool,
    ) -> Result<(), StoreError>;

    fn find_run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError>;

    /// Returns the selected runs, newest first.
    fn select_runs(&self, which: RunSelection) -> Result<Vec<RunRow>, StoreError>;

    /// Returns the newest runs, at most `limit`: all of them, or those that `wanted` accepts.
    fn list_runs(&self, limit: u32, wanted: Option<&dyn Fn(&RunHead) -> bool>) -> Result<RunList, StoreError>;

    /// Returns dead letters, newest first.
    fn list_dead_letters(&self, which: &DeadLetterSelection) -> Result<Vec<DeadLetter>, StoreError>;

    /// Settles a dead letter. Returns the earlier settlement if there was one; the earlier one is kept.
    fn settle_dead_letter(
        &self,
        id: &DeadLetterId,
        settled: &DeadLetterSettlement,
    ) -> Result<Option<DeadLetterSettlement>, StoreError>;

    /// Returns the frozen definition with this hash.
    fn read_definition(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError>;

    /// Sends a request to a run and wakes its owner. At most [`MAX_PENDING_REQUESTS`] may be pending.
    fn send_request(&self, run: &RunId, body: &[u8]) -> Result<InboxRequestId, StoreError>;

    /// Returns the unanswered requests to runs owned by this process, oldest first.
    fn pending_requests(&self) -> Result<Vec<InboxRequest>, StoreError>;

    /// Answers a request that led to no append. The first answer is kept.
    fn answer_request(&self, request: InboxRequestId, answer: &[u8]) -> Result<(), StoreError>;

    /// Waits at most `within` for the answer to a request that this process sent.
    fn wait_for_answer(&self, request: InboxRequestId, within: Duration) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets the callback for notices about runs owned by this process, including requests that arrived earlier.
    /// Replaces the previous callback. A callback that owns the store itself would keep it alive forever.
    fn watch(&self, notify: NoticeCallback);

    /// Appends audit records for operations that led to no journal row.
    fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Reads the audit records from `from` on, in order, until `each` returns false. They are returned as stored; the
    /// reader must check them.
    fn read_audit(&self, from: u64, each: &mut dyn FnMut(StoredAuditRecord) -> bool) -> Result<(), StoreError>;

    /// Quarantines a run, whoever owns it, because its journal or its state is broken. The claim to it ends, and the
    /// first reason is kept.
    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError>;

    /// Replaces the snapshot of a run's state. A cache: it need not survive, and failures to write it are ignored.
    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]);

    /// Returns the last snapshot of a run, if there is one. It may be damaged, or older than the journal.
    fn read_snapshot(&self, run: &RunId) -> Option<Vec<u8>>;

    /// Stores bytes by their content hash, durable when this returns.
    fn put_blob(&self, bytes: &[u8]) -> Result<ContentHash, StoreError>;

    fn get_blob(&self, blob: ContentHash) -> Result<Vec<u8>, StoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("there is no run `{0}`")]
    Unknown(RunId),
    #[error("it is being run by {0}")]
    Owned(String),
    #[error("it was set aside: {0}")]
    Quarantined(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("there is no run `{0}`")]
    Unknown(RunId),
    /// The stored bytes are not the bytes that were written.
    #[error("{0}")]
    Damaged(String),
    /// The data was written by a later version of Skein.
    #[error("{0}")]
    Newer(String),
    #[error("disk full: no space left for the journal; free some space and try again")]
    NoSpace,
    #[error("{0}")]
    Failed(String),
}
