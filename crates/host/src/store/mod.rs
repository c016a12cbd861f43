//! The store of runs: their journals, their owners, and the requests sent to them from outside.
//!
//! Owns three guarantees: an acknowledged append survives, a run has one owner at a time, and an owner that lost its
//! run learns so at its next append. Does not know the meaning of events: rows, requests and answers are bytes with a
//! position, and the caller supplies the list entries ([`RunHead`]) and audit records. The trait is small, so that a
//! store shared by many machines can replace the one on this disk; the `conformance` tests check every implementation.
//! The types below it are plain data: runs and their claims, appends to journals, requests to runs, and dead letters.

mod sqlite;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptId, Cost, ForkOrigin, JournalBatch, Waitpoint},
    ids::RunId,
    ir::{ErrorClass, RunStatus},
    plan::ContentHash,
    time::Timestamp,
};

use crate::audit::AuditEntry;

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

/// A run that does not exist yet.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub run: RunId,
    /// The frozen definition, stored once for all runs that use it.
    pub definition: ContentHash,
    pub frozen: Arc<[u8]>,
    /// The run settings, which the host needs to resume the run: workspace, roots, who started it. The store does not
    /// read them, except for the paths of a project that was moved (`sqlite::run_rows`).
    pub about: serde_json::Value,
    pub head: RunHead,
    /// The first row of its journal, so that no run exists without its start event.
    pub first: Option<Arc<JournalBatch>>,
    pub open: Vec<WaitpointRow>,
    /// Audit records for its first row.
    pub audit: Vec<AuditEntry>,
    /// The dead letters that this run repeats. Nothing is written if one of them is already settled.
    pub settles: Vec<(DeadLetterId, DeadLetterSettlement)>,
}

/// The right to append to a run. It ends when another process claims the run; the owner learns that at its next append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClaim {
    pub run: RunId,
    /// Increases by one with each claim.
    pub epoch: u64,
}

/// The list entry of a run, written with the append that changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHead {
    pub workflow: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub dialect: String,
    pub status: RunStatus,
    pub native_status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// True if the run wants nothing to be running any more.
    #[serde(default)]
    pub closed: bool,
    /// The run whose results it reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
    #[serde(default, skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
}

/// An open gate, hold or wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitpointRow {
    pub opening: Waitpoint,
    /// The path of the step.
    pub step: String,
    pub kind: String,
    pub message: String,
    pub since: Timestamp,
}

/// The owner of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOwner {
    /// No owner, and none is needed: the run was released on purpose, or it has ended.
    Nobody,
    /// This process.
    Here,
    /// Another process, which is alive.
    Other(String),
    /// A process that died.
    Dead(String),
}

/// A run with its stored details, as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunId,
    pub definition: ContentHash,
    pub about: serde_json::Value,
    pub head: RunHead,
    pub owner: RunOwner,
    pub open: Vec<WaitpointRow>,
    /// The reason for the quarantine, if the run is quarantined.
    pub quarantined: Option<String>,
}

/// A limited list of runs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct RunList {
    pub rows: Vec<RunRow>,
    /// The number of further runs.
    pub more: u64,
}

/// A selection of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSelection {
    /// The newest, at most this many.
    Newest(u32),
    /// Runs that are neither closed nor quarantined.
    Unfinished,
    /// Unfinished runs whose owner died.
    Orphaned,
}

/// One row for a run's journal, with the other changes of the same transaction.
#[derive(Debug, Clone)]
pub struct JournalAppend {
    pub claim: RunClaim,
    pub batch: Arc<JournalBatch>,
    /// The run head, if it changed.
    pub head: Option<RunHead>,
    /// All open waitpoints, if they changed.
    pub open: Option<Vec<WaitpointRow>>,
    /// Steps that failed permanently with this row.
    pub dead: Vec<DeadLetterRow>,
    /// True if a retry of the whole run settles its dead letters, false if it no longer does. None if unchanged.
    pub retried: Option<bool>,
    /// Audit records for this row.
    pub audit: Vec<AuditEntry>,
    /// Answers to requests that depend on this row.
    pub answers: Vec<(InboxRequestId, Vec<u8>)>,
    /// True if the append may use the reserved disk space: a cancel, and the rows that end a run.
    pub urgent: bool,
    /// True for the last row of the run. The run is released with it.
    pub last: bool,
}

/// Called once, from any thread, when an append is durable or has failed. Must be quick, because other writers wait.
pub type AppendCallback = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another process owns the run now, or has appended rows that this owner does not know.
    #[error("another process owns the run now")]
    Lost,
    /// The disk is full. Nothing was written; the append can be retried when there is space.
    #[error("disk full: no space left for the journal")]
    NoSpace,
    /// Writing the journal failed on the disk. Acknowledged rows are safe; nothing more is acknowledged.
    #[error("the journal cannot be written: {0}")]
    Broken(String),
}

/// The maximum number of unanswered requests per run, and the maximum size of each.
pub const MAX_PENDING_REQUESTS: usize = 1_000;
pub const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;

/// Returns an error if the run has too many pending requests or the request is too long.
pub fn request_limit_error(run: &RunId, waiting: usize, bytes: usize) -> Option<StoreError> {
    if waiting >= MAX_PENDING_REQUESTS {
        let why = format!("{waiting} requests to run `{run}` are pending; try again once its owner has answered");
        return Some(StoreError::Failed(why));
    }
    (bytes > MAX_REQUEST_BYTES).then(|| {
        StoreError::Failed(format!("a request to a run is limited to {MAX_REQUEST_BYTES} bytes; this one has {bytes}"))
    })
}

/// The identifier of a request to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InboxRequestId(pub u64);

/// A request to a run, which its owner decides and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRequest {
    pub id: InboxRequestId,
    pub run: RunId,
    pub body: Vec<u8>,
}

/// A notice to an owner about what another process did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreNotice {
    /// There may be requests for runs owned by this process.
    Requests,
    /// Another process owns a run that this process owned. Not sent for a run that was claimed again since.
    Lost(RunClaim),
    /// A person asks this process to stop working on a run.
    Leave(RunId),
}

/// Called from any thread, soon after the reported change.
pub type NoticeCallback = Arc<dyn Fn(StoreNotice) + Send + Sync>;

/// A step that failed permanently, written with the journal row that records the failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterRow {
    /// The number of the event that recorded the failure.
    pub number: u64,
    /// The path of the step.
    pub step: String,
    pub class: ErrorClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
    /// The number of attempts in that visit of the step.
    pub attempts: u32,
    /// The last of these attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    pub run: RunId,
    pub row: DeadLetterRow,
    pub settled: Option<DeadLetterSettlement>,
}

impl DeadLetter {
    pub fn id(&self) -> DeadLetterId {
        DeadLetterId { run: self.run.clone(), number: self.row.number }
    }
}

/// A selection of dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterSelection {
    /// The newest unsettled ones, at most this many.
    Open(u32),
    /// The newest, at most this many.
    Newest(u32),
    /// All dead letters of a run.
    InRun(RunId),
}

/// The identifier of a dead letter: its run, a dot, and the number of the event that recorded the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterId {
    pub run: RunId,
    pub number: u64,
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.number)
    }
}

/// The resolution of a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterSettlement {
    pub how: SettlementKind,
    /// The person who requested it; none if the run settled it by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettlementKind {
    /// Dropped by a person, with an optional reason.
    Dropped(Option<String>),
    /// This run repeats the step.
    Rerun(RunId),
    /// The whole run is retried.
    Retried,
}

impl DeadLetterSettlement {
    /// The settlement by a retry of the whole run.
    pub const RETRIED: DeadLetterSettlement = DeadLetterSettlement { how: SettlementKind::Retried, by: None, at: None };
}

/// The error for settling a dead letter that is already settled.
pub fn already_settled_error(id: &DeadLetterId, settled: &DeadLetterSettlement) -> StoreError {
    StoreError::Failed(format!("the dead letter `{id}` {settled}"))
}

impl fmt::Display for DeadLetterSettlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            SettlementKind::Dropped(_) => write!(f, "was dropped")?,
            SettlementKind::Rerun(run) => write!(f, "is rerun by run {run}")?,
            SettlementKind::Retried => write!(f, "is covered by the retry of its run")?,
        }
        if let Some(by) = &self.by {
            write!(f, ", requested by {by}")?;
        }
        if let SettlementKind::Dropped(Some(reason)) = &self.how {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
