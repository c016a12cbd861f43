//! Opening what is there to read it: regular files and folders, and nothing that could block or answer back.

use std::{fs::File, io::Read, path::Path, sync::Arc};

use rustix::fs::{OFlags, Stat, fstat};

use super::{Links, PathError, Result, Root, Thing, Why};

/// What a name led to.
#[derive(Debug)]
pub enum Opened {
    File(File, Mark),
    Folder(Root),
}

/// What shows that a file was changed: compared before and after it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub size: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl Mark {
    fn of(stat: &Stat) -> Mark {
        let nanos = |n| i64::try_from(n).unwrap_or(0);
        Mark {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            executable: stat.st_mode & 0o100 != 0,
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
            inode: stat.st_ino,
        }
    }

    /// The mark of a file as it is now.
    pub fn now(file: &File) -> std::io::Result<Mark> {
        Ok(Mark::of(&fstat(file)?))
    }
}

impl Root {
    /// A regular file or a folder. Links before the last part of the name are followed while they stay beneath.
    pub fn open_existing(&self, name: impl AsRef<Path>) -> Result<Opened> {
        let name = name.as_ref();
        let parsed = self.parse(name)?;
        // Opening a pipe would wait for its other end without NONBLOCK.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.descend(&parsed, flags, Links::Beneath)?;
        let stat = fstat(&opened).map_err(|errno| self.error(name, errno))?;
        match Thing::of(stat.st_mode) {
            Thing::File => Ok(Opened::File(File::from(opened), Mark::of(&stat))),
            Thing::Folder => {
                let path = self.path.join(parsed.text());
                Ok(Opened::Folder(Root { folder: Arc::new(opened), path, way: self.way }))
            }
            thing => Err(self.error(name, Why::Special(thing))),
        }
    }

    /// A regular file, to be read.
    pub fn file(&self, name: impl AsRef<Path>) -> Result<(File, Mark)> {
        let name = name.as_ref();
        match self.open_existing(name) {
            Ok(Opened::File(file, mark)) => Ok((file, mark)),
            Ok(Opened::Folder(_)) => Err(self.error(name, Why::NotAFile(Thing::Folder))),
            Err(PathError { why: Why::Special(thing), .. }) => Err(self.error(name, Why::NotAFile(thing))),
            Err(error) => Err(error),
        }
    }

    /// All that a regular file holds, if it is not more than this.
    pub fn read(&self, name: impl AsRef<Path>, max: u64) -> Result<Vec<u8>> {
        let name = name.as_ref();
        let (file, mark) = self.file(name)?;
        if mark.size > max {
            return Err(self.error(name, Why::TooLarge { size: mark.size, max }));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(mark.size).unwrap_or(0) + 1);
        // It may have grown since.
        let mut some = file.take(max.saturating_add(1));
        some.read_to_end(&mut bytes).map_err(|error| self.error(name, error))?;
        let size = bytes.len() as u64;
        if size > max {
            return Err(self.error(name, Why::TooLarge { size, max }));
        }
        Ok(bytes)
    }
}
