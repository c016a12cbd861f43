//! Large values, kept by their content.
//!
//! A value is written aside, synced and renamed, so that a name is there with all of its bytes or not at all. What is
//! read is checked against its name. Refuses to know who uses a value.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::plan::Hash;

use super::{
    StoreError,
    aside::{Aside, make_dir},
};

#[derive(Debug)]
pub struct Blobs {
    dir: PathBuf,
    aside: Arc<Aside>,
}

impl Blobs {
    pub fn new(dir: PathBuf, aside: Arc<Aside>) -> Blobs {
        Blobs { dir, aside }
    }

    /// Keeps bytes, durable when this returns.
    pub fn put(&self, bytes: &[u8]) -> Result<Hash, StoreError> {
        let hash = Hash::of(bytes);
        let path = self.path(hash);
        let kept = match read_plain(&path) {
            // Whoever renamed it may not have synced the directory yet.
            Ok(there) if there == bytes => path.parent().map_or(Ok(()), sync),
            _ => self.write(&path, bytes),
        };
        kept.map(|()| hash).map_err(|error| StoreError::Failed(format!("`{}`: {error}", path.display())))
    }

    pub fn get(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        let path = self.path(hash);
        let bytes = read_plain(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Failed(format!("there is no value {hash}")),
            _ => StoreError::Failed(format!("`{}`: {error}", path.display())),
        })?;
        if Hash::of(&bytes) != hash {
            return Err(StoreError::Damaged(format!("`{}` is not what was written", path.display())));
        }
        Ok(bytes)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        if make_dir(dir)? {
            sync(&self.dir)?;
        }
        self.aside.write(path, bytes, true)?;
        sync(dir)
    }

    fn path(&self, hash: Hash) -> PathBuf {
        let name = hash.to_string();
        self.dir.join(&name[..2]).join(&name[2..])
    }
}

/// Reads a plain file: a pipe in its place is not waited for.
fn read_plain(path: &Path) -> io::Result<Vec<u8>> {
    match fs::symlink_metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file")),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
