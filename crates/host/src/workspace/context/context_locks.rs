//! Locks of context folders: one run at a time writes a folder, across all processes of this machine.
//!
//! The lock is on the folder itself, and the kernel releases it with the process. So a killed run holds no lock.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use skein_core::ids::RunId;

use super::{ContextFolder, ContextInput, STEPS, WrittenSteps};
use crate::workspace::{
    ArtifactError, RootFolder,
    artifact::ContextNesting,
    root::{EntryKind, FileIdentity},
};

/// The maximum time that a lock may outlive its process: a process that is killed while it starts another one leaves
/// its locks to the child until the child's exec, for a moment.
const LEAVING: Duration = Duration::from_secs(1);

/// Returns the lock of a folder, or `None` if another process holds it permanently.
fn await_lock(folder: &RootFolder) -> Result<Option<OwnedFd>, ArtifactError> {
    let until = Instant::now() + LEAVING;
    loop {
        match folder.try_lock()? {
            None if Instant::now() < until => std::thread::sleep(LEAVING / 100),
            lock => return Ok(lock),
        }
    }
}

/// The context folders that runs of this process write.
#[derive(Debug, Default)]
pub struct ContextLocks {
    held: Mutex<BTreeMap<FileIdentity, HeldContext>>,
}

#[derive(Debug)]
struct HeldContext {
    run: RunId,
    _lock: OwnedFd,
    written: WrittenSteps,
}

/// The maximum number of folders inside of a context folder that are checked for locks of others.
const FOLDERS: usize = 10_000;

/// Finds a context folder of another run that contains this one or is inside of it. One run would remove the files of
/// the other.
fn find_nested(folder: &RootFolder, mine: &dyn Fn(&FileIdentity) -> bool) -> Option<(PathBuf, ContextNesting)> {
    let is_others = |folder: &RootFolder| {
        folder.identity().is_ok_and(|identity| !mine(&identity)) && folder.is_locked().is_ok_and(|locked| locked)
    };
    let place = std::fs::canonicalize(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    // A folder that cannot be opened is not a context folder here.
    let around = place.ancestors().skip(1).find(|path| RootFolder::open(path).is_ok_and(|root| is_others(&root)));
    if let Some(path) = around {
        return Some((path.to_owned(), ContextNesting::Inside));
    }
    // One folder is open at a time.
    let (mut todo, mut left) = (VecDeque::from([PathBuf::from(".")]), FOLDERS);
    while let Some(name) = todo.pop_front() {
        let Ok(at) = folder.open_folder(&name) else { continue };
        if name.as_os_str() != "." && is_others(&at) {
            return Some((at.path().to_owned(), ContextNesting::Around));
        }
        let entries = at.list_entries(STEPS).unwrap_or_default();
        let folders = entries.into_iter().filter(|entry| entry.thing == EntryKind::Folder).take(left);
        let before = todo.len();
        todo.extend(folders.map(|entry| name.join(entry.name)));
        left -= todo.len() - before;
    }
    None
}

impl ContextLocks {
    /// Locks the folder for this run, until it is released.
    pub fn acquire(&self, context: &ContextFolder, run: &RunId) -> Result<(), ArtifactError> {
        let folder = context.root();
        let identity = folder.identity()?;
        let in_use = || ArtifactError::ContextInUse { folder: folder.path().display().to_string() };
        let mut all = self.lock_all();
        match all.get(&identity) {
            Some(held) if held.run == *run => return Ok(()),
            Some(_) => return Err(in_use()),
            None => {}
        }
        let lock = await_lock(folder)?.ok_or_else(in_use)?;
        // The check is done with the lock held, so that of two runs that start at once at least one sees the other.
        let mine = |identity: &FileIdentity| all.get(identity).is_some_and(|held| held.run == *run);
        if let Some((other, nested)) = find_nested(folder, &mine) {
            let (folder, other) = (folder.path().display().to_string(), other.display().to_string());
            return Err(ArtifactError::ContextNested { folder, other, nested });
        }
        all.insert(identity, HeldContext { run: run.clone(), _lock: lock, written: WrittenSteps::default() });
        Ok(())
    }

    /// Writes new facts. After an error the state on disk is unknown, and the next call checks everything.
    pub(crate) fn write_context(
        &self,
        context: &ContextFolder,
        input: &ContextInput<'_>,
        from_the_beginning: bool,
    ) -> Result<(), ArtifactError> {
        let identity = context.root().identity()?;
        let taken = self.lock_all().get_mut(&identity).map(|held| std::mem::take(&mut held.written));
        let mut written = taken.filter(|_| !from_the_beginning).unwrap_or_default();
        context.write(input, &mut written)?;
        if let Some(held) = self.lock_all().get_mut(&identity) {
            held.written = written;
        }
        Ok(())
    }

    /// Releases the folders of a run.
    pub(crate) fn release(&self, run: &RunId) {
        self.lock_all().retain(|_, held| held.run != *run);
    }

    fn lock_all(&self) -> MutexGuard<'_, BTreeMap<FileIdentity, HeldContext>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
