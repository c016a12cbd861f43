//! The one pen: who has it writes. A thread groups what waits into one transaction, so that a thousand runs share a sync;
//! who would only wait for its write does it itself, if nobody is writing, and is spared two changes of threads.
//!
//! Owns when a write is done, and who learns of it. Refuses to know what is written: that is a [`Write`]. A write that
//! cannot be done never takes the others of its group with it. After a sync that failed nothing is written again.

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
    acknowledged::{AcknowledgedEnds, JournalEnd},
    checkpoint::Checkpointer,
    fault::Fault,
    place::Here,
    reserve::Reserve,
    thread::Thread,
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

    /// The ends of the journals that it changed, once it was written.
    fn journal_ends(&self) -> Vec<JournalEnd> {
        Vec::new()
    }

    /// The run whose journal a person accepts as it is, though more of it was acknowledged.
    fn accepted(&self) -> Option<RunId> {
        None
    }

    /// It is durable, or never will be.
    fn done(self: Box<Self>, outcome: Result<(), Fault>);
}

/// Why nothing can be written any more. Set once, by whoever saw it.
pub type Broken = Arc<OnceLock<String>>;

#[derive(Debug)]
pub struct Writer {
    queue: Option<Sender<Box<dyn Write>>>,
    pen: Arc<Mutex<Pen>>,
    thread: Thread,
}

impl Writer {
    pub fn start(
        db: Connection,
        turnstile: Turnstile,
        reserve: Reserve,
        checkpointer: Checkpointer,
        here: Here,
        acknowledged: AcknowledgedEnds,
        broken: Broken,
    ) -> std::io::Result<Writer> {
        let (queue, waiting) = channel();
        let pen =
            Arc::new(Mutex::new(Pen { db, turnstile, reserve, checkpointer, here, acknowledged, broken }));
        let thread = Thread::start("skein-writer", {
            let pen = Arc::clone(&pen);
            move || work(&pen, &waiting)
        })?;
        Ok(Writer { queue: Some(queue), pen, thread })
    }

    /// Returns true if there is no space but what is kept back.
    pub fn is_full(&self) -> bool {
        self.pen.lock().is_ok_and(|pen| !pen.reserve.is_there())
    }

    /// Written by the thread, with what else waits.
    pub fn push(&self, write: Box<dyn Write>) {
        let queue = self.queue.as_ref().expect("the queue is open until the writer is dropped");
        if let Err(refused) = queue.send(write) {
            refused.0.done(Err(Fault::Broken("the thread that writes has ended".into())));
        }
    }

    /// Written before this returns if nobody is writing, and otherwise by the thread.
    pub fn write(&self, write: Box<dyn Write>) {
        // The thread itself writes when it tells someone who writes more, and can wait for nobody but who has the pen.
        let pen = if self.thread.is_current() { self.pen.lock().ok() } else { self.pen.try_lock().ok() };
        match pen {
            Some(pen) => {
                let ended = pen.write(vec![write]);
                drop(pen);
                tell(ended);
            }
            None => self.push(write),
        }
    }

    /// Writes so many bytes, roughly, and waits until they are durable.
    pub fn ask<T, F>(&self, bytes: usize, urgent: bool, run: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.ask_remembered(bytes, urgent, run, |_| JournalChanges::default())
    }

    /// The same for a write that changes journals, as told from its answer.
    pub fn ask_remembered<T, F>(
        &self,
        bytes: usize,
        urgent: bool,
        run: F,
        remembered: fn(&T) -> JournalChanges,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = sync_channel(1);
        self.write(Box::new(Ask { run, bytes, urgent, answer: None, remembered, reply }));
        answer.recv().unwrap_or_else(|_| Err(Fault::Broken("the thread that writes has ended".into())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        self.thread.end();
    }
}

/// The changes of journals that are remembered outside of the database.
#[derive(Debug, Default)]
pub struct JournalChanges {
    pub ends: Vec<JournalEnd>,
    pub accepted: Option<RunId>,
}

/// A write that someone waits for.
struct Ask<T, F> {
    run: F,
    bytes: usize,
    urgent: bool,
    answer: Option<T>,
    remembered: fn(&T) -> JournalChanges,
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

    fn journal_ends(&self) -> Vec<JournalEnd> {
        self.answer.as_ref().map(|answer| (self.remembered)(answer).ends).unwrap_or_default()
    }

    fn accepted(&self) -> Option<RunId> {
        self.answer.as_ref().and_then(|answer| (self.remembered)(answer).accepted)
    }

    fn done(self: Box<Self>, outcome: Result<(), Fault>) {
        let Ask { answer, reply, .. } = *self;
        let missing = || Fault::Broken("a write ended without an answer".into());
        let _ = reply.send(outcome.and_then(|()| answer.ok_or_else(missing)));
    }
}

#[derive(Debug)]
struct Pen {
    db: Connection,
    turnstile: Turnstile,
    reserve: Reserve,
    checkpointer: Checkpointer,
    here: Here,
    acknowledged: AcknowledgedEnds,
    broken: Broken,
}

type Group = Vec<Box<dyn Write>>;

/// Writes that came to the same end.
type Ended = (Group, Result<(), Fault>);

fn work(pen: &Mutex<Pen>, waiting: &Receiver<Box<dyn Write>>) {
    while let Ok(first) = waiting.recv() {
        let Ok(pen) = pen.lock() else {
            return tell(vec![(vec![first], Err(Fault::Broken("a write failed in the middle".into())))]);
        };
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(next) = waiting.try_recv() else { break };
            bytes += next.bytes();
            group.push(next);
        }
        let ended = pen.write(group);
        drop(pen);
        tell(ended);
    }
}

impl Pen {
    /// Writes a group, or what of it can be written.
    fn write(&self, group: Group) -> Vec<Ended> {
        let (bytes, rows) = (group.iter().map(|write| write.bytes()).sum(), group.len());
        let ended = self.write_all(group);
        self.checkpointer.wrote(bytes, rows);
        ended
    }

    fn write_all(&self, mut group: Group) -> Vec<Ended> {
        let mut ended = Vec::new();
        if !self.reserve.is_there() {
            group = urgent(group, &mut ended);
        }
        if group.is_empty() {
            return ended;
        }
        match self.commit(&mut group) {
            Err(Fault::Taken(_) | Fault::Row(_)) if group.len() > 1 => self.write_each(group, &mut ended),
            Err(Fault::NoSpace) if self.reserve.give() => {
                let urgent = urgent(group, &mut ended);
                self.write_each(urgent, &mut ended);
            }
            outcome => ended.push((group, outcome)),
        }
        ended
    }

    fn write_each(&self, group: Group, ended: &mut Vec<Ended>) {
        for write in group {
            let mut alone = vec![write];
            let outcome = self.commit(&mut alone);
            ended.push((alone, outcome));
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
        written.and_then(|()| self.here.check().map_err(Fault::Broken))?;
        self.remember(group).map_err(|error| {
            Fault::Broken(format!("the file of acknowledged rows cannot be written: {error}"))
        })
    }

    /// Remembers outside of the database what this commit led to. In the same turn, so that no other commit comes between.
    fn remember(&self, group: &Group) -> std::io::Result<()> {
        for run in group.iter().filter_map(|write| write.accepted()) {
            self.acknowledged.forget(&run)?;
        }
        let ends: Vec<JournalEnd> = group.iter().flat_map(|write| write.journal_ends()).collect();
        if ends.is_empty() { Ok(()) } else { self.acknowledged.record(&ends) }
    }

    fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.db.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Those that may use the space that is kept back. There is none for the others.
fn urgent(group: Group, ended: &mut Vec<Ended>) -> Group {
    let (urgent, others) = group.into_iter().partition(|write| write.is_urgent());
    ended.push((others, Err(Fault::NoSpace)));
    urgent
}

/// Tells everyone, who may then write again. One who panics harms no other.
fn tell(ended: Vec<Ended>) {
    for (group, outcome) in ended {
        for write in group {
            let _ = catch_unwind(AssertUnwindSafe(|| write.done(outcome.clone())));
        }
    }
}
