//! Merge conflicts, for the step that resolves them: imports the changes that merge cleanly, and describes the
//! conflicting files and the worktrees of the other steps.
//!
//! Owns that order. Clean changes are imported before the first attempt, so that the conflict resolver sees all of them
//! and can test the result. They are imported once: everything after that is the work of the step.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Serialize;
use skein_core::{
    engine::{AttemptId, AttemptRole, RunState, StepAt, StepOutcome},
    ir::ErrorClass,
    plan::ScopeEntry,
};

use super::{
    WorktreeError,
    attempt_workspace::{AttemptContext, AttemptWorkspace},
    checkout::{CheckoutError, SnapshotCheckout},
    merge::{self, MergeResult},
    snapshot::{SnapshotCommand, SnapshotRepo, SnapshotView},
    step_worktree::{self, StepWorktree},
    whole_view,
};
use crate::executor::attempt::{StageError, failed_attempt};

/// Other steps may change the workspace meanwhile; the merge is then computed again, at most this often.
const TRIES: usize = 5;

/// A step whose changes could not be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflict {
    /// An attempt of the visit that has the worktree.
    pub of: AttemptId,
    /// The step's path, for people.
    pub step: String,
}

/// The description of a conflict for its resolver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConflictDetails {
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
    pub fn find_unresolved(
        entry: &ScopeEntry,
        state: &RunState,
        attempt: AttemptId,
        name: impl Fn(AttemptId) -> String,
    ) -> Vec<MergeConflict> {
        if !matches!(attempt.role, AttemptRole::Main | AttemptRole::Check) {
            return Vec::new();
        }
        let of = |step: &u32| {
            let at = StepAt(attempt.at.0, *step);
            let now = state.step(at);
            let unsettled = now.more.as_ref().is_some_and(|more| more.settler == Some(attempt.at.1));
            let failed = matches!(now.outcome, Some(StepOutcome::Failed(_)));
            let of = AttemptId { at, visit: now.visit, iteration: 1, role: AttemptRole::Main, attempt: 1 };
            (unsettled && failed).then(|| MergeConflict { of, step: name(of) })
        };
        entry.steps_resolved_by(attempt.at.1).iter().filter_map(of).collect()
    }
}

impl AttemptWorkspace {
    /// Imports the clean changes of its conflicts, and collects the conflicting files.
    pub(crate) fn import_conflicts(&mut self, visit: AttemptContext<'_>) -> Result<(), StageError> {
        if visit.job.conflicts.is_empty() {
            return Ok(());
        }
        let wrong = |step: &str, why: WorktreeError| {
            let message = format!("the unmerged changes of `{step}` cannot be imported: {why}");
            failed_attempt(ErrorClass::Transient, message)
        };
        for conflict in &visit.job.conflicts {
            let brought = self.import_conflict(visit, conflict).map_err(|why| wrong(&conflict.step, why))?;
            self.conflicts.extend(brought);
        }
        Ok(())
    }

    fn import_conflict(
        &self,
        visit: AttemptContext<'_>,
        conflict: &MergeConflict,
    ) -> Result<Option<ConflictDetails>, WorktreeError> {
        let Some(mut theirs) = StepWorktree::find(visit.run, conflict.of)? else { return Ok(None) };
        let Some(mut unfit) = theirs.note.unfit.clone() else { return Ok(None) };
        let files = match unfit.left {
            Some(files) => files,
            None => {
                let shadow = self.open_snapshot_repo(visit)?;
                let view = match (&self.own, &self.view) {
                    (Some(_), Some(view)) => view.clone(),
                    _ => whole_view(&shadow),
                };
                let left = apply_mergeable_changes(&shadow, visit, &view, [&theirs.note.commit, &unfit.theirs])?;
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
    pub fn conflict_paths(&self, visit: AttemptContext<'_>) -> Result<Vec<PathBuf>, WorktreeError> {
        if self.conflicts.is_empty() {
            return Ok(Vec::new());
        }
        let objects = step_worktree::borrowed_objects(&self.open_snapshot_repo(visit)?);
        Ok(self.conflicts.iter().map(|told| told.tree.clone()).chain([objects]).collect())
    }
}

/// Applies the clean changes of a worktree to a folder. Returns the conflicting files.
fn apply_mergeable_changes(
    shadow: &SnapshotRepo<'_>,
    visit: AttemptContext<'_>,
    view: &SnapshotView,
    [base, theirs]: [&str; 2],
) -> Result<Vec<String>, WorktreeError> {
    let putting = SnapshotCheckout { shadow, run: visit.run, view };
    for _ in 0..TRIES {
        let ours = shadow.take_snapshot(view)?.tree;
        let out = merge::compute_merge(shadow, view, [base, &ours, theirs])?;
        let to = tree_without_conflicts(shadow, view, &ours, &out)?;
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
    shadow: &SnapshotRepo<'_>,
    view: &SnapshotView,
    ours: &str,
    out: &MergeResult,
) -> Result<String, WorktreeError> {
    if out.unfit.is_empty() {
        return Ok(out.tree.clone());
    }
    const INDEX: &str = "settle";
    shadow.remove_stale_lock(INDEX);
    let ask = |name, arguments: &[&str], stdin| {
        let arguments = arguments.iter().map(Into::into).collect();
        shadow.run(SnapshotCommand { name, arguments, files: view.root.path(), index: INDEX, stdin })?.into_stdout()
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
    let mut changes = shadow.list_changes(&out.tree, ours)?;
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
pub(crate) fn mark_resolved(visit: AttemptContext<'_>) -> Result<(), StageError> {
    let done = |conflict: &MergeConflict| {
        let Some(mut theirs) = StepWorktree::find(visit.run, conflict.of)? else { return Ok(()) };
        theirs.note.done = true;
        theirs.save()
    };
    let all: Result<(), WorktreeError> = visit.job.conflicts.iter().try_for_each(done);
    all.map_err(|why| {
        failed_attempt(ErrorClass::Transient, format!("the resolved conflicts cannot be recorded: {why}"))
    })
}
