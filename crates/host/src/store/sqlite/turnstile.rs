//! Turns at writing, so that several processes that write all the time get equal shares.
//!
//! SQLite lets those who wait try again after ever longer sleeps, which starves all but one. Here a writer waits in two
//! steps: whoever has `next` waits for `now` and lets `next` go when it has it. One who was just at it queues again.

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
pub struct Turnstile {
    next: File,
    now: File,
}

/// The only writer of all processes, until it is dropped.
#[derive(Debug)]
pub struct WriteTurn<'a>(&'a Turnstile);

impl Turnstile {
    pub fn open(place: &StateFolder) -> Result<Turnstile, StoreOpenError> {
        let [next, now] = place.turn_lock_paths().map(|path| {
            let options = &mut OpenOptions::new();
            open_plain_file(private_options(options.write(true).create(true).truncate(false)), &path)
        });
        Ok(Turnstile { next: next?, now: now? })
    }

    pub fn take_turn(&self) -> io::Result<WriteTurn<'_>> {
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
    // It cannot fail for a lock that is held, and the end of the process gives it back in any case.
    let _ = flock(file, FlockOperation::Unlock);
}
