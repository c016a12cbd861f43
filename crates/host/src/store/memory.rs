//! Runs kept in memory, for tests: the same promises as on disk, but for the one about the end of the process.
//!
//! A [`Memory`] is one owner. [`another`](Memory::another) gives one more that shares what is kept, as another process
//! would, and [`kill`](Memory::kill) ends one without a word.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use skein_core::{engine::Batch, ids::RunId, plan::Hash};

use crate::audit::{Chain, Entry};

use super::{
    Append, AppendError, Claim, ClaimError, Dead, DeadId, DeadRow, Done, Head, Letter, LetterId, NewRun,
    Noted, Notice, Notify, OpenRow, Owner, RunList, RunRow, Settled, Store, StoreError, Which, WhichDead,
    dead::seen_to, letter::refusal,
};

/// One owner of runs that are kept in memory. It dies when it is dropped.
#[derive(Debug)]
pub struct Memory {
    id: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was answered.
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Owners so far; each has the number that was next.
    owners: u64,
    dead: HashSet<u64>,
    watchers: HashMap<u64, Notify>,
    runs: Vec<Run>,
    keys: HashMap<RunId, usize>,
    definitions: HashMap<Hash, Arc<[u8]>>,
    letters: BTreeMap<LetterId, Sent>,
    chain: Chain,
    audit: Vec<Noted>,
    blobs: HashMap<Hash, Vec<u8>>,
    snapshots: HashMap<RunId, Vec<u8>>,
}

struct Run {
    run: RunId,
    definition: Hash,
    about: serde_json::Value,
    head: Head,
    open: Vec<OpenRow>,
    dead: Vec<(DeadRow, Option<Settled>)>,
    quarantined: Option<String>,
    owner: Option<u64>,
    epoch: u64,
    events: u64,
    journal: Vec<Arc<Batch>>,
}

impl Run {
    /// The claim that counts.
    fn claim(&self) -> Claim {
        Claim { run: self.run.clone(), epoch: self.epoch }
    }
}

struct Sent {
    run: RunId,
    body: Vec<u8>,
    answer: Option<Vec<u8>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("runs", &self.keys.keys()).finish_non_exhaustive()
    }
}

impl State {
    fn get(&self, run: &RunId) -> Option<&Run> {
        self.keys.get(run).map(|key| &self.runs[*key])
    }

    fn find(&mut self, run: &RunId) -> Result<&mut Run, StoreError> {
        match self.keys.get(run) {
            Some(key) => Ok(&mut self.runs[*key]),
            None => Err(StoreError::Unknown(run.clone())),
        }
    }

    fn owner(&self, run: &Run, me: u64) -> Owner {
        match run.owner {
            None => Owner::Nobody,
            Some(owner) if owner == me => Owner::Here,
            Some(owner) if !self.dead.contains(&owner) => Owner::Other(name(owner)),
            Some(_) if run.head.closed => Owner::Nobody,
            Some(owner) => Owner::Dead(name(owner)),
        }
    }

    fn row(&self, run: &Run, me: u64) -> RunRow {
        RunRow {
            run: run.run.clone(),
            definition: run.definition,
            about: run.about.clone(),
            head: run.head.clone(),
            owner: self.owner(run, me),
            open: run.open.clone(),
            quarantined: run.quarantined.clone(),
        }
    }

    /// A run that is not there yet, owned by this one.
    fn create(&mut self, new: &NewRun, me: u64) -> Claim {
        self.definitions.entry(new.definition).or_insert_with(|| Arc::clone(&new.frozen));
        let key = self.runs.len();
        self.keys.insert(new.run.clone(), key);
        self.runs.push(Run {
            run: new.run.clone(),
            definition: new.definition,
            about: new.about.clone(),
            head: new.head.clone(),
            open: new.open.clone(),
            dead: Vec::new(),
            quarantined: None,
            owner: Some(me),
            epoch: 1,
            events: new.first.as_ref().map_or(0, |row| row.records.len() as u64),
            journal: new.first.iter().cloned().collect(),
        });
        self.note(&new.audit);
        Claim { run: new.run.clone(), epoch: 1 }
    }

    fn note(&mut self, entries: &[Entry]) {
        for entry in entries {
            let (seq, line) = self.chain.seal(entry);
            self.audit.push(Noted { seq, line: line.into_bytes() });
        }
    }

    /// The first answer stands. Whether there is such a letter.
    fn answer(&mut self, letter: LetterId, answer: &[u8]) -> bool {
        let found = self.letters.get_mut(&letter);
        found.map(|sent| sent.answer.get_or_insert_with(|| answer.to_vec())).is_some()
    }

    fn append(&mut self, append: &Append, me: u64) -> Result<(), AppendError> {
        let (Claim { run, epoch }, batch) = (&append.claim, &append.batch);
        if batch.records.is_empty() {
            return Err(AppendError::Broken("a row without an event is no row".into()));
        }
        if self.dead.contains(&me) {
            return Err(AppendError::Broken("this owner was killed".into()));
        }
        let found = self.find(run).map_err(|_| AppendError::Lost)?;
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
                Some(true) => *settled = settled.take().or(Some(Settled::RETRIED)),
                Some(false) => *settled = settled.take().filter(|settled| *settled != Settled::RETRIED),
                None => {}
            }
        }
        self.note(&append.audit);
        for (letter, answer) in &append.answers {
            self.answer(*letter, answer);
        }
        Ok(())
    }

    fn find_dead(&mut self, id: &DeadId) -> Result<&mut (DeadRow, Option<Settled>), StoreError> {
        let unknown = || StoreError::Failed(format!("there is no dead letter `{id}`"));
        let dead = &mut self.find(&id.run).map_err(|_| unknown())?.dead;
        dead.iter_mut().find(|(row, _)| row.number == id.number).ok_or_else(unknown)
    }
}

fn name(owner: u64) -> String {
    format!("owner {owner}")
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// The first owner of a new store.
    pub fn new() -> Memory {
        Memory::join(Arc::default())
    }

    /// One more owner of what this one keeps.
    pub fn another(&self) -> Memory {
        Memory::join(Arc::clone(&self.shared))
    }

    fn join(shared: Arc<Shared>) -> Memory {
        let mut state = lock(&shared.state);
        let id = state.owners;
        state.owners += 1;
        drop(state);
        Memory { id, shared }
    }

    /// Ends this owner: what it has is up for others, and nothing it does counts any more.
    pub fn kill(&self) {
        let mut state = self.state();
        state.dead.insert(self.id);
        state.watchers.remove(&self.id);
    }

    /// Takes a run from an owner that lives, which must then find out by itself.
    pub fn force(&self, run: &RunId) -> Result<Claim, ClaimError> {
        self.take(run, true)
    }

    fn take(&self, run: &RunId, force: bool) -> Result<Claim, ClaimError> {
        let mut state = self.state();
        let found = state.get(run).ok_or_else(|| ClaimError::Unknown(run.clone()))?;
        if let Some(why) = &found.quarantined {
            return Err(ClaimError::Quarantined(why.clone()));
        }
        let before = found.owner;
        match before {
            Some(owner) if owner == self.id => return Err(ClaimError::Owned("this process".into())),
            Some(owner) if !force && !state.dead.contains(&owner) => {
                return Err(ClaimError::Owned(name(owner)));
            }
            _ => {}
        }
        let found = state.find(run)?;
        found.owner = Some(self.id);
        let lost = found.claim();
        found.epoch += 1;
        let claim = found.claim();
        tell(state, before, Notice::Lost(lost));
        Ok(claim)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tells an owner, if there is one that listens. Not while the state is locked.
fn tell(state: MutexGuard<'_, State>, owner: Option<u64>, notice: Notice) {
    let notify = owner.and_then(|owner| state.watchers.get(&owner).cloned());
    drop(state);
    if let Some(notify) = notify {
        notify(notice);
    }
}

impl Store for Memory {
    fn create(&self, new: &[NewRun]) -> Result<Vec<Claim>, StoreError> {
        let mut state = self.state();
        let mut names = HashSet::new();
        if let Some(twice) =
            new.iter().find(|new| state.keys.contains_key(&new.run) || !names.insert(&new.run))
        {
            return Err(StoreError::Failed(format!("there is a run `{}` already", twice.run)));
        }
        for (id, _) in new.iter().flat_map(|new| &new.settles) {
            if let Some(settled) = &state.find_dead(id)?.1 {
                return Err(seen_to(id, settled));
            }
        }
        for (id, settled) in new.iter().flat_map(|new| new.settles.clone()) {
            state.find_dead(&id)?.1 = Some(settled);
        }
        Ok(new.iter().map(|new| state.create(new, self.id)).collect())
    }

    fn claim(&self, runs: &[RunId]) -> Result<Vec<Result<Claim, ClaimError>>, StoreError> {
        Ok(runs.iter().map(|run| self.take(run, false)).collect())
    }

    fn release(&self, claims: &[Claim]) -> Result<(), StoreError> {
        let mut state = self.state();
        for claim in claims {
            if let Ok(found) = state.find(&claim.run)
                && (found.owner, found.epoch) == (Some(self.id), claim.epoch)
            {
                found.owner = None;
            }
        }
        Ok(())
    }

    fn append(&self, append: Append, done: Done) {
        let outcome = self.state().append(&append, self.id);
        self.shared.answered.notify_all();
        done(outcome);
    }

    fn read(&self, run: &RunId, from: u64, each: &mut dyn FnMut(Batch) -> bool) -> Result<(), StoreError> {
        let journal = self.state().find(run)?.journal.clone();
        let ends_after = |batch: &&Arc<Batch>| batch.seq + batch.records.len() as u64 > from;
        for batch in journal.iter().filter(ends_after) {
            if !each(Batch::clone(batch)) {
                break;
            }
        }
        Ok(())
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        let state = self.state();
        Ok(state.get(run).map(|run| state.row(run, self.id)))
    }

    fn runs(&self, which: Which) -> Result<Vec<RunRow>, StoreError> {
        let state = self.state();
        let newest = state.runs.iter().rev().map(|run| state.row(run, self.id));
        let unfinished = |row: &RunRow| !row.head.closed && row.quarantined.is_none();
        Ok(match which {
            Which::Newest(limit) => newest.take(limit as usize).collect(),
            Which::Unfinished => newest.filter(unfinished).collect(),
            Which::Orphaned => {
                newest.filter(|row| unfinished(row) && matches!(row.owner, Owner::Dead(_))).collect()
            }
        })
    }

    fn list(&self, limit: u32, wanted: Option<&dyn Fn(&Head) -> bool>) -> Result<RunList, StoreError> {
        let mut rows = self.runs(Which::Newest(u32::MAX))?;
        rows.retain(|row| wanted.is_none_or(|wanted| wanted(&row.head)));
        let more = rows.len().saturating_sub(limit as usize) as u64;
        rows.truncate(limit as usize);
        Ok(RunList { rows, more })
    }

    fn dead(&self, which: &WhichDead) -> Result<Vec<Dead>, StoreError> {
        let state = self.state();
        let letter = |run: &Run, (row, settled): &(DeadRow, Option<Settled>)| Dead {
            run: run.run.clone(),
            row: row.clone(),
            settled: settled.clone(),
        };
        let newest = state.runs.iter().rev();
        let newest = newest.flat_map(|run| run.dead.iter().rev().map(move |dead| letter(run, dead)));
        Ok(match which {
            WhichDead::Open(limit) => {
                newest.filter(|dead| dead.settled.is_none()).take(*limit as usize).collect()
            }
            WhichDead::Newest(limit) => newest.take(*limit as usize).collect(),
            WhichDead::Of(run) => newest.filter(|dead| dead.run == *run).collect(),
        })
    }

    fn settle(&self, id: &DeadId, settled: &Settled) -> Result<Option<Settled>, StoreError> {
        let mut state = self.state();
        let found = state.find_dead(id)?;
        let before = found.1.clone();
        found.1.get_or_insert_with(|| settled.clone());
        Ok(before)
    }

    fn definition(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        let found = self.state().definitions.get(&hash).map(|frozen| frozen.to_vec());
        found.ok_or_else(|| StoreError::Failed(format!("there is no definition {hash}")))
    }

    fn send(&self, run: &RunId, body: &[u8]) -> Result<LetterId, StoreError> {
        let mut state = self.state();
        let owner = state.find(run)?.owner;
        let waiting = |sent: &&Sent| sent.run == *run && sent.answer.is_none();
        let waiting = state.letters.values().filter(waiting).count();
        if let Some(refusal) = refusal(run, waiting, body.len()) {
            return Err(refusal);
        }
        let letter = LetterId(state.letters.len() as u64 + 1);
        state.letters.insert(letter, Sent { run: run.clone(), body: body.to_vec(), answer: None });
        tell(state, owner, Notice::Mail);
        Ok(letter)
    }

    fn letters(&self) -> Result<Vec<Letter>, StoreError> {
        let state = self.state();
        let mine = |sent: &Sent| state.get(&sent.run).is_some_and(|run| run.owner == Some(self.id));
        let open = state.letters.iter().filter(|(_, sent)| sent.answer.is_none() && mine(sent));
        let letter = |(id, sent): (&LetterId, &Sent)| Letter {
            id: *id,
            run: sent.run.clone(),
            body: sent.body.clone(),
        };
        Ok(open.map(letter).collect())
    }

    fn answer(&self, letter: LetterId, answer: &[u8]) -> Result<(), StoreError> {
        let known = self.state().answer(letter, answer);
        self.shared.answered.notify_all();
        known.then_some(()).ok_or_else(|| StoreError::Failed(format!("there is no letter {}", letter.0)))
    }

    fn answered(&self, letter: LetterId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        let until = Instant::now().checked_add(within);
        let mut state = self.state();
        loop {
            match state.letters.get(&letter) {
                None => return Err(StoreError::Failed(format!("there is no letter {}", letter.0))),
                Some(Sent { answer: Some(answer), .. }) => return Ok(Some(answer.clone())),
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

    fn watch(&self, notify: Notify) {
        let mut state = self.state();
        state.watchers.insert(self.id, notify);
        // What came before is told too.
        let mine = |sent: &Sent| state.get(&sent.run).is_some_and(|run| run.owner == Some(self.id));
        if state.letters.values().any(|sent| sent.answer.is_none() && mine(sent)) {
            tell(state, Some(self.id), Notice::Mail);
        }
    }

    fn note(&self, entries: &[Entry]) -> Result<(), StoreError> {
        self.state().note(entries);
        Ok(())
    }

    fn audit(&self, from: u64, each: &mut dyn FnMut(Noted) -> bool) -> Result<(), StoreError> {
        let audit = self.state().audit.clone();
        for noted in audit.into_iter().filter(|noted| noted.seq >= from) {
            if !each(noted) {
                break;
            }
        }
        Ok(())
    }

    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        let found = state.find(run)?;
        found.quarantined.get_or_insert_with(|| why.to_owned());
        let lost = found.claim();
        found.epoch += 1;
        let owner = found.owner.take();
        tell(state, owner, Notice::Lost(lost));
        Ok(())
    }

    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]) {
        self.state().snapshots.insert(run.clone(), bytes.to_vec());
    }

    fn snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        self.state().snapshots.get(run).cloned()
    }

    fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError> {
        let hash = Hash::of(bytes);
        self.state().blobs.insert(hash, bytes.to_vec());
        Ok(hash)
    }

    fn get(&self, blob: Hash) -> Result<Vec<u8>, StoreError> {
        let found = self.state().blobs.get(&blob).cloned();
        found.ok_or_else(|| StoreError::Failed(format!("there is no value {blob}")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
