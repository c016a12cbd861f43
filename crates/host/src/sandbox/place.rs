//! A file or folder in the description of a sandbox: its path and its identity.
//!
//! Owns the guarantee that a path means the same to the launcher as to the engine. A worker of another step can rename
//! folders and plant links between the two; then the path leads elsewhere, and nothing is mounted.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fstat, open, openat2},
    io::Errno,
};
use serde::{Deserialize, Serialize};

/// The maximum number of retries because a folder on the path was moved meanwhile.
const RETRIES: u32 = 100;

/// A path without links, and the identity of the file that the engine found there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxPlace {
    pub path: PathBuf,
    device: u64,
    inode: u64,
}

/// A file that replaces the one at a path. The replacement is read-only there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxCover {
    pub source: SandboxPlace,
    pub at: PathBuf,
}

impl SandboxPlace {
    /// Returns the place at a path that has no links in it.
    pub fn find(path: &Path) -> io::Result<SandboxPlace> {
        let found = resolve_path(path)?;
        SandboxPlace::from_descriptor(path, &found)
    }

    /// Returns the place of an open descriptor.
    pub fn from_descriptor(path: &Path, descriptor: impl std::os::fd::AsFd) -> io::Result<SandboxPlace> {
        let stat = fstat(descriptor)?;
        Ok(SandboxPlace { path: path.to_owned(), device: stat.st_dev, inode: stat.st_ino })
    }

    /// Opens the place as a bare descriptor, if the path still leads to the same file.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let found = resolve_path(&self.path)?;
        let stat = fstat(&found)?;
        if (stat.st_dev, stat.st_ino) == (self.device, self.inode) {
            return Ok(found);
        }
        let message = format!("{} was replaced while the program was being started", self.path.display());
        Err(io::Error::other(message))
    }
}

/// Opens a path from the root. No part of it may be a link.
pub(super) fn resolve_path(path: &Path) -> io::Result<OwnedFd> {
    let below = path.strip_prefix("/").map_err(|_| io::Error::from(Errno::INVAL))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RETRIES {
        match openat2(&root, below, flags, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP) => {
                return Err(io::Error::other(format!("{} leads through a symbolic link", path.display())));
            }
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Returns the path of a descriptor of this process, for calls that accept no descriptor.
pub(super) fn descriptor_path(descriptor: &impl std::os::fd::AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Returns true if a path exists in the view of this process, without following links.
pub(super) fn path_exists(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_swapped_folder_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let top = dir.path().canonicalize().expect("a real path");
        fs::create_dir_all(top.join("a/sub")).expect("a folder");
        fs::create_dir_all(top.join("evil/sub")).expect("a folder");
        let place = SandboxPlace::find(&top.join("a/sub")).expect("it is there");
        place.open().expect("nothing changed");
        fs::rename(top.join("a"), top.join("b")).expect("it can be moved");
        symlink(top.join("evil"), top.join("a")).expect("a link");
        let error = place.open().expect_err("the path leads through a link now");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        fs::remove_file(top.join("a")).expect("it can be removed");
        fs::rename(top.join("evil"), top.join("a")).expect("it can be moved");
        let error = place.open().expect_err("another folder has the name now");
        assert!(error.to_string().contains("was replaced"), "{error}");
    }

    #[test]
    fn a_path_with_a_link_or_without_a_root_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        symlink("/etc", dir.path().join("link")).expect("a link");
        assert!(SandboxPlace::find(&dir.path().join("link/passwd")).is_err());
        assert!(SandboxPlace::find(Path::new("etc/passwd")).is_err());
        assert!(SandboxPlace::find(Path::new("/")).is_ok());
    }
}
