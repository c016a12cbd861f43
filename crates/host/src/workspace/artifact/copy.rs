//! Copying files: hashed on the way, whole or not at all, and not while someone writes them.

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

/// How often a file that changes is copied.
const TRIES: u32 = 4;
const BUFFER: usize = 128 * 1024;
/// From here on one sync of everything takes less time than one for each.
const MANY: usize = 64;

/// A source, how much of it may be copied, and what it must be.
pub(super) struct CopySource<'a> {
    pub root: &'a RootFolder,
    pub name: &'a Path,
    pub max: u64,
    pub hash: Option<ContentHash>,
}

/// Copies a file into a folder, whole; it lasts when it is settled. `path` is what the result is called.
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
        // One byte more than it should have shows that it grows.
        let (bytes, hash) = match copy_hashed(&mut file, &mut pending, before.size + 1) {
            Ok(done) => done,
            Err(CopyError::Read(error)) => return Err(failed(error.into())),
            Err(CopyError::Write(error)) => return Err(FilePathError::new(to.path(), leaf, error)),
        };
        let after = FileStamp::from_file(&file).map_err(|error| failed(error.into()))?;
        if before == after && bytes == before.size {
            if from.hash.is_some_and(|wanted| wanted != hash) {
                let why = "it is not what was kept: the disk or someone changed it";
                return Err(failed(PathProblem::Io(io::Error::other(why))));
            }
            pending.persist_unsynced()?;
            return Ok(KeptFile { path, bytes, hash, executable: before.executable });
        }
    }
    Err(failed(PathProblem::Changing))
}

/// Copies one file that is not part of an artifact. It lasts when this returns.
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

/// Makes what was copied into a folder last.
pub(super) fn sync_copies(
    to: &RootFolder,
    files: &[KeptFile],
    folders: &[String],
) -> Result<(), FilePathError> {
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

/// Whether a folder has exactly this file already.
pub(in crate::workspace) fn is_copy(root: &RootFolder, leaf: &Path, wanted: &KeptFile) -> bool {
    let Ok((mut file, mark)) = root.open_file(leaf) else { return false };
    mark.size == wanted.bytes
        && mark.executable == wanted.executable
        && matches!(copy_hashed(&mut file, &mut io::sink(), wanted.bytes + 1), Ok((_, hash)) if hash == wanted.hash)
}

/// Which side failed.
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
