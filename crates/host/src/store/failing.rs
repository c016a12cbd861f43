//! A store whose appends fail when a test says so.
//!
//! Counts the appends of all runs, from 1. What it does not fail goes to the store it wraps. A hook before and after
//! each append is where a test kills the process.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use skein_core::{engine::Batch, ids::RunId, plan::Hash};

use crate::audit::Entry;

use super::{
    Append, AppendError, Claim, ClaimError, Dead, DeadId, Done, Head, Letter, LetterId, NewRun, Noted,
    Notify, RunList, RunRow, Settled, Store, StoreError, Which, WhichDead,
};

/// Called with the number of an append.
pub type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// Which appends fail, and how.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The first that fails.
    pub at: u64,
    /// Whether all after it fail too.
    pub onwards: bool,
    /// Whether the row is written all the same: the disk had it when it said that it had not.
    pub written: bool,
    pub error: AppendError,
}

/// Wraps a store.
pub struct Failing {
    inner: Arc<dyn Store>,
    count: AtomicU64,
    failure: Option<Failure>,
    before: Hook,
    after: Hook,
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failing")
            .field("inner", &self.inner)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl Failing {
    /// A store that does not fail yet.
    pub fn new(inner: Arc<dyn Store>) -> Failing {
        let nothing: Hook = Arc::new(|_| {});
        Failing {
            inner,
            count: AtomicU64::new(0),
            failure: None,
            before: Arc::clone(&nothing),
            after: nothing,
        }
    }

    pub fn failing(self, failure: Failure) -> Failing {
        Failing { failure: Some(failure), ..self }
    }

    /// Called before an append is given to the store.
    pub fn before(self, hook: Hook) -> Failing {
        Failing { before: hook, ..self }
    }

    /// Called when an append has ended, before who asked for it is told.
    pub fn after(self, hook: Hook) -> Failing {
        Failing { after: hook, ..self }
    }

    /// How many appends were asked for.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn failure(&self, n: u64) -> Option<&Failure> {
        self.failure.as_ref().filter(|failure| n == failure.at || (failure.onwards && n > failure.at))
    }
}

impl Store for Failing {
    /// Counts as an append where it is one.
    fn create(&self, new: &[NewRun]) -> Result<Vec<Claim>, StoreError> {
        if new.iter().all(|new| new.first.is_none()) {
            return self.inner.create(new);
        }
        let n = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        (self.before)(n);
        let failure = self.failure(n);
        let written = failure.is_none_or(|failure| failure.written).then(|| self.inner.create(new));
        (self.after)(n);
        match (failure, written) {
            (None, Some(outcome)) => outcome,
            (failure, _) => {
                let why = failure.map(|failure| failure.error.to_string());
                Err(StoreError::Failed(why.unwrap_or_default()))
            }
        }
    }

    fn claim(&self, runs: &[RunId]) -> Result<Vec<Result<Claim, ClaimError>>, StoreError> {
        self.inner.claim(runs)
    }

    fn release(&self, claims: &[Claim]) -> Result<(), StoreError> {
        self.inner.release(claims)
    }

    fn append(&self, append: Append, done: Done) {
        let n = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        (self.before)(n);
        let after = Arc::clone(&self.after);
        match self.failure(n).cloned() {
            Some(Failure { written: false, error, .. }) => {
                after(n);
                done(Err(error));
            }
            failure => {
                let ended = move |outcome: Result<(), AppendError>| {
                    after(n);
                    done(failure.map_or(outcome, |failure| Err(failure.error)));
                };
                self.inner.append(append, Box::new(ended));
            }
        }
    }

    fn read(&self, run: &RunId, from: u64, each: &mut dyn FnMut(Batch) -> bool) -> Result<(), StoreError> {
        self.inner.read(run, from, each)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.run(run)
    }

    fn runs(&self, which: Which) -> Result<Vec<RunRow>, StoreError> {
        self.inner.runs(which)
    }

    fn list(&self, limit: u32, wanted: Option<&dyn Fn(&Head) -> bool>) -> Result<RunList, StoreError> {
        self.inner.list(limit, wanted)
    }

    fn dead(&self, which: &WhichDead) -> Result<Vec<Dead>, StoreError> {
        self.inner.dead(which)
    }

    fn settle(&self, id: &DeadId, settled: &Settled) -> Result<Option<Settled>, StoreError> {
        self.inner.settle(id, settled)
    }

    fn definition(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        self.inner.definition(hash)
    }

    fn send(&self, run: &RunId, body: &[u8]) -> Result<LetterId, StoreError> {
        self.inner.send(run, body)
    }

    fn letters(&self) -> Result<Vec<Letter>, StoreError> {
        self.inner.letters()
    }

    fn answer(&self, letter: LetterId, answer: &[u8]) -> Result<(), StoreError> {
        self.inner.answer(letter, answer)
    }

    fn answered(&self, letter: LetterId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.answered(letter, within)
    }

    fn watch(&self, notify: Notify) {
        self.inner.watch(notify);
    }

    fn note(&self, entries: &[Entry]) -> Result<(), StoreError> {
        self.inner.note(entries)
    }

    fn audit(&self, from: u64, each: &mut dyn FnMut(Noted) -> bool) -> Result<(), StoreError> {
        self.inner.audit(from, each)
    }

    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError> {
        self.inner.quarantine(run, why)
    }

    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]) {
        self.inner.keep_snapshot(run, bytes);
    }

    fn snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        self.inner.snapshot(run)
    }

    fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError> {
        self.inner.put(bytes)
    }

    fn get(&self, blob: Hash) -> Result<Vec<u8>, StoreError> {
        self.inner.get(blob)
    }
}
