//! Workspaces over time: step worktrees, the changes of each attempt, and restoring a workspace.
//!
//! Owns the handling of a workspace before and after an attempt. Git keeps the snapshots in a git folder of the engine
//! ([`snapshot`]); the configuration of the user's repository is never obeyed. Does not know processes and the
//! meaning of their ends. Read `attempt_workspace` next.

pub(crate) mod attempt_workspace;
pub(crate) mod checkout;
pub(crate) mod diff;
pub(crate) mod git;
pub(crate) mod merge;
pub(crate) mod resolve_conflict;
pub(crate) mod snapshot;
pub(crate) mod step_worktree;
pub(crate) mod workspace_usage;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skein_core::{
    ids::RunId,
    ir::{OnInterrupted, OnRetry, Step, StepKindSpec},
    plan::Plan,
};

use self::snapshot::{SnapshotRepo, SnapshotRules, SnapshotView};
use super::programs::ProgramError;
use crate::{
    system,
    workspace::{RunDir, root::FilePathError},
};

pub(super) use self::{
    attempt_workspace::{AttemptContext, AttemptWorkspace, WorktreeSandboxPaths},
    merge::finish_interrupted_merge,
    resolve_conflict::{ConflictDetails, MergeConflict},
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

/// The workspace data of a run.
#[derive(Debug, Clone)]
struct RunWorkspaceState {
    turn: Arc<Mutex<SnapshotSequence>>,
    /// True if the workspace of any step may have to be restored, so that its users must be tracked.
    watched: bool,
}

impl Default for WorkspaceRegistry {
    fn default() -> WorkspaceRegistry {
        WorkspaceRegistry { runs: Mutex::default(), life: system::random_hex::<8>() }
    }
}

impl WorkspaceRegistry {
    pub fn is_tracked(&self, run: &RunId, plan: &Plan) -> bool {
        let new = || RunWorkspaceState { turn: Arc::default(), watched: has_restoring_step(plan) };
        self.lock_runs().entry(run.clone()).or_insert_with(new).watched
    }

    fn snapshot_sequence(&self, run: &RunId) -> Arc<Mutex<SnapshotSequence>> {
        let new = || RunWorkspaceState { turn: Arc::default(), watched: false };
        Arc::clone(&self.lock_runs().entry(run.clone()).or_insert_with(new).turn)
    }

    pub fn forget(&self, run: &RunId) {
        self.lock_runs().remove(run);
    }

    fn lock_runs(&self) -> MutexGuard<'_, BTreeMap<RunId, RunWorkspaceState>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if a folder looks like part of a git repository, without running git.
pub fn is_repository(folder: &Path) -> bool {
    snapshot::looks_like_repository(folder)
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
fn whole_view(shadow: &SnapshotRepo<'_>) -> SnapshotView {
    SnapshotView {
        root: shadow.top.clone(),
        prefix: PathBuf::new(),
        index: "whole".to_owned(),
        rules: if shadow.origin.is_some() { SnapshotRules::Repository } else { SnapshotRules::Plain },
        largest: None,
    }
}

/// Parses an object id.
fn parse_object_id(said: &[u8]) -> Result<String, WorktreeError> {
    let text = std::str::from_utf8(said).unwrap_or_default().trim();
    let plain = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { Ok(text.to_owned()) } else { Err(WorktreeError::UnexpectedOutput("output is not an object id")) }
}

fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}
