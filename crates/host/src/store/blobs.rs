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

use skein_core::plan::ContentHash;

use super::{
    StoreError,
    staging::{StagingFolder, make_dir},
};

#[derive(Debug)]
pub struct BlobStore {
    dir: PathBuf,
    aside: Arc<StagingFolder>,
}

impl BlobStore {
    pub fn new(dir: PathBuf, aside: Arc<StagingFolder>) -> BlobStore {
        BlobStore { dir, aside }
    }

    /// Keeps bytes, durable when this returns.
    pub fn put(&self, bytes: &[u8]) -> Result<ContentHash, StoreError> {
        let hash = ContentHash::hash_bytes(bytes);
        let path = self.blob_path(hash);
        let kept = match read_plain_file(&path) {
            // Whoever renamed it may not have synced the directory yet.
            Ok(there) if there == bytes => path.parent().map_or(Ok(()), sync_directory),
            _ => self.write_blob(&path, bytes),
        };
        kept.map(|()| hash).map_err(|error| StoreError::Failed(format!("`{}`: {error}", path.display())))
    }

    pub fn get(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError> {
        let path = self.blob_path(hash);
        let bytes = read_plain_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Failed(format!("there is no value {hash}")),
            _ => StoreError::Failed(format!("`{}`: {error}", path.display())),
        })?;
        if ContentHash::hash_bytes(&bytes) != hash {
            return Err(StoreError::Damaged(format!("`{}` is not what was written", path.display())));
        }
        Ok(bytes)
    }

    fn write_blob(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        if make_dir(dir)? {
            sync_directory(&self.dir)?;
        }
        self.aside.write_file(path, bytes, true)?;
        sync_directory(dir)
    }

    fn blob_path(&self, hash: ContentHash) -> PathBuf {
        let name = hash.to_string();
        self.dir.join(&name[..2]).join(&name[2..])
    }
}

/// Reads a plain file: a pipe in its place is not waited for.
fn read_plain_file(path: &Path) -> io::Result<Vec<u8>> {
    match fs::symlink_metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file")),
    }
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
