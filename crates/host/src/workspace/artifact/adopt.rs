//! Adoption of artifacts: copies those of another run's attempt as if an attempt of this run had produced them.

use skein_core::{engine::AttemptId, limits};

use super::{
    ArtifactError, ArtifactManifest,
    copy::sync_copies,
    keep::{FILES, MANIFEST},
    put::place_files,
};
use crate::workspace::{RootFolder, RunDir};

impl RunDir {
    /// Copies the artifacts of an attempt of another run, so that nothing of that run is needed any more. Returns true
    /// if there were any.
    pub fn adopt_artifacts(&self, from: &RunDir, theirs: AttemptId, ours: AttemptId) -> Result<bool, ArtifactError> {
        let seen = from.find_attempt(theirs)?;
        let seen = seen.map(|files| files.read_observation(limits::VALUE_BYTES as u64)).transpose()?.flatten();
        if let Some(seen) = seen {
            self.create_attempt(ours)?.write_observation(&seen)?;
        }
        let Some(kept) = from.find_manifest(theirs)? else { return Ok(false) };
        if self.find_manifest(ours)?.is_some() {
            return Ok(true);
        }
        let pending = self.begin_artifacts(ours)?;
        let copied = copy_all(from, theirs, &kept, &pending);
        if copied.is_err() {
            self.drop_artifacts(ours)?;
        }
        copied?;
        let manifest = serde_json::to_vec(&kept).expect("a manifest is plain data");
        pending.replace_file(MANIFEST, &manifest)?;
        self.finish_artifacts(ours)?;
        Ok(true)
    }
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
