//! Placement of kept artifacts: in the workspace of another attempt, in a context, or in the folder of another run, which
//! adopts them as if one of its own attempts had produced them.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use skein_core::{engine::AttemptId, ids::ArtifactName, limits};

use crate::workspace::{
    RootFolder, RunDir,
    artifact::{
        ArtifactError, ArtifactForm, ArtifactManifest, KeptArtifact, KeptFile, KeptLink,
        keep::{CopySource, FILES, copy_file, is_copy, sync_copies},
    },
    control_files::control_owner,
    root::{EntryKind, FilePathError, PathProblem},
};

impl RunDir {
    /// Copies an artifact into a folder of this name, beside existing files; a file of the same path is replaced. If
    /// the artifact is one file of that very name and such a file exists, the file is replaced and no folder is
    /// created. Files that would make a folder a git repository are left out. An artifact that is missing, or was never
    /// produced, is an empty folder. Returns the paths of the copied files. They may not be durable: whoever starts the
    /// consumer again copies them again.
    pub fn put_artifact(
        &self,
        from: Option<(AttemptId, &KeptArtifact)>,
        to: &RootFolder,
        name: &ArtifactName,
    ) -> Result<Vec<PathBuf>, ArtifactError> {
        let top = Path::new(name.as_str());
        if let Some(of) = control_owner(top) {
            return Err(FilePathError::new(to.path(), top, PathProblem::Control(of)).into());
        }
        if let Some((attempt, artifact)) = from.filter(|(_, artifact)| artifact.is_file_named(name))
            && to.entry_kind(top)? == Some(EntryKind::File)
        {
            let of = |error| ArtifactError::Of { name: artifact.name.clone(), error };
            place_files(&self.kept_files(attempt, artifact)?, &artifact.files, to).map_err(of)?;
            return Ok(vec![top.to_owned()]);
        }
        let folder = to.make_folders_unsynced(top, false)?;
        let Some((attempt, artifact)) = from else { return Ok(Vec::new()) };
        let artifact = &artifact.without_repositories();
        let of = |error| ArtifactError::Of { name: artifact.name.clone(), error };
        let kept = self.kept_files(attempt, artifact)?;
        for path in &artifact.folders {
            folder.make_folders_unsynced(path, false).map_err(of)?;
        }
        place_files(&kept, &artifact.files, &folder).map_err(of)?;
        for link in &artifact.links {
            make_link(&folder, link).map_err(of)?;
        }
        let paths = artifact.files.iter().map(|file| &file.path).chain(artifact.links.iter().map(|link| &link.path));
        Ok(paths.map(|path| top.join(path)).collect())
    }

    /// Like [`RunDir::put_artifact`], but the files are durable.
    pub(in crate::workspace) fn put_artifact_synced(
        &self,
        from: Option<(AttemptId, &KeptArtifact)>,
        to: &RootFolder,
        name: &ArtifactName,
    ) -> Result<(), ArtifactError> {
        self.put_artifact(from, to, name)?;
        if let Some((_, artifact)) = from {
            let artifact = artifact.without_repositories();
            sync_copies(&to.open_folder(name.as_str())?, &artifact.files, &artifact.folders)?;
        }
        Ok(to.sync()?)
    }

    /// Copies the artifacts of an attempt of another run, so that nothing of that run is needed any more. Returns true
    /// if there were any.
    pub(crate) fn adopt_artifacts(
        &self,
        from: &RunDir,
        theirs: AttemptId,
        ours: AttemptId,
    ) -> Result<bool, ArtifactError> {
        let files = from.find_attempt(theirs)?;
        let observation = files.map(|files| files.read_observation(limits::VALUE_BYTES as u64)).transpose()?;
        if let Some(observation) = observation.flatten() {
            self.create_attempt(ours)?.write_observation(&observation)?;
        }
        let Some(kept) = from.find_manifest(theirs)? else { return Ok(false) };
        if self.find_manifest(ours)?.is_some() {
            return Ok(true);
        }
        self.assemble_artifacts(ours, |pending| copy_all(from, theirs, &kept, pending).map(|()| kept))?;
        Ok(true)
    }

    /// Returns the folder with the copied files of an artifact.
    fn kept_files(&self, attempt: AttemptId, artifact: &KeptArtifact) -> Result<RootFolder, ArtifactError> {
        let gone = |why: &str| ArtifactError::Damaged { attempt: attempt.to_string(), why: why.to_owned() };
        let root = self.find_artifacts(attempt)?.ok_or_else(|| gone("the folder no longer exists"))?;
        Ok(root.open_folder(Path::new(FILES).join(artifact.name.as_str()))?)
    }
}

impl KeptArtifact {
    /// Returns true if it is one file, at the top of the workspace and of this name.
    fn is_file_named(&self, name: &ArtifactName) -> bool {
        self.found == ArtifactForm::File && matches!(&self.files[..], [only] if only.path == name.as_str())
    }

    /// Returns the artifact without anything that git would take for a repository: `.git` folders and files, and the
    /// files that make a folder a bare repository. Its author could make git run programs for the next worker there.
    pub(super) fn without_repositories(&self) -> Cow<'_, KeptArtifact> {
        let is_git = |path: &str| Path::new(path).iter().any(|part| part.eq_ignore_ascii_case(".git"));
        let folders: BTreeSet<&Path> = self.folders.iter().map(Path::new).collect();
        let files: BTreeSet<&Path> = self.files.iter().map(|file| Path::new(&file.path)).collect();
        let heads = files.iter().filter(|path| path.ends_with("HEAD"));
        let bare: BTreeSet<&Path> = heads
            .filter_map(|path| path.parent())
            .filter(|folder| {
                let has = |name: &str| folders.contains(folder.join(name).as_path());
                has("objects") && has("refs") || files.contains(folder.join("commondir").as_path())
            })
            .collect();
        let makes_bare = |path: &str| {
            let path = Path::new(path);
            (path.ends_with("HEAD") || path.ends_with("commondir"))
                && path.parent().is_some_and(|folder| bare.contains(folder))
        };
        let left_out = |path: &str| is_git(path) || makes_bare(path);
        if !self.files.iter().any(|file| left_out(&file.path))
            && !self.folders.iter().any(|path| is_git(path))
            && !self.links.iter().any(|link| left_out(&link.path))
        {
            return Cow::Borrowed(self);
        }
        let mut artifact = self.clone();
        artifact.files.retain(|file| !left_out(&file.path));
        artifact.folders.retain(|path| !is_git(path));
        artifact.links.retain(|link| !left_out(&link.path));
        Cow::Owned(artifact)
    }

    /// Returns true if a part of the artifact is left out where it is placed.
    pub(crate) fn holds_repository(&self) -> bool {
        matches!(self.without_repositories(), Cow::Owned(_))
    }
}

/// Creates a link of an artifact, unless it exists already.
fn make_link(folder: &RootFolder, link: &KeptLink) -> Result<(), FilePathError> {
    let target = Path::new(&link.target);
    match folder.read_link(&link.path) {
        Ok(there) if there == target => Ok(()),
        _ => folder.replace_link(&link.path, target),
    }
}

/// Copies files, folder by folder. A file that is already equal is not written, so that its modification time does not
/// change.
fn place_files(kept: &RootFolder, files: &[KeptFile], to: &RootFolder) -> Result<(), FilePathError> {
    let mut current: Option<(PathBuf, RootFolder)> = None;
    for file in files {
        let path = Path::new(&file.path);
        let parent = path.parent().unwrap_or(Path::new(""));
        if current.as_ref().is_none_or(|(open, _)| open != parent) {
            let folder = if parent.as_os_str().is_empty() { to.clone() } else { to.open_folder(parent)? };
            current = Some((parent.to_owned(), folder));
        }
        let Some((_, folder)) = &current else { continue };
        let leaf = Path::new(path.file_name().unwrap_or_default());
        if is_copy(folder, leaf, file) {
            continue;
        }
        let source = CopySource { root: kept, name: path, max: file.bytes, hash: Some(file.hash) };
        copy_file(&source, folder, leaf, file.path.clone())?;
    }
    Ok(())
}

fn copy_all(
    from: &RunDir,
    theirs: AttemptId,
    kept: &ArtifactManifest,
    pending: &RootFolder,
) -> Result<(), ArtifactError> {
    let files = pending.make_folders(FILES, true)?;
    for artifact in &kept.artifacts {
        let of = |error| ArtifactError::Of { name: artifact.name.clone(), error };
        let source = from.kept_files(theirs, artifact)?;
        let to = files.make_folders(artifact.name.as_str(), true)?;
        for folder in &artifact.folders {
            to.make_folders_unsynced(folder, true).map_err(of)?;
        }
        place_files(&source, &artifact.files, &to).map_err(of)?;
        sync_copies(&to, &artifact.files, &artifact.folders).map_err(of)?;
    }
    Ok(())
}
