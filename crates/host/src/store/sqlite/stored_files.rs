//! Files beside the database: large values by the hash of their content, and snapshots of the states of long runs.
//!
//! Each file is written to a staging folder and renamed, so that a name exists with all of its bytes or not at all. A
//! value is synced, and checked against its name when it is read. Snapshots are a cache: they are not synced, and errors
//! are ignored.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use skein_core::{ids::RunId, plan::ContentHash};

use super::{
    owner::LocalOwner,
    state_folder::{StateFolder, sync_directory},
};
use crate::store::StoreError;

/// The files of a state directory, as one owner writes them.
#[derive(Debug)]
pub(super) struct StoredFiles {
    blobs: PathBuf,
    snapshots: PathBuf,
    /// The folder that holds files until they are complete.
    staging: PathBuf,
    /// The prefix of this owner's unfinished files.
    owner: String,
    next: AtomicU64,
}

impl StoredFiles {
    /// Opens the folders, and removes the unfinished files of owners that are no longer alive.
    pub(super) fn open(place: &StateFolder, me: &LocalOwner) -> io::Result<StoredFiles> {
        let staging = place.blobs_path().join("unfinished");
        make_dir(&staging)?;
        for entry in fs::read_dir(&staging)? {
            let entry = entry?;
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
            if owner != me.id() && !me.owners().is_alive(owner) {
                fs::remove_file(entry.path())?;
            }
        }
        let (blobs, snapshots) = (place.blobs_path(), place.snapshots_path());
        Ok(StoredFiles { blobs, snapshots, staging, owner: me.id().to_owned(), next: AtomicU64::new(0) })
    }

    /// Stores bytes, durable when this returns.
    pub(super) fn put_blob(&self, bytes: &[u8]) -> Result<ContentHash, StoreError> {
        let hash = ContentHash::hash_bytes(bytes);
        let path = self.blob_path(hash);
        let kept = match read_plain_file(&path) {
            // The process that renamed it may not have synced the directory yet.
            Ok(found) if found == bytes => path.parent().map_or(Ok(()), sync_directory),
            _ => self.write_blob(&path, bytes),
        };
        kept.map(|()| hash).map_err(|error| StoreError::Failed(format!("`{}`: {error}", path.display())))
    }

    pub(super) fn get_blob(&self, hash: ContentHash) -> Result<Vec<u8>, StoreError> {
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

    pub(super) fn write_snapshot(&self, run: &RunId, bytes: &[u8]) {
        // Without a snapshot, more of the journal is read the next time.
        let _ = make_dir(&self.snapshots).and_then(|_| self.write_file(&self.snapshot_path(run), bytes, false));
    }

    pub(super) fn read_snapshot(&self, run: &RunId) -> Option<Vec<u8>> {
        read_plain_file(&self.snapshot_path(run)).ok()
    }

    fn blob_path(&self, hash: ContentHash) -> PathBuf {
        let name = hash.to_string();
        self.blobs.join(&name[..2]).join(&name[2..])
    }

    /// Returns the path, named by the hash of the run's id: ids can be as long as file names, or differ only in case.
    fn snapshot_path(&self, run: &RunId) -> PathBuf {
        self.snapshots.join(ContentHash::hash_bytes(run.as_str().as_bytes()).to_string())
    }

    fn write_blob(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.blobs);
        if make_dir(dir)? {
            sync_directory(&self.blobs)?;
        }
        self.write_file(path, bytes, true)?;
        sync_directory(dir)
    }

    /// Writes a file, replacing any that exists, and syncs its content if `synced` is set.
    fn write_file(&self, path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let staged = self.staging.join(format!("{}.{next}", self.owner));
        let written = write_new_file(&staged, bytes, synced).and_then(|()| fs::rename(&staged, path));
        if written.is_err() {
            let _ = fs::remove_file(&staged);
        }
        written
    }
}

/// Reads a regular file. Other kinds are refused, because reading a pipe could block.
fn read_plain_file(path: &Path) -> io::Result<Vec<u8>> {
    match fs::symlink_metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn write_new_file(path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if synced { file.sync_all() } else { Ok(()) }
}

/// Creates a directory. Returns true if it did not exist.
fn make_dir(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
