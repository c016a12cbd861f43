//! Keeping: copies the declared artifacts of an attempt from its workspace into the run's folder. Each copy is hashed
//! while it is made, is complete or absent, and never that of a file that is being written.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
};

use skein_core::{engine::AttemptId, ir::OutputArtifact, plan::ContentHash};

use crate::workspace::{
    RootFolder, RunDir,
    artifact::{ArtifactError, ArtifactForm, ArtifactLimits, ArtifactManifest, KeptArtifact, KeptFile, KeptLink},
    root::{EntryKind, FileIdentity, FileOrFolder, FilePathError, FileStamp, PathProblem},
};

/// The description of the artifacts, and beside it a folder with one folder per artifact.
const MANIFEST: &str = "manifest.json";
pub(super) const FILES: &str = "files";
/// The maximum size, more than a manifest of the maximum number of files can have.
const MANIFEST_BYTES: u64 = 1024 * 1024 * 1024;

/// The number of bytes that each attempt of a run has kept, as far as it was looked up. Kept artifacts do not change,
/// and a long run would read all manifests each time that something is added.
#[derive(Debug, Default)]
pub(crate) struct KeptSizes(BTreeMap<AttemptId, u64>);

impl RunDir {
    /// Copies the artifacts of an attempt. Artifacts that were kept before are not changed, whatever the workspace
    /// contains now. Folders in `without` are left out: Skein's own files, and the context.
    pub fn keep_artifacts(
        &self,
        attempt: AttemptId,
        workspace: &RootFolder,
        gives: &[OutputArtifact],
        without: &[FileIdentity],
        limits: ArtifactLimits,
    ) -> Result<ArtifactManifest, ArtifactError> {
        if let Some(kept) = self.find_manifest(attempt)? {
            return Ok(kept);
        }
        self.assemble_artifacts(attempt, |pending| keep_all(pending, workspace, gives, without, limits))
    }

    /// Assembles the artifacts of an attempt, all of them or none.
    pub(super) fn assemble_artifacts(
        &self,
        attempt: AttemptId,
        fill: impl FnOnce(&RootFolder) -> Result<ArtifactManifest, ArtifactError>,
    ) -> Result<ArtifactManifest, ArtifactError> {
        let pending = self.begin_artifacts(attempt)?;
        let filled = fill(&pending);
        if filled.is_err() {
            self.drop_artifacts(attempt)?;
        }
        let kept = filled?;
        let manifest = serde_json::to_vec(&kept).expect("a manifest is plain data");
        pending.replace_file(MANIFEST, &manifest)?;
        self.finish_artifacts(attempt)?;
        Ok(kept)
    }

    /// Returns the manifest of the kept artifacts of an attempt.
    pub fn find_manifest(&self, attempt: AttemptId) -> Result<Option<ArtifactManifest>, ArtifactError> {
        let Some(root) = self.find_artifacts(attempt)? else { return Ok(None) };
        let bytes = root.read_file(MANIFEST, MANIFEST_BYTES)?;
        let damaged =
            |error: serde_json::Error| ArtifactError::Damaged { attempt: attempt.to_string(), why: error.to_string() };
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    /// Returns the number of bytes that all attempts of the run have kept.
    pub(crate) fn kept_bytes(&self, sizes: &mut KeptSizes) -> Result<u64, ArtifactError> {
        let mut known = BTreeMap::new();
        for attempt in self.list_kept_attempts()? {
            let bytes = match sizes.0.get(&attempt) {
                Some(bytes) => *bytes,
                None => self.find_manifest(attempt)?.map_or(0, |kept| kept.total_bytes()),
            };
            known.insert(attempt, bytes);
        }
        sizes.0 = known;
        Ok(sizes.0.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)))
    }
}

fn keep_all(
    pending: &RootFolder,
    workspace: &RootFolder,
    gives: &[OutputArtifact],
    without: &[FileIdentity],
    mut limits: ArtifactLimits,
) -> Result<ArtifactManifest, ArtifactError> {
    let files = pending.make_folders(FILES, true)?;
    let mut kept = ArtifactManifest::default();
    for gives in gives {
        let to = files.make_folders(gives.name.as_str(), true)?;
        let keeper = ArtifactKeeper { without, limits, artifact: empty_artifact(gives) };
        let artifact = keeper.keep_artifact(workspace, &gives.path, &to).map_err(|error| match error.why {
            // Reports the limit that was reached.
            PathProblem::TooLarge { .. } if limits.run_bytes < limits.artifact_bytes => {
                ArtifactError::RunTooLarge { name: gives.name.clone(), left: limits.run_bytes }
            }
            _ => ArtifactError::Of { name: gives.name.clone(), error },
        })?;
        limits.run_bytes = limits.run_bytes.saturating_sub(artifact.bytes);
        kept.artifacts.push(artifact);
    }
    Ok(kept)
}

fn empty_artifact(gives: &OutputArtifact) -> KeptArtifact {
    KeptArtifact {
        name: gives.name.clone(),
        path: String::new(),
        kind: gives.kind.clone(),
        found: ArtifactForm::Missing,
        bytes: 0,
        hash: ContentHash::ZERO,
        files: Vec::new(),
        folders: Vec::new(),
        links: Vec::new(),
    }
}

/// Copies one artifact and records its contents.
struct ArtifactKeeper<'a> {
    without: &'a [FileIdentity],
    limits: ArtifactLimits,
    artifact: KeptArtifact,
}

impl ArtifactKeeper<'_> {
    fn keep_artifact(
        mut self,
        workspace: &RootFolder,
        given: &str,
        to: &RootFolder,
    ) -> Result<KeptArtifact, FilePathError> {
        let path = workspace.normalize_name(given)?;
        self.artifact.path = path_text(workspace, &path)?.to_owned();
        match workspace.open_existing(given) {
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
            Ok(FileOrFolder::File(..)) => {
                self.artifact.found = ArtifactForm::File;
                let parent = path.parent().unwrap_or(Path::new(""));
                let folder = self.make_parents(to, parent)?;
                self.keep_file(workspace, &path, &folder, &path)?;
            }
            Ok(FileOrFolder::Folder(from)) => {
                self.artifact.found = ArtifactForm::Folder;
                let folder = self.make_parents(to, &path)?;
                self.keep_folder(&from, &folder, &path, 0)?;
            }
        }
        sync_copies(to, &self.artifact.files, &self.artifact.folders)?;
        let KeptArtifact { files, folders, links, .. } = &self.artifact;
        self.artifact.hash = match links.is_empty() {
            true => ContentHash::hash_json(&(files, folders)),
            false => ContentHash::hash_json(&(files, folders, links)),
        };
        Ok(self.artifact)
    }

    /// Creates the parent folders of a path in an artifact.
    fn make_parents(&mut self, to: &RootFolder, path: &Path) -> Result<RootFolder, FilePathError> {
        if path.as_os_str().is_empty() {
            return Ok(to.clone());
        }
        let mut around: Vec<&Path> = path.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        around.reverse();
        for path in around {
            self.artifact.folders.push(path_text(to, path)?.to_owned());
        }
        to.make_folders_unsynced(path, true)
    }

    fn keep_folder(
        &mut self,
        from: &RootFolder,
        to: &RootFolder,
        path: &Path,
        depth: usize,
    ) -> Result<(), FilePathError> {
        let failed = |name: &Path, why| Err(FilePathError::new(from.path(), name, why));
        if depth > self.limits.depth {
            return failed(Path::new("."), PathProblem::TooDeep { max: self.limits.depth });
        }
        for entry in from.list_entries(self.limits.files)? {
            let name = Path::new(&entry.name);
            let path = path.join(name);
            match entry.thing {
                EntryKind::File => self.keep_file(from, name, to, &path)?,
                EntryKind::Folder => {
                    let inner = from.open_folder(name)?;
                    if self.without.contains(&inner.identity()?) {
                        continue;
                    }
                    self.check_count(from, name)?;
                    self.artifact.folders.push(path_text(from, &path)?.to_owned());
                    let to = to.make_folders_unsynced(name, true)?;
                    self.keep_folder(&inner, &to, &path, depth + 1)?;
                }
                EntryKind::Link => self.keep_link(from, name, &path, depth)?,
                thing => return failed(name, PathProblem::Special(thing)),
            }
        }
        Ok(())
    }

    /// Keeps a symbolic link whose target is within the artifact, whose root is `depth` folders above the link.
    fn keep_link(&mut self, from: &RootFolder, name: &Path, path: &Path, depth: usize) -> Result<(), FilePathError> {
        self.check_count(from, name)?;
        let target = from.read_link(name)?;
        if !stays_within(&target, depth) {
            return Err(FilePathError::new(from.path(), name, PathProblem::LinkLeaves));
        }
        let target = path_text(from, &target)?.to_owned();
        self.artifact.links.push(KeptLink { path: path_text(from, path)?.to_owned(), target });
        Ok(())
    }

    fn keep_file(&mut self, from: &RootFolder, name: &Path, to: &RootFolder, path: &Path) -> Result<(), FilePathError> {
        self.check_count(from, name)?;
        let most = self.limits.artifact_bytes.min(self.limits.run_bytes);
        let source = CopySource { root: from, name, max: most.saturating_sub(self.artifact.bytes), hash: None };
        let leaf = PathBuf::from(path.file_name().unwrap_or_default());
        let kept = copy_file(&source, to, &leaf, path_text(from, path)?.to_owned());
        let file = kept.map_err(|error| match error.why {
            // The message contains the limit, not the rest of it.
            PathProblem::TooLarge { size, .. } => {
                let size = self.artifact.bytes.saturating_add(size);
                FilePathError { why: PathProblem::TooLarge { size, max: most }, ..error }
            }
            _ => error,
        })?;
        self.artifact.bytes += file.bytes;
        self.artifact.files.push(file);
        Ok(())
    }

    /// Checks that one more file is allowed.
    fn check_count(&self, from: &RootFolder, name: &Path) -> Result<(), FilePathError> {
        let max = self.limits.files;
        let KeptArtifact { files, folders, links, .. } = &self.artifact;
        match files.len() + folders.len() + links.len() < max {
            true => Ok(()),
            false => Err(FilePathError::new(from.path(), name, PathProblem::TooMany { max })),
        }
    }
}

/// Returns true if the target of a link, `depth` folders below its artifact's root, stays within the artifact. Steps up
/// are only allowed at the start: after a name they could start from the target of another link.
fn stays_within(target: &Path, depth: usize) -> bool {
    let ups = target.components().take_while(|part| matches!(part, Component::ParentDir)).count();
    let rest = target.components().skip(ups);
    let mut named = rest.clone().filter(|part| !matches!(part, Component::CurDir));
    ups <= depth && named.all(|part| matches!(part, Component::Normal(_))) && target.is_relative()
}

/// Returns a path as a manifest stores it.
fn path_text<'a>(root: &RootFolder, path: &'a Path) -> Result<&'a str, FilePathError> {
    path.to_str().ok_or_else(|| FilePathError::new(root.path(), path, PathProblem::NotText))
}

/// The maximum number of copies of a file that keeps changing.
const TRIES: u32 = 4;
const BUFFER: usize = 128 * 1024;
/// From this number of files on, one sync of everything takes less time than one per file.
const MANY: usize = 64;

/// A source file, its maximum size and its expected hash.
pub(super) struct CopySource<'a> {
    pub root: &'a RootFolder,
    pub name: &'a Path,
    pub max: u64,
    pub hash: Option<ContentHash>,
}

/// Copies a file into a folder, completely; it is durable after [`sync_copies`]. `path` is the name of the result.
pub(super) fn copy_file(
    from: &CopySource<'_>,
    to: &RootFolder,
    leaf: &Path,
    path: String,
) -> Result<KeptFile, FilePathError> {
    let failed = |why: PathProblem| FilePathError::new(from.root.path(), from.name, why);
    for _ in 0..TRIES {
        let (mut file, before) = from.root.open_file(from.name)?;
        if before.size > from.max {
            return Err(failed(PathProblem::TooLarge { size: before.size, max: from.max }));
        }
        let mut pending = to.create_file(leaf, before.executable)?;
        // One byte more than the expected size shows that the file grows.
        let (bytes, hash) = match copy_hashed(&mut file, &mut pending, before.size + 1) {
            Ok(done) => done,
            Err(CopyError::Read(error)) => return Err(failed(error.into())),
            Err(CopyError::Write(error)) => return Err(FilePathError::new(to.path(), leaf, error)),
        };
        let after = FileStamp::from_file(&file).map_err(|error| failed(error.into()))?;
        if before == after && bytes == before.size {
            if from.hash.is_some_and(|wanted| wanted != hash) {
                let why = "its hash does not match: it was changed since it was kept";
                return Err(failed(PathProblem::Io(io::Error::other(why))));
            }
            pending.persist_unsynced()?;
            return Ok(KeptFile { path, bytes, hash, executable: before.executable });
        }
    }
    Err(failed(PathProblem::Changing))
}

/// Copies one file that is not part of an artifact. It is durable when this returns.
pub(in crate::workspace) fn copy_single_file(
    root: &RootFolder,
    name: &Path,
    to: &RootFolder,
    leaf: &Path,
    max: u64,
) -> Result<KeptFile, FilePathError> {
    let path = leaf.to_string_lossy().into_owned();
    let copied = copy_file(&CopySource { root, name, max, hash: None }, to, leaf, path)?;
    sync_file(to, leaf)?;
    to.sync()?;
    Ok(copied)
}

/// Makes the copied files of a folder durable.
pub(super) fn sync_copies(to: &RootFolder, files: &[KeptFile], folders: &[String]) -> Result<(), FilePathError> {
    if files.len() + folders.len() > MANY {
        return to.sync_all();
    }
    for file in files {
        sync_file(to, Path::new(&file.path))?;
    }
    for folder in folders {
        to.open_folder(folder)?.sync()?;
    }
    to.sync()
}

fn sync_file(root: &RootFolder, name: &Path) -> Result<(), FilePathError> {
    let (file, _) = root.open_file(name)?;
    file.sync_all().map_err(|error| FilePathError::new(root.path(), name, error))
}

/// Returns true if a folder already has exactly this file.
pub(in crate::workspace) fn is_copy(root: &RootFolder, leaf: &Path, wanted: &KeptFile) -> bool {
    let Ok((mut file, mark)) = root.open_file(leaf) else { return false };
    mark.size == wanted.bytes
        && mark.executable == wanted.executable
        && matches!(copy_hashed(&mut file, &mut io::sink(), wanted.bytes + 1), Ok((_, hash)) if hash == wanted.hash)
}

/// The side of a copy that failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn copy_hashed(from: &mut File, to: &mut impl Write, most: u64) -> Result<(u64, ContentHash), CopyError> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0;
    while bytes < most {
        let want = usize::try_from(most - bytes).unwrap_or(BUFFER).min(BUFFER);
        let count = match from.read(&mut buffer[..want]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count]).map_err(CopyError::Write)?;
        bytes += count as u64;
    }
    Ok((bytes, ContentHash(*hasher.finalize().as_bytes())))
}
