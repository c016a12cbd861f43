//! Runs kept in one directory on this machine's disk, which many processes may share.
//!
//! Owns the state directory: `skein.db` (SQLite, in WAL mode, synced at each commit), the living processes in `owners`,
//! large values in `blobs`, and snapshots of long runs in `snapshots`. Each process writes through one connection
//! and takes turns with other processes ([`writer`]); `write`, `read` and `run_rows` hold the statements. A claim is a
//! row that names a process whose lock is held ([`owner`]). Each append is checked against it, so a failed lock is still
//! detected.

mod acknowledged_ends;
mod error;
mod inbox;
mod owner;
mod read;
mod run_rows;
mod schema;
mod state_folder;
mod state_registry;
mod stored_files;
mod write;
mod writer;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use skein_core::{engine::JournalBatch, ids::RunId, plan::ContentHash};

pub use acknowledged_ends::is_shortened;
pub use error::StoreOpenError;
pub use read::DatabaseCheck;
pub(crate) use schema::configure_connection;
pub use state_folder::{FileSystem, inspect_file_system};
pub use state_registry::{StateRegistry, UntrustedState};

use self::{
    acknowledged_ends::AcknowledgedEnds,
    inbox::{HeldClaims, InboxWatcher},
    owner::{LocalOwner, OwnerRegistry, process_label},
    read::ReaderPool,
    state_folder::{DatabaseLocation, StateFolder},
    stored_files::StoredFiles,
    write::AppendWrite,
    writer::{BreakageReason, Checkpointer, JournalChanges, SpaceReserve, StoreWriter, Turnstile, WriterConnection},
};
use crate::{audit::AuditEntry, clock::Clock};

use super::{
    AppendCallback, AppendError, ClaimError, DeadLetter, DeadLetterId, DeadLetterSelection, DeadLetterSettlement,
    InboxRequest, InboxRequestId, JournalAppend, NewRun, NoticeCallback, RunClaim, RunHead, RunList, RunRow,
    RunSelection, Store, StoreError, StoredAuditRecord,
};

/// The longest time that another program may lock the database. Skein processes take turns instead.
const BUSY: Duration = Duration::from_secs(60);

/// An open state directory. Others can claim the runs that it owns once it is dropped.
#[derive(Debug)]
pub struct SqliteStore {
    // Fields in the order in which they are dropped.
    writer: StoreWriter,
    inbox: InboxWatcher,
    readers: Arc<ReaderPool>,
    held: Arc<HeldClaims>,
    files: StoredFiles,
    me: Arc<LocalOwner>,
}

impl SqliteStore {
    /// Opens a state directory, creating it if there is none, and joins the processes that share it.
    pub fn open(dir: impl AsRef<Path>) -> Result<SqliteStore, StoreOpenError> {
        let place = StateFolder::prepare(dir.as_ref())?;
        let path = place.database_path();
        let io = |error| StoreOpenError::Io { path: path.clone(), error };
        let database = |error| StoreOpenError::Database { path: path.clone(), error };

        let turnstile = Turnstile::open(&place)?;
        let turn = turnstile.take_turn().map_err(io)?;
        let broken: BreakageReason = Arc::new(OnceLock::new());
        // Joined in the same turn, so that no other process changes the tables in between.
        let (mut db, me) = open_and_join(&place)?;
        let acknowledged = AcknowledgedEnds::open(&place, &db, Arc::clone(&broken))?;
        acknowledged.quarantine_shortened(&place, &mut db)?;
        drop(turn);

        let checkpoints = schema::connect(&place).map_err(database)?;
        schema::configure_connection(&checkpoints).map_err(database)?;
        let files = StoredFiles::open(&place, &me).map_err(io)?;
        let checkpointer =
            Checkpointer::start(checkpoints, Turnstile::open(&place)?, Arc::clone(&broken)).map_err(io)?;
        let reserve = SpaceReserve::open(&place)?;
        let here = DatabaseLocation::new(&place).map_err(io)?;
        let connection = WriterConnection { db, turnstile, reserve, checkpointer, here, acknowledged, broken };
        let writer = StoreWriter::start(connection).map_err(io)?;
        let readers = Arc::new(ReaderPool::new(&place));
        let (me, held) = (Arc::new(me), Arc::new(HeldClaims::default()));
        let inbox = InboxWatcher::start(Arc::clone(&me), Arc::clone(&readers), Arc::clone(&held)).map_err(io)?;
        Ok(SqliteStore { writer, inbox, readers, held, files, me })
    }

    /// Asks every process that shares a state folder to release a run, without opening the folder: for a disk that has
    /// no space even for that. Returns the number of processes that were asked.
    pub fn ask_all_to_leave(dir: &Path, run: &RunId) -> usize {
        let owners = OwnerRegistry::from_state_path(dir);
        let living = owners.living_ids().unwrap_or_default();
        living.iter().filter(|owner| owners.ask_to_leave(owner, run)).count()
    }

    /// True if an ancestor of this process shares the directory: then this process belongs to a worker.
    pub fn is_below_another(&self) -> Result<bool, StoreError> {
        let failed = |error| StoreError::Failed(format!("cannot list the owners of the state folder: {error}"));
        self.me.is_below_another().map_err(failed)
    }

    /// Asks the process that owns a run, by its name in [`RunOwner::Other`], to stop its workers and release the run.
    /// This works on a full disk. Returns true if the request was sent.
    ///
    /// [`RunOwner::Other`]: super::RunOwner::Other
    pub fn ask_to_leave(&self, owner: &str, run: &RunId) -> bool {
        self.me.owners().ask_to_leave(owner, run)
    }

    /// True if the disk has no space for the journal except the reserve, or not even that.
    pub fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Checks that the database on the disk is intact, as far as possible within this time.
    pub fn check_database(&self, within: Duration) -> Result<DatabaseCheck, StoreError> {
        read::check_database(&self.readers, within)
    }

    /// The runs that are quarantined because acknowledged rows of their journals are missing, and the reasons.
    pub fn list_shortened(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.readers.read_in_transaction(|db| acknowledged_ends::list_shortened(db))
    }

    /// Accepts, on a person's decision, that the journal of a run is shortened: the run can be resumed from the
    /// remaining rows. Returns true if any rows remain, and none if the run was not quarantined for that reason.
    pub fn accept_shortened(&self, run: &RunId) -> Result<Option<bool>, StoreError> {
        let run = run.clone();
        let accept = move |db: &rusqlite::Connection| {
            Ok(acknowledged_ends::accept_shortened(db, &run)?.map(|left| (run.clone(), left)))
        };
        let remembered = |accepted: &Option<(RunId, bool)>| JournalChanges {
            ends: Vec::new(),
            accepted: accepted.as_ref().map(|(run, _)| run.clone()),
        };
        let accepted = self.writer.write_journals_and_wait(0, true, accept, remembered)?;
        Ok(accepted.map(|(_, left)| left))
    }

    fn try_claim(&self, runs: &[RunId]) -> Result<Vec<Result<RunClaim, ClaimError>>, StoreError> {
        let (me, runs) = (Arc::clone(&self.me), runs.to_vec());
        let claims = self.writer.write_and_wait(0, true, move |db| {
            runs.iter().map(|run| write::claim_run(db, &me, run)).collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let held = |(key, claim): (i64, RunClaim)| {
            self.held.insert(key, &claim);
            claim
        };
        Ok(claims.into_iter().map(|claim| claim.map(held)).collect())
    }

    /// Builds the write of an append, or reports an error to `done` if the append is invalid.
    fn prepare_append(&self, append: JournalAppend, done: AppendCallback) -> Option<Box<AppendWrite>> {
        if append.batch.records.is_empty() {
            done(Err(AppendError::Broken("a journal row must have at least one event".into())));
            return None;
        }
        let Some(key) = self.held.run_key(&append.claim) else {
            done(Err(AppendError::Lost));
            return None;
        };
        let (me, held) = (Arc::clone(&self.me), Arc::clone(&self.held));
        Some(Box::new(AppendWrite::new(append, key, me, held, done)))
    }

    fn wake_owner(&self, owner: Option<String>) {
        if let Some(owner) = owner {
            self.me.owners().wake(&owner);
        }
    }
}

fn is_owned(claim: &Result<RunClaim, ClaimError>) -> bool {
    matches!(claim, Err(ClaimError::Owned(_)))
}

/// Opens the database in this version's format and joins the processes that share it.
fn open_and_join(place: &StateFolder) -> Result<(rusqlite::Connection, LocalOwner), StoreOpenError> {
    let owners = OwnerRegistry::new(place);
    let io = |error| StoreOpenError::Io { path: place.owners_path(), error };
    let database = |error| StoreOpenError::Database { path: place.database_path(), error };
    place.make_database(schema::create_database)?;
    let mut db = schema::connect(place).map_err(database)?;
    schema::migrate(place, &mut db, || {
        let living: Vec<_> = owners.living_ids().map_err(io)?.iter().map(|id| process_label(id)).collect();
        Ok((!living.is_empty()).then(|| living.join(", ")))
    })?;
    schema::configure_connection(&db).map_err(database)?;
    owners.sweep().map_err(io)?;
    Ok((db, LocalOwner::join(owners)?))
}

impl Store for SqliteStore {
    fn create_runs(&self, new: &[NewRun]) -> Result<Vec<RunClaim>, StoreError> {
        let me = Arc::clone(&self.me);
        let runs: Vec<_> = new.iter().cloned().map(write::RunCreation::new).collect();
        let bytes = runs.iter().map(write::RunCreation::bytes).sum();
        let remembered = |created: &Result<Vec<write::CreatedRun>, StoreError>| JournalChanges {
            ends: created.iter().flatten().filter_map(|(_, end)| end.clone()).collect(),
            accepted: None,
        };
        let created = self.writer.write_journals_and_wait(
            bytes,
            false,
            move |db| write::create_runs(db, &me, &runs),
            remembered,
        )??;
        let keys = created.into_iter().map(|(key, _)| key);
        let claims = new.iter().map(|new| RunClaim { run: new.run.clone(), epoch: 1 });
        let claims = keys.zip(claims);
        Ok(claims.inspect(|(key, claim)| self.held.insert(*key, claim)).map(|(_, claim)| claim).collect())
    }

    fn claim_runs(&self, runs: &[RunId]) -> Result<Vec<Result<RunClaim, ClaimError>>, StoreError> {
        let claims = self.try_claim(runs)?;
        let refused: Vec<RunId> =
            runs.iter().zip(&claims).filter(|(_, claim)| is_owned(claim)).map(|(run, _)| run.clone()).collect();
        if refused.is_empty() || !self.me.owners().wait_for_leaving() {
            return Ok(claims);
        }
        let mut again = self.try_claim(&refused)?.into_iter();
        let second = |claim| if is_owned(&claim) { again.next().unwrap_or(claim) } else { claim };
        Ok(claims.into_iter().map(second).collect())
    }

    fn release_runs(&self, claims: &[RunClaim]) -> Result<(), StoreError> {
        // The claims are forgotten first, so that they are not reported as lost.
        let keys: Vec<_> = claims.iter().map(|claim| self.held.remove(claim)).collect();
        let (me, over) = (Arc::clone(&self.me), claims.to_vec());
        let released = self
            .writer
            .write_and_wait(0, true, move |db| over.iter().try_for_each(|claim| write::release_run(db, &me, claim)));
        if released.is_err() {
            let had = claims.iter().zip(keys).filter_map(|(claim, key)| Some((claim, key?)));
            had.for_each(|(claim, key)| self.held.insert(key, claim));
        }
        Ok(released?)
    }

    fn append(&self, append: JournalAppend, done: AppendCallback) {
        if let Some(row) = self.prepare_append(append, done) {
            self.writer.enqueue(row);
        }
    }

    fn append_and_wait(&self, append: JournalAppend, done: AppendCallback) {
        if let Some(row) = self.prepare_append(append, done) {
            self.writer.write_or_enqueue(row);
        }
    }

    fn read_journal(
        &self,
        run: &RunId,
        from: u64,
        each: &mut dyn FnMut(JournalBatch) -> bool,
    ) -> Result<(), StoreError> {
        read::read_journal(&self.readers, run, from, each)
    }

    fn find_run(&self, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.readers.read_in_transaction(|db| run_rows::find_run(db, &self.me, run))
    }

    fn select_runs(&self, which: RunSelection) -> Result<Vec<RunRow>, StoreError> {
        self.readers.read_in_transaction(|db| run_rows::select_runs(db, &self.me, which))
    }

    fn list_runs(&self, limit: u32, wanted: Option<&dyn Fn(&RunHead) -> bool>) -> Result<RunList, StoreError> {
        self.readers.read_in_transaction(|db| run_rows::list_runs(db, &self.me, limit, wanted))
    }

    fn list_dead_letters(&self, which: &DeadLetterSelection) -> Result<Vec<DeadLetter>, StoreError> {
        self.readers.read_in_transaction(|db| read::list_dead_letters(db, which))
    }

    fn settle_dead_letter(
        &self,
        id: &DeadLetterId,
        settled: &DeadLetterSettlement,
    ) -> Result<Option<DeadLetterSettlement>, StoreError> {
        let (id, settled) = (id.clone(), settled.clone());
        self.writer.write_and_wait(0, true, move |db| write::settle_dead_letter(db, &id, &settled))?
    }

    fn read_definition(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError> {
        match self.readers.read_in_transaction(|db| run_rows::read_definition(db, hash))? {
            Some((frozen, true)) => Ok(frozen),
            Some((_, false)) => {
                Err(StoreError::Damaged(format!("the definition {hash} is damaged: its hash does not match")))
            }
            None => Err(StoreError::Failed(format!("there is no definition {hash}"))),
        }
    }

    fn send_request(&self, run: &RunId, body: &[u8]) -> Result<InboxRequestId, StoreError> {
        let (bytes, me, to, body) = (body.len(), Arc::clone(&self.me), run.clone(), body.to_vec());
        let (request, owner) = self
            .writer
            .write_and_wait(bytes, true, move |db| write::insert_request(db, &me, &to, &body, Clock::new().now()))??;
        self.wake_owner(owner);
        Ok(request)
    }

    fn pending_requests(&self) -> Result<Vec<InboxRequest>, StoreError> {
        self.readers.read_in_transaction(|db| read::pending_requests(db, self.me.id()))
    }

    fn answer_request(&self, request: InboxRequestId, answer: &[u8]) -> Result<(), StoreError> {
        let (bytes, answer) = (answer.len(), answer.to_vec());
        let sender = self.writer.write_and_wait(bytes, true, move |db| write::answer_request(db, request, &answer))?;
        self.wake_owner(sender.ok_or_else(|| StoreError::Failed(format!("there is no request {}", request.0)))?);
        Ok(())
    }

    fn wait_for_answer(&self, request: InboxRequestId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        self.inbox.wait_for_answer(request, within)
    }

    fn watch(&self, notify: NoticeCallback) {
        self.inbox.watch(notify);
    }

    fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let entries = entries.to_vec();
        Ok(self.writer.write_and_wait(0, true, move |db| write::append_audit(db, &entries))?)
    }

    fn read_audit(&self, from: u64, each: &mut dyn FnMut(StoredAuditRecord) -> bool) -> Result<(), StoreError> {
        read::read_audit(&self.readers, from, each)
    }

    fn quarantine(&self, run: &RunId, why: &str) -> Result<(), StoreError> {
        let (to, why) = (run.clone(), why.to_owned());
        let owner = self.writer.write_and_wait(0, true, move |db| write::quarantine_run(db, &to, &why))?;
        self.wake_owner(owner.ok_or_else(|| StoreError::Unknown(run.clone()))?);
        Ok(())
    }

    fn keep_snapshot(&self, run: &RunId, bytes: &[u8]) {
        self.files.write_snapshot(run, bytes);
    }

    fn read_snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        self.files.read_snapshot(run)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<ContentHash, StoreError> {
        self.files.put_blob(bytes)
    }

    fn get_blob(&self, blob: ContentHash) -> Result<Vec<u8>, StoreError> {
        self.files.get_blob(blob)
    }
}
