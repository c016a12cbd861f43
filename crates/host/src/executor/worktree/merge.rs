//! The end of an attempt in its workspace: records its changes, and merges those of a step worktree, all of them or
//! none.
//!
//! Owns the order: the merge is computed without touching a file; then it is noted, together with the report of the
//! attempt; then the workspace is written. If the host dies in between, the next attempt applies the merge without
//! repeating the work. For the step that resolves conflicts, the changes that merge cleanly are imported once, before
//! its first attempt, so that it sees all of them and can test the result; everything after that is the work of the
//! step.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, StepAt, StepOutcome},
    ir::ErrorClass,
};

use crate::{
    executor::{
        attempt::{
            AttemptContext, StageError, collect::truncate_message, failed_attempt, non_retryable, spec::AttemptSpec,
        },
        worktree::{
            SnapshotSequence, WorktreeError,
            attempt_workspace::{AttemptWorkspace, next_number},
            git::{self, split_names},
            lock_sequence, parse_object_id,
            snapshot::{SnapshotCommand, SnapshotRepo, SnapshotView, WorkspaceSnapshot},
            step_worktree::{self, CheckoutError, PendingMerge, SnapshotCheckout, StepWorktree, UnmergedChanges},
            whole_view,
        },
    },
    executor_api::ActiveRun,
    workspace::{RootFolder, RunDir},
};

/// The maximum number of files that are named in a message.
const NAMED: usize = 20;

/// Merges worktrees into a workspace.
pub(crate) struct WorktreeMerge<'a> {
    pub repo: &'a SnapshotRepo<'a>,
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
    pub(crate) fn merge_changes(
        &self,
        own: &mut StepWorktree,
        theirs: &str,
        attempt: AttemptId,
        report: AttemptReport,
    ) -> Result<(), StageError> {
        let ours = self.repo.take_snapshot(&self.whole).map_err(|why| self.failed_merge(own, &why))?.tree;
        let out = compute_merge(self.repo, &self.whole, [&own.note.commit, &ours, theirs])
            .map_err(|why| self.failed_merge(own, &why))?;
        own.note.unfit = Some(UnmergedChanges { theirs: theirs.to_owned(), left: None });
        if !out.unfit.is_empty() {
            own.save().map_err(|why| self.failed_merge(own, &why))?;
            return Err(conflict_end(own, &out.unfit, &report));
        }
        own.note.merging = Some(PendingMerge { attempt, from: ours, to: out.tree, report });
        self.repo.sync_objects().and_then(|()| own.save()).map_err(|why| self.failed_merge(own, &why))?;
        self.apply_pending(own)
    }

    /// Applies the noted merge. It is idempotent.
    pub(crate) fn apply_pending(&self, own: &mut StepWorktree) -> Result<(), StageError> {
        let Some(merging) = own.note.merging.clone() else { return Ok(()) };
        let putting = SnapshotCheckout { repo: self.repo, run: self.run, view: &self.whole };
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
            message: truncate_message(message),
            retry_at: None,
        })
    }
}

/// Computes the merge of two snapshots with a common base.
pub(crate) fn compute_merge(
    repo: &SnapshotRepo<'_>,
    view: &SnapshotView,
    [base, ours, theirs]: [&str; 3],
) -> Result<MergeResult, WorktreeError> {
    let commit = |tree: &str| {
        let arguments = ["commit-tree", "-m", "skein", "-p", base, tree];
        parse_object_id(&repo.run(repo.view_command(view, "merge-commit", &arguments))?.into_stdout()?)
    };
    let (ours, theirs) = (commit(ours)?, commit(theirs)?);
    let arguments = ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", &ours, &theirs];
    let output = repo.run(repo.view_command(view, "merge", &arguments))?;
    let status = output.status;
    let out = if status == 1 { output.out } else { output.into_stdout()? };
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
    let message = truncate_message(message);
    StageError::from(AttemptEnd::Unmerged { output, message })
}

impl AttemptWorkspace {
    /// Finishes an attempt. Returns its report, with the result of the merge.
    pub(crate) fn finish_attempt(&mut self, attempt: &AttemptContext, report: AttemptReport) -> AttemptReport {
        if self.view.is_none() && self.watched.is_none() && self.unknown.is_none() {
            return report;
        }
        let sequence = attempt.snapshot_sequence();
        let mut sequence = lock_sequence(&sequence);
        let after = self.record_changes(attempt, &mut sequence);
        let taken = after.as_ref().ok().and_then(|after| after.clone());
        let report = self.merge_if_complete(attempt, after, report);
        // The run's diff is for people; the work is valid without it.
        let _ = self.write_run_changes(attempt, taken.as_ref());
        report
    }

    /// Merges a step worktree, if the work is complete.
    fn merge_if_complete(
        &mut self,
        attempt: &AttemptContext,
        after: Result<Option<WorkspaceSnapshot>, WorktreeError>,
        report: AttemptReport,
    ) -> AttemptReport {
        if !completes_step(&attempt.job, &report) {
            return report;
        }
        let brought = match after {
            _ if self.own.is_none() => Ok(()),
            Ok(Some(after)) => self.merge_worktree(attempt, &after, &report),
            Ok(None) => Ok(()),
            Err(why) => Err(merge_failure(&why)),
        };
        match brought.and_then(|()| mark_resolved(attempt)) {
            Ok(()) => report,
            Err(error) => AttemptReport { end: error.into(), ..report },
        }
    }

    /// Records the changes of the attempt. `None` if they are not tracked.
    fn record_changes(
        &mut self,
        attempt: &AttemptContext,
        sequence: &mut SnapshotSequence,
    ) -> Result<Option<WorkspaceSnapshot>, WorktreeError> {
        let after = self.snapshot_changes(attempt);
        if let Err(why) = &after {
            // The file is for people; the work is valid without it.
            let _ = git::write_unknown_changes(&attempt.files, why);
        }
        if let (Ok(Some(after)), true) = (&after, attempt.job.handoff.context.is_some()) {
            // The context folder lists them; the work is valid without the list.
            self.changed = self.changed_paths(attempt, after).unwrap_or_default();
        }
        if let Some(watched) = &mut self.watched {
            watched.ended = next_number(sequence, &attempt.run).ok();
            watched.after = after.as_ref().ok().and_then(|after| after.as_ref().map(|after| after.tree.clone()));
            watched.write(&attempt.files, false)?;
        }
        after
    }

    /// The paths that changed during the attempt, relative to its workspace.
    fn changed_paths(&self, attempt: &AttemptContext, after: &WorkspaceSnapshot) -> Result<Vec<String>, WorktreeError> {
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(Vec::new()) };
        let changes = self.open_snapshot_repo(attempt)?.list_changes(before, &after.tree)?;
        let within = |path: &Path| path.strip_prefix(&view.prefix).unwrap_or(path).to_string_lossy().into_owned();
        Ok(changes.iter().map(|change| within(&change.path)).collect())
    }

    fn snapshot_changes(&self, attempt: &AttemptContext) -> Result<Option<WorkspaceSnapshot>, WorktreeError> {
        if let Some(why) = &self.unknown {
            return Err(WorktreeError::Untracked(why.clone()));
        }
        let before = self.watched.as_ref().and_then(|watched| watched.before.as_ref());
        let (Some(view), Some(before)) = (&self.view, before) else { return Ok(None) };
        let repo = self.open_snapshot_repo(attempt)?;
        let after = repo.take_snapshot(view)?;
        repo.write_changes(&attempt.files, before, &after)?;
        Ok(Some(after))
    }

    /// Merges the changes of a step worktree into the workspace, unless they must stay apart. Returns the end of the
    /// attempt if that fails.
    fn merge_worktree(
        &mut self,
        attempt: &AttemptContext,
        after: &WorkspaceSnapshot,
        report: &AttemptReport,
    ) -> Result<(), StageError> {
        let repo = self.open_snapshot_repo(attempt).map_err(|why| merge_failure(&why))?;
        let Some(own) = &mut self.own else { return Ok(()) };
        let changes = repo.list_changes(&own.note.commit, &after.tree).map_err(|why| merge_failure(&why))?;
        if changes.is_empty() {
            own.note.done = true;
            return own.save().and_then(|()| own.remove_files()).map_err(|why| merge_failure(&why));
        }
        if attempt.job.workspace.policy.apart {
            return Ok(());
        }
        let report = attempt.shared.redact_report(report.clone());
        build_merge(attempt, &repo).merge_changes(own, &after.tree, attempt.job.attempt, report)
    }
}

fn build_merge<'a>(attempt: &'a AttemptContext, repo: &'a SnapshotRepo<'a>) -> WorktreeMerge<'a> {
    WorktreeMerge { repo, run: &attempt.run, whole: whole_view(repo) }
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
            proven && !job.workspace.policy.checked && (job.outputs.is_empty() || job.outputs.check(&output).is_ok())
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
    attempt: &AttemptContext,
    base: &RootFolder,
    context: Option<&Path>,
) -> Result<Option<AttemptReport>, StageError> {
    let AttemptContext { job, run, .. } = attempt;
    if !job.isolation.worktree {
        return Ok(None);
    }
    let Some(note) = step_worktree::read_note(run, job.attempt).map_err(non_retryable)? else {
        return Ok(None);
    };
    let of = |merging: &step_worktree::PendingMerge| merging.attempt.role == job.attempt.role;
    let Some(merging) = note.merging.filter(of) else { return Ok(None) };
    let sequence = attempt.snapshot_sequence();
    let _one = lock_sequence(&sequence);
    if !note.done {
        let repo =
            SnapshotRepo::open(attempt, base, &attempt.excluded_paths(context)).map_err(|why| merge_failure(&why))?;
        let own = StepWorktree::open(&repo, run, job.attempt, &job.path);
        build_merge(attempt, &repo).apply_pending(&mut own.map_err(|why| merge_failure(&why))?)?;
    }
    mark_resolved(attempt)?;
    if job.attempt.role == AttemptRole::Main {
        run.pass_artifacts(merging.attempt, job.attempt).map_err(non_retryable)?;
    }
    Ok(Some(merging.report))
}

/// Other steps may change the workspace meanwhile; the merge is then computed again, at most this often.
const TRIES: usize = 5;

/// A step whose changes could not be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MergeConflict {
    /// An attempt of the visit that has the worktree.
    pub of: AttemptId,
    /// The step's path, for people.
    pub step: String,
}

/// The description of a conflict for its resolver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ConflictDetails {
    pub step: String,
    /// The conflicting files.
    pub files: Vec<String>,
    /// The folder with the step's own files, which can be read.
    pub tree: PathBuf,
    /// The commit that it started from; the repository in its worktree knows it.
    pub base: String,
}

impl MergeConflict {
    /// The conflicts that an attempt must resolve.
    pub(crate) fn find_unresolved(running: ActiveRun<'_>, attempt: AttemptId) -> Vec<MergeConflict> {
        let ActiveRun { plan, state, names, .. } = running;
        if !matches!(attempt.role, AttemptRole::Main | AttemptRole::Check) {
            return Vec::new();
        }
        let of = |step: &u32| {
            let at = StepAt(attempt.at.0, *step);
            let now = state.step(at);
            let unresolved = now.more.as_ref().is_some_and(|more| more.settler == Some(attempt.at.1));
            let failed = matches!(now.outcome, Some(StepOutcome::Failed(_)));
            let of = AttemptId { at, visit: now.visit, iteration: 1, role: AttemptRole::Main, attempt: 1 };
            (unresolved && failed).then(|| MergeConflict { of, step: names.step_path(at) })
        };
        plan.definition.scope(names.scope(attempt.at.0)).steps_resolved_by(attempt.at.1).iter().filter_map(of).collect()
    }
}

impl AttemptWorkspace {
    /// Imports the clean changes of its conflicts, and collects the conflicting files.
    pub(crate) fn import_conflicts(&mut self, attempt: &AttemptContext) -> Result<(), StageError> {
        if attempt.job.workspace.conflicts.is_empty() {
            return Ok(());
        }
        let wrong = |step: &str, why: WorktreeError| {
            let message = format!("the unmerged changes of `{step}` cannot be imported: {why}");
            failed_attempt(ErrorClass::Transient, message)
        };
        for conflict in &attempt.job.workspace.conflicts {
            let brought = self.import_conflict(attempt, conflict).map_err(|why| wrong(&conflict.step, why))?;
            self.conflicts.extend(brought);
        }
        Ok(())
    }

    fn import_conflict(
        &self,
        attempt: &AttemptContext,
        conflict: &MergeConflict,
    ) -> Result<Option<ConflictDetails>, WorktreeError> {
        let Some(mut theirs) = StepWorktree::find(&attempt.run, conflict.of)? else { return Ok(None) };
        let Some(mut unfit) = theirs.note.unfit.clone() else { return Ok(None) };
        let files = match unfit.left {
            Some(files) => files,
            None => {
                let repo = self.open_snapshot_repo(attempt)?;
                let view = match (&self.own, &self.view) {
                    (Some(_), Some(view)) => view.clone(),
                    _ => whole_view(&repo),
                };
                let left = apply_mergeable_changes(&repo, attempt, &view, [&theirs.note.commit, &unfit.theirs])?;
                unfit.left = Some(left.clone());
                theirs.note.unfit = Some(unfit);
                theirs.save()?;
                left
            }
        };
        let (tree, base) = (theirs.path().to_owned(), theirs.note.commit.clone());
        Ok(Some(ConflictDetails { step: conflict.step.clone(), files, tree, base }))
    }

    /// The paths that a sandbox must show so that the conflicts can be read.
    pub(crate) fn conflict_paths(&self, attempt: &AttemptContext) -> Result<Vec<PathBuf>, WorktreeError> {
        if self.conflicts.is_empty() {
            return Ok(Vec::new());
        }
        let objects = self.open_snapshot_repo(attempt)?.objects_folder();
        Ok(self.conflicts.iter().map(|conflict| conflict.tree.clone()).chain([objects]).collect())
    }
}

/// Applies the clean changes of a worktree to a folder. Returns the conflicting files.
fn apply_mergeable_changes(
    repo: &SnapshotRepo<'_>,
    attempt: &AttemptContext,
    view: &SnapshotView,
    [base, theirs]: [&str; 2],
) -> Result<Vec<String>, WorktreeError> {
    let putting = SnapshotCheckout { repo, run: &attempt.run, view };
    for _ in 0..TRIES {
        let ours = repo.take_snapshot(view)?.tree;
        let out = compute_merge(repo, view, [base, &ours, theirs])?;
        let to = tree_without_conflicts(repo, view, &ours, &out)?;
        match putting.apply_changes(&ours, &to) {
            Ok(()) => return Ok(out.unfit.iter().map(|file| file.to_string_lossy().into_owned()).collect()),
            Err(CheckoutError::Changed(_)) => {}
            Err(CheckoutError::Failed(why)) => return Err(why),
        }
    }
    Err(WorktreeError::Contended)
}

/// The merged tree, with our version of the conflicting files.
fn tree_without_conflicts(
    repo: &SnapshotRepo<'_>,
    view: &SnapshotView,
    ours: &str,
    out: &MergeResult,
) -> Result<String, WorktreeError> {
    if out.unfit.is_empty() {
        return Ok(out.tree.clone());
    }
    const INDEX: &str = "settle";
    repo.remove_stale_lock(INDEX);
    let ask = |name, arguments: &[&str], stdin| {
        let arguments = arguments.iter().map(Into::into).collect();
        repo.run(SnapshotCommand { name, arguments, files: view.root.path(), index: INDEX, stdin })?.into_stdout()
    };
    ask("settle-read", &["read-tree", &out.tree], Vec::new())?;
    let mut stdin = Vec::new();
    let mut entry = |mode: &str, id: &str, path: &Path| {
        stdin.extend_from_slice(format!("{mode} {id}\t").as_bytes());
        stdin.extend_from_slice(path.as_os_str().as_encoded_bytes());
        stdin.push(0);
    };
    let unfit: BTreeSet<&Path> = out.unfit.iter().map(PathBuf::as_path).collect();
    let none = ("0".to_owned(), "0".repeat(ours.len()));
    let mut changes = repo.list_changes(&out.tree, ours)?;
    changes.retain(|change| unfit.contains(change.path.as_path()));
    // A file may replace a folder: removals make room first.
    changes.sort_by_key(|change| change.new.is_some());
    for change in &changes {
        let (mode, id) = change.new.as_ref().unwrap_or(&none);
        entry(mode, id, &change.path);
    }
    ask("settle-put", &["update-index", "-z", "--index-info"], stdin)?;
    super::parse_object_id(&ask("settle-write", &["write-tree"], Vec::new())?)
}

/// Marks the conflicts of a step as resolved. The worktrees stay with the run, because the work is repeated if the host
/// dies before the end is reported.
pub(crate) fn mark_resolved(attempt: &AttemptContext) -> Result<(), StageError> {
    let done = |conflict: &MergeConflict| {
        let Some(mut theirs) = StepWorktree::find(&attempt.run, conflict.of)? else { return Ok(()) };
        theirs.note.done = true;
        theirs.save()
    };
    let all: Result<(), WorktreeError> = attempt.job.workspace.conflicts.iter().try_for_each(done);
    all.map_err(|why| {
        failed_attempt(ErrorClass::Transient, format!("the resolved conflicts cannot be recorded: {why}"))
    })
}
