//! Moves what is in the log into the database, aside from the writer.
//!
//! A checkpoint that runs beside a writer never catches up with one that writes all the time, and the log would grow
//! for ever. When it has grown long, the rest is moved in a turn of its own, in which nobody writes; and a writer that
//! is still faster waits.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::Duration,
};

use rusqlite::Connection;

use super::{fault::WriteFault, thread::StoreThread, turnstile::Turnstile, writer::BreakageReason};

const PAGE: usize = 4096;
/// So many bytes are written between checkpoints.
const EVERY: usize = 16 * 1024 * 1024;
/// A log of so many pages is emptied whoever writes.
const LONG: i64 = 16 * 1024;
/// With so many bytes written since the last checkpoint began, the writer waits for its end.
const TOO_FAR: usize = 128 * 1024 * 1024;

/// The time that the end of a process waits for others to finish reading before it leaves the log to them.
const END_PATIENCE: Duration = Duration::from_millis(200);

/// What the writer tells it.
#[derive(Debug)]
pub struct Checkpointer {
    wake: Option<SyncSender<()>>,
    written: std::cell::Cell<usize>,
    thread: StoreThread,
}

impl Checkpointer {
    pub fn start(db: Connection, turnstile: Turnstile, broken: BreakageReason) -> io::Result<Checkpointer> {
        let (wake, woken) = sync_channel(1);
        let worker = CheckpointThread { db, turnstile, broken };
        let thread = StoreThread::start("skein-checkpoint", move || worker.run_loop(&woken))?;
        Ok(Checkpointer { wake: Some(wake), written: 0.into(), thread })
    }

    /// So much was written. A row of another run changes another page of the index; a commit, a few in any case.
    pub fn note_written(&self, bytes: usize, rows: usize) {
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
            // Its sync failed, so nobody can say any more what is on the disk.
            let _ = self.broken.set(why);
        }
    }

    fn move_pages(&self) -> Result<(), WriteFault> {
        if self.checkpoint_passive()? > LONG {
            // What was written meanwhile is in nobody's way now, so that the log can begin anew.
            let _turn = self.turnstile.take_turn().map_err(|error| WriteFault::Broken(error.to_string()))?;
            self.checkpoint_passive()?;
        }
        Ok(())
    }

    /// Moves what it finds and cuts the log to nothing. One that others read or write stays for the last of them to cut.
    fn truncate_log(&self) -> Result<(), WriteFault> {
        self.checkpoint_passive()?;
        self.db.busy_timeout(END_PATIENCE)?;
        Ok(self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// Moves what it finds, and says how many pages the log has.
    fn checkpoint_passive(&self) -> Result<i64, WriteFault> {
        Ok(self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?)
    }
}
