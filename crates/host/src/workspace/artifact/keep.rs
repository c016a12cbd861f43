//! Keeping: what an attempt declared, out of its workspace into the run's folder.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use skein_core::{engine::AttemptId, ir::ArtifactOut, plan::Hash};

use super::{
    ArtifactError, ArtifactLimits, Found, Kept, KeptArtifact, KeptLink,
    copy::{Source, copy, settle},
};
use crate::workspace::{
    Root, RunDir,
    root::{Identity, Opened, PathError, Thing, Why},
};

/// Everything about the artifacts, and beside it a folder with a folder for each.
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const FILES: &str = "files";
/// More than a manifest of as many files as are kept can have.
const MANIFEST_BYTES: u64 = 1024 * 1024 * 1024;

/// How many bytes each attempt of a run has kept, as far as that has been looked up. What is kept stays as it is, and a long
/// run would read all of it each time that something is added.
#[derive(Debug, Default)]
pub struct Sizes(BTreeMap<AttemptId, u64>);

impl RunDir {
    /// Copies what an attempt gave. If it was kept before, that stands, whatever the workspace holds now.
    /// Folders in `without` are left out: where Skein keeps its own files, and the context.
    pub fn keep(
        &self,
        attempt: AttemptId,
        workspace: &Root,
        gives: &[ArtifactOut],
        without: &[Identity],
        limits: ArtifactLimits,
    ) -> Result<Kept, ArtifactError> {
        if let Some(kept) = self.find_kept(attempt)? {
            return Ok(kept);
        }
        let pending = self.begin_artifacts(attempt)?;
        let kept = keep_all(&pending, workspace, gives, without, limits);
        if kept.is_err() {
            self.drop_artifacts(attempt)?;
        }
        let kept = kept?;
        let manifest = serde_json::to_vec(&kept).expect("a manifest is plain data");
        pending.replace(MANIFEST, &manifest)?;
        self.end_artifacts(attempt)?;
        Ok(kept)
    }

    /// What was kept of an attempt.
    pub fn find_kept(&self, attempt: AttemptId) -> Result<Option<Kept>, ArtifactError> {
        let Some(root) = self.find_artifacts(attempt)? else { return Ok(None) };
        let bytes = root.read(MANIFEST, MANIFEST_BYTES)?;
        let damaged = |error: serde_json::Error| ArtifactError::Damaged {
            attempt: attempt.to_string(),
            why: error.to_string(),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    /// How many bytes all attempts of the run have kept.
    pub fn kept_bytes(&self, sizes: &mut Sizes) -> Result<u64, ArtifactError> {
        let mut known = BTreeMap::new();
        for attempt in self.kept()? {
            let bytes = match sizes.0.get(&attempt) {
                Some(bytes) => *bytes,
                None => self.find_kept(attempt)?.map_or(0, |kept| kept.bytes()),
            };
            known.insert(attempt, bytes);
        }
        sizes.0 = known;
        Ok(sizes.0.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)))
    }
}

fn keep_all(
    pending: &Root,
    workspace: &Root,
    gives: &[ArtifactOut],
    without: &[Identity],
    mut limits: ArtifactLimits,
) -> Result<Kept, ArtifactError> {
    let files = pending.make_folders(FILES, true)?;
    let mut kept = Kept::default();
    for gives in gives {
        let to = files.make_folders(gives.name.as_str(), true)?;
        let keeper = Keeper { without, limits, artifact: blank(gives) };
        let artifact = keeper.keep(workspace, &gives.path, &to).map_err(|error| match error.why {
            // Which of the two limits it was that was reached.
            Why::TooLarge { .. } if limits.run_bytes < limits.artifact_bytes => {
                ArtifactError::RunTooLarge { name: gives.name.clone(), left: limits.run_bytes }
            }
            _ => ArtifactError::Of { name: gives.name.clone(), error },
        })?;
        limits.run_bytes = limits.run_bytes.saturating_sub(artifact.bytes);
        kept.artifacts.push(artifact);
    }
    Ok(kept)
}

fn blank(gives: &ArtifactOut) -> KeptArtifact {
    KeptArtifact {
        name: gives.name.clone(),
        path: String::new(),
        kind: gives.kind.clone(),
        found: Found::Missing,
        bytes: 0,
        hash: Hash::ZERO,
        files: Vec::new(),
        folders: Vec::new(),
        links: Vec::new(),
    }
}

/// Copies one artifact and writes down what it has.
struct Keeper<'a> {
    without: &'a [Identity],
    limits: ArtifactLimits,
    artifact: KeptArtifact,
}

impl Keeper<'_> {
    fn keep(mut self, workspace: &Root, given: &str, to: &Root) -> Result<KeptArtifact, PathError> {
        let path = workspace.normal(given)?;
        self.artifact.path = text(workspace, &path)?.to_owned();
        match workspace.open_existing(given) {
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
            Ok(Opened::File(..)) => {
                self.artifact.found = Found::File;
                let parent = path.parent().unwrap_or(Path::new(""));
                let folder = self.enter(to, parent)?;
                self.file(workspace, &path, &folder, &path)?;
            }
            Ok(Opened::Folder(from)) => {
                self.artifact.found = Found::Folder;
                let folder = self.enter(to, &path)?;
                self.folder(&from, &folder, &path, 0)?;
            }
        }
        settle(to, &self.artifact.files, &self.artifact.folders)?;
        let KeptArtifact { files, folders, links, .. } = &self.artifact;
        self.artifact.hash = match links.is_empty() {
            true => Hash::of_json(&(files, folders)),
            false => Hash::of_json(&(files, folders, links)),
        };
        Ok(self.artifact)
    }

    /// Makes the folders that a path in an artifact begins with.
    fn enter(&mut self, to: &Root, path: &Path) -> Result<Root, PathError> {
        if path.as_os_str().is_empty() {
            return Ok(to.clone());
        }
        let mut around: Vec<&Path> = path.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        around.reverse();
        for path in around {
            self.artifact.folders.push(text(to, path)?.to_owned());
        }
        to.make_folders_unsynced(path, true)
    }

    fn folder(&mut self, from: &Root, to: &Root, path: &Path, depth: usize) -> Result<(), PathError> {
        let failed = |name: &Path, why| Err(PathError::new(from.path(), name, why));
        if depth > self.limits.depth {
            return failed(Path::new("."), Why::TooDeep { max: self.limits.depth });
        }
        for entry in from.entries(self.limits.files)? {
            let name = Path::new(&entry.name);
            let path = path.join(name);
            match entry.thing {
                Thing::File => self.file(from, name, to, &path)?,
                Thing::Folder => {
                    let inner = from.folder(name)?;
                    if self.without.contains(&inner.identity()?) {
                        continue;
                    }
                    self.count(from, name)?;
                    self.artifact.folders.push(text(from, &path)?.to_owned());
                    let to = to.make_folders_unsynced(name, true)?;
                    self.folder(&inner, &to, &path, depth + 1)?;
                }
                Thing::Link => self.link(from, name, &path, depth)?,
                thing => return failed(name, Why::Special(thing)),
            }
        }
        Ok(())
    }

    /// Keeps a symbolic link that leads to something within the artifact, which `depth` folders are above it.
    fn link(&mut self, from: &Root, name: &Path, path: &Path, depth: usize) -> Result<(), PathError> {
        self.count(from, name)?;
        let target = from.read_link(name)?;
        if !stays_within(&target, depth) {
            return Err(PathError::new(from.path(), name, Why::LinkLeaves));
        }
        let target = text(from, &target)?.to_owned();
        self.artifact.links.push(KeptLink { path: text(from, path)?.to_owned(), target });
        Ok(())
    }

    fn file(&mut self, from: &Root, name: &Path, to: &Root, path: &Path) -> Result<(), PathError> {
        self.count(from, name)?;
        let most = self.limits.artifact_bytes.min(self.limits.run_bytes);
        let source = Source { root: from, name, max: most.saturating_sub(self.artifact.bytes), hash: None };
        let leaf = PathBuf::from(path.file_name().unwrap_or_default());
        let kept = copy(&source, to, &leaf, text(from, path)?.to_owned());
        let file = kept.map_err(|error| match error.why {
            // People are told the limit, not what was left of it.
            Why::TooLarge { size, .. } => {
                let size = self.artifact.bytes.saturating_add(size);
                PathError { why: Why::TooLarge { size, max: most }, ..error }
            }
            _ => error,
        })?;
        self.artifact.bytes += file.bytes;
        self.artifact.files.push(file);
        Ok(())
    }

    /// There is room for one more.
    fn count(&self, from: &Root, name: &Path) -> Result<(), PathError> {
        let max = self.limits.files;
        let KeptArtifact { files, folders, links, .. } = &self.artifact;
        match files.len() + folders.len() + links.len() < max {
            true => Ok(()),
            false => Err(PathError::new(from.path(), name, Why::TooMany { max })),
        }
    }
}

/// Returns true if the target of a link that is so many folders below its artifact's own stays within that. Steps up are only
/// allowed at the start: after a name they could start from wherever another link leads.
fn stays_within(target: &Path, depth: usize) -> bool {
    let ups = target.components().take_while(|part| matches!(part, Component::ParentDir)).count();
    let rest = target.components().skip(ups);
    let mut named = rest.clone().filter(|part| !matches!(part, Component::CurDir));
    ups <= depth && named.all(|part| matches!(part, Component::Normal(_))) && target.is_relative()
}

/// A path as a manifest holds it.
fn text<'a>(root: &Root, path: &'a Path) -> Result<&'a str, PathError> {
    path.to_str().ok_or_else(|| PathError::new(root.path(), path, Why::NotText))
}
