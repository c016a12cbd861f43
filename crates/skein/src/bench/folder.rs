//! The folder for measurements: on the disk where runs are kept, because that disk is measured, and removed afterwards.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// A folder that is removed when this value is dropped. Its owner holds a lock, which distinguishes it from a folder
/// that a killed process left.
#[derive(Debug)]
pub(crate) struct BenchFolder {
    path: PathBuf,
    _lock: File,
}

/// The reason why the folder cannot be created.
#[derive(Debug)]
pub(crate) enum BenchFolderError {
    /// Another process is measuring here.
    Taken,
    Io(PathBuf, io::Error),
}

impl BenchFolder {
    /// Creates the folder in the state folder, or next to the path where that would be.
    pub(crate) fn new(state: &Path) -> Result<BenchFolder, BenchFolderError> {
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        let path = match state.is_dir() {
            true => state.join("bench"),
            false => {
                let there = state.ancestors().skip(1).find(|path| path.is_dir());
                there.unwrap_or(Path::new("/")).join(".skein-bench")
            }
        };
        let lock = lock_empty_folder(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => BenchFolderError::Taken,
            _ => BenchFolderError::Io(path.clone(), error),
        })?;
        Ok(BenchFolder { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates or empties the folder, and locks it.
fn lock_empty_folder(path: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let name = path.join("lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    for entry in fs::read_dir(path)? {
        let left = entry?.path();
        match left.is_dir() {
            true => fs::remove_dir_all(left)?,
            false if left != name => fs::remove_file(left)?,
            false => {}
        }
    }
    Ok(lock)
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        // Files that cannot be removed now are removed when the next folder is created.
        let _ = fs::remove_dir_all(&self.path);
    }
}
