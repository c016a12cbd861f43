//! The one thread that writes: it groups what waits into one transaction, so that a thousand runs share a sync.
//!
//! Owns when a write is done, and who learns of it. Refuses to know what is written: that is a [`Write`]. A write that
//! cannot be done never takes the others of its group with it. After a sync that failed nothing is written again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
};

use rusqlite::Connection;

use super::{
    checkpoint::Checkpointer, fault::Fault, place::Here, reserve::Reserve, thread::Thread,
    turnstile::Turnstile,
};

/// A group ends with this many writes or bytes.
const GROUP: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// One write. It may be done more than once before it is durable: when a group fails, each of it is done alone.
pub trait Write: Send {
    /// How much it adds, roughly.
    fn bytes(&self) -> usize;

    /// Whether it may use the space that is kept back.
    fn is_urgent(&self) -> bool;

    /// What it decides against it keeps for `done`, having written nothing.
    fn write(&mut self, db: &Connection) -> rusqlite::Result<()>;

    /// It is durable, or never will be.
    fn done(self: Box<Self>, outcome: Result<(), Fault>);
}

/// Why nothing can be written any more. Set once, by whoever saw it.
pub type Broken = Arc<OnceLock<String>>;

#[derive(Debug)]
pub struct Writer {
    queue: Option<Sender<Box<dyn Write>>>,
    thread: Thread,
}

impl Writer {
    pub fn start(
        db: Connection,
        turnstile: Turnstile,
        reserve: Reserve,
        checkpointer: Checkpointer,
        here: Here,
        broken: Broken,
    ) -> std::io::Result<Writer> {
        let (queue, waiting) = channel();
        let worker = Worker { db, turnstile, reserve, checkpointer, here, broken };
        let thread = Thread::start("skein-writer", move || worker.work(&waiting))?;
        Ok(Writer { queue: Some(queue), thread })
    }

    pub fn push(&self, write: Box<dyn Write>) {
        let queue = self.queue.as_ref().expect("the queue is open until the writer is dropped");
        if let Err(refused) = queue.send(write) {
            refused.0.done(Err(Fault::Broken("the thread that writes has ended".into())));
        }
    }

    /// Writes so many bytes, roughly, and waits until they are durable.
    pub fn ask<T, F>(&self, bytes: usize, urgent: bool, run: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        if self.thread.is_current() {
            return Err(Fault::Row("who is told of an append cannot wait for another write".into()));
        }
        let (reply, answer) = sync_channel(1);
        self.push(Box::new(Ask { run, bytes, urgent, answer: None, reply }));
        answer.recv().unwrap_or_else(|_| Err(Fault::Broken("the thread that writes has ended".into())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        self.thread.end();
    }
}

/// A write that someone waits for.
struct Ask<T, F> {
    run: F,
    bytes: usize,
    urgent: bool,
    answer: Option<T>,
    reply: SyncSender<Result<T, Fault>>,
}

impl<T, F> Write for Ask<T, F>
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

    fn done(self: Box<Self>, outcome: Result<(), Fault>) {
        let Ask { answer, reply, .. } = *self;
        let missing = || Fault::Broken("a write ended without an answer".into());
        let _ = reply.send(outcome.and_then(|()| answer.ok_or_else(missing)));
    }
}

#[derive(Debug)]
struct Worker {
    db: Connection,
    turnstile: Turnstile,
    reserve: Reserve,
    checkpointer: Checkpointer,
    here: Here,
    broken: Broken,
}

type Group = Vec<Box<dyn Write>>;

impl Worker {
    fn work(self, waiting: &Receiver<Box<dyn Write>>) {
        while let Ok(first) = waiting.recv() {
            let mut bytes = first.bytes();
            let mut group = vec![first];
            while group.len() < GROUP && bytes < GROUP_BYTES {
                let Ok(next) = waiting.try_recv() else { break };
                bytes += next.bytes();
                group.push(next);
            }
            let rows = group.len();
            self.handle(group);
            self.checkpointer.wrote(bytes, rows);
        }
    }

    /// Writes a group, or what of it can be written.
    fn handle(&self, mut group: Group) {
        if !self.reserve.is_there() {
            let (urgent, others) = group.into_iter().partition(|write| write.is_urgent());
            end(others, &Err(Fault::NoSpace));
            group = urgent;
        }
        if group.is_empty() {
            return;
        }
        match self.commit(&mut group) {
            Err(Fault::Taken(_) | Fault::Row(_)) if group.len() > 1 => self.handle_alone(group),
            Err(Fault::NoSpace) if self.reserve.give() => {
                let (urgent, others) = group.into_iter().partition(|write| write.is_urgent());
                end(others, &Err(Fault::NoSpace));
                self.handle_alone(urgent);
            }
            outcome => end(group, &outcome),
        }
    }

    fn handle_alone(&self, group: Group) {
        for write in group {
            let mut alone = vec![write];
            let outcome = self.commit(&mut alone);
            end(alone, &outcome);
        }
    }

    /// One transaction, durable when this returns well.
    fn commit(&self, group: &mut Group) -> Result<(), Fault> {
        if let Some(why) = self.broken.get() {
            return Err(Fault::Broken(why.clone()));
        }
        let outcome = self.transact(group);
        if let Err(Fault::Broken(why)) = &outcome {
            let _ = self.broken.set(why.clone());
        }
        outcome
    }

    fn transact(&self, group: &mut Group) -> Result<(), Fault> {
        let _turn = self.turnstile.take().map_err(|error| Fault::Broken(error.to_string()))?;
        self.execute("BEGIN IMMEDIATE")?;
        let written = group
            .iter_mut()
            .try_for_each(|write| write.write(&self.db).map_err(Fault::from))
            .and_then(|()| self.execute("COMMIT"));
        if written.is_err() && !self.db.is_autocommit() {
            self.execute("ROLLBACK")?;
        }
        // After the commit: what is acknowledged is where it will be looked for.
        written.and_then(|()| self.here.check().map_err(Fault::Broken))
    }

    fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Tells everyone. One who panics harms no other.
fn end(group: Group, outcome: &Result<(), Fault>) {
    for write in group {
        let _ = catch_unwind(AssertUnwindSafe(|| write.done(outcome.clone())));
    }
}
