//! The folder in which is measured: where runs are kept, because it is that disk that counts, and gone afterwards.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// A folder that goes with this value. Who has it holds its lock, so what a process left that was killed is told from
/// what one has that lives.
#[derive(Debug)]
pub struct BenchFolder {
    path: PathBuf,
    _lock: File,
}

/// Why there is none.
#[derive(Debug)]
pub enum BenchFolderError {
    /// Another process measures here.
    Taken,
    Io(PathBuf, io::Error),
}

impl BenchFolder {
    /// In the state folder, or beside where that would be.
    pub fn new(state: &Path) -> Result<BenchFolder, BenchFolderError> {
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

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An empty folder, and its lock.
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
        // What cannot be removed now is when the next one is made.
        let _ = fs::remove_dir_all(&self.path);
    }
}
