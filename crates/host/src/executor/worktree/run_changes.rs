//! The diff of all changes of a run in a workspace: from before its first editing step until now.
//!
//! Owns the initial snapshot and the file. The diff is for people: if it cannot be written, the work is still valid.

use std::io::Write;

use skein_core::limits;

use super::{
    attempt_workspace::{AttemptContext, AttemptWorkspace, repository_prefix},
    parse_object_id,
    snapshot_repo::SnapshotRepo,
    take_snapshot::{SnapshotRules, SnapshotView, WorkspaceSnapshot},
};
use crate::workspace::{RootFolder, RunDir};

/// The file with the initial tree, in the folder of the snapshot repository.
const FIRST: &str = "first";

impl AttemptWorkspace {
    /// Saves the tree of the workspace before the run changes anything.
    pub(super) fn save_initial_tree(
        &self,
        visit: AttemptContext<'_>,
        before: Option<&str>,
    ) -> Result<(), String> {
        let shadow = self.open_snapshot_repo(visit)?;
        if shadow.origin.is_none() || read_initial_tree(&shadow).is_some() {
            return Ok(());
        }
        let tree = match before.filter(|_| self.matches_run_view()) {
            Some(before) => before.to_owned(),
            None => shadow.take_snapshot(&self.run_view(&shadow))?.tree,
        };
        shadow.root().replace_file(FIRST, tree.as_bytes()).map_err(|error| error.to_string())
    }

    /// Writes the diff of all changes so far.
    pub(super) fn write_run_changes(
        &self,
        visit: AttemptContext<'_>,
        after: Option<&WorkspaceSnapshot>,
    ) -> Result<(), String> {
        let shadow = self.open_snapshot_repo(visit)?;
        let Some(first) = read_initial_tree(&shadow) else { return Ok(()) };
        let now = match after.filter(|_| self.matches_run_view()) {
            Some(after) => after.tree.clone(),
            None => shadow.take_snapshot(&self.run_view(&shadow))?.tree,
        };
        match first == now {
            true => shadow.root().remove(RunDir::CHANGES).map(drop).map_err(|error| error.to_string()),
            false => write_changes_file(shadow.root(), &shadow.render_diff(&first, &now)?),
        }
    }

    /// True if the attempt's own snapshots show the same files as the run's diff.
    fn matches_run_view(&self) -> bool {
        let view = self.view.as_ref().filter(|_| self.own.is_none());
        view.is_some_and(|view| view.largest == Some(limits::CHANGED_FILE_BYTES))
    }

    /// The view of the shared workspace, without large files.
    fn run_view(&self, shadow: &SnapshotRepo<'_>) -> SnapshotView {
        SnapshotView {
            root: shadow.top.clone(),
            prefix: repository_prefix(shadow, self.base.path()),
            index: "run".to_owned(),
            rules: SnapshotRules::Repository,
            largest: Some(limits::CHANGED_FILE_BYTES),
        }
    }
}

fn read_initial_tree(shadow: &SnapshotRepo<'_>) -> Option<String> {
    parse_object_id(&shadow.root().read_file(FIRST, limits::DECISION_BYTES).ok()?).ok()
}

fn write_changes_file(folder: &RootFolder, text: &[u8]) -> Result<(), String> {
    let mut file = folder.create_file(RunDir::CHANGES, false).map_err(|error| error.to_string())?;
    file.write_all(text).map_err(|error| error.to_string())?;
    file.persist_unsynced().map_err(|error| error.to_string())
}
