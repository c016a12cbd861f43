//! Finding the workflows below a folder, by what may be one, and the files that describe what workflows name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{catalog_check, source_file};

/// Folders that hold other people's files, or ours.
pub const SKIPPED: &[&str] = &[".git", ".skein", "node_modules", "target", "__pycache__", ".venv"];
/// Deeper folders are not looked into.
const DEEPEST: usize = 64;
/// More files than this are not looked at.
const MOST: usize = 100_000;

/// What a search found, and what it could not look into.
#[derive(Debug, Default)]
pub struct SourceSearchResult {
    pub files: Vec<PathBuf>,
    /// Files that describe tools, drivers, actions and routines.
    pub described: Vec<PathBuf>,
    /// Folders and why; whoever says that all is well must say these.
    pub missed: Vec<(PathBuf, String)>,
}

/// Every file below a folder that may be a workflow, in order. Links are not followed: they could lead out of the
/// folder, or round in a circle.
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
            } else if kind.is_file() && catalog_check::definition_kind(&path).is_some() {
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

/// A YAML or JSON file, or a Markdown file of the one name that AIP-15 has; the latter is documentation where the
/// folder has the workflow as YAML.
fn may_be_workflow(path: &Path) -> bool {
    let has = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    if path.ends_with("WORKFLOW.md") {
        return !["yaml", "yml", "json"].iter().any(|ending| path.with_extension(ending).exists());
    }
    has("yaml") || has("yml") || has("json")
}
