//! Opening of existing entries for reading: regular files and folders, and no special files that could block.

use std::{fs::File, io::Read, path::Path, sync::Arc};

use rustix::fs::{OFlags, Stat, fstat};

use super::{EntryKind, FilePathError, LinkPolicy, PathProblem, PathResult, RootFolder};

/// An opened file or folder.
#[derive(Debug)]
pub enum FileOrFolder {
    File(File, FileStamp),
    Folder(RootFolder),
}

/// The metadata that shows a change of a file: compared before and after it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
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
    pub fn from_file(file: &File) -> std::io::Result<FileStamp> {
        Ok(FileStamp::from_stat(&fstat(file)?))
    }
}

impl RootFolder {
    /// Opens a regular file or a folder. Links before the last part of the name are followed while they stay beneath.
    pub fn open_existing(&self, name: impl AsRef<Path>) -> PathResult<FileOrFolder> {
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
    pub fn open_file(&self, name: impl AsRef<Path>) -> PathResult<(File, FileStamp)> {
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
}
