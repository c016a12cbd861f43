//! A store whose appends fail on request of a test.
//!
//! Counts the appends of all runs, from 1. Appends that do not fail go to the wrapped store. A hook runs before and
//! after each append, so that a test can kill the process there.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use skein_core::{engine::JournalBatch, ids::RunId, plan::ContentHash};

use skein_host::{
    audit::AuditEntry,
    store::{
        AppendCallback, AppendError, ClaimError, DeadLetter, DeadLetterId, DeadLetterSelection, DeadLetterSettlement,
        InboxRequest, InboxRequestId, JournalAppend, NewRun, NoticeCallback, RunClaim, RunHead, RunList, RunRow,
        RunSelection, Store, StoreError, StoredAuditRecord,
    },
};

/// Called with the number of an append.
pub type AppendHook = Arc<dyn Fn(u64) + Send + Sync>;

/// The appends that fail, and their error.
#[derive(Debug, Clone)]
pub struct AppendFailure {
    /// The number of the first append that fails.
    pub at: u64,
    /// True if all later appends fail too.
    pub onwards: bool,
    /// True if the row is written although an error is returned: the disk had it when it reported a failure.
    pub written: bool,
    pub error: AppendError,
}

/// A wrapper around a store.
pub struct FailingStore {
    inner: Arc<dyn Store>,
    count: AtomicU64,
    failure: Option<AppendFailure>,
    before: AppendHook,
    after: AppendHook,
}

impl fmt::Debug for FailingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailingStore")
            .field("inner", &self.inner)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl FailingStore {
    /// A store that does not fail yet.
    pub fn new(inner: Arc<dyn Store>) -> FailingStore {
        let nothing: AppendHook = Arc::new(|_| {});
        FailingStore { inner, count: AtomicU64::new(0), failure: None, before: Arc::clone(&nothing), after: nothing }
    }

    pub fn with_failure(self, failure: AppendFailure) -> FailingStore {
        FailingStore { failure: Some(failure), ..self }
    }

    /// Sets the hook that runs before an append is given to the wrapped store.
    pub fn with_before_hook(self, hook: AppendHook) -> FailingStore {
        FailingStore { before: hook, ..self }
    }

    /// Sets the hook that runs when an append has ended, before the caller's callback.
    pub fn with_after_hook(self, hook: AppendHook) -> FailingStore {
        FailingStore { after: hook, ..self }
    }

    /// The number of appends so far.
    pub fn append_count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn failure_at(&self, n: u64) -> Option<&AppendFailure> {
        self.failure.as_ref().filter(|failure| n == failure.at || (failure.onwards && n > failure.at))
    }
}

impl Store for FailingStore {
    /// Counts as an append if it writes a journal row.
    fn create_runs(&self, new: &[NewRun]) -> Result<Vec<RunClaim>, StoreError> {
        if new.iter().all(|new| new.first.is_none()) {
            return self.inner.create_runs(new);
        }
        let n = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        (self.before)(n);
        let failure = self.failure_at(n);
        let written = failure.is_none_or(|failure| failure.written).then(|| self.inner.create_runs(new));
        (self.after)(n);
        match (failure, written) {
            (None, Some(outcome)) => outcome,
            (failure, _) => {
                let why = failure.map(|failure| failure.error.to_string());
                Err(StoreError::Failed(why.unwrap_or_default()))
            }
        }
    }

    fn claim_runs(&self, runs: &[RunId]) -> Result<Vec<Result<RunClaim, ClaimError>>, StoreError> {
        self.inner.claim_runs(runs)
    }

    fn release_runs(&self, claims: &[RunClaim]) -> Result<(), StoreError> {
        self.inner.release_runs(claims)
    }

    fn append(&self, append: JournalAppend, done: AppendCallback) {
        let n = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        (self.before)(n);
        let after = Arc::clone(&self.after);
        match self.failure_at(n).cloned() {
            Some(AppendFailure { written: false, error, .. }) => {
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

    fn read_journal(
        &self,
        run: &RunId,
        from: u64,
        each: &mut dyn FnMut(JournalBatch) -> bool,
    ) -> Result<(), StoreError> {
        self.inner.read_journal(run, from, each)
    }

    fn find_run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.find_run(run)
    }

    fn select_runs(&self, which: RunSelection) -> Result<Vec<RunRow>, StoreError> {
        self.inner.select_runs(which)
    }

    fn list_runs(&self, limit: u32, wanted: Option<&dyn Fn(&RunHead) -> bool>) -> Result<RunList, StoreError> {
        self.inner.list_runs(limit, wanted)
    }

    fn list_dead_letters(&self, which: &DeadLetterSelection) -> Result<Vec<DeadLetter>, StoreError> {
        self.inner.list_dead_letters(which)
    }

    fn settle_dead_letter(
        &self,
        id: &DeadLetterId,
        settled: &DeadLetterSettlement,
    ) -> Result<Option<DeadLetterSettlement>, StoreError> {
        self.inner.settle_dead_letter(id, settled)
    }

    fn read_definition(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError> {
        self.inner.read_definition(hash)
    }

    fn send_request(&self, run: &RunId, body: &[u8]) -> Result<InboxRequestId, StoreError> {
        self.inner.send_request(run, body)
    }

    fn pending_requests(&self) -> Result<Vec<InboxRequest>, StoreError> {
        self.inner.pending_requests()
    }

    fn answer_request(&self, request: InboxRequestId, answer: &[u8]) -> Result<(), StoreError> {
        self.inner.answer_request(request, answer)
    }

    fn wait_for_answer(&self, request: InboxRequestId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.wait_for_answer(request, within)
    }

    fn watch(&self, notify: NoticeCallback) {
        self.inner.watch(notify);
    }

    fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.inner.append_audit(entries)
    }

    fn read_audit(&self, from: u64, each: &mut dyn FnMut(StoredAuditRecord) -> bool) -> Result<(), StoreError> {
        self.inner.read_audit(from, each)
    }

    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError> {
        self.inner.quarantine(run, why)
    }

    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]) {
        self.inner.keep_snapshot(run, bytes);
    }

    fn read_snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        self.inner.read_snapshot(run)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<ContentHash, StoreError> {
        self.inner.put_blob(bytes)
    }

    fn get_blob(&self, blob: ContentHash) -> Result<Vec<u8>, StoreError> {
        self.inner.get_blob(blob)
    }
}
