//! The writer of the database. A thread groups the queued writes into one transaction, so that a thousand runs share a
//! sync. A caller that would only wait for its write does it on its own thread if the connection is free, which saves
//! two thread switches.
//!
//! Owns when a write is done and who is told, the turns of processes ([`Turnstile`]), the reserve on a full disk
//! ([`SpaceReserve`]) and the checkpoints of the log ([`Checkpointer`]). Does not know what is written: that is a
//! [`DatabaseWrite`]. A write that fails never makes the others of its group fail. After a failed sync nothing is
//! written any more.

use std::{
    cell::Cell,
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use rustix::{
    fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatvfs},
    io::{Errno, retry_on_intr},
};
use skein_core::ids::RunId;

use crate::store::sqlite::{
    StoreOpenError,
    acknowledged_ends::{AcknowledgedEnds, JournalEnd},
    error::WriteFault,
    state_folder::{DatabaseLocation, StateFolder, open_plain_file},
};

/// The limits of a group in writes and bytes.
const GROUP: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// One write. It may be executed more than once before it is durable: when a group fails, each write is retried alone.
pub(super) trait DatabaseWrite: Send {
    /// The approximate number of bytes that it adds.
    fn bytes(&self) -> usize;

    /// True if it may use the reserved space.
    fn is_urgent(&self) -> bool;

    /// Executes the write. If it decides against writing, it writes nothing and keeps the reason for `complete`.
    fn write(&mut self, db: &Connection) -> rusqlite::Result<()>;

    /// The changes of journals, after it was written.
    fn journal_changes(&self) -> JournalChanges;

    /// Called when the write is durable or has failed.
    fn complete(self: Box<Self>, outcome: Result<(), WriteFault>);
}

/// The reason why nothing can be written any more. Set once, by the thread that found it.
pub(super) type BreakageReason = Arc<OnceLock<String>>;

#[derive(Debug)]
pub(super) struct StoreWriter {
    queue: Option<Sender<Box<dyn DatabaseWrite>>>,
    connection: Arc<Mutex<WriterConnection>>,
    thread: StoreThread,
}

impl StoreWriter {
    pub(super) fn start(connection: WriterConnection) -> io::Result<StoreWriter> {
        let (queue, waiting) = channel();
        let connection = Arc::new(Mutex::new(connection));
        let thread = StoreThread::start("skein-writer", {
            let connection = Arc::clone(&connection);
            move || run_writer(&connection, &waiting)
        })?;
        Ok(StoreWriter { queue: Some(queue), connection, thread })
    }

    /// True if there is no space except the reserve.
    pub(super) fn is_full(&self) -> bool {
        self.connection.lock().is_ok_and(|connection| !connection.reserve.ensure_reserved())
    }

    /// Queues a write for the thread, which groups it with the others.
    pub(super) fn enqueue(&self, write: Box<dyn DatabaseWrite>) {
        let queue = self.queue.as_ref().expect("the queue is open until the writer is dropped");
        if let Err(refused) = queue.send(write) {
            refused.0.complete(Err(WriteFault::Broken("the writer thread has ended".into())));
        }
    }

    /// Writes before this returns if the connection is free, and otherwise queues the write for the thread.
    pub(super) fn write_or_enqueue(&self, write: Box<dyn DatabaseWrite>) {
        // The writer thread itself gets here from a completion callback, and can only wait for the lock.
        let connection =
            if self.thread.is_current() { self.connection.lock().ok() } else { self.connection.try_lock().ok() };
        match connection {
            Some(connection) => {
                let ended = connection.write_group(vec![write]);
                drop(connection);
                report_outcomes(ended);
            }
            None => self.enqueue(write),
        }
    }

    /// Writes about `bytes` bytes and waits until they are durable.
    pub(super) fn write_and_wait<T, F>(&self, bytes: usize, urgent: bool, run: F) -> Result<T, WriteFault>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.write_journals_and_wait(bytes, urgent, run, |_| JournalChanges::default())
    }

    /// Writes and waits like `write_and_wait`; `changes` derives the changed journals from the result.
    pub(super) fn write_journals_and_wait<T, F>(
        &self,
        bytes: usize,
        urgent: bool,
        run: F,
        changes: fn(&T) -> JournalChanges,
    ) -> Result<T, WriteFault>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = sync_channel(1);
        self.write_or_enqueue(Box::new(AwaitedWrite { run, bytes, urgent, answer: None, changes, reply }));
        answer.recv().unwrap_or_else(|_| Err(WriteFault::Broken("the writer thread has ended".into())))
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        self.queue = None;
        self.thread.join();
    }
}

/// The changes of journals that are also recorded outside of the database.
#[derive(Debug, Default)]
pub(super) struct JournalChanges {
    /// The ends of the journals that were changed.
    pub ends: Vec<JournalEnd>,
    /// The run whose journal a person accepts as it is, although more of it was acknowledged.
    pub accepted: Option<RunId>,
}

/// A write that a caller waits for.
struct AwaitedWrite<T, F> {
    run: F,
    bytes: usize,
    urgent: bool,
    answer: Option<T>,
    changes: fn(&T) -> JournalChanges,
    reply: SyncSender<Result<T, WriteFault>>,
}

impl<T, F> DatabaseWrite for AwaitedWrite<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_urgent(&self) -> bool {
        self.urgent
    }

    fn write(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.answer = Some((self.run)(db)?);
        Ok(())
    }

    fn journal_changes(&self) -> JournalChanges {
        self.answer.as_ref().map(self.changes).unwrap_or_default()
    }

    fn complete(self: Box<Self>, outcome: Result<(), WriteFault>) {
        let AwaitedWrite { answer, reply, .. } = *self;
        let missing = || WriteFault::Broken("a write ended without an answer".into());
        let _ = reply.send(outcome.and_then(|()| answer.ok_or_else(missing)));
    }
}

/// The connection that writes, with everything that a transaction needs.
#[derive(Debug)]
pub(super) struct WriterConnection {
    pub db: Connection,
    pub turnstile: Turnstile,
    pub reserve: SpaceReserve,
    pub checkpointer: Checkpointer,
    pub here: DatabaseLocation,
    pub acknowledged: AcknowledgedEnds,
    pub broken: BreakageReason,
}

type WriteGroup = Vec<Box<dyn DatabaseWrite>>;

/// Writes with the same outcome.
type GroupOutcome = (WriteGroup, Result<(), WriteFault>);

fn run_writer(connection: &Mutex<WriterConnection>, waiting: &Receiver<Box<dyn DatabaseWrite>>) {
    while let Ok(first) = waiting.recv() {
        let Ok(connection) = connection.lock() else {
            return report_outcomes(vec![(vec![first], Err(WriteFault::Broken("an earlier write panicked".into())))]);
        };
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(next) = waiting.try_recv() else { break };
            bytes += next.bytes();
            group.push(next);
        }
        let ended = connection.write_group(group);
        drop(connection);
        report_outcomes(ended);
    }
}

impl WriterConnection {
    /// Writes a group, or those of its writes that succeed.
    fn write_group(&self, group: WriteGroup) -> Vec<GroupOutcome> {
        let (bytes, rows) = (group.iter().map(|write| write.bytes()).sum(), group.len());
        let ended = self.write_all(group);
        self.checkpointer.note_written(bytes, rows);
        ended
    }

    fn write_all(&self, mut group: WriteGroup) -> Vec<GroupOutcome> {
        let mut ended = Vec::new();
        if !self.reserve.ensure_reserved() {
            group = keep_urgent(group, &mut ended);
        }
        if group.is_empty() {
            return ended;
        }
        match self.commit(&mut group) {
            Err(WriteFault::Taken(_) | WriteFault::Row(_)) if group.len() > 1 => self.write_each(group, &mut ended),
            Err(WriteFault::NoSpace) if self.reserve.release_space() => {
                let urgent = keep_urgent(group, &mut ended);
                self.write_each(urgent, &mut ended);
            }
            outcome => ended.push((group, outcome)),
        }
        ended
    }

    fn write_each(&self, group: WriteGroup, ended: &mut Vec<GroupOutcome>) {
        for write in group {
            let mut alone = vec![write];
            let outcome = self.commit(&mut alone);
            ended.push((alone, outcome));
        }
    }

    /// Runs one transaction, durable if this returns `Ok`.
    fn commit(&self, group: &mut WriteGroup) -> Result<(), WriteFault> {
        if let Some(why) = self.broken.get() {
            return Err(WriteFault::Broken(why.clone()));
        }
        let outcome = self.transact(group);
        if let Err(WriteFault::Broken(why)) = &outcome {
            let _ = self.broken.set(why.clone());
        }
        outcome
    }

    fn transact(&self, group: &mut WriteGroup) -> Result<(), WriteFault> {
        let _turn = self.turnstile.take_turn().map_err(|error| WriteFault::Broken(error.to_string()))?;
        self.execute_sql("BEGIN IMMEDIATE")?;
        let written = group
            .iter_mut()
            .try_for_each(|write| write.write(&self.db).map_err(WriteFault::from))
            .and_then(|()| self.execute_sql("COMMIT"));
        if written.is_err() && !self.db.is_autocommit() {
            self.execute_sql("ROLLBACK")?;
        }
        // After the commit: acknowledged rows must be in the file that later readers will open.
        written.and_then(|()| self.here.check_unmoved().map_err(WriteFault::Broken))?;
        self.record_acknowledged(group)
            .map_err(|error| WriteFault::Broken(format!("the file of acknowledged rows cannot be written: {error}")))
    }

    /// Records the result of this commit outside of the database. In the same turn, so that no commit comes between.
    fn record_acknowledged(&self, group: &WriteGroup) -> io::Result<()> {
        let changes: Vec<JournalChanges> = group.iter().map(|write| write.journal_changes()).collect();
        for run in changes.iter().filter_map(|changes| changes.accepted.as_ref()) {
            self.acknowledged.forget_run(run)?;
        }
        let ends: Vec<JournalEnd> = changes.into_iter().flat_map(|changes| changes.ends).collect();
        if ends.is_empty() { Ok(()) } else { self.acknowledged.record_ends(&ends) }
    }

    fn execute_sql(&self, sql: &str) -> Result<(), WriteFault> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Returns the writes that may use the reserved space. The others fail, because the disk is full.
fn keep_urgent(group: WriteGroup, ended: &mut Vec<GroupOutcome>) -> WriteGroup {
    let (urgent, refused) = group.into_iter().partition(|write| write.is_urgent());
    ended.push((refused, Err(WriteFault::NoSpace)));
    urgent
}

/// Reports each outcome; a callback may write again. A callback that panics harms no other.
fn report_outcomes(ended: Vec<GroupOutcome>) {
    for (group, outcome) in ended {
        for write in group {
            let _ = catch_unwind(AssertUnwindSafe(|| write.complete(outcome.clone())));
        }
    }
}

/// A thread of the store, which ends with it.
#[derive(Debug)]
pub(super) struct StoreThread(Option<JoinHandle<()>>);

impl StoreThread {
    pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<StoreThread> {
        Ok(StoreThread(Some(Builder::new().name(name.into()).spawn(run)?)))
    }

    pub(super) fn is_current(&self) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id())
    }

    /// Waits for the thread after it was told to end. A thread that drops the store does not wait for itself.
    pub(super) fn join(&mut self) {
        if !self.is_current()
            && let Some(handle) = self.0.take()
        {
            let _ = handle.join();
        }
    }
}

/// Turns at writing, so that processes that write all the time get equal shares.
///
/// SQLite makes waiting writers retry after ever longer sleeps, which starves all but one. Here a writer takes two
/// locks: the holder of `next` waits for `now` and releases `next` once it has `now`. A writer that just had its turn
/// queues again.
#[derive(Debug)]
pub(super) struct Turnstile {
    next: File,
    now: File,
}

/// The exclusive right of all processes to write, until it is dropped.
#[derive(Debug)]
pub(super) struct WriteTurn<'a>(&'a Turnstile);

impl Turnstile {
    pub(super) fn open(place: &StateFolder) -> Result<Turnstile, StoreOpenError> {
        let [next, now] = place.turn_lock_paths().map(|path| open_plain_file(&path));
        Ok(Turnstile { next: next?, now: now? })
    }

    pub(super) fn take_turn(&self) -> io::Result<WriteTurn<'_>> {
        lock(&self.next)?;
        let now = lock(&self.now);
        unlock(&self.next);
        now.map(|()| WriteTurn(self))
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        unlock(&self.0.now);
    }
}

fn lock(file: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?)
}

fn unlock(file: &File) {
    // Unlocking a held lock cannot fail, and the end of the process releases it in any case.
    let _ = flock(file, FlockOperation::Unlock);
}

const RESERVE_BYTES: u64 = 16 * 1024 * 1024;
/// The space that must be free in addition before the reserve is allocated, or it would be released again at once.
const RESERVE_SLACK: u64 = 4 * 1024 * 1024;

/// Reserved disk space, so that a cancel can be recorded on a full disk.
///
/// All processes go by the size of the reserve file. If it is smaller than it should be, space ran out, and only urgent
/// writes are done until the reserve can be allocated again.
#[derive(Debug)]
pub(super) struct SpaceReserve(File);

impl SpaceReserve {
    pub(super) fn open(place: &StateFolder) -> Result<SpaceReserve, StoreOpenError> {
        open_plain_file(&place.reserve_path()).map(SpaceReserve)
    }

    /// True if the reserve exists or could be allocated again.
    pub(super) fn ensure_reserved(&self) -> bool {
        self.len() >= RESERVE_BYTES || self.allocate().is_ok()
    }

    /// Releases the space for urgent writes. Returns false if there was none.
    pub(super) fn release_space(&self) -> bool {
        self.len() > 0 && self.0.set_len(0).is_ok()
    }

    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |meta| meta.len())
    }

    fn allocate(&self) -> io::Result<()> {
        let disk = fstatvfs(&self.0)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < RESERVE_BYTES + RESERVE_SLACK {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let made = match fallocate(&self.0, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.fill_with_zeros(),
            made => made.map_err(io::Error::from),
        };
        if made.is_err() {
            // A part of it would be space that nobody can use.
            let _ = self.0.set_len(0);
        }
        made
    }

    /// Allocates the space by writing, for file systems without `fallocate`.
    fn fill_with_zeros(&self) -> io::Result<()> {
        io::Seek::rewind(&mut &self.0)?;
        io::copy(&mut io::Read::take(io::repeat(0), RESERVE_BYTES), &mut &self.0).map(drop)
    }
}

const DATABASE_PAGE: usize = 4096;
/// The number of bytes written between checkpoints.
const CHECKPOINT_BYTES: usize = 16 * 1024 * 1024;
/// The number of log pages from which the checkpoint takes a turn of its own.
const LONG_LOG: i64 = 16 * 1024;
/// The number of bytes since the last checkpoint began from which the writer waits for its end.
const WAIT_BYTES: usize = 128 * 1024 * 1024;

/// The time that a closing process waits for readers before it leaves the log to them.
const END_PATIENCE: Duration = Duration::from_millis(200);

/// The writer's handle to the checkpoint thread, which moves the content of the write-ahead log into the database.
///
/// A checkpoint beside a process that writes all the time never catches up, and the log would grow without limit. When
/// the log is long, the rest is moved in a turn of its own, in which no process writes. A writer that is still faster
/// waits.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    written: Cell<usize>,
    thread: StoreThread,
}

impl Checkpointer {
    pub(super) fn start(db: Connection, turnstile: Turnstile, broken: BreakageReason) -> io::Result<Checkpointer> {
        let (wake, woken) = sync_channel(1);
        let worker = CheckpointThread { db, turnstile, broken };
        let thread = StoreThread::start("skein-checkpoint", move || worker.run_loop(&woken))?;
        Ok(Checkpointer { wake: Some(wake), written: 0.into(), thread })
    }

    /// Counts written bytes. A row of another run changes another index page; each commit changes a few anyway.
    pub(super) fn note_written(&self, bytes: usize, rows: usize) {
        let written = self.written.get() + bytes + (rows + 3) * DATABASE_PAGE;
        let Some(wake) = &self.wake else { return };
        let woken = match written {
            WAIT_BYTES.. => wake.send(()).is_ok(),
            CHECKPOINT_BYTES.. => wake.try_send(()).is_ok(),
            _ => false,
        };
        self.written.set(if woken { 0 } else { written });
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        self.thread.join();
    }
}

#[derive(Debug)]
struct CheckpointThread {
    db: Connection,
    turnstile: Turnstile,
    broken: BreakageReason,
}

impl CheckpointThread {
    fn run_loop(self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            self.run_unless_broken(|| self.move_pages());
        }
        // The next process need not read a long log, and the disk need not keep it.
        self.run_unless_broken(|| self.truncate_log());
    }

    fn run_unless_broken(&self, checkpoint: impl FnOnce() -> Result<(), WriteFault>) {
        if self.broken.get().is_some() {
            return;
        }
        if let Err(WriteFault::Broken(why)) = checkpoint() {
            // Its sync failed, so the content of the disk is unknown.
            let _ = self.broken.set(why);
        }
    }

    fn move_pages(&self) -> Result<(), WriteFault> {
        if self.checkpoint_passive()? > LONG_LOG {
            // In its own turn, nothing is written meanwhile, so the log can start over.
            let _turn = self.turnstile.take_turn().map_err(|error| WriteFault::Broken(error.to_string()))?;
            self.checkpoint_passive()?;
        }
        Ok(())
    }

    /// Moves the pages and truncates the log. A log that others read or write is left to the last of them.
    fn truncate_log(&self) -> Result<(), WriteFault> {
        self.checkpoint_passive()?;
        self.db.busy_timeout(END_PATIENCE)?;
        Ok(self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// Moves the pages that it can, and returns the number of pages in the log.
    fn checkpoint_passive(&self) -> Result<i64, WriteFault> {
        Ok(self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?)
    }
}
