//! Turns at writing, so that processes that write all the time get equal shares.
//!
//! SQLite makes waiting writers retry after ever longer sleeps, which starves all but one. Here a writer takes two
//! locks: the holder of `next` waits for `now` and releases `next` once it has `now`. A writer that just had its turn
//! queues again.

use std::{
    fs::{File, OpenOptions},
    io,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::retry_on_intr,
};

use super::{
    StoreOpenError,
    state_folder::{StateFolder, open_plain_file, private_options},
};

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
        let [next, now] = place.turn_lock_paths().map(|path| {
            let options = &mut OpenOptions::new();
            open_plain_file(private_options(options.write(true).create(true).truncate(false)), &path)
        });
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
