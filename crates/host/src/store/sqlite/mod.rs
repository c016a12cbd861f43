//! Runs kept in one directory on this machine's disk, which many processes may share.
//!
//! Owns the state directory: `skein.db` (SQLite, in WAL mode, synced at each commit), who lives in `owners`, large
//! values in `blobs`, and states of long runs in `snapshots`. Everything that is written goes through one place of each process ([`writer`]), in turns with
//! those of other processes ([`turnstile`]); `write` and `read` say what. A claim is a row that names a process whose
//! lock is held ([`owner`]); each append is checked against it, so a lock that failed would still be found out.

mod acknowledged;
mod check;
mod checkpoint;
mod error;
mod fault;
mod mailbox;
mod owner;
mod place;
mod read;
mod registry;
mod relocation;
mod reserve;
mod schema;
mod thread;
mod turnstile;
mod write;
mod writer;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use skein_core::{engine::Batch, ids::RunId, plan::Hash, time::Time};

pub use acknowledged::is_shortened;
pub use check::Checked;
pub use error::OpenError;
pub use place::{FileSystem, file_system};
pub use registry::{StateRegistry, UntrustedState};
pub(crate) use schema::configure;

use self::{
    acknowledged::AcknowledgedEnds,
    checkpoint::Checkpointer,
    mailbox::{Held, Mailbox},
    owner::{Me, Owners, process},
    place::{Here, Place},
    read::Readers,
    reserve::Reserve,
    turnstile::Turnstile,
    write::AppendRow,
    writer::{Broken, JournalChanges, Writer},
};
use crate::audit::Entry;

use super::{
    Append, AppendError, Claim, ClaimError, Dead, DeadId, Done, Head, Letter, LetterId, NewRun, Noted,
    Notify, RunList, RunRow, Settled, Store, StoreError, Which, WhichDead, aside::Aside, blobs::Blobs,
    snapshots::Snapshots,
};

/// How long another program may keep the database to itself. Processes of ours take turns instead.
const BUSY: Duration = Duration::from_secs(60);

/// A state directory, opened. The runs that it owns are up for others once it is dropped.
#[derive(Debug)]
pub struct Sqlite {
    // In the order in which they end.
    writer: Writer,
    mailbox: Mailbox,
    readers: Arc<Readers>,
    held: Arc<Held>,
    blobs: Blobs,
    snapshots: Snapshots,
    me: Arc<Me>,
}

impl Sqlite {
    /// Opens a state directory, which is made if there is none, and joins those that share it.
    pub fn open(dir: impl AsRef<Path>) -> Result<Sqlite, OpenError> {
        let place = Place::prepare(dir.as_ref())?;
        let path = place.database();
        let io = |error| OpenError::Io { path: path.clone(), error };
        let database = |error| OpenError::Database { path: path.clone(), error };

        let turnstile = Turnstile::open(&place)?;
        let turn = turnstile.take().map_err(io)?;
        let broken: Broken = Arc::new(OnceLock::new());
        // Joined in the same turn, so that nobody changes the tables in between.
        let (mut db, me) = join(&place)?;
        let acknowledged = AcknowledgedEnds::open(&place, &db, Arc::clone(&broken))?;
        acknowledged.set_shortened_aside(&place, &mut db)?;
        drop(turn);

        let checkpoints = schema::connect(&place).map_err(database)?;
        schema::configure(&checkpoints).map_err(database)?;
        let aside = Arc::new(Aside::new(place.blobs().join("unfinished"), me.id()));
        aside.sweep(|owner| me.owners().lives(owner)).map_err(io)?;
        let snapshots = Snapshots::new(place.snapshots(), Arc::clone(&aside));
        let blobs = Blobs::new(place.blobs(), aside);
        let checkpointer =
            Checkpointer::start(checkpoints, Turnstile::open(&place)?, Arc::clone(&broken)).map_err(io)?;
        let reserve = Reserve::open(&place)?;
        let here = Here::of(&place).map_err(io)?;
        let writer =
            Writer::start(db, turnstile, reserve, checkpointer, here, acknowledged, broken).map_err(io)?;
        let readers = Arc::new(Readers::of(&place));
        let (me, held) = (Arc::new(me), Arc::new(Held::default()));
        let mailbox = Mailbox::start(Arc::clone(&me), Arc::clone(&readers), Arc::clone(&held)).map_err(io)?;
        Ok(Sqlite { writer, mailbox, readers, held, blobs, snapshots, me })
    }

    /// Asks every process that shares a state folder to let go of a run, without opening the folder: for a disk that has no
    /// space even for that. Returns the number of processes that were asked.
    pub fn ask_all_to_leave(dir: &Path, run: &RunId) -> usize {
        let owners = Owners::below(dir);
        let living = owners.living().unwrap_or_default();
        living.iter().filter(|owner| owners.ask_to_leave(owner, run)).count()
    }

    /// Whether this process was started, however long ago, by one that shares the directory: then it is a worker's.
    pub fn is_below_another(&self) -> Result<bool, StoreError> {
        let failed =
            |error| StoreError::Failed(format!("those who share the folder cannot be listed: {error}"));
        self.me.is_below_another().map_err(failed)
    }

    /// Asks the process that owns a run, by its name in [`Owner::Other`], to stop its workers and let go of it. This works on a
    /// full disk. Returns whether the request is on its way.
    ///
    /// [`Owner::Other`]: super::Owner::Other
    pub fn ask_to_leave(&self, owner: &str, run: &RunId) -> bool {
        self.me.owners().ask_to_leave(owner, run)
    }

    /// Returns true if the disk has no space for the journal but the space that is kept back, or not even that.
    pub fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Whether what is on the disk is a whole database, as far as can be told in this time.
    pub fn check(&self, within: Duration) -> Result<Checked, StoreError> {
        check::check(&self.readers, within)
    }

    /// The runs that are set aside because acknowledged rows of their journals are gone, and why.
    pub fn shortened(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.readers.with(|db| acknowledged::shortened(db))
    }

    /// Accepts, by a person's word, that the journal of a run is shortened: the run can be resumed from what is left of it.
    /// Returns whether anything is left. None: it was not set aside for that.
    pub fn accept_shortened(&self, run: &RunId) -> Result<Option<bool>, StoreError> {
        let run = run.clone();
        let accept = move |db: &rusqlite::Connection| {
            Ok(acknowledged::accept(db, &run)?.map(|left| (run.clone(), left)))
        };
        let remembered = |accepted: &Option<(RunId, bool)>| JournalChanges {
            ends: Vec::new(),
            accepted: accepted.as_ref().map(|(run, _)| run.clone()),
        };
        let accepted = self.writer.ask_remembered(0, true, accept, remembered)?;
        Ok(accepted.map(|(_, left)| left))
    }

    fn take(&self, runs: &[RunId]) -> Result<Vec<Result<Claim, ClaimError>>, StoreError> {
        let (me, runs) = (Arc::clone(&self.me), runs.to_vec());
        let claims = self.writer.ask(0, true, move |db| {
            runs.iter().map(|run| write::claim(db, &me, run)).collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let held = |(key, claim): (i64, Claim)| {
            self.held.insert(key, &claim);
            claim
        };
        Ok(claims.into_iter().map(|claim| claim.map(held)).collect())
    }

    /// What an append writes, if it may be written.
    fn row(&self, append: Append, done: Done) -> Option<Box<AppendRow>> {
        if append.batch.records.is_empty() {
            done(Err(AppendError::Broken("a row without an event is no row".into())));
            return None;
        }
        let Some(key) = self.held.key(&append.claim) else {
            done(Err(AppendError::Lost));
            return None;
        };
        let (me, held) = (Arc::clone(&self.me), Arc::clone(&self.held));
        Some(Box::new(AppendRow::new(append, key, me, held, done)))
    }

    fn wake(&self, owner: Option<String>) {
        if let Some(owner) = owner {
            self.me.owners().wake(&owner);
        }
    }
}

fn is_owned(claim: &Result<Claim, ClaimError>) -> bool {
    matches!(claim, Err(ClaimError::Owned(_)))
}

/// The database in this version's form, and a place among those who share it.
fn join(place: &Place) -> Result<(rusqlite::Connection, Me), OpenError> {
    let owners = Owners::of(place);
    let io = |error| OpenError::Io { path: place.owners(), error };
    let database = |error| OpenError::Database { path: place.database(), error };
    place.make_database(schema::make)?;
    let mut db = schema::connect(place).map_err(database)?;
    schema::migrate(place, &mut db, || {
        let living: Vec<_> = owners.living().map_err(io)?.iter().map(|id| process(id)).collect();
        Ok((!living.is_empty()).then(|| living.join(", ")))
    })?;
    schema::configure(&db).map_err(database)?;
    owners.sweep().map_err(io)?;
    Ok((db, Me::join(owners)?))
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Store for Sqlite {
    fn create(&self, new: &[NewRun]) -> Result<Vec<Claim>, StoreError> {
        let me = Arc::clone(&self.me);
        let runs: Vec<_> = new.iter().cloned().map(write::Creation::new).collect();
        let bytes = runs.iter().map(write::Creation::bytes).sum();
        let remembered = |created: &Result<Vec<write::CreatedRun>, StoreError>| JournalChanges {
            ends: created.iter().flatten().filter_map(|(_, end)| end.clone()).collect(),
            accepted: None,
        };
        let created = self.writer.ask_remembered(
            bytes,
            false,
            move |db| write::create(db, &me, &runs),
            remembered,
        )??;
        let keys = created.into_iter().map(|(key, _)| key);
        let claims = new.iter().map(|new| Claim { run: new.run.clone(), epoch: 1 });
        let claims = keys.zip(claims);
        Ok(claims.inspect(|(key, claim)| self.held.insert(*key, claim)).map(|(_, claim)| claim).collect())
    }

    fn claim(&self, runs: &[RunId]) -> Result<Vec<Result<Claim, ClaimError>>, StoreError> {
        let claims = self.take(runs)?;
        let refused: Vec<RunId> = runs
            .iter()
            .zip(&claims)
            .filter(|(_, claim)| is_owned(claim))
            .map(|(run, _)| run.clone())
            .collect();
        if refused.is_empty() || !self.me.owners().await_leaving() {
            return Ok(claims);
        }
        let mut again = self.take(&refused)?.into_iter();
        let second = |claim| if is_owned(&claim) { again.next().unwrap_or(claim) } else { claim };
        Ok(claims.into_iter().map(second).collect())
    }

    fn release(&self, claims: &[Claim]) -> Result<(), StoreError> {
        // Forgotten first, so that they are not taken for lost.
        let keys: Vec<_> = claims.iter().map(|claim| self.held.remove(claim)).collect();
        let (me, over) = (Arc::clone(&self.me), claims.to_vec());
        let released = self
            .writer
            .ask(0, true, move |db| over.iter().try_for_each(|claim| write::release(db, &me, claim)));
        if released.is_err() {
            let had = claims.iter().zip(keys).filter_map(|(claim, key)| Some((claim, key?)));
            had.for_each(|(claim, key)| self.held.insert(key, claim));
        }
        Ok(released?)
    }

    fn append(&self, append: Append, done: Done) {
        if let Some(row) = self.row(append, done) {
            self.writer.push(row);
        }
    }

    fn append_and_wait(&self, append: Append, done: Done) {
        if let Some(row) = self.row(append, done) {
            self.writer.write(row);
        }
    }

    fn read(&self, run: &RunId, from: u64, each: &mut dyn FnMut(Batch) -> bool) -> Result<(), StoreError> {
        read::journal(&self.readers, run, from, each)
    }

    fn run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.readers.with(|db| read::run(db, &self.me, run))
    }

    fn runs(&self, which: Which) -> Result<Vec<RunRow>, StoreError> {
        self.readers.with(|db| read::runs(db, &self.me, which))
    }

    fn list(&self, limit: u32, wanted: Option<&dyn Fn(&Head) -> bool>) -> Result<RunList, StoreError> {
        self.readers.with(|db| read::list(db, &self.me, limit, wanted))
    }

    fn dead(&self, which: &WhichDead) -> Result<Vec<Dead>, StoreError> {
        self.readers.with(|db| read::dead(db, which))
    }

    fn settle(&self, id: &DeadId, settled: &Settled) -> Result<Option<Settled>, StoreError> {
        let (id, settled) = (id.clone(), settled.clone());
        self.writer.ask(0, true, move |db| write::settle(db, &id, &settled))?
    }

    fn definition(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        match self.readers.with(|db| read::definition(db, hash))? {
            Some((frozen, true)) => Ok(frozen),
            Some((_, false)) => {
                Err(StoreError::Damaged(format!("the definition {hash} is not what was written")))
            }
            None => Err(StoreError::Failed(format!("there is no definition {hash}"))),
        }
    }

    fn send(&self, run: &RunId, body: &[u8]) -> Result<LetterId, StoreError> {
        let (bytes, me, to, body) = (body.len(), Arc::clone(&self.me), run.clone(), body.to_vec());
        let (letter, owner) =
            self.writer.ask(bytes, true, move |db| write::send(db, &me, &to, &body, now()))??;
        self.wake(owner);
        Ok(letter)
    }

    fn letters(&self) -> Result<Vec<Letter>, StoreError> {
        self.readers.with(|db| read::letters(db, self.me.id()))
    }

    fn answer(&self, letter: LetterId, answer: &[u8]) -> Result<(), StoreError> {
        let (bytes, answer) = (answer.len(), answer.to_vec());
        let sender = self.writer.ask(bytes, true, move |db| write::answer(db, letter, &answer))?;
        self.wake(sender.ok_or_else(|| StoreError::Failed(format!("there is no letter {}", letter.0)))?);
        Ok(())
    }

    fn answered(&self, letter: LetterId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        self.mailbox.answered(letter, within)
    }

    fn watch(&self, notify: Notify) {
        self.mailbox.watch(notify);
    }

    fn note(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let entries = entries.to_vec();
        Ok(self.writer.ask(0, true, move |db| write::note(db, &entries))?)
    }

    fn audit(&self, from: u64, each: &mut dyn FnMut(Noted) -> bool) -> Result<(), StoreError> {
        read::audit(&self.readers, from, each)
    }

    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError> {
        let (to, why) = (run.clone(), why.to_owned());
        let owner = self.writer.ask(0, true, move |db| write::quarantine(db, &to, &why))?;
        self.wake(owner.ok_or_else(|| StoreError::Unknown(run.clone()))?);
        Ok(())
    }

    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]) {
        self.snapshots.keep(run, bytes);
    }

    fn snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        self.snapshots.get(run)
    }

    fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError> {
        self.blobs.put(bytes)
    }

    fn get(&self, blob: Hash) -> Result<Vec<u8>, StoreError> {
        self.blobs.get(blob)
    }
}
