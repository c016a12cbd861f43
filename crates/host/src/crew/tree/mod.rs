//! Workspaces over time: a tree of its own for a step that wants one, what each attempt changed, and how a workspace
//! is put back to what it was.
//!
//! Owns what happens to a workspace before an attempt and after it. The states are kept by git, in a git folder of the
//! engine's own ([`shadow`]); what the repository that is worked on says is never obeyed. Refuses to know processes and
//! what their ends mean. Read `place` next.

mod diff;
mod leave;
mod merge;
mod origin;
mod own;
mod place;
mod put;
mod run_changes;
mod settle;
mod shadow;
mod take;
mod watch;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skein_core::{
    ids::RunId,
    ir::{Kind, OnInterrupted, Step},
    plan::Plan,
};

pub(super) use leave::finished;
pub(super) use place::{Behind, Place, Visit};
pub(super) use settle::{Conflict, Told};

use self::{
    shadow::Shadow,
    take::{Rules, View},
};
use crate::{chance, workspace::RunDir};

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
pub struct Keeping {
    pub on_retry: OnRetry,
    /// What was done in a tree of its own stays there.
    pub apart: bool,
    /// Whether the workspace may have to be put back.
    pub restores: bool,
    /// Whether another part of the work comes after the work itself, and decides.
    pub checked: bool,
}

impl Keeping {
    pub fn of(step: &Step) -> Keeping {
        let on_retry = match step.skein("workspace.on_retry").and_then(|word| word.as_str()) {
            Some("reset") => OnRetry::Reset,
            Some("keep_and_tell") => OnRetry::KeepAndTell,
            _ => OnRetry::Keep,
        };
        let Kind::Work(work) = &step.kind else { return Keeping::default() };
        Keeping {
            on_retry,
            apart: step.skein("workspace.merge").and_then(|merge| merge.as_bool()) == Some(false),
            restores: on_retry == OnRetry::Reset || step.policy.on_interrupted == OnInterrupted::Restore,
            checked: work.check.is_some(),
        }
    }
}

/// What one engine knows of the workspaces of its runs.
#[derive(Debug)]
pub(super) struct Trees {
    runs: Mutex<BTreeMap<RunId, Known>>,
    life: String,
}

/// Whose turn it is with the states of a run: one at a time.
#[derive(Debug, Default)]
struct Turn {
    /// The next number, once it is known.
    next: Option<u64>,
}

/// What is known of a run from the start.
#[derive(Debug, Clone)]
struct Known {
    turn: Arc<Mutex<Turn>>,
    /// Whether the workspace of any step may have to be put back, so that it must be known who worked in it.
    watched: bool,
}

impl Default for Trees {
    fn default() -> Trees {
        Trees { runs: Mutex::default(), life: chance::hex::<8>() }
    }
}

impl Trees {
    pub fn is_watched(&self, run: &RunId, plan: &Plan) -> bool {
        let new = || Known { turn: Arc::default(), watched: is_watched(plan) };
        self.runs().entry(run.clone()).or_insert_with(new).watched
    }

    fn turn(&self, run: &RunId) -> Arc<Mutex<Turn>> {
        let new = || Known { turn: Arc::default(), watched: false };
        Arc::clone(&self.runs().entry(run.clone()).or_insert_with(new).turn)
    }

    pub fn forget(&self, run: &RunId) {
        self.runs().remove(run);
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Known>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a folder looks like one of a git repository, without asking git.
pub fn is_repository(folder: &Path) -> bool {
    origin::is_likely(folder)
}

/// The trees of a run that are still there, below its folder: the step of each, and where its files are.
pub fn kept_trees(run: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(RunDir::trees_below(run)) else { return Vec::new() };
    let mut trees: Vec<_> = entries.filter_map(|entry| own::kept(&entry.ok()?.path())).collect();
    trees.sort();
    trees
}

fn locked(turn: &Mutex<Turn>) -> MutexGuard<'_, Turn> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_watched(plan: &Plan) -> bool {
    plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps).any(|step| Keeping::of(step).restores)
}

/// All of a repository.
fn whole(shadow: &Shadow<'_>) -> View {
    View {
        root: shadow.top.clone(),
        prefix: PathBuf::new(),
        index: "whole".to_owned(),
        rules: if shadow.origin.is_some() { Rules::Repository } else { Rules::Plain },
        largest: None,
    }
}

/// What names an object, and nothing else.
fn id(said: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(said).unwrap_or_default().trim();
    let plain = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { Ok(text.to_owned()) } else { Err("what git says names nothing".to_owned()) }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(bytes)).to_owned()
}
