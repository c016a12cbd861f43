//! Finding the workflows below a folder, by what may be one.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold other people's files, or ours.
const SKIPPED: &[&str] = &[".git", ".skein", "node_modules", "target", "__pycache__", ".venv"];
/// Deeper folders are not looked into.
const DEEPEST: usize = 16;
/// More files than this are not looked at.
const MOST: usize = 10_000;

/// Every file below a folder that may be a workflow, in order.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(folder, DEEPEST, &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if found.len() >= MOST {
            return;
        }
        let path = entry.path();
        // A link could lead out of the folder, or round in a circle.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 && !SKIPPED.iter().any(|name| path.ends_with(name)) {
            walk(&path, depth - 1, found);
        } else if kind.is_file() && may_be_one(&path) {
            found.push(path);
        }
    }
}

/// A YAML or JSON file, or a Markdown file of the one name that AIP-15 has; the latter is documentation where the
/// folder has the workflow as YAML.
fn may_be_one(path: &Path) -> bool {
    let has = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    if path.ends_with("WORKFLOW.md") {
        return !path.with_extension("yaml").exists();
    }
    has("yaml") || has("yml") || has("json")
}
