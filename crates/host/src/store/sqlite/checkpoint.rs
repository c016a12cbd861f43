//! Moves what is in the log into the database, aside from the writer.
//!
//! A checkpoint that runs beside a writer never catches up with one that writes all the time, and the log would grow
//! for ever. When it has grown long, the rest is moved in a turn of its own, in which nobody writes.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use rusqlite::Connection;

use super::{fault::Fault, thread::Thread, turnstile::Turnstile, writer::Broken};

/// So many bytes are written between checkpoints.
const EVERY: usize = 4 * 1024 * 1024;
/// A log of so many pages is emptied whoever writes.
const LONG: i64 = 16 * 1024;
const PAGE: usize = 4096;

/// What the writer tells it.
#[derive(Debug)]
pub struct Checkpointer {
    wake: Option<SyncSender<()>>,
    written: std::cell::Cell<usize>,
    thread: Thread,
}

impl Checkpointer {
    pub fn start(db: Connection, turnstile: Turnstile, broken: Broken) -> io::Result<Checkpointer> {
        let (wake, woken) = sync_channel(1);
        let worker = Worker { db, turnstile, broken };
        let thread = Thread::start("skein-checkpoint", move || worker.work(&woken))?;
        Ok(Checkpointer { wake: Some(wake), written: 0.into(), thread })
    }

    /// So much was written. Rows of many runs change a few pages each.
    pub fn wrote(&self, bytes: usize, rows: usize) {
        let written = self.written.get() + bytes + rows.min(8) * PAGE;
        self.written.set(written);
        if written >= EVERY
            && let Some(wake) = &self.wake
        {
            self.written.set(0);
            // One that is full is awake.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        self.thread.end();
    }
}

#[derive(Debug)]
struct Worker {
    db: Connection,
    turnstile: Turnstile,
    broken: Broken,
}

impl Worker {
    fn work(self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            self.checkpoint();
        }
        // The next process need not read a long log.
        self.checkpoint();
    }

    fn checkpoint(&self) {
        if self.broken.get().is_some() {
            return;
        }
        if let Err(Fault::Broken(why)) = self.move_pages() {
            // Its sync failed, so nobody can say any more what is on the disk.
            let _ = self.broken.set(why);
        }
    }

    fn move_pages(&self) -> Result<(), Fault> {
        let (pages, moved) = self.passive()?;
        if pages > LONG && moved < pages {
            let _turn = self.turnstile.take().map_err(|error| Fault::Broken(error.to_string()))?;
            self.passive()?;
        }
        Ok(())
    }

    /// How many pages the log has, and how many of them are in the database now.
    fn passive(&self) -> Result<(i64, i64), Fault> {
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        Ok(self.db.query_row(sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?)
    }
}
