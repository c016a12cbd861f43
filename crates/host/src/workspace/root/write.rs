//! Creation, replacement and removal of files: complete files or none, and no part of a name is a link. A tree of any
//! depth and content is removed without leaving it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{
        AtFlags, Dir, Mode, OFlags, RenameFlags, fchmod, fstat, mkdirat, openat, readlinkat, renameat, renameat_with,
        statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::workspace::root::{EntryKind, PathProblem, PathResult, RootFolder};

/// The prefix of the names of incomplete files, by which remains of a crash can be found.
const PENDING: &str = ".skein-pending-";

/// The flags to create a file that does not exist yet.
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file that is written beside its target, and moved there when it is complete. It is removed if it is never
/// completed.
#[derive(Debug)]
pub(crate) struct PendingFile {
    folder: RootFolder,
    temporary: OsString,
    leaf: OsString,
    file: File,
    placed: bool,
}

impl PendingFile {
    /// Moves the file to its target and replaces an existing one. It is durable when this returns.
    pub(crate) fn persist(self) -> PathResult<()> {
        let folder = self.folder.clone();
        self.file.sync_all().map_err(|error| folder.path_error(Path::new(&self.leaf), error))?;
        self.persist_unsynced()?;
        folder.sync()
    }

    /// Like [`PendingFile::persist`], for one of many files or one that can be written again: complete, but not
    /// durable.
    pub(crate) fn persist_unsynced(mut self) -> PathResult<()> {
        renameat(&self.folder, &self.temporary, &self.folder, &self.leaf)
            .map_err(|errno| self.folder.path_error(Path::new(&self.leaf), errno))?;
        self.placed = true;
        Ok(())
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.placed {
            // An error cannot be reported here; the file can be found by its name.
            let _ = unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

impl RootFolder {
    /// Creates a pending file in an existing folder. A link at the target is rejected and not replaced.
    pub(crate) fn create_file(&self, name: impl AsRef<Path>, executable: bool) -> PathResult<PendingFile> {
        let name = name.as_ref();
        let (folder, leaf) = self.open_parent(name)?;
        match statat(&folder, &leaf, AtFlags::SYMLINK_NOFOLLOW).map(|stat| EntryKind::from_mode(stat.st_mode)) {
            Ok(EntryKind::File) | Err(Errno::NOENT) => {}
            Ok(EntryKind::Link) => {
                return Err(self.path_error(name, PathProblem::Link(super::error::printable_name(name))));
            }
            Ok(thing) => return Err(self.path_error(name, PathProblem::NotAFile(thing))),
            Err(errno) => return Err(self.path_error(name, errno)),
        }
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let temporary = pending_name();
        let file = openat(&folder, &temporary, NEW, mode).map_err(|errno| self.path_error(name, errno))?;
        Ok(PendingFile { folder, temporary, leaf, file: File::from(file), placed: false })
    }

    /// Writes a complete file, new or in place of an existing one.
    pub fn replace_file(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathResult<()> {
        self.write_pending(name.as_ref(), bytes, false)?.persist()
    }

    /// Writes a new file in a folder that nobody else uses yet. It is not durable.
    pub(crate) fn write_new(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathResult<()> {
        let name = name.as_ref();
        let (folder, leaf) = self.open_parent(name)?;
        let file = openat(&folder, leaf, NEW, Mode::from_raw_mode(0o644));
        let written = file.map_err(io::Error::from).and_then(|file| File::from(file).write_all(bytes));
        written.map_err(|error| self.path_error(name, error))
    }

    /// Creates a symbolic link, new or in place of an existing file or link. Its target is not checked.
    pub(crate) fn replace_link(&self, name: impl AsRef<Path>, target: &Path) -> PathResult<()> {
        let name = name.as_ref();
        let (folder, leaf) = self.open_parent(name)?;
        let temporary = pending_name();
        symlinkat(target, &folder, &temporary).map_err(|errno| self.path_error(name, errno))?;
        renameat(&folder, &temporary, &folder, leaf).map_err(|errno| {
            let _ = unlinkat(&folder, &temporary, AtFlags::empty());
            self.path_error(name, errno)
        })
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn read_link(&self, name: impl AsRef<Path>) -> PathResult<PathBuf> {
        let name = name.as_ref();
        let (folder, leaf) = self.open_parent(name)?;
        let target = readlinkat(&folder, leaf, Vec::new()).map_err(|errno| self.path_error(name, errno))?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Writes a complete file that may be executable and can be written again: it is not durable.
    pub(crate) fn replace_unsynced(&self, name: impl AsRef<Path>, bytes: &[u8], executable: bool) -> PathResult<()> {
        self.write_pending(name.as_ref(), bytes, executable)?.persist_unsynced()
    }

    fn write_pending(&self, name: &Path, bytes: &[u8], executable: bool) -> PathResult<PendingFile> {
        let mut file = self.create_file(name, executable)?;
        file.write_all(bytes).map_err(|error| self.path_error(name, error))?;
        Ok(file)
    }

    /// Creates a folder and its missing parents. Only the owner may enter a private one.
    pub(crate) fn make_folders(&self, name: impl AsRef<Path>, private: bool) -> PathResult<RootFolder> {
        self.make_path(name.as_ref(), private, true)
    }

    /// Like [`RootFolder::make_folders`], for many folders or ones that can be created again: they are not durable.
    pub(crate) fn make_folders_unsynced(&self, name: impl AsRef<Path>, private: bool) -> PathResult<RootFolder> {
        self.make_path(name.as_ref(), private, false)
    }

    fn make_path(&self, name: &Path, private: bool, sync: bool) -> PathResult<RootFolder> {
        let parsed = self.parse_name(name)?;
        let mode = Mode::from_raw_mode(if private { 0o700 } else { 0o755 });
        let mut at = self.clone();
        for part in parsed.parts() {
            match mkdirat(&at, part, mode) {
                Ok(()) if sync => at.sync()?,
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.path_error(name, errno)),
            }
            at = at.open_folder(part)?;
        }
        Ok(at)
    }

    /// Moves an entry to an unused name in this folder.
    pub(crate) fn move_new(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> PathResult<()> {
        self.move_into(from, self, to)
    }

    /// Moves an entry from this folder to an unused name in another folder on the same file system.
    pub(crate) fn move_into(&self, from: impl AsRef<Path>, other: &RootFolder, to: impl AsRef<Path>) -> PathResult<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (parsed_from, parsed_to) = (self.parse_name(from)?, other.parse_name(to)?);
        let (Some((from_parent, from_leaf)), Some((to_parent, to_leaf))) =
            (parsed_from.split_leaf(), parsed_to.split_leaf())
        else {
            return Err(self.path_error(to, PathProblem::Exists));
        };
        let (old, new) = (self.open_folder_at(&from_parent)?, other.open_folder_at(&to_parent)?);
        renameat_with(&old, from_leaf, &new, to_leaf, RenameFlags::NOREPLACE)
            .map_err(|errno| self.path_error(to, errno))?;
        new.sync()?;
        old.sync()
    }
}

/// Returns true if a file is an incomplete one.
pub(super) fn is_pending(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PENDING))
}

/// Returns a name that is unique on this machine.
fn pending_name() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = rustix::process::getpid().as_raw_nonzero();
    let (n, boot) = (NEXT.fetch_add(1, Ordering::Relaxed), boot_nanos());
    OsString::from(format!("{PENDING}{process}-{boot}-{n}"))
}

/// Returns a number that distinguishes processes with the same id.
fn boot_nanos() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// The maximum number of folders that are open at once. Deeper ones are moved up first.
const OPEN: usize = 32;
/// The maximum number of times that a folder is emptied while someone else fills it.
const ROUNDS: u32 = 16;
/// The prefix of the names of folders that were moved up.
const MOVED: &str = ".skein-removing-";

impl RootFolder {
    /// Removes a file, a link or a folder with all its contents. Returns true if there was one.
    pub(crate) fn remove(&self, name: impl AsRef<Path>) -> PathResult<bool> {
        let name = name.as_ref();
        let (folder, leaf) = match self.open_parent(name) {
            Err(error) if error.is_missing() => return Ok(false),
            found => found?,
        };
        let removed = match unlinkat(&folder, &leaf, AtFlags::empty()) {
            // The error for a folder depends on the file system.
            Err(Errno::ISDIR | Errno::PERM) => remove_folder(folder.as_fd(), &leaf),
            other => other,
        };
        match removed {
            Ok(()) => folder.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.path_error(name, errno)),
        }
    }

    /// Removes unfinished files that dead writers left in this folder. Only if nobody else writes in it.
    pub(crate) fn remove_pending(&self) -> PathResult<()> {
        let here = Path::new(".");
        for entry in Dir::read_from(self).map_err(|errno| self.path_error(here, errno))? {
            let entry = entry.map_err(|errno| self.path_error(here, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if is_pending(name) {
                self.remove(name)?;
            }
        }
        Ok(())
    }
}

fn remove_folder(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    let mut moved = 0u64;
    let mut rounds = 0;
    loop {
        let before = moved;
        empty_folder(open_folder(parent, name)?, &mut moved)?;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // Folders that were moved up are emptied next; each time they are less deep.
            Err(Errno::NOTEMPTY | Errno::EXIST) if moved > before || rounds < ROUNDS => {
                rounds += u32::from(moved == before);
            }
            done => return done,
        }
    }
}

/// Opens a folder so that its contents can be removed, even if its owner may not write in it.
fn open_folder(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    if fstat(&folder)?.st_mode & 0o700 != 0o700 {
        fchmod(&folder, Mode::RWXU)?;
    }
    Dir::new(folder)
}

/// Removes the contents of a folder. Subfolders that are too deep are moved up into that folder.
fn empty_folder(top: Dir, moved: &mut u64) -> rustix::io::Result<()> {
    let mut open: Vec<(OsString, Dir)> = vec![(OsString::new(), top)];
    while let Some((_, dir)) = open.last_mut() {
        let Some(entry) = dir.read() else {
            let Some((name, done)) = open.pop() else { return Ok(()) };
            drop(done);
            if let Some((_, parent)) = open.last() {
                remove_emptied(parent.fd()?, &name)?;
            }
            continue;
        };
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        if name == "." || name == ".." {
            continue;
        }
        match unlinkat(dir.fd()?, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        if open.len() < OPEN {
            let inner = open_folder(open[open.len() - 1].1.fd()?, &name)?;
            open.push((name, inner));
        } else {
            *moved += 1;
            let up = format!("{MOVED}{moved}");
            renameat(open[open.len() - 1].1.fd()?, &name, open[0].1.fd()?, &up)?;
        }
    }
    Ok(())
}

/// Removes an empty folder. One that is being filled meanwhile is left for the next round.
fn remove_emptied(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        other => other,
    }
}
