//! The end of an attempt in its workspace: records its changes, and merges those of a step worktree, all of them or none.
//!
//! Owns the order: the merge is computed without touching a file; then it is noted, together with the report of the
//! attempt; then the workspace is written. If the host dies in between, the next attempt applies the merge without
//! repeating the work.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding},
    ir::ErrorClass,
};

use super::{
    SnapshotSequence, WorktreeError,
    attempt_workspace::{AttemptContext, AttemptWorkspace, next_number},
    checkout::{CheckoutError, SnapshotCheckout},
    diff,
    git::split_names,
    lock_sequence, parse_object_id, resolve_conflict,
    snapshot::{SnapshotRepo, SnapshotView, WorkspaceSnapshot},
    step_worktree::{self, PendingMerge, StepWorktree, UnmergedChanges},
    whole_view,
};
use crate::{
    executor::attempt::{StageError, non_retryable, spec::AttemptSpec},
    workspace::{AttemptDir, RootFolder, RunDir},
};

/// The maximum number of files that are named in a message.
const NAMED: usize = 20;

/// Merges worktrees into a workspace.
pub(crate) struct WorktreeMerge<'a> {
    pub shadow: &'a SnapshotRepo<'a>,
    pub run: &'a RunDir,
    /// The view of the whole workspace.
    pub whole: SnapshotView,
}

/// The merge of two snapshots with a common base.
pub(crate) struct MergeResult {
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
    ) -> Result<(), StageError> {
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
    pub fn apply_pending(&self, own: &mut StepWorktree) -> Result<(), StageError> {
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

    fn failed_merge(&self, own: &StepWorktree, why: &WorktreeError) -> StageError {
        let message = format!("its changes in {} cannot be merged: {why}", own.path().display());
        StageError::from(AttemptEnd::Failed {
            class: ErrorClass::Transient,
            code: Some("merge_failed".to_owned()),
            message: crate::executor::attempt::worker_output::truncate_message(message),
            retry_at: None,
        })
    }
}

/// Computes the merge of two snapshots with a common base.
pub(crate) fn compute_merge(
    shadow: &SnapshotRepo<'_>,
    view: &SnapshotView,
    [base, ours, theirs]: [&str; 3],
) -> Result<MergeResult, WorktreeError> {
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
    Ok(MergeResult { tree, unfit: if status == 1 { parts.map(super::path_from_bytes).collect() } else { Vec::new() } })
}

/// The end of an attempt with conflicts. Its output counts after a conflict resolver has succeeded.
fn conflict_end(own: &StepWorktree, files: &[PathBuf], report: &AttemptReport) -> StageError {
    // The message names them, too.
    let _ = own.write_conflicts(files);
    let shown = |path: &PathBuf| {
        format!("`{}`", crate::terminal_escape::escape_for_terminal(path.as_os_str().as_encoded_bytes()))
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
    let message = crate::executor::attempt::worker_output::truncate_message(message);
    StageError::from(AttemptEnd::Unmerged { output, message })
}

impl AttemptWorkspace {
    /// Finishes an attempt. Returns its report, with the result of the merge.
    pub fn finish_attempt(
        &mut self,
        visit: AttemptContext<'_>,
        files: &AttemptDir,
        report: AttemptReport,
    ) -> AttemptReport {
        if self.view.is_none() && self.watched.is_none() && self.unknown.is_none() {
            return report;
        }
        let turn = visit.shared.trees.snapshot_sequence(&visit.job.run);
        let mut turn = lock_sequence(&turn);
        let after = self.record_changes(visit, files, &mut turn);
        let taken = after.as_ref().ok().and_then(|after| after.clone());
        let report = self.merge_if_complete(visit, after, report);
        // The run's diff is for people; the work is valid without it.
        let _ = self.write_run_changes(visit, taken.as_ref());
        report
    }

    /// Merges a step worktree, if the work is complete.
    fn merge_if_complete(
        &mut self,
        visit: AttemptContext<'_>,
        after: Result<Option<WorkspaceSnapshot>, WorktreeError>,
        report: AttemptReport,
    ) -> AttemptReport {
        if !completes_step(visit.job, &report) {
            return report;
        }
        let brought = match after {
            _ if self.own.is_none() => Ok(()),
            Ok(Some(after)) => self.merge_worktree(visit, &after, &report),
            Ok(None) => Ok(()),
            Err(why) => Err(merge_failure(&why)),
        };
        match brought.and_then(|()| resolve_conflict::mark_resolved(visit)) {
            Ok(()) => report,
            Err(error) => AttemptReport { end: error.into(), ..report },
        }
    }

    /// Records the changes of the attempt. `None` if they are not tracked.
    fn record_changes(
        &mut self,
        visit: AttemptContext<'_>,
        files: &AttemptDir,
        turn: &mut SnapshotSequence,
    ) -> Result<Option<WorkspaceSnapshot>, WorktreeError> {
        let after = self.snapshot_changes(visit, files);
        if let Err(why) = &after {
            // The file is for people; the work is valid without it.
            let _ = diff::write_unknown_changes(files, why);
        }
        if let (Ok(Some(after)), true) = (&after, visit.job.context.is_some()) {
            // The context folder lists them; the work is valid without the list.
            self.changed = self.changed_paths(visit, after).unwrap_or_default();
        }
        if let Some(watched) = &mut self.watched {
            watched.ended = next_number(turn, visit.run).ok();
            watched.after = after.as_ref().ok().and_then(|after| after.as_ref().map(|after| after.tree.clone()));
            watched.write(files, false)?;
        }
        after
    }

    /// The paths that changed during the attempt, relative to its workspace.
    fn changed_paths(
        &self,
        visit: AttemptContext<'_>,
        after: &WorkspaceSnapshot,
    ) -> Result<Vec<String>, WorktreeError> {
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(Vec::new()) };
        let changes = self.open_snapshot_repo(visit)?.list_changes(before, &after.tree)?;
        let within = |path: &Path| path.strip_prefix(&view.prefix).unwrap_or(path).to_string_lossy().into_owned();
        Ok(changes.iter().map(|change| within(&change.path)).collect())
    }

    fn snapshot_changes(
        &self,
        visit: AttemptContext<'_>,
        files: &AttemptDir,
    ) -> Result<Option<WorkspaceSnapshot>, WorktreeError> {
        if let Some(why) = &self.unknown {
            return Err(WorktreeError::Untracked(why.clone()));
        }
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(None) };
        let shadow = self.open_snapshot_repo(visit)?;
        let after = shadow.take_snapshot(view)?;
        shadow.write_changes(files, before, &after)?;
        Ok(Some(after))
    }

    /// Merges the changes of a step worktree into the workspace, unless they must stay apart. Returns the end of the
    /// attempt if that fails.
    fn merge_worktree(
        &mut self,
        visit: AttemptContext<'_>,
        after: &WorkspaceSnapshot,
        report: &AttemptReport,
    ) -> Result<(), StageError> {
        let shadow = self.open_snapshot_repo(visit).map_err(|why| merge_failure(&why))?;
        let Some(own) = &mut self.own else { return Ok(()) };
        let changes = shadow.list_changes(&own.note.commit, &after.tree).map_err(|why| merge_failure(&why))?;
        if changes.is_empty() {
            own.note.done = true;
            return own.save().and_then(|()| own.remove_files()).map_err(|why| merge_failure(&why));
        }
        if visit.job.keeping.apart {
            return Ok(());
        }
        let told = visit.shared.redact_report(report.clone());
        build_merge(visit, &shadow).merge_changes(own, &after.tree, visit.job.attempt, told)
    }
}

fn build_merge<'a>(visit: AttemptContext<'a>, shadow: &'a SnapshotRepo<'a>) -> WorktreeMerge<'a> {
    WorktreeMerge { shadow, run: visit.run, whole: whole_view(shadow) }
}

fn merge_failure(why: &WorktreeError) -> StageError {
    non_retryable(format!("its changes cannot be merged: {why}"))
}

/// True if the work of the step is complete with this end.
fn completes_step(job: &AttemptSpec, report: &AttemptReport) -> bool {
    match (job.attempt.role, &report.end) {
        (AttemptRole::Main, AttemptEnd::Succeeded { output }) => {
            let mut output = (**output).clone();
            job.outputs.complete_output(&mut output);
            let proven = report.proofs.iter().all(|proof| proof.holds);
            proven && !job.keeping.checked && (job.outputs.is_empty() || job.outputs.check(&output).is_ok())
        }
        (
            AttemptRole::Check,
            AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { finding: CheckFinding::Complete, .. },
        ) => true,
        _ => false,
    }
}

/// Finishes an attempt whose work was done by an earlier one that died during the merge: the merge is applied, and no
/// work is repeated.
pub(crate) fn finish_interrupted_merge(
    visit: AttemptContext<'_>,
    base: &RootFolder,
    context: Option<&std::path::Path>,
) -> Result<Option<AttemptReport>, StageError> {
    let AttemptContext { shared, job, run, mark } = visit;
    if !job.isolation.worktree {
        return Ok(None);
    }
    let Some(note) = step_worktree::read_note(run, job.attempt).map_err(non_retryable)? else {
        return Ok(None);
    };
    let of = |merging: &step_worktree::PendingMerge| merging.attempt.role == job.attempt.role;
    let Some(merging) = note.merging.filter(of) else { return Ok(None) };
    let turn = shared.trees.snapshot_sequence(&job.run);
    let _one = lock_sequence(&turn);
    if !note.done {
        let shadow =
            SnapshotRepo::open(run, base, mark, &visit.excluded_paths(context)).map_err(|why| merge_failure(&why))?;
        let own = StepWorktree::open(&shadow, run, job.attempt, &job.path);
        build_merge(visit, &shadow).apply_pending(&mut own.map_err(|why| merge_failure(&why))?)?;
    }
    resolve_conflict::mark_resolved(visit)?;
    if job.attempt.role == AttemptRole::Main {
        run.pass_artifacts(merging.attempt, job.attempt).map_err(non_retryable)?;
    }
    Ok(Some(merging.report))
}
