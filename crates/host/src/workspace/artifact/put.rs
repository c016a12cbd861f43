//! Putting: what was kept of one attempt, into the workspace of another or into a context.

use std::path::{Path, PathBuf};

use skein_core::{engine::AttemptId, ids::ArtifactName};

use super::{
    ArtifactError, KeptArtifact, KeptFile,
    copy::{Source, copy, has, settle},
    keep::FILES,
};
use crate::workspace::{
    Root, RunDir, control,
    root::{PathError, Why},
};

impl RunDir {
    /// Copies an artifact into a folder of this name, beside what is there; a file of the same path is replaced. An
    /// artifact that is missing, or was never given, is an empty folder. Gives the paths that it put there. They may not
    /// last: whoever starts the consumer again puts them there again.
    pub fn put(
        &self,
        from: Option<(AttemptId, &KeptArtifact)>,
        to: &Root,
        name: &ArtifactName,
    ) -> Result<Vec<PathBuf>, ArtifactError> {
        let top = Path::new(name.as_str());
        if let Some(of) = control::owner(top) {
            return Err(PathError::new(to.path(), top, Why::Control(of)).into());
        }
        let folder = to.make_folders_unsynced(top, false)?;
        let Some((attempt, artifact)) = from else { return Ok(Vec::new()) };
        let of = |error| ArtifactError::Of { name: artifact.name.clone(), error };
        let kept = self.kept_files(attempt, artifact)?;
        for path in &artifact.folders {
            folder.make_folders_unsynced(path, false).map_err(of)?;
        }
        place(&kept, &artifact.files, &folder).map_err(of)?;
        Ok(artifact.files.iter().map(|file| top.join(&file.path)).collect())
    }

    /// The same, and it lasts.
    pub(in crate::workspace) fn put_to_last(
        &self,
        from: Option<(AttemptId, &KeptArtifact)>,
        to: &Root,
        name: &ArtifactName,
    ) -> Result<(), ArtifactError> {
        self.put(from, to, name)?;
        if let Some((_, artifact)) = from {
            settle(&to.folder(name.as_str())?, &artifact.files, &artifact.folders)?;
        }
        Ok(to.sync()?)
    }

    /// The copies of the files of an artifact.
    pub(super) fn kept_files(
        &self,
        attempt: AttemptId,
        artifact: &KeptArtifact,
    ) -> Result<Root, ArtifactError> {
        let gone = |why: &str| ArtifactError::Damaged { attempt: attempt.to_string(), why: why.to_owned() };
        let root = self.find_artifacts(attempt)?.ok_or_else(|| gone("it is not there any more"))?;
        Ok(root.folder(Path::new(FILES).join(artifact.name.as_str()))?)
    }
}

/// Copies files, those of one folder after another. What is the same already is left alone, so that nobody who looks
/// at times thinks that it is new.
pub(super) fn place(kept: &Root, files: &[KeptFile], to: &Root) -> Result<(), PathError> {
    let mut current: Option<(PathBuf, Root)> = None;
    for file in files {
        let path = Path::new(&file.path);
        let parent = path.parent().unwrap_or(Path::new(""));
        if current.as_ref().is_none_or(|(open, _)| open != parent) {
            let folder = if parent.as_os_str().is_empty() { to.clone() } else { to.folder(parent)? };
            current = Some((parent.to_owned(), folder));
        }
        let Some((_, folder)) = &current else { continue };
        let leaf = Path::new(path.file_name().unwrap_or_default());
        if has(folder, leaf, file) {
            continue;
        }
        let source = Source { root: kept, name: path, max: file.bytes, hash: Some(file.hash) };
        copy(&source, folder, leaf, file.path.clone())?;
    }
    Ok(())
}
