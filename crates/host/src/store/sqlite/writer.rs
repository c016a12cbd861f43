//! The writer of the database. A thread groups the queued writes into one transaction, so that a thousand runs share a
//! sync. A caller that would only wait for its write does it on its own thread if the connection is free, which saves
//! two thread switches.
//!
//! Owns when a write is done and who is told. Does not know what is written: that is a [`DatabaseWrite`]. A write that
//! fails never makes the others of its group fail. After a failed sync nothing is written any more.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
};

use rusqlite::Connection;
use skein_core::ids::RunId;

use super::{
    acknowledged_ends::{AcknowledgedEnds, JournalEnd},
    checkpoint::Checkpointer,
    fault::WriteFault,
    reserve::SpaceReserve,
    state_folder::DatabaseLocation,
    thread::StoreThread,
    turnstile::Turnstile,
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

    /// The ends of the journals that it changed, after it was written.
    fn journal_ends(&self) -> Vec<JournalEnd> {
        Vec::new()
    }

    /// The run whose journal a person accepts as it is, although more of it was acknowledged.
    fn accepted_run(&self) -> Option<RunId> {
        None
    }

    /// Called when the write is durable or has failed.
    fn complete(self: Box<Self>, outcome: Result<(), WriteFault>);
}

/// The reason why nothing can be written any more. Set once, by the thread that found it.
pub(super) type BreakageReason = Arc<OnceLock<String>>;

#[derive(Debug)]
pub(super) struct StoreWriter {
    queue: Option<Sender<Box<dyn DatabaseWrite>>>,
    pen: Arc<Mutex<WriterConnection>>,
    thread: StoreThread,
}

impl StoreWriter {
    pub(super) fn start(
        db: Connection,
        turnstile: Turnstile,
        reserve: SpaceReserve,
        checkpointer: Checkpointer,
        here: DatabaseLocation,
        acknowledged: AcknowledgedEnds,
        broken: BreakageReason,
    ) -> std::io::Result<StoreWriter> {
        let (queue, waiting) = channel();
        let pen =
            Arc::new(Mutex::new(WriterConnection { db, turnstile, reserve, checkpointer, here, acknowledged, broken }));
        let thread = StoreThread::start("skein-writer", {
            let pen = Arc::clone(&pen);
            move || run_writer(&pen, &waiting)
        })?;
        Ok(StoreWriter { queue: Some(queue), pen, thread })
    }

    /// True if there is no space except the reserve.
    pub(super) fn is_full(&self) -> bool {
        self.pen.lock().is_ok_and(|pen| !pen.reserve.ensure_reserved())
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
        let pen = if self.thread.is_current() { self.pen.lock().ok() } else { self.pen.try_lock().ok() };
        match pen {
            Some(pen) => {
                let ended = pen.write_group(vec![write]);
                drop(pen);
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

    /// Writes and waits like `write_and_wait`; `remembered` derives the changed journals from the result.
    pub(super) fn write_journals_and_wait<T, F>(
        &self,
        bytes: usize,
        urgent: bool,
        run: F,
        remembered: fn(&T) -> JournalChanges,
    ) -> Result<T, WriteFault>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = sync_channel(1);
        self.write_or_enqueue(Box::new(AwaitedWrite { run, bytes, urgent, answer: None, remembered, reply }));
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
    pub ends: Vec<JournalEnd>,
    pub accepted: Option<RunId>,
}

/// A write that a caller waits for.
struct AwaitedWrite<T, F> {
    run: F,
    bytes: usize,
    urgent: bool,
    answer: Option<T>,
    remembered: fn(&T) -> JournalChanges,
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

    fn journal_ends(&self) -> Vec<JournalEnd> {
        self.answer.as_ref().map(|answer| (self.remembered)(answer).ends).unwrap_or_default()
    }

    fn accepted_run(&self) -> Option<RunId> {
        self.answer.as_ref().and_then(|answer| (self.remembered)(answer).accepted)
    }

    fn complete(self: Box<Self>, outcome: Result<(), WriteFault>) {
        let AwaitedWrite { answer, reply, .. } = *self;
        let missing = || WriteFault::Broken("a write ended without an answer".into());
        let _ = reply.send(outcome.and_then(|()| answer.ok_or_else(missing)));
    }
}

#[derive(Debug)]
struct WriterConnection {
    db: Connection,
    turnstile: Turnstile,
    reserve: SpaceReserve,
    checkpointer: Checkpointer,
    here: DatabaseLocation,
    acknowledged: AcknowledgedEnds,
    broken: BreakageReason,
}

type WriteGroup = Vec<Box<dyn DatabaseWrite>>;

/// Writes with the same outcome.
type GroupOutcome = (WriteGroup, Result<(), WriteFault>);

fn run_writer(pen: &Mutex<WriterConnection>, waiting: &Receiver<Box<dyn DatabaseWrite>>) {
    while let Ok(first) = waiting.recv() {
        let Ok(pen) = pen.lock() else {
            return report_outcomes(vec![(vec![first], Err(WriteFault::Broken("an earlier write panicked".into())))]);
        };
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(next) = waiting.try_recv() else { break };
            bytes += next.bytes();
            group.push(next);
        }
        let ended = pen.write_group(group);
        drop(pen);
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
    fn record_acknowledged(&self, group: &WriteGroup) -> std::io::Result<()> {
        for run in group.iter().filter_map(|write| write.accepted_run()) {
            self.acknowledged.forget_run(&run)?;
        }
        let ends: Vec<JournalEnd> = group.iter().flat_map(|write| write.journal_ends()).collect();
        if ends.is_empty() { Ok(()) } else { self.acknowledged.record_ends(&ends) }
    }

    fn execute_sql(&self, sql: &str) -> Result<(), WriteFault> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Returns the writes that may use the reserved space. The others fail, because the disk is full.
fn keep_urgent(group: WriteGroup, ended: &mut Vec<GroupOutcome>) -> WriteGroup {
    let (urgent, others) = group.into_iter().partition(|write| write.is_urgent());
    ended.push((others, Err(WriteFault::NoSpace)));
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
