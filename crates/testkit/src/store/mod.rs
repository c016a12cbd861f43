//! Stores for tests: one in memory, and one whose appends fail on request. The conformance tests of the host hold for them
//! as for the store on disk.
//!
//! The store in memory has the same guarantees as on disk, except that nothing survives the process. A [`MemoryStore`] is
//! one owner. [`add_owner`](MemoryStore::add_owner) returns another one that shares the stored runs, like another process,
//! and [`kill`](MemoryStore::kill) ends one abruptly.

mod failing_store;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use skein_core::{engine::JournalBatch, ids::RunId, plan::ContentHash};
use skein_host::{
    audit::{AuditChain, AuditEntry},
    store::{
        AppendCallback, AppendError, ClaimError, DeadLetter, DeadLetterId, DeadLetterRow, DeadLetterSelection,
        DeadLetterSettlement, InboxRequest, InboxRequestId, JournalAppend, NewRun, NoticeCallback, RunClaim, RunHead,
        RunList, RunOwner, RunRow, RunSelection, Store, StoreError, StoreNotice, StoredAuditRecord, WaitpointRow,
        already_settled_error, request_limit_error,
    },
};

pub use failing_store::{AppendFailure, AppendHook, FailingStore};

/// One owner of runs that are kept in memory. Dropping it counts as its death.
#[derive(Debug)]
pub struct MemoryStore {
    id: u64,
    shared: Arc<MemoryStoreShared>,
}

#[derive(Debug, Default)]
struct MemoryStoreShared {
    state: Mutex<MemoryStoreState>,
    /// Signalled when a request was answered.
    answered: Condvar,
}

#[derive(Default)]
struct MemoryStoreState {
    /// The number of owners so far, which is the id of the next one.
    owners: u64,
    dead: HashSet<u64>,
    watchers: HashMap<u64, NoticeCallback>,
    runs: Vec<MemoryRun>,
    keys: HashMap<RunId, usize>,
    definitions: HashMap<ContentHash, Arc<[u8]>>,
    requests: BTreeMap<InboxRequestId, SentRequest>,
    chain: AuditChain,
    audit: Vec<StoredAuditRecord>,
    blobs: HashMap<ContentHash, Vec<u8>>,
    snapshots: HashMap<RunId, Vec<u8>>,
}

struct MemoryRun {
    run: RunId,
    definition: ContentHash,
    settings: serde_json::Value,
    head: RunHead,
    open: Vec<WaitpointRow>,
    dead: Vec<(DeadLetterRow, Option<DeadLetterSettlement>)>,
    quarantined: Option<String>,
    owner: Option<u64>,
    epoch: u64,
    events: u64,
    journal: Vec<Arc<JournalBatch>>,
}

impl MemoryRun {
    /// Returns the valid claim.
    fn current_claim(&self) -> RunClaim {
        RunClaim { run: self.run.clone(), epoch: self.epoch }
    }
}

struct SentRequest {
    run: RunId,
    body: Vec<u8>,
    answer: Option<Vec<u8>>,
}

impl fmt::Debug for MemoryStoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreState").field("runs", &self.keys.keys()).finish_non_exhaustive()
    }
}

impl MemoryStoreState {
    fn get_run(&self, run: &RunId) -> Option<&MemoryRun> {
        self.keys.get(run).map(|key| &self.runs[*key])
    }

    fn get_run_mut(&mut self, run: &RunId) -> Result<&mut MemoryRun, StoreError> {
        match self.keys.get(run) {
            Some(key) => Ok(&mut self.runs[*key]),
            None => Err(StoreError::Unknown(run.clone())),
        }
    }

    fn run_owner(&self, run: &MemoryRun, me: u64) -> RunOwner {
        match run.owner {
            None => RunOwner::Nobody,
            Some(owner) if owner == me => RunOwner::Here,
            Some(owner) if !self.dead.contains(&owner) => RunOwner::Other(owner_name(owner)),
            Some(_) if run.head.closed => RunOwner::Nobody,
            Some(owner) => RunOwner::Dead(owner_name(owner)),
        }
    }

    fn run_row(&self, run: &MemoryRun, me: u64) -> RunRow {
        RunRow {
            run: run.run.clone(),
            definition: run.definition,
            about: run.settings.clone(),
            head: run.head.clone(),
            owner: self.run_owner(run, me),
            open: run.open.clone(),
            quarantined: run.quarantined.clone(),
        }
    }

    /// Inserts a new run, owned by `me`.
    fn insert_run(&mut self, new: &NewRun, me: u64) -> RunClaim {
        self.definitions.entry(new.definition).or_insert_with(|| Arc::clone(&new.frozen));
        let key = self.runs.len();
        self.keys.insert(new.run.clone(), key);
        self.runs.push(MemoryRun {
            run: new.run.clone(),
            definition: new.definition,
            settings: new.about.clone(),
            head: new.head.clone(),
            open: new.open.clone(),
            dead: Vec::new(),
            quarantined: None,
            owner: Some(me),
            epoch: 1,
            events: new.first.as_ref().map_or(0, |row| row.records.len() as u64),
            journal: new.first.iter().cloned().collect(),
        });
        self.append_audit(&new.audit);
        RunClaim { run: new.run.clone(), epoch: 1 }
    }

    fn append_audit(&mut self, entries: &[AuditEntry]) {
        for entry in entries {
            let (seq, line) = self.chain.seal_entry(entry);
            self.audit.push(StoredAuditRecord { seq, line: line.into_bytes() });
        }
    }

    /// Stores an answer unless there is one. Returns false if there is no such request.
    fn store_answer(&mut self, request: InboxRequestId, answer: &[u8]) -> bool {
        let found = self.requests.get_mut(&request);
        found.map(|sent| sent.answer.get_or_insert_with(|| answer.to_vec())).is_some()
    }

    fn append(&mut self, append: &JournalAppend, me: u64) -> Result<(), AppendError> {
        let (RunClaim { run, epoch }, batch) = (&append.claim, &append.batch);
        if batch.records.is_empty() {
            return Err(AppendError::Broken("a journal row must have at least one event".into()));
        }
        if self.dead.contains(&me) {
            return Err(AppendError::Broken("this owner was killed".into()));
        }
        let found = self.get_run_mut(run).map_err(|_| AppendError::Lost)?;
        if (found.owner, found.epoch, found.events) != (Some(me), *epoch, batch.seq) {
            return Err(AppendError::Lost);
        }
        found.events += batch.records.len() as u64;
        found.journal.push(Arc::clone(batch));
        if append.last {
            found.owner = None;
        }
        if let Some(head) = &append.head {
            found.head = head.clone();
        }
        if let Some(open) = &append.open {
            found.open = open.clone();
        }
        found.dead.extend(append.dead.iter().map(|row| (row.clone(), None)));
        for (_, settled) in &mut found.dead {
            match append.retried {
                Some(true) => *settled = settled.take().or(Some(DeadLetterSettlement::RETRIED)),
                Some(false) => *settled = settled.take().filter(|settled| *settled != DeadLetterSettlement::RETRIED),
                None => {}
            }
        }
        self.append_audit(&append.audit);
        for (request, answer) in &append.answers {
            self.store_answer(*request, answer);
        }
        Ok(())
    }

    fn find_dead_letter(
        &mut self,
        id: &DeadLetterId,
    ) -> Result<&mut (DeadLetterRow, Option<DeadLetterSettlement>), StoreError> {
        let unknown = || StoreError::Failed(format!("there is no dead letter `{id}`"));
        let dead = &mut self.get_run_mut(&id.run).map_err(|_| unknown())?.dead;
        dead.iter_mut().find(|(row, _)| row.number == id.number).ok_or_else(unknown)
    }
}

fn owner_name(owner: u64) -> String {
    format!("owner {owner}")
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// The first owner of a new store.
    pub fn new() -> MemoryStore {
        MemoryStore::join_shared(Arc::default())
    }

    /// Adds an owner that shares this store.
    pub fn add_owner(&self) -> MemoryStore {
        MemoryStore::join_shared(Arc::clone(&self.shared))
    }

    fn join_shared(shared: Arc<MemoryStoreShared>) -> MemoryStore {
        let mut state = lock(&shared.state);
        let id = state.owners;
        state.owners += 1;
        drop(state);
        MemoryStore { id, shared }
    }

    /// Ends this owner: its runs can be claimed by others, and nothing it does counts any more.
    pub fn kill(&self) {
        let mut state = self.lock_state();
        state.dead.insert(self.id);
        state.watchers.remove(&self.id);
    }

    /// Takes a run from a living owner, which is left to find out by itself.
    pub fn force_claim(&self, run: &RunId) -> Result<RunClaim, ClaimError> {
        self.take_run(run, true)
    }

    fn take_run(&self, run: &RunId, force: bool) -> Result<RunClaim, ClaimError> {
        let mut state = self.lock_state();
        let found = state.get_run(run).ok_or_else(|| ClaimError::Unknown(run.clone()))?;
        if let Some(why) = &found.quarantined {
            return Err(ClaimError::Quarantined(why.clone()));
        }
        let before = found.owner;
        match before {
            Some(owner) if owner == self.id => return Err(ClaimError::Owned("this process".into())),
            Some(owner) if !force && !state.dead.contains(&owner) => {
                return Err(ClaimError::Owned(owner_name(owner)));
            }
            _ => {}
        }
        let found = state.get_run_mut(run)?;
        found.owner = Some(self.id);
        let lost = found.current_claim();
        found.epoch += 1;
        let claim = found.current_claim();
        notify_owner(state, before, StoreNotice::Lost(lost));
        Ok(claim)
    }

    fn lock_state(&self) -> MutexGuard<'_, MemoryStoreState> {
        lock(&self.shared.state)
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Notifies an owner if it has a watcher, after the lock on the state is released.
fn notify_owner(state: MutexGuard<'_, MemoryStoreState>, owner: Option<u64>, notice: StoreNotice) {
    let notify = owner.and_then(|owner| state.watchers.get(&owner).cloned());
    drop(state);
    if let Some(notify) = notify {
        notify(notice);
    }
}

impl Store for MemoryStore {
    fn create_runs(&self, new: &[NewRun]) -> Result<Vec<RunClaim>, StoreError> {
        let mut state = self.lock_state();
        let mut names = HashSet::new();
        if let Some(twice) = new.iter().find(|new| state.keys.contains_key(&new.run) || !names.insert(&new.run)) {
            return Err(StoreError::Failed(format!("there is a run `{}` already", twice.run)));
        }
        for (id, _) in new.iter().flat_map(|new| &new.settles) {
            if let Some(settled) = &state.find_dead_letter(id)?.1 {
                return Err(already_settled_error(id, settled));
            }
        }
        for (id, settled) in new.iter().flat_map(|new| new.settles.clone()) {
            state.find_dead_letter(&id)?.1 = Some(settled);
        }
        Ok(new.iter().map(|new| state.insert_run(new, self.id)).collect())
    }

    fn claim_runs(&self, runs: &[RunId]) -> Result<Vec<Result<RunClaim, ClaimError>>, StoreError> {
        Ok(runs.iter().map(|run| self.take_run(run, false)).collect())
    }

    fn release_runs(&self, claims: &[RunClaim]) -> Result<(), StoreError> {
        let mut state = self.lock_state();
        for claim in claims {
            if let Ok(found) = state.get_run_mut(&claim.run)
                && (found.owner, found.epoch) == (Some(self.id), claim.epoch)
            {
                found.owner = None;
            }
        }
        Ok(())
    }

    fn append(&self, append: JournalAppend, done: AppendCallback) {
        let outcome = self.lock_state().append(&append, self.id);
        self.shared.answered.notify_all();
        done(outcome);
    }

    fn read_journal(
        &self,
        run: &RunId,
        from: u64,
        each: &mut dyn FnMut(JournalBatch) -> bool,
    ) -> Result<(), StoreError> {
        let journal = self.lock_state().get_run_mut(run)?.journal.clone();
        let ends_after = |batch: &&Arc<JournalBatch>| batch.seq + batch.records.len() as u64 > from;
        for batch in journal.iter().filter(ends_after) {
            if !each(JournalBatch::clone(batch)) {
                break;
            }
        }
        Ok(())
    }

    fn find_run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        let state = self.lock_state();
        Ok(state.get_run(run).map(|run| state.run_row(run, self.id)))
    }

    fn select_runs(&self, which: RunSelection) -> Result<Vec<RunRow>, StoreError> {
        let state = self.lock_state();
        let newest = state.runs.iter().rev().map(|run| state.run_row(run, self.id));
        let unfinished = |row: &RunRow| !row.head.closed && row.quarantined.is_none();
        Ok(match which {
            RunSelection::Newest(limit) => newest.take(limit as usize).collect(),
            RunSelection::Unfinished => newest.filter(unfinished).collect(),
            RunSelection::Orphaned => {
                newest.filter(|row| unfinished(row) && matches!(row.owner, RunOwner::Dead(_))).collect()
            }
        })
    }

    fn list_runs(&self, limit: u32, wanted: Option<&dyn Fn(&RunHead) -> bool>) -> Result<RunList, StoreError> {
        let mut rows = self.select_runs(RunSelection::Newest(u32::MAX))?;
        rows.retain(|row| wanted.is_none_or(|wanted| wanted(&row.head)));
        let more = rows.len().saturating_sub(limit as usize) as u64;
        rows.truncate(limit as usize);
        Ok(RunList { rows, more })
    }

    fn list_dead_letters(&self, which: &DeadLetterSelection) -> Result<Vec<DeadLetter>, StoreError> {
        let state = self.lock_state();
        let letter = |run: &MemoryRun, (row, settled): &(DeadLetterRow, Option<DeadLetterSettlement>)| DeadLetter {
            run: run.run.clone(),
            row: row.clone(),
            settled: settled.clone(),
        };
        let newest = state.runs.iter().rev();
        let newest = newest.flat_map(|run| run.dead.iter().rev().map(move |dead| letter(run, dead)));
        Ok(match which {
            DeadLetterSelection::Open(limit) => {
                newest.filter(|dead| dead.settled.is_none()).take(*limit as usize).collect()
            }
            DeadLetterSelection::Newest(limit) => newest.take(*limit as usize).collect(),
            DeadLetterSelection::InRun(run) => newest.filter(|dead| dead.run == *run).collect(),
        })
    }

    fn settle_dead_letter(
        &self,
        id: &DeadLetterId,
        settled: &DeadLetterSettlement,
    ) -> Result<Option<DeadLetterSettlement>, StoreError> {
        let mut state = self.lock_state();
        let found = state.find_dead_letter(id)?;
        let before = found.1.clone();
        found.1.get_or_insert_with(|| settled.clone());
        Ok(before)
    }

    fn read_definition(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError> {
        let found = self.lock_state().definitions.get(&hash).map(|frozen| frozen.to_vec());
        found.ok_or_else(|| StoreError::Failed(format!("there is no definition {hash}")))
    }

    fn send_request(&self, run: &RunId, body: &[u8]) -> Result<InboxRequestId, StoreError> {
        let mut state = self.lock_state();
        let owner = state.get_run_mut(run)?.owner;
        let waiting = |sent: &&SentRequest| sent.run == *run && sent.answer.is_none();
        let waiting = state.requests.values().filter(waiting).count();
        if let Some(refusal) = request_limit_error(run, waiting, body.len()) {
            return Err(refusal);
        }
        let request = InboxRequestId(state.requests.len() as u64 + 1);
        state.requests.insert(request, SentRequest { run: run.clone(), body: body.to_vec(), answer: None });
        notify_owner(state, owner, StoreNotice::Requests);
        Ok(request)
    }

    fn pending_requests(&self) -> Result<Vec<InboxRequest>, StoreError> {
        let state = self.lock_state();
        let mine = |sent: &SentRequest| state.get_run(&sent.run).is_some_and(|run| run.owner == Some(self.id));
        let open = state.requests.iter().filter(|(_, sent)| sent.answer.is_none() && mine(sent));
        let request = |(id, sent): (&InboxRequestId, &SentRequest)| InboxRequest {
            id: *id,
            run: sent.run.clone(),
            body: sent.body.clone(),
        };
        Ok(open.map(request).collect())
    }

    fn answer_request(&self, request: InboxRequestId, answer: &[u8]) -> Result<(), StoreError> {
        let known = self.lock_state().store_answer(request, answer);
        self.shared.answered.notify_all();
        known.then_some(()).ok_or_else(|| StoreError::Failed(format!("there is no request {}", request.0)))
    }

    fn wait_for_answer(&self, request: InboxRequestId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        let until = Instant::now().checked_add(within);
        let mut state = self.lock_state();
        loop {
            match state.requests.get(&request) {
                None => return Err(StoreError::Failed(format!("there is no request {}", request.0))),
                Some(SentRequest { answer: Some(answer), .. }) => return Ok(Some(answer.clone())),
                Some(_) => {}
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let woken = self.shared.answered.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn watch(&self, notify: NoticeCallback) {
        let mut state = self.lock_state();
        state.watchers.insert(self.id, notify);
        // Requests that arrived earlier are reported too.
        let mine = |sent: &SentRequest| state.get_run(&sent.run).is_some_and(|run| run.owner == Some(self.id));
        if state.requests.values().any(|sent| sent.answer.is_none() && mine(sent)) {
            notify_owner(state, Some(self.id), StoreNotice::Requests);
        }
    }

    fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.lock_state().append_audit(entries);
        Ok(())
    }

    fn read_audit(&self, from: u64, each: &mut dyn FnMut(StoredAuditRecord) -> bool) -> Result<(), StoreError> {
        let audit = self.lock_state().audit.clone();
        for noted in audit.into_iter().filter(|noted| noted.seq >= from) {
            if !each(noted) {
                break;
            }
        }
        Ok(())
    }

    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError> {
        let mut state = self.lock_state();
        let found = state.get_run_mut(run)?;
        found.quarantined.get_or_insert_with(|| why.to_owned());
        let lost = found.current_claim();
        found.epoch += 1;
        let owner = found.owner.take();
        notify_owner(state, owner, StoreNotice::Lost(lost));
        Ok(())
    }

    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]) {
        self.lock_state().snapshots.insert(run.clone(), bytes.to_vec());
    }

    fn read_snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        self.lock_state().snapshots.get(run).cloned()
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<ContentHash, StoreError> {
        let hash = ContentHash::hash_bytes(bytes);
        self.lock_state().blobs.insert(hash, bytes.to_vec());
        Ok(hash)
    }

    fn get_blob(&self, blob: ContentHash) -> Result<Vec<u8>, StoreError> {
        let found = self.lock_state().blobs.get(&blob).cloned();
        found.ok_or_else(|| StoreError::Failed(format!("there is no value {blob}")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
