//! What is said to runs from outside, and what owners are told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skein_core::ids::RunId;

use super::{RunClaim, StoreError};

/// How many letters to one run may wait for an answer, and how long each may be.
pub const MAX_PENDING_REQUESTS: usize = 1_000;
pub const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;

/// Why a letter is not taken, if there are so many already.
pub(super) fn request_limit_error(run: &RunId, waiting: usize, bytes: usize) -> Option<StoreError> {
    if waiting >= MAX_PENDING_REQUESTS {
        let why =
            format!("{waiting} requests to run `{run}` wait already; try again when its owner has answered");
        return Some(StoreError::Failed(why));
    }
    (bytes > MAX_REQUEST_BYTES).then(|| {
        StoreError::Failed(format!(
            "a request to a run can have {MAX_REQUEST_BYTES} bytes, and this has {bytes}"
        ))
    })
}

/// Names something said to a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InboxRequestId(pub u64);

/// Something said to a run, for its owner to decide and answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRequest {
    pub id: InboxRequestId,
    pub run: RunId,
    pub body: Vec<u8>,
}

/// What an owner is told of what others did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreNotice {
    /// There may be letters for runs that are owned here.
    Requests,
    /// A run that was owned here is owned by someone else. One that was claimed again since is not.
    Lost(RunClaim),
    /// A person asks this process to stop working on a run.
    Leave(RunId),
}

/// Called from any thread, and soon after what it tells of.
pub type NoticeCallback = Arc<dyn Fn(StoreNotice) + Send + Sync>;
