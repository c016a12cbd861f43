//! What is added to a journal in one transaction, and how that can end.

use std::sync::Arc;

use skein_core::engine::JournalBatch;

use super::{DeadLetterRow, InboxRequestId, RunClaim, RunHead, WaitpointRow};
use crate::audit::AuditEntry;

/// One row for a run's journal, with what changes beside it in the same transaction.
#[derive(Debug, Clone)]
pub struct JournalAppend {
    pub claim: RunClaim,
    pub batch: Arc<JournalBatch>,
    /// The head, where it changed.
    pub head: Option<RunHead>,
    /// All that is open now, where that changed.
    pub open: Option<Vec<WaitpointRow>>,
    /// Steps that failed for good with this row.
    pub dead: Vec<DeadLetterRow>,
    /// Whether the dead letters of the run are seen to by a retry of the whole, where that changed.
    pub retried: Option<bool>,
    /// What of this row is told in the audit.
    pub audit: Vec<AuditEntry>,
    /// Answers to letters that this row depends on.
    pub answers: Vec<(InboxRequestId, Vec<u8>)>,
    /// It may use the space that is kept back for when there is no other: a cancel, and what ends a run.
    pub urgent: bool,
    /// Nothing follows it: with this row the run is let go of.
    pub last: bool,
}

/// Called once, from any thread, when an append is durable or never will be. Others wait for it, so it is quick.
pub type AppendCallback = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Someone else owns the run now, or has appended what this owner does not know of.
    #[error("the run belongs to someone else now")]
    Lost,
    /// There is no space. Nothing was written; it may be tried again when there is.
    #[error("there is no space left for the journal")]
    NoSpace,
    /// The disk failed under the journal. What was acknowledged stands; nothing more may be.
    #[error("the journal cannot be written: {0}")]
    Broken(String),
}
