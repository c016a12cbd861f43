//! Search below a folder for files that may be workflows, and for the definitions that workflows name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::project::{catalog::check, source_file};

/// Folders with files of other programs, or of Skein.
pub const SKIPPED: &[&str] = &[".git", ".skein", "node_modules", "target", "__pycache__", ".venv"];
/// The maximum depth of folders.
const DEEPEST: usize = 64;
/// The maximum number of files.
const MOST: usize = 100_000;

/// The files that a search found, and the folders that it could not read.
#[derive(Debug, Default)]
pub struct SourceSearchResult {
    pub files: Vec<PathBuf>,
    /// Files that define tools, drivers, actions and routines.
    pub described: Vec<PathBuf>,
    /// Folders that could not be searched, each with the reason. A command must report them before it reports success.
    pub missed: Vec<(PathBuf, String)>,
}

/// Finds all files below a folder that may be workflows, sorted. Links are not followed: they could lead out of the
/// folder, or form a cycle.
pub fn find_sources(folder: &Path) -> SourceSearchResult {
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
            Err(error) => return self.add_missed(folder, source_file::describe_io_error(&error)),
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
