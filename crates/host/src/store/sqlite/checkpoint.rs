//! Moves the content of the write-ahead log into the database, on a thread of its own.
//!
//! A checkpoint beside a process that writes all the time never catches up, and the log would grow without limit. When
//! the log is long, the rest is moved in a turn of its own, in which no process writes. A writer that is still faster
//! waits.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use rusqlite::Connection;

use super::{fault::WriteFault, thread::StoreThread, turnstile::Turnstile, writer::BreakageReason};

const PAGE: usize = 4096;
/// The number of bytes written between checkpoints.
const EVERY: usize = 16 * 1024 * 1024;
/// The number of log pages from which the checkpoint takes a turn of its own.
const LONG: i64 = 16 * 1024;
/// The number of bytes since the last checkpoint began from which the writer waits for its end.
const TOO_FAR: usize = 128 * 1024 * 1024;

/// The time that a closing process waits for readers before it leaves the log to them.
const END_PATIENCE: Duration = Duration::from_millis(200);

/// The writer's handle to the checkpoint thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    written: std::cell::Cell<usize>,
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
        let written = self.written.get() + bytes + (rows + 3) * PAGE;
        let Some(wake) = &self.wake else { return };
        let woken = match written {
            TOO_FAR.. => wake.send(()).is_ok(),
            EVERY.. => wake.try_send(()).is_ok(),
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
            self.checkpoint();
        }
        // The next process need not read a long log, and the disk need not keep it.
        self.run_unless_broken(|| self.truncate_log());
    }

    fn checkpoint(&self) {
        self.run_unless_broken(|| self.move_pages());
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
        if self.checkpoint_passive()? > LONG {
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
