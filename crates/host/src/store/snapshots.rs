//! Snapshots of the states of long runs, one file for each: a cache, so nothing is synced and errors are ignored.

use std::{fs, path::PathBuf, sync::Arc};

use skein_core::{ids::RunId, plan::ContentHash};

use super::staging::{StagingFolder, make_dir};

#[derive(Debug)]
pub(super) struct SnapshotStore {
    dir: PathBuf,
    aside: Arc<StagingFolder>,
}

impl SnapshotStore {
    pub(super) fn new(dir: PathBuf, aside: Arc<StagingFolder>) -> SnapshotStore {
        SnapshotStore { dir, aside }
    }

    pub(super) fn write_snapshot(&self, run: &RunId, bytes: &[u8]) {
        // Without a snapshot, more of the journal is read the next time.
        let _ = make_dir(&self.dir).and_then(|_| self.aside.write_file(&self.snapshot_path(run), bytes, false));
    }

    pub(super) fn get(&self, run: &RunId) -> Option<Vec<u8>> {
        let path = self.snapshot_path(run);
        fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        fs::read(path).ok()
    }

    /// Returns the path, named by the hash of the run's id: ids can be as long as file names, or differ only in case.
    fn snapshot_path(&self, run: &RunId) -> PathBuf {
        self.dir.join(ContentHash::hash_bytes(run.as_str().as_bytes()).to_string())
    }
}
