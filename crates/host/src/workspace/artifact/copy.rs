//! Copying files: hashed on the way, whole or not at all, and not while someone writes them.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use skein_core::plan::Hash;

use super::KeptFile;
use crate::workspace::{
    Root,
    root::{Mark, PathError, Why},
};

/// How often a file that changes is copied.
const TRIES: u32 = 4;
const BUFFER: usize = 128 * 1024;
/// From here on one sync of everything takes less time than one for each.
const MANY: usize = 64;

/// A source, how much of it may be copied, and what it must be.
pub(super) struct Source<'a> {
    pub root: &'a Root,
    pub name: &'a Path,
    pub max: u64,
    pub hash: Option<Hash>,
}

/// Copies a file into a folder, whole; it lasts when it is settled. `path` is what the result is called.
pub(super) fn copy(from: &Source<'_>, to: &Root, leaf: &Path, path: String) -> Result<KeptFile, PathError> {
    let failed = |why: Why| PathError::new(from.root.path(), from.name, why);
    for _ in 0..TRIES {
        let (mut file, before) = from.root.file(from.name)?;
        if before.size > from.max {
            return Err(failed(Why::TooLarge { size: before.size, max: from.max }));
        }
        let mut pending = to.create(leaf, before.executable)?;
        // One byte more than it should have shows that it grows.
        let (bytes, hash) = match pour(&mut file, &mut pending, before.size + 1) {
            Ok(done) => done,
            Err(Pour::Read(error)) => return Err(failed(error.into())),
            Err(Pour::Write(error)) => return Err(PathError::new(to.path(), leaf, error)),
        };
        let after = Mark::now(&file).map_err(|error| failed(error.into()))?;
        if before == after && bytes == before.size {
            if from.hash.is_some_and(|wanted| wanted != hash) {
                let why = "it is not what was kept: the disk or someone changed it";
                return Err(failed(Why::Io(io::Error::other(why))));
            }
            pending.place_unsynced()?;
            return Ok(KeptFile { path, bytes, hash, executable: before.executable });
        }
    }
    Err(failed(Why::Changing))
}

/// Copies one file that is not part of an artifact. It lasts when this returns.
pub(in crate::workspace) fn copy_one(
    root: &Root,
    name: &Path,
    to: &Root,
    leaf: &Path,
    max: u64,
) -> Result<KeptFile, PathError> {
    let path = leaf.to_string_lossy().into_owned();
    let copied = copy(&Source { root, name, max, hash: None }, to, leaf, path)?;
    sync_file(to, leaf)?;
    to.sync()?;
    Ok(copied)
}

/// Makes what was copied into a folder last.
pub(super) fn settle(to: &Root, files: &[KeptFile], folders: &[String]) -> Result<(), PathError> {
    if files.len() + folders.len() > MANY {
        return to.sync_all();
    }
    for file in files {
        sync_file(to, Path::new(&file.path))?;
    }
    for folder in folders {
        to.folder(folder)?.sync()?;
    }
    to.sync()
}

fn sync_file(root: &Root, name: &Path) -> Result<(), PathError> {
    let (file, _) = root.file(name)?;
    file.sync_all().map_err(|error| PathError::new(root.path(), name, error))
}

/// Whether a folder has exactly this file already.
pub(in crate::workspace) fn is_copy(root: &Root, leaf: &Path, wanted: &KeptFile) -> bool {
    let Ok((mut file, mark)) = root.file(leaf) else { return false };
    mark.size == wanted.bytes
        && mark.executable == wanted.executable
        && matches!(pour(&mut file, &mut io::sink(), wanted.bytes + 1), Ok((_, hash)) if hash == wanted.hash)
}

/// Which side failed.
enum Pour {
    Read(io::Error),
    Write(io::Error),
}

fn pour(from: &mut File, to: &mut impl Write, most: u64) -> Result<(u64, Hash), Pour> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0;
    while bytes < most {
        let want = usize::try_from(most - bytes).unwrap_or(BUFFER).min(BUFFER);
        let count = match from.read(&mut buffer[..want]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Pour::Read(error)),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count]).map_err(Pour::Write)?;
        bytes += count as u64;
    }
    Ok((bytes, Hash(*hasher.finalize().as_bytes())))
}
