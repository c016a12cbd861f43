//! Clearing a context folder for another run: what the earlier run wrote goes, and whatever somebody else put there stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{CALLED, CONVERGENCE, META, STEPS, WORKFLOW, convergence};
use crate::workspace::{
    Root, RunDir,
    artifact::{ArtifactError, KeptFile, is_copy},
    root::{PathError, Thing},
};

/// The files and links that a run put into its context folder, by their paths within an artifact.
#[derive(Debug, Default)]
pub struct WrittenArtifacts {
    files: BTreeMap<String, Vec<KeptFile>>,
    links: BTreeSet<(String, String)>,
}

impl WrittenArtifacts {
    /// Reads the artifacts that a run kept of all its attempts.
    pub fn read(run: &RunDir) -> Result<WrittenArtifacts, ArtifactError> {
        let mut written = WrittenArtifacts::default();
        for attempt in run.kept()? {
            for artifact in run.find_kept(attempt)?.into_iter().flat_map(|kept| kept.artifacts) {
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
pub(super) fn workflow(root: &Root, written: &WrittenArtifacts) -> Result<(), PathError> {
    root.remove_pending()?;
    for entry in root.entries(STEPS)? {
        let name = Path::new(&entry.name);
        if entry.thing == Thing::Folder && root.look(name.join(META))? == Some(Thing::File) {
            step(&root.folder(name)?, written)?;
            remove_empty(root, name)?;
        }
    }
    root.remove(WORKFLOW).map(drop)
}

fn step(folder: &Root, written: &WrittenArtifacts) -> Result<(), PathError> {
    folder.remove_pending()?;
    for entry in folder.entries(STEPS)?.into_iter().filter(|entry| entry.thing == Thing::Folder) {
        let name = Path::new(&entry.name);
        let inner = folder.folder(name)?;
        match entry.name.to_str() {
            Some(CONVERGENCE) => {
                for file in [convergence::STATE, convergence::TRANSITION, convergence::SCOPE] {
                    inner.remove(file)?;
                }
            }
            Some(CALLED) => workflow(&inner, written)?,
            _ => artifact(&inner, &PathBuf::new(), written)?,
        }
        remove_empty(folder, name)?;
    }
    folder.remove(META).map(drop)
}

/// Removes the files and links of an artifact that are as they were written. Recursion is bounded by how deep artifacts
/// may be: deeper folders are none of ours.
fn artifact(folder: &Root, within: &Path, written: &WrittenArtifacts) -> Result<(), PathError> {
    if within.components().count() > skein_core::limits::ARTIFACT_DEPTH {
        return Ok(());
    }
    for entry in folder.entries(STEPS)? {
        let (name, path) = (Path::new(&entry.name), within.join(&entry.name));
        let Some(key) = path.to_str() else { continue };
        match entry.thing {
            Thing::Folder => {
                artifact(&folder.folder(name)?, &path, written)?;
                remove_empty(folder, name)?;
            }
            Thing::File => {
                let kept = written.files.get(key).into_iter().flatten();
                if kept.into_iter().any(|kept| is_copy(folder, name, kept)) {
                    folder.remove(name)?;
                }
            }
            Thing::Link => {
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

fn remove_empty(parent: &Root, name: &Path) -> Result<(), PathError> {
    if parent.folder(name)?.entries(STEPS)?.is_empty() {
        parent.remove(name)?;
    }
    Ok(())
}
