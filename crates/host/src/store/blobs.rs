//! Large values, addressed by their content.
//!
//! A value is written to a staging file, synced and renamed, so that a name exists with all of its bytes or not at all.
//! A value that is read is checked against its name. Does not know who uses a value.

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
pub(super) struct BlobStore {
    dir: PathBuf,
    aside: Arc<StagingFolder>,
}

impl BlobStore {
    pub(super) fn new(dir: PathBuf, aside: Arc<StagingFolder>) -> BlobStore {
        BlobStore { dir, aside }
    }

    /// Stores bytes, durable when this returns.
    pub(super) fn put(&self, bytes: &[u8]) -> Result<ContentHash, StoreError> {
        let hash = ContentHash::hash_bytes(bytes);
        let path = self.blob_path(hash);
        let kept = match read_plain_file(&path) {
            // The process that renamed it may not have synced the directory yet.
            Ok(there) if there == bytes => path.parent().map_or(Ok(()), sync_directory),
            _ => self.write_blob(&path, bytes),
        };
        kept.map(|()| hash).map_err(|error| StoreError::Failed(format!("`{}`: {error}", path.display())))
    }

    pub(super) fn get(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError> {
        let path = self.blob_path(hash);
        let bytes = read_plain_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Failed(format!("there is no value {hash}")),
            _ => StoreError::Failed(format!("`{}`: {error}", path.display())),
        })?;
        if ContentHash::hash_bytes(&bytes) != hash {
            return Err(StoreError::Damaged(format!("`{}` is damaged: hash mismatch", path.display())));
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

/// Reads a regular file. Other kinds are refused, because reading a pipe could block.
fn read_plain_file(path: &Path) -> io::Result<Vec<u8>> {
    match fs::symlink_metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
