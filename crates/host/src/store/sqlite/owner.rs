//! The processes that share the state directory: each has a lock that shows that it is alive, and a pipe to wake it.
//!
//! Owns the files in `owners`. Does not know which runs a process owns. A process is alive as long as its lock is held;
//! the kernel releases the lock when the process ends in any way. An owner without files is dead.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, flock, mkfifoat},
    io::retry_on_intr,
};
use skein_core::ids::RunId;

use crate::system::random_hex;

use super::{
    StoreOpenError,
    state_folder::{OWNERS, StateFolder, private_options},
};

/// The longest time that a lock may outlive its process.
const LEAVING: Duration = Duration::from_secs(3);
/// The interval at which such locks are checked.
const LOOK: Duration = Duration::from_millis(5);
/// Written to the pipe of a process to wake it.
const WAKE: &[u8] = b"!\n";
/// The prefix of a pipe message that asks a process to release a run; the name of the run follows.
const LEAVE: &str = "leave ";

/// All processes that ever shared the directory.
#[derive(Debug, Clone)]
pub(super) struct OwnerRegistry {
    dir: PathBuf,
}

/// This process, as the others see it. Its files are removed when it is dropped.
#[derive(Debug)]
pub(super) struct LocalOwner {
    id: String,
    owners: OwnerRegistry,
    /// Held until the end.
    _lock: File,
    pipe: File,
}

impl OwnerRegistry {
    pub(super) fn new(place: &StateFolder) -> OwnerRegistry {
        OwnerRegistry { dir: place.owners_path() }
    }

    /// The owners of a state folder that is not opened.
    pub(super) fn from_state_path(state: &Path) -> OwnerRegistry {
        OwnerRegistry { dir: state.join(OWNERS) }
    }

    /// The folder that the processes share.
    pub(super) fn state_folder(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// True if a process is alive. In doubt it is, because runs are never taken from a living process.
    pub(super) fn is_alive(&self, id: &str) -> bool {
        if !is_owner_id(id) {
            return false;
        }
        match private_options(OpenOptions::new().read(true)).open(self.lock_path(id)) {
            // Shared, so that two processes that check at once do not take each other for the owner.
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Wakes a process. Failures are ignored: it is gone, or its pipe is full and it will wake anyway.
    pub(super) fn wake(&self, id: &str) {
        let _ = self.write_pipe(id, WAKE);
    }

    /// Asks a process to stop working on a run. This needs no disk space. Returns true if the request was sent.
    pub(super) fn ask_to_leave(&self, id: &str, run: &RunId) -> bool {
        let request = format!("{LEAVE}{run}\n");
        self.write_pipe(id, request.as_bytes()).is_ok_and(|written| written == request.len())
    }

    /// Writes to the pipe of a process. The kernel writes so few bytes atomically or not at all.
    fn write_pipe(&self, id: &str, bytes: &[u8]) -> io::Result<usize> {
        if !is_owner_id(id) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let mut pipe = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(self.pipe_path(id))?;
        if !pipe.metadata()?.file_type().is_fifo() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        io::Write::write(&mut pipe, bytes)
    }

    /// Waits for owners whose lock is held although their process is gone. Returns true if any lock was released.
    ///
    /// A process that is killed while it forks leaves its lock to the child for a moment, until the child has executed
    /// its program. Processes of other containers are not visible from here, and the wait for them is in vain.
    pub(super) fn wait_for_leaving(&self) -> bool {
        let living = self.living_ids().unwrap_or_default();
        let mut leaving: Vec<String> = living.into_iter().filter(|id| is_process_gone(id)).collect();
        let (before, until) = (leaving.len(), Instant::now() + LEAVING);
        while !leaving.is_empty() && Instant::now() < until {
            std::thread::sleep(LOOK);
            leaving.retain(|id| self.is_alive(id));
        }
        leaving.len() < before
    }

    /// Returns the ids of living owners.
    pub(super) fn living_ids(&self) -> io::Result<Vec<String>> {
        Ok(self.all_ids()?.into_iter().filter(|id| self.is_alive(id)).collect())
    }

    /// True if one of these processes shares the directory: it has a lock file open that is not the one of `but`.
    fn includes_any_process(&self, pids: &BTreeSet<i32>, but: &str) -> io::Result<bool> {
        let place = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
        let others: Vec<String> = self.all_ids()?.into_iter().filter(|id| id != but).collect();
        let locks: BTreeSet<(u64, u64)> = others.iter().filter_map(|id| place(&self.lock_path(id)).ok()).collect();
        let looked = |pid: &i32| -> io::Result<bool> {
            for fd in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
                match place(&fd.path()) {
                    Ok(found) if locks.contains(&found) => return Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                    _ => {}
                }
            }
            Ok(false)
        };
        // A sandboxed process may not inspect the process that started it. The owner's id contains that process id.
        let named = |pid: &i32| {
            let number = pid.to_string();
            others.iter().any(|id| id.split('-').nth(1) == Some(&number) && self.is_alive(id))
        };
        let has = |pid: &i32| match looked(pid) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => named(pid),
            other => other.unwrap_or(false),
        };
        Ok(pids.iter().any(has))
    }

    /// Removes the files of dead owners.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for id in self.all_ids()?.into_iter().filter(|id| !self.is_alive(id)) {
            self.remove_files(&id);
        }
        Ok(())
    }

    fn all_ids(&self) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".lock").or(name.strip_suffix(".fifo")));
            ids.extend(id.map(str::to_owned));
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    fn remove_files(&self, id: &str) {
        // The lock is removed last: without it, no process would look for the pipe.
        let _ = fs::remove_file(self.pipe_path(id));
        let _ = fs::remove_file(self.lock_path(id));
    }

    fn lock_path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.lock"))
    }

    fn pipe_path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.fifo"))
    }
}

impl LocalOwner {
    pub(super) fn join(owners: OwnerRegistry) -> Result<LocalOwner, StoreOpenError> {
        loop {
            let id = new_owner_id();
            let path = owners.lock_path(&id);
            if let Some(lock) = take_lock(&path).map_err(|error| StoreOpenError::Io { path, error })? {
                let path = owners.pipe_path(&id);
                let pipe = make_pipe(&path).map_err(|error| StoreOpenError::Io { path, error })?;
                return Ok(LocalOwner { id, owners, _lock: lock, pipe });
            }
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn owners(&self) -> &OwnerRegistry {
        &self.owners
    }

    /// The pipe that others write to when they wake this process.
    pub(super) fn pipe(&self) -> &File {
        &self.pipe
    }

    /// True if an ancestor of this process shares the directory too: all processes that it starts are its workers.
    pub(super) fn is_below_another(&self) -> io::Result<bool> {
        self.owners.includes_any_process(&crate::process::own_ancestry(), &self.id)
    }

    pub(super) fn wake(&self) {
        let _ = io::Write::write(&mut &self.pipe, WAKE);
    }
}

impl Drop for LocalOwner {
    fn drop(&mut self) {
        self.owners.remove_files(&self.id);
    }
}

/// Returns the run that a line from the pipe asks this process to release.
pub(super) fn parse_leave_request(line: &[u8]) -> Option<RunId> {
    // Earlier versions wake without an end of line.
    let line = std::str::from_utf8(line).ok()?.trim_start_matches('!');
    RunId::new(line.strip_prefix(LEAVE)?).ok()
}

/// The name of the process for people.
pub(super) fn process_label(id: &str) -> String {
    match id.split('-').nth(1) {
        Some(pid) => format!("process {pid}"),
        None => format!("`{id}`"),
    }
}

/// True if a process has ended, as far as this process can see.
fn is_process_gone(id: &str) -> bool {
    let Some(pid) = id.split('-').nth(1) else { return false };
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The state follows the name, which may contain anything.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns a new id from time, process id and randomness: processes in two containers may have the same process id.
fn new_owner_id() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let pid = rustix::process::getpid().as_raw_nonzero();
    format!("{time:011x}-{pid}-{}", random_hex::<8>())
}

fn is_owner_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Creates and locks the file. None if another process removed it as that of a dead owner before it was locked.
fn take_lock(path: &Path) -> io::Result<Option<File>> {
    let lock = private_options(OpenOptions::new().write(true).create_new(true)).open(path)?;
    retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
    let ours = lock.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.ino() == ours.ino() => Ok(Some(lock)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a pipe, opened for reading and writing, so that it has no end of file while no other process has it open.
fn make_pipe(path: &Path) -> io::Result<File> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> (tempfile::TempDir, OwnerRegistry) {
        let dir = tempfile::tempdir().unwrap();
        let owners = OwnerRegistry { dir: dir.path().into() };
        (dir, owners)
    }

    #[test]
    fn an_owner_lives_until_it_goes_and_leaves_nothing() {
        let (dir, owners) = owners();
        let me = LocalOwner::join(owners.clone()).unwrap();
        assert!(owners.is_alive(me.id()));
        assert_eq!(owners.living_ids().unwrap(), [me.id().to_owned()]);
        let id = me.id().to_owned();
        drop(me);
        assert!(!owners.is_alive(&id));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_the_dead_left_is_swept_and_the_living_keep_theirs() {
        let (dir, owners) = owners();
        let me = LocalOwner::join(owners.clone()).unwrap();
        fs::write(owners.lock_path("1-2-3"), "").unwrap();
        mkfifoat(CWD, owners.pipe_path("1-2-3"), Mode::RUSR).unwrap();
        assert!(!owners.is_alive("1-2-3"));
        owners.sweep().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(owners.is_alive(me.id()));
    }

    #[test]
    fn waking_one_that_is_gone_or_full_or_no_owner_does_nothing() {
        let (_dir, owners) = owners();
        owners.wake("1-2-3");
        owners.wake("../../etc/passwd");
        let me = LocalOwner::join(owners.clone()).unwrap();
        for _ in 0..100_000 {
            owners.wake(me.id());
        }
    }
}
