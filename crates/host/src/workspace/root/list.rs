//! What is in a folder.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::{Result, Root, Thing, Why};

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    pub thing: Thing,
}

impl Root {
    /// What is in this folder, in the order of names, if it is not more than this.
    pub fn entries(&self, max: usize) -> Result<Vec<Entry>> {
        let here = Path::new(".");
        let dir = Dir::read_from(self).map_err(|errno| self.error(here, errno))?;
        let mut entries = Vec::new();
        for entry in dir {
            let entry = entry.map_err(|errno| self.error(here, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() == max {
                return Err(self.error(here, Why::TooMany { max }));
            }
            let mode = match entry.file_type() {
                FileType::Unknown => match statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat.st_mode,
                    // Gone already.
                    Err(rustix::io::Errno::NOENT) => continue,
                    Err(errno) => return Err(self.error(Path::new(name), errno)),
                },
                known => known.as_raw_mode(),
            };
            entries.push(Entry { name: name.to_owned(), thing: Thing::of(mode) });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}
