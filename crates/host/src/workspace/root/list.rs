//! Listing of a folder.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::{EntryKind, PathProblem, PathResult, RootFolder};

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    pub name: OsString,
    pub thing: EntryKind,
}

impl RootFolder {
    /// Lists this folder in the order of names, if it has at most `max` entries.
    pub fn list_entries(&self, max: usize) -> PathResult<Vec<FolderEntry>> {
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
                    Err(rustix::io::Errno::NOENT) => continue,
                    Err(errno) => return Err(self.path_error(Path::new(name), errno)),
                },
                known => known.as_raw_mode(),
            };
            entries.push(FolderEntry { name: name.to_owned(), thing: EntryKind::from_mode(mode) });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}
