//! What workers left in the state folder, without secrets.
//!
//! A worker writes its output and its error as files, and what it put in the place of protected files is kept to look at.
//! All of that may hold secrets that it was given. Artifacts are not touched: they are files of the worker's own.

use std::{io::Read, io::Write, path::Path};

use crate::{
    redact::Redactor,
    workspace::{
        AttemptDir, RootFolder,
        root::{EntryKind, FilePathError},
    },
};

use super::protect::DISPLACED;

/// A folder with more in it is removed as a whole.
const ENTRIES: usize = 100_000;
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Takes secrets out of what an attempt left. What cannot be read or written again is removed.
pub(super) fn scrub_attempt(files: &AttemptDir, redactor: &Redactor) {
    if !redactor.has_secrets() {
        return;
    }
    for name in [AttemptDir::BACK, DISPLACED] {
        if matches!(files.root().entry_kind(name), Ok(Some(_)))
            && scrub_folder(files.root(), Path::new(name), redactor).is_err()
        {
            let _ = files.root().remove(name);
        }
    }
}

fn scrub_folder(root: &RootFolder, name: &Path, redactor: &Redactor) -> Result<(), FilePathError> {
    let mut todo = vec![root.open_folder(name)?];
    let mut left = ENTRIES;
    while let Some(folder) = todo.pop() {
        let entries = folder.list_entries(left)?;
        left -= entries.len();
        for entry in entries {
            let shown = entry.name.to_string_lossy();
            if redactor.redact_str(&shown) != shown {
                folder.remove(&entry.name)?;
                continue;
            }
            match entry.thing {
                EntryKind::Folder => todo.push(folder.open_folder(&entry.name)?),
                EntryKind::File => scrub_file(&folder, Path::new(&entry.name), redactor)?,
                // Where a link leads to is a text of the worker's own.
                EntryKind::Link => drop(folder.remove(&entry.name)?),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Puts a file without secrets in the place of one that has some. Other names of the same file keep what it holds.
fn scrub_file(folder: &RootFolder, name: &Path, redactor: &Redactor) -> Result<(), FilePathError> {
    let failed = |error| FilePathError::new(folder.path(), name, error);
    let (mut file, mark) = folder.open_file(name)?;
    let mut pending = folder.create_file(name, mark.executable)?;
    let (mut stream, mut bytes, mut clean) = (redactor.new_stream(), vec![0; CHUNK], Vec::new());
    let (mut before, mut after) = (blake3::Hasher::new(), blake3::Hasher::new());
    loop {
        let read = file.read(&mut bytes).map_err(failed)?;
        match read {
            0 => stream.finish(&mut clean),
            read => {
                before.update(&bytes[..read]);
                stream.push(&bytes[..read], &mut clean);
            }
        }
        after.update(&clean);
        pending.write_all(&clean).map_err(failed)?;
        clean.clear();
        if read == 0 {
            break;
        }
    }
    match before.finalize() == after.finalize() {
        true => Ok(()),
        false => pending.persist_unsynced(),
    }
}
