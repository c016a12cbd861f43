//! Files that are written to a staging folder and renamed, so that a name exists with all of its bytes or not at all.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The folder that holds files until they are complete.
#[derive(Debug)]
pub(super) struct StagingFolder {
    dir: PathBuf,
    /// The prefix of this owner's unfinished files.
    owner: String,
    next: AtomicU64,
}

impl StagingFolder {
    pub(super) fn new(dir: PathBuf, owner: &str) -> StagingFolder {
        StagingFolder { dir, owner: owner.into(), next: AtomicU64::new(0) }
    }

    /// Removes the unfinished files of owners that are no longer alive.
    pub(super) fn sweep(&self, lives: impl Fn(&str) -> bool) -> io::Result<()> {
        make_dir(&self.dir)?;
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
            if owner != self.owner && !lives(owner) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Writes a file, replacing any that exists, and syncs its content if `synced` is set.
    pub(super) fn write_file(&self, path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let aside = self.dir.join(format!("{}.{next}", self.owner));
        let written = write_new_file(&aside, bytes, synced).and_then(|()| fs::rename(&aside, path));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }
}

fn write_new_file(path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if synced { file.sync_all() } else { Ok(()) }
}

/// Creates a directory. Returns true if it did not exist.
pub(super) fn make_dir(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
