//! Merges the changes of a step worktree into the workspace, all of them or none.
//!
//! Owns the order: the merge is computed without touching a file; then it is noted, together with the report of the
//! attempt; then the workspace is written. If the host dies in between, the next attempt applies the merge without
//! repeating the work.

use std::{path::PathBuf, sync::Arc};

use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptReport},
    ir::ErrorClass,
};

use super::{
    checkout::{CheckoutError, SnapshotCheckout},
    parse_object_id,
    snapshot_repo::SnapshotRepo,
    step_worktree::{PendingMerge, StepWorktree, UnmergedChanges},
    take_snapshot::SnapshotView,
};
use crate::{executor::git::split_names, workspace::RunDir};

/// The maximum number of files that are named in a message.
const NAMED: usize = 20;

/// Merges worktrees into a workspace.
pub(super) struct WorktreeMerge<'a> {
    pub shadow: &'a SnapshotRepo<'a>,
    pub run: &'a RunDir,
    /// The view of the whole workspace.
    pub whole: SnapshotView,
}

/// The merge of two snapshots with a common base.
pub(super) struct MergeResult {
    /// The merged tree. Conflicting files contain conflict markers.
    pub tree: String,
    /// The conflicting files.
    pub unfit: Vec<PathBuf>,
}

impl WorktreeMerge<'_> {
    /// Merges the changes of a worktree. Returns the end of the attempt if it differs from the given report.
    pub fn merge_changes(
        &self,
        own: &mut StepWorktree,
        theirs: &str,
        attempt: AttemptId,
        report: AttemptReport,
    ) -> Result<(), AttemptEnd> {
        let ours = self.shadow.take_snapshot(&self.whole).map_err(|why| self.failed_merge(own, &why))?.tree;
        let out = compute_merge(self.shadow, &self.whole, [&own.note.commit, &ours, theirs])
            .map_err(|why| self.failed_merge(own, &why))?;
        own.note.unfit = Some(UnmergedChanges { theirs: theirs.to_owned(), left: None });
        if !out.unfit.is_empty() {
            own.save().map_err(|why| self.failed_merge(own, &why))?;
            return Err(conflict_end(own, &out.unfit, &report));
        }
        own.note.merging = Some(PendingMerge { attempt, from: ours, to: out.tree, report });
        own.save().map_err(|why| self.failed_merge(own, &why))?;
        self.apply_pending(own)
    }

    /// Applies the noted merge. It is idempotent.
    pub fn apply_pending(&self, own: &mut StepWorktree) -> Result<(), AttemptEnd> {
        let Some(merging) = own.note.merging.clone() else { return Ok(()) };
        let putting = SnapshotCheckout { shadow: self.shadow, run: self.run, view: &self.whole };
        match putting.apply_changes(&merging.from, &merging.to) {
            Ok(()) => {}
            Err(CheckoutError::Changed(files)) => {
                // The merge must be computed again from the present files.
                own.note.merging = None;
                own.save().map_err(|why| self.failed_merge(own, &why))?;
                return Err(conflict_end(own, &files, &merging.report));
            }
            Err(CheckoutError::Failed(why)) => return Err(self.failed_merge(own, &why)),
        }
        own.note.done = true;
        own.save().and_then(|()| own.remove_files()).map_err(|why| self.failed_merge(own, &why))
    }

    fn failed_merge(&self, own: &StepWorktree, why: &str) -> AttemptEnd {
        let message = format!("its changes in {} cannot be merged: {why}", own.path().display());
        AttemptEnd::Failed {
            class: ErrorClass::Transient,
            code: Some("merge_failed".to_owned()),
            message: crate::executor::worker_output::truncate_message(message),
            retry_at: None,
        }
    }
}

/// Computes the merge of two snapshots with a common base.
pub(super) fn compute_merge(
    shadow: &SnapshotRepo<'_>,
    view: &SnapshotView,
    [base, ours, theirs]: [&str; 3],
) -> Result<MergeResult, String> {
    let commit = |tree: &str| {
        let arguments = ["commit-tree", "-m", "skein", "-p", base, tree];
        parse_object_id(&shadow.run(shadow.view_command(view, "merge-commit", &arguments))?.into_stdout()?)
    };
    let (ours, theirs) = (commit(ours)?, commit(theirs)?);
    let arguments = ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", &ours, &theirs];
    let said = shadow.run(shadow.view_command(view, "merge", &arguments))?;
    let status = said.status;
    let out = if status == 1 { said.out } else { said.into_stdout()? };
    let mut parts = split_names(&out);
    let tree = parse_object_id(parts.next().unwrap_or_default())?;
    Ok(MergeResult {
        tree,
        unfit: if status == 1 { parts.map(super::path_from_bytes).collect() } else { Vec::new() },
    })
}

/// The end of an attempt with conflicts. Its output counts after a conflict resolver has succeeded.
fn conflict_end(own: &StepWorktree, files: &[PathBuf], report: &AttemptReport) -> AttemptEnd {
    // The message names them, too.
    let _ = own.write_conflicts(files);
    let shown = |path: &PathBuf| {
        format!("`{}`", crate::process::escape_for_terminal(path.as_os_str().as_encoded_bytes()))
    };
    let mut named: Vec<String> = files.iter().take(NAMED).map(shown).collect();
    if files.len() > NAMED {
        named.push(format!("{} more", files.len() - NAMED));
    }
    let message = format!(
        "its changes conflict with changes that others made meanwhile: {}; the workspace is unchanged, and its own \
         files are in {}",
        named.join(", "),
        own.path().display()
    );
    let output = match &report.end {
        AttemptEnd::Succeeded { output } => Arc::clone(output),
        _ => Arc::default(),
    };
    AttemptEnd::Unmerged { output, message: crate::executor::worker_output::truncate_message(message) }
}
