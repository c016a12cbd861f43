//! Copies of files: hashed during the copy, complete or absent, and never of a file that is being written.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use skein_core::plan::ContentHash;

use super::KeptFile;
use crate::workspace::{
    RootFolder,
    root::{FilePathError, FileStamp, PathProblem},
};

/// The maximum number of copies of a file that keeps changing.
const TRIES: u32 = 4;
const BUFFER: usize = 128 * 1024;
/// From this number of files on, one sync of everything takes less time than one per file.
const MANY: usize = 64;

/// A source file, its maximum size and its expected hash.
pub(super) struct CopySource<'a> {
    pub root: &'a RootFolder,
    pub name: &'a Path,
    pub max: u64,
    pub hash: Option<ContentHash>,
}

/// Copies a file into a folder, completely; it is durable after [`sync_copies`]. `path` is the name of the result.
pub(super) fn copy_file(
    from: &CopySource<'_>,
    to: &RootFolder,
    leaf: &Path,
    path: String,
) -> Result<KeptFile, FilePathError> {
    let failed = |why: PathProblem| FilePathError::new(from.root.path(), from.name, why);
    for _ in 0..TRIES {
        let (mut file, before) = from.root.open_file(from.name)?;
        if before.size > from.max {
            return Err(failed(PathProblem::TooLarge { size: before.size, max: from.max }));
        }
        let mut pending = to.create_file(leaf, before.executable)?;
        // One byte more than the expected size shows that the file grows.
        let (bytes, hash) = match copy_hashed(&mut file, &mut pending, before.size + 1) {
            Ok(done) => done,
            Err(CopyError::Read(error)) => return Err(failed(error.into())),
            Err(CopyError::Write(error)) => return Err(FilePathError::new(to.path(), leaf, error)),
        };
        let after = FileStamp::from_file(&file).map_err(|error| failed(error.into()))?;
        if before == after && bytes == before.size {
            if from.hash.is_some_and(|wanted| wanted != hash) {
                let why = "its hash does not match: it was changed since it was kept";
                return Err(failed(PathProblem::Io(io::Error::other(why))));
            }
            pending.persist_unsynced()?;
            return Ok(KeptFile { path, bytes, hash, executable: before.executable });
        }
    }
    Err(failed(PathProblem::Changing))
}

/// Copies one file that is not part of an artifact. It is durable when this returns.
pub(in crate::workspace) fn copy_single_file(
    root: &RootFolder,
    name: &Path,
    to: &RootFolder,
    leaf: &Path,
    max: u64,
) -> Result<KeptFile, FilePathError> {
    let path = leaf.to_string_lossy().into_owned();
    let copied = copy_file(&CopySource { root, name, max, hash: None }, to, leaf, path)?;
    sync_file(to, leaf)?;
    to.sync()?;
    Ok(copied)
}

/// Makes the copied files of a folder durable.
pub(super) fn sync_copies(to: &RootFolder, files: &[KeptFile], folders: &[String]) -> Result<(), FilePathError> {
    if files.len() + folders.len() > MANY {
        return to.sync_all();
    }
    for file in files {
        sync_file(to, Path::new(&file.path))?;
    }
    for folder in folders {
        to.open_folder(folder)?.sync()?;
    }
    to.sync()
}

fn sync_file(root: &RootFolder, name: &Path) -> Result<(), FilePathError> {
    let (file, _) = root.open_file(name)?;
    file.sync_all().map_err(|error| FilePathError::new(root.path(), name, error))
}

/// Returns true if a folder already has exactly this file.
pub(in crate::workspace) fn is_copy(root: &RootFolder, leaf: &Path, wanted: &KeptFile) -> bool {
    let Ok((mut file, mark)) = root.open_file(leaf) else { return false };
    mark.size == wanted.bytes
        && mark.executable == wanted.executable
        && matches!(copy_hashed(&mut file, &mut io::sink(), wanted.bytes + 1), Ok((_, hash)) if hash == wanted.hash)
}

/// The side of a copy that failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn copy_hashed(from: &mut File, to: &mut impl Write, most: u64) -> Result<(u64, ContentHash), CopyError> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0;
    while bytes < most {
        let want = usize::try_from(most - bytes).unwrap_or(BUFFER).min(BUFFER);
        let count = match from.read(&mut buffer[..want]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count]).map_err(CopyError::Write)?;
        bytes += count as u64;
    }
    Ok((bytes, ContentHash(*hasher.finalize().as_bytes())))
}
