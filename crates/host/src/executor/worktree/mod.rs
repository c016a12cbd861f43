//! Workspaces over time: a tree of its own for a step that wants one, what each attempt changed, and how a workspace
//! is put back to what it was.
//!
//! Owns what happens to a workspace before an attempt and after it. The states are kept by git, in a git folder of the
//! engine's own ([`shadow`]); what the repository that is worked on says is never obeyed. Refuses to know processes and
//! what their ends mean. Read `place` next.

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

/// What becomes of a workspace before the work is tried again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnRetry {
    #[default]
    Keep,
    Reset,
    KeepAndTell,
}

/// What a step says of its workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspacePolicy {
    pub on_retry: OnRetry,
    /// What was done in a tree of its own stays there.
    pub apart: bool,
    /// Whether the workspace may have to be put back.
    pub restores: bool,
    /// Whether another part of the work comes after the work itself, and decides.
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

/// What one engine knows of the workspaces of its runs.
#[derive(Debug)]
pub(super) struct WorkspaceRegistry {
    runs: Mutex<BTreeMap<RunId, RunWorkspaceState>>,
    life: String,
}

/// Whose turn it is with the states of a run: one at a time.
#[derive(Debug, Default)]
struct SnapshotSequence {
    /// The next number, once it is known.
    next: Option<u64>,
}

/// What is known of a run from the start.
#[derive(Debug, Clone)]
struct RunWorkspaceState {
    turn: Arc<Mutex<SnapshotSequence>>,
    /// Whether the workspace of any step may have to be put back, so that it must be known who worked in it.
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

/// Whether a folder looks like one of a git repository, without asking git.
pub fn is_repository(folder: &Path) -> bool {
    origin_repository::looks_like_repository(folder)
}

/// The trees of a run that are still there, below its folder: the step of each, and where its files are.
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

/// All of a repository.
fn whole_view(shadow: &SnapshotRepo<'_>) -> SnapshotView {
    SnapshotView {
        root: shadow.top.clone(),
        prefix: PathBuf::new(),
        index: "whole".to_owned(),
        rules: if shadow.origin.is_some() { SnapshotRules::Repository } else { SnapshotRules::Plain },
        largest: None,
    }
}

/// What names an object, and nothing else.
fn parse_object_id(said: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(said).unwrap_or_default().trim();
    let plain = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { Ok(text.to_owned()) } else { Err("what git says names nothing".to_owned()) }
}

fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}
