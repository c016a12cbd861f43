//! Clears a context folder for another run: removes files that the earlier run wrote, and keeps all others.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{CALLED, CONVERGENCE, META, STEPS, WORKFLOW, convergence};
use crate::workspace::{
    RootFolder, RunDir,
    artifact::{ArtifactError, KeptFile, is_copy},
    root::{EntryKind, FilePathError},
};

/// The files and links that a run wrote into its context folder, by their paths within an artifact.
#[derive(Debug, Default)]
pub struct WrittenArtifacts {
    files: BTreeMap<String, Vec<KeptFile>>,
    links: BTreeSet<(String, String)>,
}

impl WrittenArtifacts {
    /// Reads the artifacts that a run kept of all its attempts.
    pub fn read(run: &RunDir) -> Result<WrittenArtifacts, ArtifactError> {
        let mut written = WrittenArtifacts::default();
        for attempt in run.list_kept_attempts()? {
            for artifact in run.find_manifest(attempt)?.into_iter().flat_map(|kept| kept.artifacts) {
                for file in artifact.files {
                    written.files.entry(file.path.clone()).or_default().push(file);
                }
                written.links.extend(artifact.links.into_iter().map(|link| (link.path, link.target)));
            }
        }
        Ok(written)
    }
}

/// Clears the context of a workflow: that of a run, or of one that a step called.
pub(super) fn clear_workflow(root: &RootFolder, written: &WrittenArtifacts) -> Result<(), FilePathError> {
    root.remove_pending()?;
    for entry in root.list_entries(STEPS)? {
        let name = Path::new(&entry.name);
        if entry.thing == EntryKind::Folder && root.entry_kind(name.join(META))? == Some(EntryKind::File) {
            clear_step(&root.open_folder(name)?, written)?;
            remove_empty(root, name)?;
        }
    }
    root.remove(WORKFLOW).map(drop)
}

fn clear_step(folder: &RootFolder, written: &WrittenArtifacts) -> Result<(), FilePathError> {
    folder.remove_pending()?;
    for entry in folder.list_entries(STEPS)?.into_iter().filter(|entry| entry.thing == EntryKind::Folder) {
        let name = Path::new(&entry.name);
        let inner = folder.open_folder(name)?;
        match entry.name.to_str() {
            Some(CONVERGENCE) => {
                for file in [convergence::STATE, convergence::TRANSITION, convergence::SCOPE] {
                    inner.remove(file)?;
                }
            }
            Some(CALLED) => clear_workflow(&inner, written)?,
            _ => clear_artifact(&inner, &PathBuf::new(), written)?,
        }
        remove_empty(folder, name)?;
    }
    folder.remove(META).map(drop)
}

/// Removes the unchanged files and links of an artifact. The recursion is bounded by the maximum depth of artifacts:
/// deeper folders were not written by Skein.
fn clear_artifact(folder: &RootFolder, within: &Path, written: &WrittenArtifacts) -> Result<(), FilePathError> {
    if within.components().count() > skein_core::limits::ARTIFACT_DEPTH {
        return Ok(());
    }
    for entry in folder.list_entries(STEPS)? {
        let (name, path) = (Path::new(&entry.name), within.join(&entry.name));
        let Some(key) = path.to_str() else { continue };
        match entry.thing {
            EntryKind::Folder => {
                clear_artifact(&folder.open_folder(name)?, &path, written)?;
                remove_empty(folder, name)?;
            }
            EntryKind::File => {
                let kept = written.files.get(key).into_iter().flatten();
                if kept.into_iter().any(|kept| is_copy(folder, name, kept)) {
                    folder.remove(name)?;
                }
            }
            EntryKind::Link => {
                let target = folder.read_link(name)?.to_string_lossy().into_owned();
                if written.links.contains(&(key.to_owned(), target)) {
                    folder.remove(name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove_empty(parent: &RootFolder, name: &Path) -> Result<(), FilePathError> {
    if parent.open_folder(name)?.list_entries(STEPS)?.is_empty() {
        parent.remove(name)?;
    }
    Ok(())
}
