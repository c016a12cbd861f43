//! Requests to runs from outside, and notices to their owners.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skein_core::ids::RunId;

use super::{RunClaim, StoreError};

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
