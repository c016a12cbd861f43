//! Removal of a tree of any depth and content, without leaving it.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, fchmod, fstat, openat, renameat, unlinkat},
    io::Errno,
};

use super::{PathResult, RootFolder, write};

/// The maximum number of folders that are open at once. Deeper ones are moved up first.
const OPEN: usize = 32;
/// The maximum number of times that a folder is emptied while someone else fills it.
const ROUNDS: u32 = 16;
/// The prefix of the names of folders that were moved up.
const MOVED: &str = ".skein-removing-";

impl RootFolder {
    /// Removes a file, a link or a folder with all its contents. Returns true if there was one.
    pub fn remove(&self, name: impl AsRef<Path>) -> PathResult<bool> {
        let name = name.as_ref();
        let parsed = self.parse_name(name)?;
        let Some((parent, leaf)) = parsed.split_leaf() else {
            return Err(self.path_error(name, super::PathProblem::NotAFile(super::EntryKind::Folder)));
        };
        let folder = match self.open_folder_at(&parent) {
            Err(error) if error.is_missing() => return Ok(false),
            folder => folder?,
        };
        let removed = match unlinkat(&folder, leaf, AtFlags::empty()) {
            // The error for a folder depends on the file system.
            Err(Errno::ISDIR | Errno::PERM) => remove_folder(folder.as_fd(), leaf),
            other => other,
        };
        match removed {
            Ok(()) => folder.sync().map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.path_error(name, errno)),
        }
    }

    /// Removes unfinished files that dead writers left in this folder. Only if nobody else writes in it.
    pub fn remove_pending(&self) -> PathResult<()> {
        let here = Path::new(".");
        for entry in Dir::read_from(self).map_err(|errno| self.path_error(here, errno))? {
            let entry = entry.map_err(|errno| self.path_error(here, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if write::is_pending(name) {
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
