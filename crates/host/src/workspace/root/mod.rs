//! The only way from a name to a file: a folder that names cannot leave.
//!
//! Owns every open of a name that came from a source, a worker or an artifact. A [`RootFolder`] holds its folder open,
//! so that later changes of its path do not matter. Whatever a name contains, and whoever replaces folders by links
//! meanwhile, an opened file is beneath that folder, or nothing is opened. Special files that could block are not
//! opened. Does not know what the files are for.

mod error;
mod resolve;
mod write;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags, flock, fstat, fsync, open, openat,
        statat, statx,
    },
    io::Errno,
};

use self::resolve::{LinkPolicy, PathResolver, RelativePath};
use crate::sandbox::SandboxPlace;

pub use error::{EntryKind, FilePathError, PathProblem};

type PathResult<T> = Result<T, FilePathError>;

/// A folder, held open.
#[derive(Debug, Clone)]
pub struct RootFolder {
    folder: Arc<OwnedFd>,
    /// The path when it was opened. For messages, and for programs that are started in it.
    path: PathBuf,
    way: PathResolver,
}

/// The identity of a folder or file, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

/// The identity of a folder from its creation to its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct FolderLifetime {
    pub identity: FileIdentity,
    /// The creation time, or `None` if the file system does not provide it.
    pub born: Option<(i64, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderEntry {
    pub name: OsString,
    pub thing: EntryKind,
}

#[derive(Debug)]
pub(crate) enum FileOrFolder {
    File(File, FileStamp),
    Folder(RootFolder),
}

/// The metadata that shows a change of a file: compared before and after it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub size: u64,
    /// True if its owner may execute it.
    pub executable: bool,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl FileStamp {
    fn from_stat(stat: &Stat) -> FileStamp {
        let nanos = |n| i64::try_from(n).unwrap_or(0);
        FileStamp {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            executable: stat.st_mode & 0o100 != 0,
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
            inode: stat.st_ino,
        }
    }

    /// Returns the present stamp of a file.
    pub(crate) fn from_file(file: &File) -> std::io::Result<FileStamp> {
        Ok(FileStamp::from_stat(&fstat(file)?))
    }
}

impl RootFolder {
    /// Opens a folder by a path that came from the host or its user. Links in it are followed.
    pub fn open(path: &Path) -> PathResult<RootFolder> {
        RootFolder::open_with(path, PathResolver::detect())
    }

    fn open_with(path: &Path, way: PathResolver) -> PathResult<RootFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR => FilePathError::new(path, Path::new("."), PathProblem::NotAFolder(EntryKind::File)),
            errno => FilePathError::new(path, Path::new("."), errno),
        })?;
        Ok(RootFolder { folder: Arc::new(folder), path: path.to_owned(), way })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn identity(&self) -> PathResult<FileIdentity> {
        let stat = fstat(&*self.folder).map_err(|errno| self.path_error(Path::new("."), errno))?;
        Ok(FileIdentity { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Returns the folder as a place of a sandbox: its path and its identity.
    pub(crate) fn sandbox_place(&self) -> PathResult<SandboxPlace> {
        let path = std::fs::canonicalize(&self.path).map_err(|error| self.path_error(Path::new("."), error))?;
        SandboxPlace::from_descriptor(&path, self).map_err(|error| self.path_error(Path::new("."), error))
    }

    /// Returns the identity of this folder, which stays unique after its inode number is reused.
    pub(crate) fn lifetime(&self) -> PathResult<FolderLifetime> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let born = statx(&*self.folder, "", flags, StatxFlags::BTIME).ok();
        let born = born.filter(|stat| stat.stx_mask & StatxFlags::BTIME.bits() != 0);
        let born = born.map(|stat| (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
        Ok(FolderLifetime { identity: self.identity()?, born })
    }

    /// Locks the folder until the lock is dropped or the process ends. Returns `None` if someone else holds the lock.
    pub(crate) fn try_lock(&self) -> PathResult<Option<OwnedFd>> {
        self.lock_folder(FlockOperation::NonBlockingLockExclusive)
    }

    /// Returns true if someone holds the lock on the folder.
    pub fn is_locked(&self) -> PathResult<bool> {
        self.lock_folder(FlockOperation::NonBlockingLockShared).map(|lock| lock.is_none())
    }

    fn lock_folder(&self, operation: FlockOperation) -> PathResult<Option<OwnedFd>> {
        let failed = |errno| self.path_error(Path::new("."), errno);
        // A descriptor of its own, so that no clone of this folder keeps the lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&*self.folder, ".", flags, Mode::empty()).map_err(failed)?;
        match flock(&folder, operation) {
            Ok(()) => Ok(Some(folder)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Normalizes a name: empty for the folder itself.
    pub(crate) fn normalize_name(&self, name: impl AsRef<Path>) -> PathResult<PathBuf> {
        let parsed = self.parse_name(name.as_ref())?;
        Ok(parsed.parts().iter().collect())
    }

    /// Opens a folder beneath this one. No part of the name may be a link.
    pub fn open_folder(&self, name: impl AsRef<Path>) -> PathResult<RootFolder> {
        let parsed = self.parse_name(name.as_ref())?;
        self.open_folder_at(&parsed)
    }

    /// Returns the kind of the entry at a name without following a link at its end, or `None` if there is none.
    pub(crate) fn entry_kind(&self, name: impl AsRef<Path>) -> PathResult<Option<EntryKind>> {
        let name = name.as_ref();
        let parsed = self.parse_name(name)?;
        let Some((parent, leaf)) = parsed.split_leaf() else { return Ok(Some(EntryKind::Folder)) };
        let found = self.open_folder_at(&parent).and_then(|folder| {
            let stat = statat(&folder, leaf, AtFlags::SYMLINK_NOFOLLOW);
            stat.map_err(|errno| self.path_error(name, errno))
        });
        match found {
            Ok(stat) => Ok(Some(EntryKind::from_mode(stat.st_mode))),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists this folder in the order of names, if it has at most `max` entries.
    pub(crate) fn list_entries(&self, max: usize) -> PathResult<Vec<FolderEntry>> {
        let here = Path::new(".");
        let dir = Dir::read_from(self).map_err(|errno| self.path_error(here, errno))?;
        let mut entries = Vec::new();
        for entry in dir {
            let entry = entry.map_err(|errno| self.path_error(here, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() == max {
                return Err(self.path_error(here, PathProblem::TooMany { max }));
            }
            let mode = match entry.file_type() {
                FileType::Unknown => match statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat.st_mode,
                    // It was removed meanwhile.
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(self.path_error(Path::new(name), errno)),
                },
                known => known.as_raw_mode(),
            };
            entries.push(FolderEntry { name: name.to_owned(), thing: EntryKind::from_mode(mode) });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Opens a regular file or a folder. Links before the last part of the name are followed while they stay beneath.
    pub(crate) fn open_existing(&self, name: impl AsRef<Path>) -> PathResult<FileOrFolder> {
        let name = name.as_ref();
        let parsed = self.parse_name(name)?;
        // Without NONBLOCK, opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.open_beneath(&parsed, flags, LinkPolicy::Beneath)?;
        let stat = fstat(&opened).map_err(|errno| self.path_error(name, errno))?;
        match EntryKind::from_mode(stat.st_mode) {
            EntryKind::File => Ok(FileOrFolder::File(File::from(opened), FileStamp::from_stat(&stat))),
            EntryKind::Folder => {
                let path = self.path.join(parsed.text());
                Ok(FileOrFolder::Folder(RootFolder { folder: Arc::new(opened), path, way: self.way }))
            }
            thing => Err(self.path_error(name, PathProblem::Special(thing))),
        }
    }

    /// Opens a regular file for reading.
    pub(crate) fn open_file(&self, name: impl AsRef<Path>) -> PathResult<(File, FileStamp)> {
        let name = name.as_ref();
        match self.open_existing(name) {
            Ok(FileOrFolder::File(file, mark)) => Ok((file, mark)),
            Ok(FileOrFolder::Folder(_)) => Err(self.path_error(name, PathProblem::NotAFile(EntryKind::Folder))),
            Err(FilePathError { why: PathProblem::Special(thing), .. }) => {
                Err(self.path_error(name, PathProblem::NotAFile(thing)))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a regular file, if it has at most `max` bytes.
    pub fn read_file(&self, name: impl AsRef<Path>, max: u64) -> PathResult<Vec<u8>> {
        let name = name.as_ref();
        let (file, mark) = self.open_file(name)?;
        if mark.size > max {
            return Err(self.path_error(name, PathProblem::TooLarge { size: mark.size, max }));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(mark.size).unwrap_or(0) + 1);
        // The file may have grown since.
        let mut some = file.take(max.saturating_add(1));
        some.read_to_end(&mut bytes).map_err(|error| self.path_error(name, error))?;
        let size = bytes.len() as u64;
        if size > max {
            return Err(self.path_error(name, PathProblem::TooLarge { size, max }));
        }
        Ok(bytes)
    }

    /// Makes creations, renames and removals in this folder durable.
    pub(crate) fn sync(&self) -> PathResult<()> {
        fsync(&*self.folder).map_err(|errno| self.path_error(Path::new("."), errno))
    }

    /// Makes everything on the file system of this folder durable. Cheaper than one sync per file if there are many.
    pub(crate) fn sync_all(&self) -> PathResult<()> {
        rustix::fs::syncfs(&*self.folder).map_err(|errno| self.path_error(Path::new("."), errno))
    }

    fn parse_name(&self, name: &Path) -> PathResult<RelativePath> {
        RelativePath::parse(&self.path, name)
    }

    /// Opens the parent folder of a name, and returns the last part of the name.
    fn open_parent(&self, name: &Path) -> PathResult<(RootFolder, OsString)> {
        let parsed = self.parse_name(name)?;
        let Some((parent, leaf)) = parsed.split_leaf() else {
            return Err(self.path_error(name, PathProblem::NotAFile(EntryKind::Folder)));
        };
        Ok((self.open_folder_at(&parent)?, leaf.to_owned()))
    }

    fn open_folder_at(&self, name: &RelativePath) -> PathResult<RootFolder> {
        if name.parts().is_empty() {
            return Ok(self.clone());
        }
        let folder = self.open_beneath(name, OFlags::RDONLY | OFlags::DIRECTORY, LinkPolicy::Refused)?;
        Ok(RootFolder { folder: Arc::new(folder), path: self.path.join(name.text()), way: self.way })
    }

    fn open_beneath(&self, name: &RelativePath, flags: OFlags, links: LinkPolicy) -> PathResult<OwnedFd> {
        self.way.open(self.as_fd(), name, flags, links).map_err(|errno| self.explain_error(name, errno, links))
    }

    fn path_error(&self, name: &Path, why: impl Into<PathProblem>) -> FilePathError {
        FilePathError::new(&self.path, name, why)
    }

    /// Determines the part of a name that caused an error. Only for the message: the tree may have changed since.
    fn explain_error(&self, name: &RelativePath, errno: Errno, links: LinkPolicy) -> FilePathError {
        let whole = Path::new(name.text());
        if !matches!(errno, Errno::LOOP | Errno::NOTDIR | Errno::NXIO) {
            return self.path_error(whole, errno);
        }
        let mut way = PathBuf::new();
        let mut at: Option<OwnedFd> = None;
        for (i, part) in name.parts().iter().enumerate() {
            way.push(part);
            let from = at.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            let Ok(stat) = statat(from, part, AtFlags::SYMLINK_NOFOLLOW) else { break };
            let last = i + 1 == name.parts().len();
            match EntryKind::from_mode(stat.st_mode) {
                EntryKind::Folder => {}
                EntryKind::Link if last || links == LinkPolicy::Refused || self.way == PathResolver::Walk => {
                    return self.path_error(whole, PathProblem::Link(error::printable_name(&way)));
                }
                EntryKind::Link => break,
                thing if last && errno == Errno::NXIO => {
                    return self.path_error(whole, PathProblem::NotAFile(thing));
                }
                thing => return self.path_error(whole, PathProblem::NotAFolder(thing)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(next) = openat(from, part, flags, Mode::empty()) else { break };
            at = Some(next);
        }
        self.path_error(whole, errno)
    }
}

impl AsFd for RootFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}
