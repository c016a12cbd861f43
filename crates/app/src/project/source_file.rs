//! Reading of source files: only regular files, and never more than the maximum size of a source.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use skein_core::limits;
use skein_dialects::{Diagnostic, SourceFile, load_source};

/// Reads a source, under the name that is shown to people.
pub fn read_source(path: &Path, name: &str) -> Result<Arc<SourceFile>, Box<Diagnostic>> {
    load_source(name, read_bytes(path)).map_err(Box::new)
}

/// Reads a file, up to one byte more than the maximum size of a source, so that a longer file is detected.
fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    // Opening a named pipe would wait for a writer.
    let kind = fs::metadata(path).map_err(|error| describe_io_error(&error))?;
    if kind.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if !kind.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let most = u64::try_from(limits::SOURCE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::with_capacity(usize::try_from(kind.len().min(most)).unwrap_or_default());
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| describe_io_error(&error))
}

/// Returns the text of an operating system error without its number.
pub fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "reading it is not permitted".to_owned(),
        _ => error.to_string(),
    }
}
