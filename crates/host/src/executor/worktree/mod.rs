//! Workspaces over time: step worktrees, the changes of each attempt, and restoring a workspace.
//!
//! Owns the handling of a workspace before and after an attempt. Git keeps the snapshots in a git folder of the engine
//! ([`snapshot`]); the configuration of the user's repository is never obeyed. Owns the notes beside the logs of
//! attempts, ordered by numbers that grow across all restarts of the engine, and the answer to one question: was an
//! attempt alone in its folder the whole time? Knows only the workers of this engine, and not the meaning of their
//! ends. Read `attempt_workspace` next.

pub(crate) mod attempt_workspace;
pub(crate) mod git;
pub(crate) mod merge;
pub(crate) mod snapshot;
pub(crate) mod step_worktree;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptId, AttemptRole},
    ids::RunId,
    ir::{OnInterrupted, OnRetry, Step, StepKindSpec},
    limits,
    plan::Plan,
};

pub use self::snapshot::is_repository;
use self::snapshot::{SnapshotRepo, SnapshotRules, SnapshotView};
use crate::{
    executor::programs::ProgramError,
    executor_api::ActiveRun,
    random,
    workspace::{AttemptDir, RunDir, root::FilePathError},
};

pub(super) use self::{
    attempt_workspace::{AttemptWorkspace, WorktreeSandboxPaths},
    merge::{ConflictDetails, MergeConflict, finish_interrupted_merge},
};

/// The failure of git, or of an operation on a workspace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorktreeError {
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    SearchPath(#[from] std::env::JoinPathsError),
    #[error("git failed: {0}")]
    GitFailed(String),
    /// Git did not exit by itself.
    #[error("git: {0}")]
    GitEnded(String),
    #[error("git's {0}")]
    UnexpectedOutput(&'static str),
    #[error("git's output cannot be read: {0}")]
    UnreadOutput(String),
    #[error("`{0}` is not a valid commit name")]
    CommitName(String),
    #[error("the diff is larger than {0} bytes")]
    DiffTooLarge(usize),
    #[error("the repository names more than {0} filters")]
    TooManyFilters(usize),
    #[error("{note} cannot be read: {error}")]
    Note { note: &'static str, error: serde_json::Error },
    #[error("{} is not in a git repository", .0.display())]
    NoRepository(PathBuf),
    #[error(
        "{} has {files} files; snapshots of a folder without a git repository are limited to {most}",
        folder.display()
    )]
    TooManyFiles { folder: PathBuf, files: usize, most: usize },
    #[error(
        "the files of {} have {bytes} bytes; snapshots of a folder without a git repository are limited to {most}",
        folder.display()
    )]
    TooManyBytes { folder: PathBuf, bytes: u64, most: u64 },
    #[error("other steps keep changing the same files")]
    Contended,
    /// The reason why changes are unknown, as it was found before the attempt.
    #[error("{0}")]
    Untracked(String),
}

/// The workspace settings of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspacePolicy {
    pub on_retry: OnRetry,
    /// Changes in a step worktree stay there.
    pub apart: bool,
    /// True if the workspace may have to be restored.
    pub restores: bool,
    /// True if a check follows the work and decides.
    pub checked: bool,
}

impl WorkspacePolicy {
    pub fn from_step(step: &Step) -> WorkspacePolicy {
        let StepKindSpec::Work(work) = &step.kind else { return WorkspacePolicy::default() };
        let on_retry = step.extensions.skein.on_retry.unwrap_or_default();
        WorkspacePolicy {
            on_retry,
            apart: step.extensions.skein.never_merges(),
            restores: on_retry == OnRetry::Reset || step.policy.on_interrupted == OnInterrupted::Restore,
            checked: work.check.is_some(),
        }
    }
}

/// The use that an attempt makes of its workspace.
#[derive(Debug)]
pub(crate) struct WorkspaceTask {
    pub policy: WorkspacePolicy,
    /// True if the use of workspaces by attempts is tracked.
    pub tracked: bool,
    /// The merge conflicts of other steps that it must resolve.
    pub conflicts: Vec<MergeConflict>,
}

impl WorkspaceTask {
    pub(crate) fn new(running: ActiveRun<'_>, step: &Step, attempt: AttemptId) -> WorkspaceTask {
        let mut policy = WorkspacePolicy::from_step(step);
        // Checks, summaries and undos never run in a restored workspace.
        policy.restores &= attempt.role == AttemptRole::Main;
        WorkspaceTask { policy, tracked: false, conflicts: MergeConflict::find_unresolved(running, attempt) }
    }
}

/// The data of one engine about the workspaces of its runs.
#[derive(Debug)]
pub(crate) struct WorkspaceRegistry {
    runs: Mutex<BTreeMap<RunId, RunWorkspaceState>>,
    life: String,
}

/// The lock for the snapshots of a run: one attempt at a time.
#[derive(Debug, Default)]
pub(crate) struct SnapshotSequence {
    /// The next sequence number, once it is known.
    next: Option<u64>,
}
#[derive(Debug, Default)]
struct RunWorkspaceState {
    turn: Arc<Mutex<SnapshotSequence>>,
    /// True if the workspace of any step may have to be restored, so that its users must be tracked.
    watched: bool,
}

impl Default for WorkspaceRegistry {
    fn default() -> WorkspaceRegistry {
        WorkspaceRegistry { runs: Mutex::default(), life: random::random_hex::<8>() }
    }
}

impl WorkspaceRegistry {
    pub(crate) fn is_tracked(&self, run: &RunId, plan: &Plan) -> bool {
        let new = || RunWorkspaceState { turn: Arc::default(), watched: has_restoring_step(plan) };
        self.lock_runs().entry(run.clone()).or_insert_with(new).watched
    }

    fn snapshot_sequence(&self, run: &RunId) -> Arc<Mutex<SnapshotSequence>> {
        Arc::clone(&self.lock_runs().entry(run.clone()).or_default().turn)
    }

    pub(crate) fn forget(&self, run: &RunId) {
        self.lock_runs().remove(run);
    }

    fn lock_runs(&self) -> MutexGuard<'_, BTreeMap<RunId, RunWorkspaceState>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The remaining worktrees below the folder of a run: the step of each, and the path of its files.
pub fn kept_worktrees(run: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(RunDir::worktrees_path(run)) else { return Vec::new() };
    let mut trees: Vec<_> = entries.filter_map(|entry| step_worktree::find_kept_files(&entry.ok()?.path())).collect();
    trees.sort();
    trees
}

fn lock_sequence(turn: &Mutex<SnapshotSequence>) -> MutexGuard<'_, SnapshotSequence> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_restoring_step(plan: &Plan) -> bool {
    plan.definition
        .scopes
        .iter()
        .flat_map(|entry| &entry.scope.steps)
        .any(|step| WorkspacePolicy::from_step(step).restores)
}

/// The view of a whole repository.
fn whole_view(repo: &SnapshotRepo<'_>) -> SnapshotView {
    SnapshotView {
        root: repo.top.clone(),
        prefix: PathBuf::new(),
        index: "whole".to_owned(),
        rules: if repo.origin.is_some() { SnapshotRules::Repository } else { SnapshotRules::Plain },
        largest: None,
    }
}

fn parse_object_id(output: &[u8]) -> Result<String, WorktreeError> {
    let text = std::str::from_utf8(output).unwrap_or_default().trim();
    let plain = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { Ok(text.to_owned()) } else { Err(WorktreeError::UnexpectedOutput("output is not an object id")) }
}

fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkspaceUsage {
    /// The folder where it worked.
    pub folder: PathBuf,
    pub began: u64,
    #[serde(default)]
    pub ended: Option<u64>,
    /// The id of the engine process that started it.
    pub life: String,
    /// The number at which the work that it continues began, and the snapshot from before. They differ from its own
    /// beginning if it continues an interrupted attempt.
    pub since: u64,
    #[serde(default)]
    pub back: Option<String>,
    /// The snapshots before and after it, if they are kept.
    #[serde(default)]
    pub before: Option<String>,
    #[serde(default)]
    pub after: Option<String>,
    /// True if it has its own worktree.
    #[serde(default)]
    pub own: bool,
}

impl WorkspaceUsage {
    pub(super) fn read(files: &AttemptDir) -> Option<WorkspaceUsage> {
        let bytes = files.root().read_file(AttemptDir::WORKSPACE, limits::DECISION_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes the note. If `lasts`, it is synced, because a later restore of the workspace depends on it.
    pub(super) fn write(&self, files: &AttemptDir, lasts: bool) -> Result<(), FilePathError> {
        let bytes = serde_json::to_vec(self).expect("it is plain data");
        if lasts {
            return files.root().replace_file(AttemptDir::WORKSPACE, &bytes);
        }
        files.root().replace_unsynced(AttemptDir::WORKSPACE, &bytes, false)
    }

    /// True if an attempt of another step could have changed the same files during this one or since.
    fn overlaps(&self, other: &WorkspaceUsage) -> bool {
        let near = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
        let later = match other.ended {
            Some(ended) => ended > self.since,
            // An attempt of an engine that died ended with it.
            None => other.life == self.life || other.began > self.since,
        };
        !other.own && near(&self.folder, &other.folder) && later
    }
}

/// The number after all numbers that were assigned so far.
pub(crate) fn next_free_number(run: &RunDir) -> Result<u64, FilePathError> {
    let notes = read_all(run)?;
    Ok(notes.iter().map(|(_, note)| note.ended.unwrap_or(0).max(note.began)).max().unwrap_or(0) + 1)
}

/// True if no other step has worked in the workspace of an attempt since it began.
pub(crate) fn was_alone(run: &RunDir, of: AttemptId, note: &WorkspaceUsage) -> Result<bool, FilePathError> {
    Ok(note.own || !read_all(run)?.iter().any(|(id, other)| id.at != of.at && note.overlaps(other)))
}

fn read_all(run: &RunDir) -> Result<Vec<(AttemptId, WorkspaceUsage)>, FilePathError> {
    let mut notes = Vec::new();
    for attempt in run.list_attempts()? {
        let files = run.find_attempt(attempt)?;
        notes.extend(files.and_then(|files| WorkspaceUsage::read(&files)).map(|note| (attempt, note)));
    }
    Ok(notes)
}

#[derive(Debug, Default)]
pub(crate) struct FolderOccupancy {
    present: Mutex<OccupancyState>,
}

#[derive(Debug, Default)]
struct OccupancyState {
    next: u64,
    all: Vec<FolderOccupant>,
}

#[derive(Debug)]
struct FolderOccupant {
    number: u64,
    folder: PathBuf,
    /// True if another attempt was in the same folder meanwhile.
    met: bool,
}

/// Marks a folder as occupied until it is dropped.
#[derive(Debug)]
pub(crate) struct OccupancyGuard {
    occupancy: Arc<FolderOccupancy>,
    number: u64,
}

impl FolderOccupancy {
    pub(crate) fn enter_folder(self: &Arc<FolderOccupancy>, folder: &Path) -> OccupancyGuard {
        let mut present = self.lock_state();
        let number = present.next;
        present.next += 1;
        let same = |other: &FolderOccupant| other.folder.starts_with(folder) || folder.starts_with(&other.folder);
        let mut met = false;
        for other in present.all.iter_mut().filter(|other| same(other)) {
            other.met = true;
            met = true;
        }
        present.all.push(FolderOccupant { number, folder: folder.to_owned(), met });
        OccupancyGuard { occupancy: Arc::clone(self), number }
    }

    fn lock_state(&self) -> MutexGuard<'_, OccupancyState> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OccupancyGuard {
    pub(crate) fn was_alone(&self) -> bool {
        let present = self.occupancy.lock_state();
        present.all.iter().any(|worker| worker.number == self.number && !worker.met)
    }
}

impl Drop for OccupancyGuard {
    fn drop(&mut self) {
        self.occupancy.lock_state().all.retain(|worker| worker.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(folder: &str, began: u64, ended: Option<u64>, life: &str) -> WorkspaceUsage {
        WorkspaceUsage {
            folder: folder.into(),
            began,
            ended,
            life: life.into(),
            since: began,
            back: None,
            before: None,
            after: None,
            own: false,
        }
    }

    #[test]
    fn only_who_works_in_the_same_place_at_the_same_time_meets() {
        let it = note("/w/a", 5, None, "two");
        for (other, meets) in [
            (note("/w/a", 1, Some(4), "two"), false),
            (note("/w/a", 1, Some(6), "two"), true),
            (note("/w", 1, Some(6), "two"), true),
            (note("/w/b", 1, Some(6), "two"), false),
            (note("/w/a", 1, None, "two"), true),
            // Its engine is gone, so the attempt has ended.
            (note("/w/a", 1, None, "one"), false),
            (note("/w/a", 7, None, "three"), true),
            (note("/w/a", 7, Some(8), "three"), true),
            (WorkspaceUsage { own: true, ..note("/w/a", 1, None, "two") }, false),
        ] {
            assert_eq!(it.overlaps(&other), meets, "{other:?}");
        }
        let longer = WorkspaceUsage { since: 2, ..it };
        assert!(longer.overlaps(&note("/w/a", 1, Some(4), "two")), "it goes on with what was begun before");
    }
}

#[cfg(test)]
mod folder_occupancy_tests {
    use super::*;

    #[test]
    fn whoever_was_there_meanwhile_was_met() {
        let company = Arc::new(FolderOccupancy::default());
        let enter = |folder: &str| company.enter_folder(Path::new(folder));
        let (outer, other) = (enter("/shop/a"), enter("/shop/ab"));
        assert!(outer.was_alone() && other.was_alone());
        let inner = enter("/shop/a/deep");
        assert!(!inner.was_alone() && !outer.was_alone() && other.was_alone());
        drop(inner);
        assert!(!outer.was_alone(), "it had not been alone");
        drop(outer);
        assert!(enter("/shop/a").was_alone());
    }
}
