//! Who writes which context folder: one run at a time, over all processes of this machine.
//!
//! A lock on the folder itself, which the kernel lets go of with the process. So a run that was killed holds nothing.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use skein_core::ids::RunId;

use super::{Context, Story, Written};
use crate::workspace::{ArtifactError, Root, root::Identity};

/// How long a lock may outlive its process: one that is killed while it starts another leaves its locks to that one until it
/// is a program of its own, which is a moment.
const LEAVING: Duration = Duration::from_secs(1);

/// The lock of a folder, or none if someone else has it and keeps it.
fn await_lock(folder: &Root) -> Result<Option<OwnedFd>, ArtifactError> {
    let until = Instant::now() + LEAVING;
    loop {
        match folder.lock()? {
            None if Instant::now() < until => std::thread::sleep(LEAVING / 100),
            lock => return Ok(lock),
        }
    }
}

/// The context folders that runs of this process write.
#[derive(Debug, Default)]
pub struct Contexts {
    held: Mutex<BTreeMap<Identity, Held>>,
}

#[derive(Debug)]
struct Held {
    run: RunId,
    _lock: OwnedFd,
    written: Written,
}

impl Contexts {
    /// From now on the folder is this run's, until it is let go.
    pub fn hold(&self, context: &Context, run: &RunId) -> Result<(), ArtifactError> {
        let folder = context.root();
        let identity = folder.identity()?;
        let in_use = || ArtifactError::ContextInUse { folder: folder.path().display().to_string() };
        let mut all = self.all();
        match all.get(&identity) {
            Some(held) if held.run == *run => return Ok(()),
            Some(_) => return Err(in_use()),
            None => {}
        }
        let lock = await_lock(folder)?.ok_or_else(in_use)?;
        all.insert(identity, Held { run: run.clone(), _lock: lock, written: Written::default() });
        Ok(())
    }

    /// Writes what is new. After an error nobody knows what is there, and all of it is looked at the next time.
    pub fn write(
        &self,
        context: &Context,
        story: &Story<'_>,
        from_the_beginning: bool,
    ) -> Result<(), ArtifactError> {
        let identity = context.root().identity()?;
        let taken = self.all().get_mut(&identity).map(|held| std::mem::take(&mut held.written));
        let mut written = taken.filter(|_| !from_the_beginning).unwrap_or_default();
        context.write(story, &mut written)?;
        if let Some(held) = self.all().get_mut(&identity) {
            held.written = written;
        }
        Ok(())
    }

    /// The folders of a run are up for others.
    pub fn release(&self, run: &RunId) {
        self.all().retain(|_, held| held.run != *run);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Identity, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
