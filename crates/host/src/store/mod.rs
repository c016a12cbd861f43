//! Where runs are kept: their journals, who owns them, and what is said to them from outside.
//!
//! Owns the promise that an acknowledged append survives, that a run has one owner at a time, and that an owner who is
//! no longer one finds out at its next append. Refuses to know what events mean: rows, letters and answers are bytes
//! with a place, and what is shown in lists ([`RunHead`]) or told in the audit is handed in by who knows. One small trait, so that a store
//! shared by many machines can take the place of the one on this disk; `conformance` says what any of them must do.

mod append;
mod blobs;
mod dead_letter;
mod error;
mod failing_store;
mod memory_store;
mod request;
mod run;
mod snapshots;
mod sqlite;
mod staging;

use std::{fmt, time::Duration};

use skein_core::{engine::JournalBatch, ids::RunId, plan::ContentHash};

use crate::audit::AuditEntry;

pub use append::{AppendCallback, AppendError, JournalAppend};
pub use dead_letter::{
    DeadLetter, DeadLetterId, DeadLetterRow, DeadLetterSelection, DeadLetterSettlement, SettlementKind,
};
pub use error::{ClaimError, StoreError};
pub use failing_store::{AppendFailure, AppendHook, FailingStore};
pub use memory_store::MemoryStore;
pub use request::{
    InboxRequest, InboxRequestId, MAX_PENDING_REQUESTS, MAX_REQUEST_BYTES, NoticeCallback, StoreNotice,
};
pub use run::{NewRun, RunClaim, RunHead, RunList, RunOwner, RunRow, RunSelection, WaitpointRow};
pub(crate) use sqlite::configure_connection;
pub use sqlite::{
    DatabaseCheck, FileSystem, SqliteStore, StateRegistry, StoreOpenError, UntrustedState,
    inspect_file_system, is_shortened,
};

/// A record of the audit as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAuditRecord {
    /// Its place.
    pub seq: u64,
    pub line: Vec<u8>,
}

/// Keeps runs. Every method may be called from any thread.
pub trait Store: Send + Sync + fmt::Debug {
    /// New runs, owned here, with the first rows of their journals: all of them or none.
    fn create_runs(&self, new: &[NewRun]) -> Result<Vec<RunClaim>, StoreError>;

    /// Takes runs that nobody who lives has, those that can be had together.
    fn claim_runs(&self, runs: &[RunId]) -> Result<Vec<Result<RunClaim, ClaimError>>, StoreError>;

    /// Lets runs go, all of them or none. A claim that is over is let go of already.
    fn release_runs(&self, claims: &[RunClaim]) -> Result<(), StoreError>;

    /// Adds a row to the journal of a run. Rows of one run are given one at a time.
    fn append(&self, append: JournalAppend, done: AppendCallback);

    /// The same for who has nothing else to do until it is there: it may be written before this returns.
    fn append_and_wait(&self, append: JournalAppend, done: AppendCallback) {
        self.append(append, done);
    }

    /// The rows of a run from the one that holds or follows this event, until `each` has enough. Each is checked
    /// against the one before it.
    fn read_journal(
        &self,
        run: &RunId,
        from: u64,
        each: &mut dyn FnMut(JournalBatch) -> bool,
    ) -> Result<(), StoreError>;

    fn find_run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError>;

    /// Newest first.
    fn select_runs(&self, which: RunSelection) -> Result<Vec<RunRow>, StoreError>;

    /// The newest runs, at most so many: all, or those that `wanted` takes.
    fn list_runs(&self, limit: u32, wanted: Option<&dyn Fn(&RunHead) -> bool>)
    -> Result<RunList, StoreError>;

    /// Dead letters, newest first.
    fn list_dead_letters(&self, which: &DeadLetterSelection) -> Result<Vec<DeadLetter>, StoreError>;

    /// A dead letter is seen to. Gives how it was before, if it had been; that stands.
    fn settle_dead_letter(
        &self,
        id: &DeadLetterId,
        settled: &DeadLetterSettlement,
    ) -> Result<Option<DeadLetterSettlement>, StoreError>;

    /// The frozen definition of a hash.
    fn read_definition(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError>;

    /// Says something to a run, and wakes its owner. At most [`MAX_PENDING_REQUESTS`] may wait.
    fn send_request(&self, run: &RunId, body: &[u8]) -> Result<InboxRequestId, StoreError>;

    /// Letters to runs that are owned here, which have no answer, oldest first.
    fn pending_requests(&self) -> Result<Vec<InboxRequest>, StoreError>;

    /// Answers a letter that led to nothing that is appended. The first answer stands.
    fn answer_request(&self, letter: InboxRequestId, answer: &[u8]) -> Result<(), StoreError>;

    /// Waits for the answer to a letter that was sent here, at most so long.
    fn wait_for_answer(
        &self,
        letter: InboxRequestId,
        within: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError>;

    /// Who is told when something happens to runs that are owned here, also of letters that came before. Replaces who
    /// was told before. One that holds the store itself would keep it for ever.
    fn watch(&self, notify: NoticeCallback);

    /// Adds records to the audit of what led to no row of a journal.
    fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// The records of the audit from this one on, in order, until `each` has enough. They are given as they are kept, and it
    /// is for who reads them to check them.
    fn read_audit(
        &self,
        from: u64,
        each: &mut dyn FnMut(StoredAuditRecord) -> bool,
    ) -> Result<(), StoreError>;

    /// Sets a run aside, whoever owns it: its journal or its state is broken. The claim to it ends, and the first
    /// reason stays.
    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError>;

    /// Keeps a state of a run in place of the one that was kept before. It is a cache: it need not survive, and where it
    /// cannot be kept there is none.
    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]);

    /// What was kept last of a run, if it is there. It may be damaged, or older than the journal.
    fn read_snapshot(&self, run: &RunId) -> Option<Vec<u8>>;

    /// Keeps bytes by their content, durable when this returns.
    fn put_blob(&self, bytes: &[u8]) -> Result<ContentHash, StoreError>;

    fn get_blob(&self, blob: ContentHash) -> Result<Vec<u8>, StoreError>;
}
