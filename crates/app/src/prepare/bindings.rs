//! Values of `context` in the expressions of a run: the files of the project, and the texts of context modules.
//!
//! Binds only the names that the plan reads, since they are kept in the journal.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};
use skein_core::plan::Plan;

use crate::{
    prepare::agent_context,
    project::{DiskProject, source_search::SKIPPED},
};

/// The name of the list of the project's files.
const REPO_STRUCTURE: &str = "repo_structure";
/// The number of files that are listed, and the maximum total length of their paths in bytes.
const MOST_FILES: usize = 2_000;
const MOST_BYTES: usize = 64 * 1024;
/// The maximum depth of folders.
const DEEPEST: usize = 16;

/// Returns the `context` of a run of this plan, or null if the plan reads none of it.
pub fn bind_context(plan: &Plan, project: &DiskProject) -> Value {
    let (names, whole) = plan.definition.context_reads();
    if names.is_empty() && !whole {
        return Value::Null;
    }
    let mut values = Map::new();
    if whole || names.contains(REPO_STRUCTURE) {
        values.insert(REPO_STRUCTURE.to_owned(), list_repo_files(&project.root));
    }
    for entry in &plan.definition.workflows {
        for reference in &entry.workflow.context.modules {
            let name = reference.strip_prefix("ctx:").unwrap_or(reference);
            let module =
                agent_context::read_context_module(project, reference).filter(|_| whole || names.contains(name));
            values.extend(module.map(|module| (name.to_owned(), Value::from(module.text))));
        }
    }
    Value::Object(values)
}

/// Returns the sorted paths of the files of a folder, without those of version control and build tools.
fn list_repo_files(root: &Path) -> Value {
    let mut listing = FileList::default();
    listing.walk_folder(root, "", DEEPEST);
    json!({"files": listing.files, "truncated": listing.truncated})
}

#[derive(Debug, Default)]
struct FileList {
    files: Vec<String>,
    bytes: usize,
    truncated: bool,
}

impl FileList {
    fn walk_folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        if depth == 0 {
            self.truncated = true;
            return;
        }
        let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.walk_folder(&entry.path(), &path, depth - 1);
            } else if kind.is_file() {
                self.add_file(path);
            }
            if self.truncated && self.files.len() >= MOST_FILES {
                return;
            }
        }
    }

    fn add_file(&mut self, path: String) {
        if self.files.len() >= MOST_FILES || self.bytes + path.len() > MOST_BYTES {
            self.truncated = true;
            return;
        }
        self.bytes += path.len();
        self.files.push(path);
    }
}
