//! Large values, kept by their content.
//!
//! A value is written aside, synced and renamed, so that a name is there with all of its bytes or not at all. What is
//! read is checked against its name. Refuses to know who uses a value.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use skein_core::plan::Hash;

use super::StoreError;

#[derive(Debug)]
pub struct Blobs {
    dir: PathBuf,
    /// Whose unfinished files are whose.
    owner: String,
    next: AtomicU64,
}

impl Blobs {
    pub fn new(dir: PathBuf, owner: &str) -> Blobs {
        Blobs { dir, owner: owner.into(), next: AtomicU64::new(0) }
    }

    /// Removes what owners that are gone did not finish.
    pub fn sweep(&self, lives: impl Fn(&str) -> bool) -> io::Result<()> {
        make_dir(&self.unfinished())?;
        for entry in fs::read_dir(self.unfinished())? {
            let entry = entry?;
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
            if owner != self.owner && !lives(owner) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Keeps bytes, durable when this returns.
    pub fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError> {
        let hash = Hash::of(bytes);
        let path = self.path(hash);
        let kept = match fs::read(&path) {
            // Whoever renamed it may not have synced the directory yet.
            Ok(there) if there == bytes => path.parent().map_or(Ok(()), sync),
            _ => self.write(&path, bytes),
        };
        kept.map(|()| hash).map_err(|error| StoreError::Failed(format!("`{}`: {error}", path.display())))
    }

    pub fn get(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        let path = self.path(hash);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Failed(format!("there is no value {hash}")),
            _ => StoreError::Failed(format!("`{}`: {error}", path.display())),
        })?;
        if Hash::of(&bytes) != hash {
            return Err(StoreError::Damaged(format!("`{}` is not what was written", path.display())));
        }
        Ok(bytes)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let aside =
            self.unfinished().join(format!("{}.{}", self.owner, self.next.fetch_add(1, Ordering::Relaxed)));
        let written = write_synced(&aside, bytes).and_then(|()| {
            let dir = path.parent().unwrap_or(&self.dir);
            if make_dir(dir)? {
                sync(&self.dir)?;
            }
            fs::rename(&aside, path)?;
            sync(dir)
        });
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }

    fn unfinished(&self) -> PathBuf {
        self.dir.join("unfinished")
    }

    fn path(&self, hash: Hash) -> PathBuf {
        let name = hash.to_string();
        self.dir.join(&name[..2]).join(&name[2..])
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether it had to be made.
fn make_dir(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
