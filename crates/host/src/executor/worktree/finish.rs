//! The end of an attempt in its workspace: records its changes, and merges those of a step worktree.

use std::path::Path;

use skein_core::engine::{AttemptEnd, AttemptReport, AttemptRole, CheckFinding};

use super::{
    SnapshotSequence,
    attempt_workspace::{AttemptContext, AttemptWorkspace, next_number},
    diff, lock_sequence,
    merge::WorktreeMerge,
    resolve_conflict,
    snapshot_repo::SnapshotRepo,
    step_worktree::{self, StepWorktree},
    take_snapshot::WorkspaceSnapshot,
    whole_view,
};
use crate::{
    executor::{attempt::non_retryable, attempt_spec::AttemptSpec},
    workspace::{AttemptDir, RootFolder},
};

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
        after: Result<Option<WorkspaceSnapshot>, String>,
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
            Err(end) => AttemptReport { end, ..report },
        }
    }

    /// Records the changes of the attempt. `None` if they are not tracked.
    fn record_changes(
        &mut self,
        visit: AttemptContext<'_>,
        files: &AttemptDir,
        turn: &mut SnapshotSequence,
    ) -> Result<Option<WorkspaceSnapshot>, String> {
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
            watched.after =
                after.as_ref().ok().and_then(|after| after.as_ref().map(|after| after.tree.clone()));
            watched.write(files, false).map_err(|error| error.to_string())?;
        }
        after
    }

    /// The paths that changed during the attempt, relative to its workspace.
    fn changed_paths(
        &self,
        visit: AttemptContext<'_>,
        after: &WorkspaceSnapshot,
    ) -> Result<Vec<String>, String> {
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(Vec::new()) };
        let changes = self.open_snapshot_repo(visit)?.list_changes(before, &after.tree)?;
        let within =
            |path: &Path| path.strip_prefix(&view.prefix).unwrap_or(path).to_string_lossy().into_owned();
        Ok(changes.iter().map(|change| within(&change.path)).collect())
    }

    fn snapshot_changes(
        &self,
        visit: AttemptContext<'_>,
        files: &AttemptDir,
    ) -> Result<Option<WorkspaceSnapshot>, String> {
        if let Some(why) = &self.unknown {
            return Err(why.clone());
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
    ) -> Result<(), AttemptEnd> {
        let shadow = self.open_snapshot_repo(visit).map_err(|why| merge_failure(&why))?;
        let Some(own) = &mut self.own else { return Ok(()) };
        let changes =
            shadow.list_changes(&own.note.commit, &after.tree).map_err(|why| merge_failure(&why))?;
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

fn merge_failure(why: &str) -> AttemptEnd {
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
pub(in crate::executor) fn finish_interrupted_merge(
    visit: AttemptContext<'_>,
    base: &RootFolder,
    context: Option<&std::path::Path>,
) -> Result<Option<AttemptReport>, AttemptEnd> {
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
        let shadow = SnapshotRepo::open(run, base, mark, &visit.excluded_paths(context))
            .map_err(|why| merge_failure(&why))?;
        let own = StepWorktree::open(&shadow, run, job.attempt, &job.path);
        build_merge(visit, &shadow).apply_pending(&mut own.map_err(|why| merge_failure(&why))?)?;
    }
    resolve_conflict::mark_resolved(visit)?;
    if job.attempt.role == AttemptRole::Main {
        run.pass_artifacts(merging.attempt, job.attempt).map_err(non_retryable)?;
    }
    Ok(Some(merging.report))
}
