//! An append to a journal in one transaction, and its possible failures.

use std::sync::Arc;

use skein_core::engine::JournalBatch;

use super::{DeadLetterRow, InboxRequestId, RunClaim, RunHead, WaitpointRow};
use crate::audit::AuditEntry;

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
