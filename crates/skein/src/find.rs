//! Finding the workflows below a folder, by what may be one, and the files that describe what workflows name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{described, read};

/// Folders that hold other people's files, or ours.
pub const SKIPPED: &[&str] = &[".git", ".skein", "node_modules", "target", "__pycache__", ".venv"];
/// Deeper folders are not looked into.
const DEEPEST: usize = 64;
/// More files than this are not looked at.
const MOST: usize = 100_000;

/// What a search found, and what it could not look into.
#[derive(Debug, Default)]
pub struct Found {
    pub files: Vec<PathBuf>,
    /// Files that describe tools, drivers, actions and routines.
    pub described: Vec<PathBuf>,
    /// Folders and why; whoever says that all is well must say these.
    pub missed: Vec<(PathBuf, String)>,
}

/// Every file below a folder that may be a workflow, in order. Links are not followed: they could lead out of the
/// folder, or round in a circle.
pub fn sources(folder: &Path) -> Found {
    let mut found = Found::default();
    found.walk(folder, DEEPEST);
    found.files.sort();
    found.described.sort();
    found
}

impl Found {
    fn walk(&mut self, folder: &Path, depth: usize) {
        let entries = match fs::read_dir(folder) {
            Ok(_) if depth == 0 => {
                return self.miss(folder, format!("it is more than {DEEPEST} folders deep"));
            }
            Ok(entries) => entries,
            Err(error) => return self.miss(folder, read::plain(&error)),
        };
        for entry in entries.filter_map(Result::ok) {
            if self.files.len() + self.described.len() >= MOST {
                return self.miss(folder, format!("more than {MOST} files were found before"));
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !SKIPPED.iter().any(|name| path.ends_with(name)) {
                self.walk(&path, depth - 1);
            } else if kind.is_file() && described::sort_of(&path).is_some() {
                self.described.push(path);
            } else if kind.is_file() && may_be_one(&path) {
                self.files.push(path);
            }
        }
    }

    fn miss(&mut self, folder: &Path, why: String) {
        self.missed.push((folder.to_owned(), why));
    }
}

/// A YAML or JSON file, or a Markdown file of the one name that AIP-15 has; the latter is documentation where the
/// folder has the workflow as YAML.
fn may_be_one(path: &Path) -> bool {
    let has = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    if path.ends_with("WORKFLOW.md") {
        return !["yaml", "yml", "json"].iter().any(|ending| path.with_extension(ending).exists());
    }
    has("yaml") || has("yml") || has("json")
}
