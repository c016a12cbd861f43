//! What is said to runs from outside, and what owners are told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skein_core::ids::RunId;

/// Names something said to a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LetterId(pub u64);

/// Something said to a run, for its owner to decide and answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub id: LetterId,
    pub run: RunId,
    pub body: Vec<u8>,
}

/// What an owner is told of what others did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// There may be letters for runs that are owned here.
    Mail,
    /// A run that was owned here is owned by someone else.
    Lost(RunId),
}

/// Called from any thread, and soon after what it tells of.
pub type Notify = Arc<dyn Fn(Notice) + Send + Sync>;
