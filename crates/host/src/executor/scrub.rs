//! Removes secrets from the files that workers left in the state folder.
//!
//! A worker writes its output and its error as files, and files that it put in the place of protected ones are kept for
//! people. All of these may contain secrets that it was given. Artifacts are not changed: they are the worker's own
//! files.

use std::{io::Read, io::Write, path::Path};

use crate::{
    redact::Redactor,
    workspace::{
        AttemptDir, RootFolder,
        root::{EntryKind, FilePathError},
    },
};

use super::protect::DISPLACED;

/// The maximum number of entries. A larger folder is removed as a whole.
const ENTRIES: usize = 100_000;
/// The number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Removes secrets from the files that an attempt left. Files that cannot be read or rewritten are removed.
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
                // The target of a link is a text that the worker chose.
                EntryKind::Link => drop(folder.remove(&entry.name)?),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Replaces a file that contains secrets by one without them. Other hard links of the file keep the old content.
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
