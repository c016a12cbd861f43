//! The only way from a name to a file: a folder that names cannot leave.
//!
//! Owns every open of a name that came from a source, a worker or an artifact. A [`RootFolder`] holds its folder open,
//! so that later changes of its path do not matter. Whatever a name contains, and whoever replaces folders by links
//! meanwhile, an opened file is beneath that folder, or nothing is opened. Does not know what the files are for.

mod error;
mod list;
mod read;
mod relative_path;
mod remove;
mod resolve;
mod write;

#[cfg(test)]
mod tests;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags, flock, fstat, fsync, open, openat, statat, statx},
    io::Errno,
};

pub use error::{EntryKind, FilePathError, PathProblem};
pub use list::FolderEntry;
pub use read::{FileOrFolder, FileStamp};
pub use write::PendingFile;

use relative_path::RelativePath;
use resolve::{LinkPolicy, PathResolver};

use crate::sandbox::SandboxPlace;

type PathResult<T> = std::result::Result<T, FilePathError>;

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
pub struct FolderLifetime {
    pub identity: FileIdentity,
    /// The creation time, or `None` if the file system does not provide it.
    pub born: Option<(i64, u32)>,
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

    pub fn identity(&self) -> PathResult<FileIdentity> {
        let stat = fstat(&*self.folder).map_err(|errno| self.path_error(Path::new("."), errno))?;
        Ok(FileIdentity { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Returns the folder as a place of a sandbox: its path and its identity.
    pub fn sandbox_place(&self) -> PathResult<SandboxPlace> {
        let path = std::fs::canonicalize(&self.path).map_err(|error| self.path_error(Path::new("."), error))?;
        SandboxPlace::from_descriptor(&path, self).map_err(|error| self.path_error(Path::new("."), error))
    }

    /// Returns the identity of this folder, which stays unique after its inode number is reused.
    pub fn lifetime(&self) -> PathResult<FolderLifetime> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let born = statx(&*self.folder, "", flags, StatxFlags::BTIME).ok();
        let born = born.filter(|stat| stat.stx_mask & StatxFlags::BTIME.bits() != 0);
        let born = born.map(|stat| (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
        Ok(FolderLifetime { identity: self.identity()?, born })
    }

    /// Locks the folder until the lock is dropped or the process ends. Returns `None` if someone else holds the lock.
    pub fn try_lock(&self) -> PathResult<Option<OwnedFd>> {
        let failed = |errno| self.path_error(Path::new("."), errno);
        // A descriptor of its own, so that no clone of this folder keeps the lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&*self.folder, ".", flags, Mode::empty()).map_err(failed)?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(folder)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Returns true if someone holds the lock on the folder.
    pub fn is_locked(&self) -> PathResult<bool> {
        let failed = |errno| self.path_error(Path::new("."), errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&*self.folder, ".", flags, Mode::empty()).map_err(failed)?;
        match flock(&folder, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Normalizes a name: empty for the folder itself.
    pub fn normalize_name(&self, name: impl AsRef<Path>) -> PathResult<PathBuf> {
        let parsed = self.parse_name(name.as_ref())?;
        Ok(parsed.parts().iter().collect())
    }

    /// Opens a folder beneath this one. No part of the name may be a link.
    pub fn open_folder(&self, name: impl AsRef<Path>) -> PathResult<RootFolder> {
        let parsed = self.parse_name(name.as_ref())?;
        self.open_folder_at(&parsed)
    }

    /// Returns the kind of the entry at a name without following a link at its end, or `None` if there is none.
    pub fn entry_kind(&self, name: impl AsRef<Path>) -> PathResult<Option<EntryKind>> {
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

    /// Makes creations, renames and removals in this folder durable.
    pub fn sync(&self) -> PathResult<()> {
        fsync(&*self.folder).map_err(|errno| self.path_error(Path::new("."), errno))
    }

    /// Makes everything on the file system of this folder durable. Cheaper than one sync per file if there are many.
    pub fn sync_all(&self) -> PathResult<()> {
        rustix::fs::syncfs(&*self.folder).map_err(|errno| self.path_error(Path::new("."), errno))
    }

    fn parse_name(&self, name: &Path) -> PathResult<RelativePath> {
        RelativePath::parse(&self.path, name)
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
            let Ok(next) = rustix::fs::openat(from, part, flags, Mode::empty()) else { break };
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
