//! Where runs are kept: their journals, who owns them, and what is said to them from outside.
//!
//! Owns the promise that an acknowledged append survives, that a run has one owner at a time, and that an owner who is
//! no longer one finds out at its next append. Refuses to know what events mean: rows, letters and answers are bytes
//! with a place, and what is shown in lists ([`Head`]) or told in the audit is handed in by who knows. One small trait, so that a store
//! shared by many machines can take the place of the one on this disk; `conformance` says what any of them must do.

mod append;
mod aside;
mod blobs;
mod dead;
mod error;
mod failing;
mod letter;
mod memory;
mod run;
mod snapshots;
mod sqlite;

use std::{fmt, time::Duration};

use skein_core::{engine::Batch, ids::RunId, plan::Hash};

use crate::audit::Entry;

pub use append::{Append, AppendError, Done};
pub use dead::{Dead, DeadId, DeadRow, How, Settled, WhichDead};
pub use error::{ClaimError, StoreError};
pub use failing::{Failing, Failure, Hook};
pub use letter::{LETTER_BYTES, LETTERS, Letter, LetterId, Notice, Notify};
pub use memory::Memory;
pub use run::{Claim, Head, NewRun, OpenRow, Owner, RunList, RunRow, Which};
pub(crate) use sqlite::configure;
pub use sqlite::{
    Checked, FileSystem, OpenError, Sqlite, StateRegistry, UntrustedState, file_system, is_shortened,
};

/// A record of the audit as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Its place.
    pub seq: u64,
    pub line: Vec<u8>,
}

/// Keeps runs. Every method may be called from any thread.
pub trait Store: Send + Sync + fmt::Debug {
    /// New runs, owned here, with the first rows of their journals: all of them or none.
    fn create(&self, new: &[NewRun]) -> Result<Vec<Claim>, StoreError>;

    /// Takes runs that nobody who lives has, those that can be had together.
    fn claim(&self, runs: &[RunId]) -> Result<Vec<Result<Claim, ClaimError>>, StoreError>;

    /// Lets runs go, all of them or none. A claim that is over is let go of already.
    fn release(&self, claims: &[Claim]) -> Result<(), StoreError>;

    /// Adds a row to the journal of a run. Rows of one run are given one at a time.
    fn append(&self, append: Append, done: Done);

    /// The same for who has nothing else to do until it is there: it may be written before this returns.
    fn append_and_wait(&self, append: Append, done: Done) {
        self.append(append, done);
    }

    /// The rows of a run from the one that holds or follows this event, until `each` has enough. Each is checked
    /// against the one before it.
    fn read(&self, run: &RunId, from: u64, each: &mut dyn FnMut(Batch) -> bool) -> Result<(), StoreError>;

    fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError>;

    /// Newest first.
    fn runs(&self, which: Which) -> Result<Vec<RunRow>, StoreError>;

    /// The newest runs, at most so many: all, or those that `wanted` takes.
    fn list(&self, limit: u32, wanted: Option<&dyn Fn(&Head) -> bool>) -> Result<RunList, StoreError>;

    /// Dead letters, newest first.
    fn dead(&self, which: &WhichDead) -> Result<Vec<Dead>, StoreError>;

    /// A dead letter is seen to. Gives how it was before, if it had been; that stands.
    fn settle(&self, id: &DeadId, settled: &Settled) -> Result<Option<Settled>, StoreError>;

    /// The frozen definition of a hash.
    fn definition(&self, hash: Hash) -> Result<Vec<u8>, StoreError>;

    /// Says something to a run, and wakes its owner. At most [`LETTERS`] may wait.
    fn send(&self, run: &RunId, body: &[u8]) -> Result<LetterId, StoreError>;

    /// Letters to runs that are owned here, which have no answer, oldest first.
    fn letters(&self) -> Result<Vec<Letter>, StoreError>;

    /// Answers a letter that led to nothing that is appended. The first answer stands.
    fn answer(&self, letter: LetterId, answer: &[u8]) -> Result<(), StoreError>;

    /// Waits for the answer to a letter that was sent here, at most so long.
    fn answered(&self, letter: LetterId, within: Duration) -> Result<Option<Vec<u8>>, StoreError>;

    /// Who is told when something happens to runs that are owned here, also of letters that came before. Replaces who
    /// was told before. One that holds the store itself would keep it for ever.
    fn watch(&self, notify: Notify);

    /// Adds records to the audit of what led to no row of a journal.
    fn note(&self, entries: &[Entry]) -> Result<(), StoreError>;

    /// The records of the audit from this one on, in order, until `each` has enough. They are given as they are kept, and it
    /// is for who reads them to check them.
    fn audit(&self, from: u64, each: &mut dyn FnMut(Noted) -> bool) -> Result<(), StoreError>;

    /// Sets a run aside, whoever owns it: its journal or its state is broken. The claim to it ends, and the first
    /// reason stays.
    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError>;

    /// Keeps a state of a run in place of the one that was kept before. It is a cache: it need not survive, and where it
    /// cannot be kept there is none.
    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]);

    /// What was kept last of a run, if it is there. It may be damaged, or older than the journal.
    fn snapshot(&self, run: &RunId) -> Option<Vec<u8>>;

    /// Keeps bytes by their content, durable when this returns.
    fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError>;

    fn get(&self, blob: Hash) -> Result<Vec<u8>, StoreError>;
}
