//! Workspaces over time: step worktrees, the changes of each attempt, and restoring a workspace.
//!
//! Owns the handling of a workspace before and after an attempt. Git keeps the snapshots in a git folder of the engine
//! ([`snapshot_repo`]); the configuration of the user's repository is never obeyed. Does not know processes and the
//! meaning of their ends. Read `attempt_workspace` next.

mod attempt_workspace;
mod checkout;
mod diff;
mod finish;
mod merge;
mod origin_repository;
mod resolve_conflict;
mod run_changes;
mod snapshot_repo;
mod step_worktree;
mod take_snapshot;
mod workspace_usage;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skein_core::{
    ids::RunId,
    ir::{OnInterrupted, Step, StepKindSpec},
    plan::Plan,
};

pub(super) use attempt_workspace::{AttemptContext, AttemptWorkspace, WorktreeSandboxPaths};
pub(super) use finish::finish_interrupted_merge;
pub(super) use resolve_conflict::{ConflictDetails, MergeConflict};

use self::{
    snapshot_repo::SnapshotRepo,
    take_snapshot::{SnapshotRules, SnapshotView},
};
use crate::{random, workspace::RunDir};

/// The handling of a workspace before a retry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnRetry {
    #[default]
    Keep,
    Reset,
    KeepAndTell,
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
        let on_retry = match step.skein_extension("workspace.on_retry").and_then(|word| word.as_str()) {
            Some("reset") => OnRetry::Reset,
            Some("keep_and_tell") => OnRetry::KeepAndTell,
            _ => OnRetry::Keep,
        };
        let StepKindSpec::Work(work) = &step.kind else { return WorkspacePolicy::default() };
        WorkspacePolicy {
            on_retry,
            apart: step.skein_extension("workspace.merge").and_then(|merge| merge.as_bool()) == Some(false),
            restores: on_retry == OnRetry::Reset || step.policy.on_interrupted == OnInterrupted::Restore,
            checked: work.check.is_some(),
        }
    }
}

/// The data of one engine about the workspaces of its runs.
#[derive(Debug)]
pub(super) struct WorkspaceRegistry {
    runs: Mutex<BTreeMap<RunId, RunWorkspaceState>>,
    life: String,
}

/// The lock for the snapshots of a run: one attempt at a time.
#[derive(Debug, Default)]
struct SnapshotSequence {
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
        WorkspaceRegistry { runs: Mutex::default(), life: random::random_hex::<8>() }
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
    origin_repository::looks_like_repository(folder)
}

/// The remaining worktrees below the folder of a run: the step of each, and the path of its files.
pub fn kept_worktrees(run: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(RunDir::worktrees_path(run)) else { return Vec::new() };
    let mut trees: Vec<_> =
        entries.filter_map(|entry| step_worktree::find_kept_files(&entry.ok()?.path())).collect();
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
fn parse_object_id(said: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(said).unwrap_or_default().trim();
    let plain = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { Ok(text.to_owned()) } else { Err("git's output is not an object id".to_owned()) }
}

fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}
