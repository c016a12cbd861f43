//! Merging: what a step changed in its own tree goes into the workspace, all of it or nothing.
//!
//! Owns the order of things: the merge is worked out without touching a file; then it is noted, with what is to be told
//! of the attempt; then the workspace is written. Whoever dies in between has it done by the next one, which does
//! not work again.

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

/// So many files are named in a message.
const NAMED: usize = 20;

/// What a tree came to.
pub(super) struct WorktreeMerge<'a> {
    pub shadow: &'a SnapshotRepo<'a>,
    pub run: &'a RunDir,
    /// All of the workspace.
    pub whole: SnapshotView,
}

/// What two states with a common past come to.
pub(super) struct MergeResult {
    /// What fits. Files that do not are full of marks.
    pub tree: String,
    /// The files that do not fit.
    pub unfit: Vec<PathBuf>,
}

impl WorktreeMerge<'_> {
    /// Brings the changes of a tree home. What then is the end of the attempt, unless it is the one that is given.
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

    /// Does what was noted. Done again, it comes to the same.
    pub fn apply_pending(&self, own: &mut StepWorktree) -> Result<(), AttemptEnd> {
        let Some(merging) = own.note.merging.clone() else { return Ok(()) };
        let putting = SnapshotCheckout { shadow: self.shadow, run: self.run, view: &self.whole };
        match putting.apply_changes(&merging.from, &merging.to) {
            Ok(()) => {}
            Err(CheckoutError::Changed(files)) => {
                // It must be worked out again with what is there now.
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
        let message = format!("what it changed in {} cannot be merged: {why}", own.path().display());
        AttemptEnd::Failed {
            class: ErrorClass::Transient,
            code: Some("merge_failed".to_owned()),
            message: crate::executor::worker_output::truncate_message(message),
            retry_at: None,
        }
    }
}

/// What comes of a past and the two states that were made of it.
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

/// What it gave counts once somebody has settled it.
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
        "what it changed does not fit what others changed meanwhile: {}; the workspace is as it was, and its own \
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
