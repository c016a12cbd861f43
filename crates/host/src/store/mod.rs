//! Where runs are kept: their journals, who owns them, and what is said to them from outside.
//!
//! Owns the promise that an acknowledged append survives, that a run has one owner at a time, and that an owner who is
//! no longer one finds out at its next append. Refuses to know what events mean: rows, letters and answers are bytes
//! with a place, and what is shown in lists ([`Head`]) is handed in by who knows. One small trait, so that a store
//! shared by many machines can take the place of the one on this disk; `conformance` says what any of them must do.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{Batch, Opening},
    ids::RunId,
    ir::RunStatus,
    plan::Hash,
    time::Time,
};

/// A run that does not exist yet.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub run: RunId,
    /// The frozen definition, kept once however many runs use it.
    pub definition: Hash,
    pub frozen: Arc<[u8]>,
    /// What the host must know to go on with it: workspace, roots, who started it. Not the store's to read.
    pub about: serde_json::Value,
}

impl NewRun {
    /// The right of who makes it.
    pub fn claim(&self) -> Claim {
        Claim { run: self.run.clone(), epoch: 1 }
    }
}

/// The right to append to a run. It ends when someone else claims the run, which the owner learns at its next append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub run: RunId,
    /// One more with each claim.
    pub epoch: u64,
}

/// What lists of runs show, written with the append that changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    pub workflow: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub dialect: String,
    pub status: RunStatus,
    pub native_status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Nothing is wanted any more.
    #[serde(default)]
    pub closed: bool,
}

/// A gate, hold or wait that is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRow {
    pub opening: Opening,
    /// The path of the step.
    pub step: String,
    pub kind: String,
    pub message: String,
    pub since: Time,
}

/// One row for a run's journal, with what changes beside it in the same transaction.
#[derive(Debug, Clone)]
pub struct Append {
    pub claim: Claim,
    /// The run itself, with its first row: there is no run without one.
    pub new: Option<Arc<NewRun>>,
    pub batch: Arc<Batch>,
    /// The head, where it changed.
    pub head: Option<Head>,
    /// All that is open now, where that changed.
    pub open: Option<Vec<OpenRow>>,
    /// Answers to letters that this row depends on.
    pub answers: Vec<(LetterId, Vec<u8>)>,
}

/// Called once, from any thread, when an append is durable or never will be.
pub type Done = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

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

/// Who has a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Nobody, and nobody should: it was left on purpose, or it is over.
    Nobody,
    /// This process.
    Here,
    /// Another process, which lives.
    Other(String),
    /// A process that died.
    Dead(String),
}

/// A run as it is listed.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub run: RunId,
    pub definition: Hash,
    pub about: serde_json::Value,
    pub head: Head,
    pub owner: Owner,
    pub open: Vec<OpenRow>,
    /// Why it was set aside, if it was.
    pub quarantined: Option<String>,
}

/// Which runs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The newest, at most so many.
    Newest(u32),
    /// Those that are not closed and not set aside.
    Unfinished,
    /// Those of them whose owner died.
    Orphaned,
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
    /// What is stored is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// Written by a later version of Skein.
    #[error("{0}")]
    Newer(String),
    #[error("{0}")]
    Failed(String),
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

/// Keeps runs. Every method may be called from any thread.
pub trait Store: Send + Sync + fmt::Debug {
    /// Takes runs that nobody who lives has, all together.
    fn claim(&self, runs: &[RunId]) -> Result<Vec<Result<Claim, ClaimError>>, StoreError>;

    /// Lets a run go. A claim that is over is let go of already.
    fn release(&self, claim: &Claim) -> Result<(), StoreError>;

    /// Adds a row to the journal of a run. Rows of one run are given one at a time.
    fn append(&self, append: Append, done: Done);

    /// The rows of a run from the one that holds or follows this event, until `each` has enough.
    fn read(&self, run: &RunId, from: u64, each: &mut dyn FnMut(Batch) -> bool) -> Result<(), StoreError>;

    fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError>;

    /// Newest first.
    fn runs(&self, which: Which) -> Result<Vec<RunRow>, StoreError>;

    /// The frozen definition of a hash.
    fn definition(&self, hash: Hash) -> Result<Vec<u8>, StoreError>;

    /// Says something to a run, and wakes its owner.
    fn send(&self, run: &RunId, body: &[u8]) -> Result<LetterId, StoreError>;

    /// Letters to runs that are owned here and have no answer, oldest first.
    fn letters(&self) -> Result<Vec<Letter>, StoreError>;

    /// Answers a letter that led to nothing that is appended.
    fn answer(&self, letter: LetterId, answer: &[u8]) -> Result<(), StoreError>;

    /// Waits for the answer to a letter that was sent here, at most so long.
    fn answered(&self, letter: LetterId, within: std::time::Duration) -> Result<Option<Vec<u8>>, StoreError>;

    /// Who is told when something happens to runs that are owned here. Replaces who was told before.
    fn watch(&self, notify: Notify);

    /// Sets a run aside, whoever owns it: its journal or its state is broken.
    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError>;

    /// Keeps bytes by their content, durable when this returns.
    fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError>;

    fn get(&self, blob: Hash) -> Result<Vec<u8>, StoreError>;
}
