//! Source files of a project: the search below a folder for files that may be workflows or definitions, and their reading,
//! which takes only regular files up to the maximum size of a source.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::limits;
use skein_dialects::{Diagnostic, SourceFile, load_source};

use crate::project::catalog::check;

/// Folders with files of other programs, or of Skein.
pub const SKIPPED: &[&str] = &[".git", ".skein", "node_modules", "target", "__pycache__", ".venv"];
/// The maximum depth of folders.
const DEEPEST: usize = 64;
/// The maximum number of files.
const MOST: usize = 100_000;

/// The files that a search found, and the folders that it could not read.
#[derive(Debug, Default)]
pub(crate) struct SourceSearchResult {
    pub files: Vec<PathBuf>,
    /// Files that define tools, drivers, actions and routines.
    pub described: Vec<PathBuf>,
    /// Folders that could not be searched, each with the reason. A command must report them before it reports success.
    pub missed: Vec<(PathBuf, String)>,
}

/// Finds all files below a folder that may be workflows, sorted. Links are not followed: they could lead out of the
/// folder, or form a cycle.
pub(crate) fn find_sources(folder: &Path) -> SourceSearchResult {
    let mut found = SourceSearchResult::default();
    found.walk_folder(folder, DEEPEST);
    found.files.sort();
    found.described.sort();
    found
}

impl SourceSearchResult {
    fn walk_folder(&mut self, folder: &Path, depth: usize) {
        let entries = match fs::read_dir(folder) {
            Ok(_) if depth == 0 => {
                return self.add_missed(folder, format!("it is more than {DEEPEST} folders deep"));
            }
            Ok(entries) => entries,
            Err(error) => return self.add_missed(folder, describe_io_error(&error)),
        };
        for entry in entries.filter_map(Result::ok) {
            if self.files.len() + self.described.len() >= MOST {
                return self.add_missed(folder, format!("more than {MOST} files were found before"));
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !SKIPPED.iter().any(|name| path.ends_with(name)) {
                self.walk_folder(&path, depth - 1);
            } else if kind.is_file() && check::definition_kind(&path).is_some() {
                self.described.push(path);
            } else if kind.is_file() && may_be_workflow(&path) {
                self.files.push(path);
            }
        }
    }

    fn add_missed(&mut self, folder: &Path, why: String) {
        self.missed.push((folder.to_owned(), why));
    }
}

/// Returns true for a YAML or JSON file, and for a Markdown file with the name that AIP-15 prescribes; the latter is
/// documentation if the folder also has the workflow as YAML or JSON.
fn may_be_workflow(path: &Path) -> bool {
    let has = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    if path.ends_with("WORKFLOW.md") {
        return !["yaml", "yml", "json"].iter().any(|ending| path.with_extension(ending).exists());
    }
    has("yaml") || has("yml") || has("json")
}

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
pub(crate) fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "reading it is not permitted".to_owned(),
        _ => error.to_string(),
    }
}
