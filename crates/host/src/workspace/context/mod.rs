//! The context folder of AgentCore, in which steps pass files to one another and people find the results of a run.
//!
//! Owns the names and the fields that the format specifies. Everything is derived from the plan, the state, the journal
//! ([`RunLedger`]) and the run's folder, so that it can be rewritten from nothing with the same result. Skein never reads
//! it back: the inputs of a step come from the run's folder, which no worker can change.
//!
//! ```text
//! <context>/
//!   _workflow.json
//!   <step>/
//!     _meta.json
//!     <artifact>/<path>      the path in the workspace; empty if the step produced none
//!     _convergence/          state.json, stage-transition.json, scope.json
//!     _subworkflows/         the context of the workflow that the step called
//! ```

mod context_writer;
mod documents;

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptId, InstanceIx, RunLedger, RunState, StepAt, StepOutcome},
    ids::{ArtifactName, RunId, StepId},
    ir::StepKindSpec,
    limits,
    plan::Plan,
};

use crate::workspace::{
    ArtifactError, AttemptDir, RootFolder, RunDir,
    artifact::{ContextNesting, KeptArtifact},
    root::{EntryKind, FileIdentity, FilePathError},
    run_dir::none_if_missing,
};

pub use context_writer::{WrittenArtifacts, WrittenSteps};

const WORKFLOW: &str = "_workflow.json";
const META: &str = "_meta.json";
const CONVERGENCE: &str = "_convergence";
const CALLED: &str = "_subworkflows";
/// The maximum size of Skein's files in a context.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
const STEPS: usize = 1_000_000;

#[derive(Debug, Clone)]
pub struct ContextFolder {
    root: RootFolder,
}

/// The data from which a context is written.
#[derive(Debug, Clone, Copy)]
pub struct ContextInput<'a> {
    pub plan: &'a Plan,
    pub state: &'a RunState,
    /// The ledger, fed with every record of the run so far.
    pub ledger: &'a RunLedger,
    pub run: &'a RunDir,
}

impl ContextInput<'_> {
    /// Returns the steps of an instance, by number.
    fn instance_steps(&self, ix: InstanceIx) -> impl Iterator<Item = StepAt> + use<> {
        let count = self.plan.definition.scope(self.state.instance(ix).scope).scope.steps.len();
        (0..).take(count).map(move |number| StepAt(ix, number))
    }
}

/// The run that a context describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextHolder {
    /// The run's id as it was written; anyone may have changed it.
    pub id: String,
    pub status: String,
}

impl ContextFolder {
    /// Opens the context folder of a workflow, and creates it if necessary.
    pub fn open(workspace: &RootFolder, directory: &str) -> Result<ContextFolder, FilePathError> {
        Ok(ContextFolder { root: workspace.make_folders(directory, false)? })
    }

    pub(crate) fn root(&self) -> &RootFolder {
        &self.root
    }

    /// Returns the run that wrote here last. Another active run must not be disturbed.
    pub fn read_holder(&self) -> Result<Option<ContextHolder>, FilePathError> {
        let bytes = none_if_missing(self.root.read_file(WORKFLOW, FILE_BYTES))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// An artifact and the attempt that produced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactSource {
    pub attempt: AttemptId,
    pub artifact: KeptArtifact,
}

/// Finds the step of this name, as seen from an instance: in its own scope or an enclosing one.
pub fn find_step(plan: &Plan, state: &RunState, from: InstanceIx, id: &StepId) -> Option<StepAt> {
    let mut ix = from;
    loop {
        let instance = state.instance(ix);
        if let Some(step) = plan.definition.scope(instance.scope).by_id.get(id) {
            return Some(StepAt(ix, *step));
        }
        // A called workflow does not see the steps of its caller.
        if instance.home == ix {
            return None;
        }
        ix = instance.parent?.0;
    }
}

impl ContextInput<'_> {
    /// Finds the artifact of a step by its name. Returns `None` if the step produced nothing, for example because it
    /// failed.
    pub fn find_artifact_source(
        &self,
        at: StepAt,
        name: &ArtifactName,
    ) -> Result<Option<ArtifactSource>, ArtifactError> {
        let (mut at, mut name) = (at, name);
        loop {
            let scope = self.state.instance(at.0).scope;
            match &self.plan.definition.scope(scope).step(at.1).kind {
                StepKindSpec::Call(call) => {
                    let Some(export) = call.exports.iter().find(|export| export.name == *name) else {
                        return Ok(None);
                    };
                    let child = self.state.visit_state(at).and_then(|more| more.children.last().copied());
                    let inner = child.and_then(|ix| find_step(self.plan, self.state, ix, &export.from));
                    let Some(inner) = inner else { return Ok(None) };
                    (at, name) = (inner, &export.artifact);
                }
                _ => {
                    let Some(attempt) = self.giving_attempt(at) else { return Ok(None) };
                    let kept = self.run.find_manifest(attempt)?;
                    let artifact = kept.as_ref().and_then(|kept| kept.find_artifact(name)).cloned();
                    return Ok(artifact.map(|artifact| ArtifactSource { attempt, artifact }));
                }
            }
        }
    }

    /// Returns the attempt whose artifacts are the step's. A failed step has none; a step whose check never passed has
    /// those of its last attempt.
    fn giving_attempt(&self, at: StepAt) -> Option<AttemptId> {
        match self.state.step(at).outcome? {
            StepOutcome::Succeeded | StepOutcome::Incomplete | StepOutcome::Exhausted => self.ledger.last_attempt(at),
            StepOutcome::Failed(_) | StepOutcome::Rejected | StepOutcome::Skipped(_) | StepOutcome::Cancelled => None,
        }
    }
}

/// An observation, with the fields of the format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerObservation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Paths in the workspace.
    pub files_changed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Longer summaries are cut in the middle; this many characters of the beginning and of the end stay.
const SUMMARY: usize = 4_000;
const SUMMARY_PART: usize = 1_000;

impl WorkerObservation {
    /// Returns a summary as the format requires: complete if it is short, else its beginning and its end.
    pub(crate) fn shorten_summary(text: &str) -> String {
        let count = text.chars().count();
        if count <= SUMMARY {
            return text.to_owned();
        }
        let first: String = text.chars().take(SUMMARY_PART).collect();
        let last: String = text.chars().skip(count - SUMMARY_PART).collect();
        format!("{first}...{last}")
    }
}

impl AttemptDir {
    /// Stores an observation, which must not be longer than a value may be.
    pub fn save_observation(&self, seen: &WorkerObservation) -> Result<(), FilePathError> {
        self.write_observation(&serde_json::to_vec(seen).expect("an observation is plain data"))
    }

    /// Loads the observation. Returns `None` if there is none, or if it cannot be parsed.
    pub(crate) fn load_observation(&self) -> Result<Option<WorkerObservation>, FilePathError> {
        let bytes = self.read_observation(limits::VALUE_BYTES as u64)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// The maximum time that a lock may outlive its process: a process that is killed while it starts another one leaves
/// its locks to the child until the child's exec, for a moment.
const LEAVING: Duration = Duration::from_secs(1);

/// Returns the lock of a folder, or `None` if another process holds it permanently.
fn await_lock(folder: &RootFolder) -> Result<Option<OwnedFd>, ArtifactError> {
    let until = Instant::now() + LEAVING;
    loop {
        match folder.try_lock()? {
            None if Instant::now() < until => std::thread::sleep(LEAVING / 100),
            lock => return Ok(lock),
        }
    }
}

/// The context folders that runs of this process write. One run at a time writes a folder, across all processes of this
/// machine: the lock is on the folder itself, and the kernel releases it with the process, so a killed run holds none.
#[derive(Debug, Default)]
pub struct ContextLocks {
    held: Mutex<BTreeMap<FileIdentity, HeldContext>>,
}

#[derive(Debug)]
struct HeldContext {
    run: RunId,
    _lock: OwnedFd,
    written: WrittenSteps,
}

/// The maximum number of folders inside of a context folder that are checked for locks of others.
const FOLDERS: usize = 10_000;

/// Finds a context folder of another run that contains this one or is inside of it. One run would remove the files of
/// the other.
fn find_nested(folder: &RootFolder, mine: &dyn Fn(&FileIdentity) -> bool) -> Option<(PathBuf, ContextNesting)> {
    let is_others = |folder: &RootFolder| {
        folder.identity().is_ok_and(|identity| !mine(&identity)) && folder.is_locked().is_ok_and(|locked| locked)
    };
    let place = std::fs::canonicalize(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    // A folder that cannot be opened is not a context folder here.
    let around = place.ancestors().skip(1).find(|path| RootFolder::open(path).is_ok_and(|root| is_others(&root)));
    if let Some(path) = around {
        return Some((path.to_owned(), ContextNesting::Inside));
    }
    // One folder is open at a time.
    let (mut todo, mut left) = (VecDeque::from([PathBuf::from(".")]), FOLDERS);
    while let Some(name) = todo.pop_front() {
        let Ok(at) = folder.open_folder(&name) else { continue };
        if name.as_os_str() != "." && is_others(&at) {
            return Some((at.path().to_owned(), ContextNesting::Around));
        }
        let entries = at.list_entries(STEPS).unwrap_or_default();
        let folders = entries.into_iter().filter(|entry| entry.thing == EntryKind::Folder).take(left);
        let before = todo.len();
        todo.extend(folders.map(|entry| name.join(entry.name)));
        left -= todo.len() - before;
    }
    None
}

impl ContextLocks {
    /// Locks the folder for this run, until it is released.
    pub fn acquire(&self, context: &ContextFolder, run: &RunId) -> Result<(), ArtifactError> {
        let folder = context.root();
        let identity = folder.identity()?;
        let in_use = || ArtifactError::ContextInUse { folder: folder.path().display().to_string() };
        let mut all = self.lock_all();
        match all.get(&identity) {
            Some(held) if held.run == *run => return Ok(()),
            Some(_) => return Err(in_use()),
            None => {}
        }
        let lock = await_lock(folder)?.ok_or_else(in_use)?;
        // The check is done with the lock held, so that of two runs that start at once at least one sees the other.
        let mine = |identity: &FileIdentity| all.get(identity).is_some_and(|held| held.run == *run);
        if let Some((other, nested)) = find_nested(folder, &mine) {
            let (folder, other) = (folder.path().display().to_string(), other.display().to_string());
            return Err(ArtifactError::ContextNested { folder, other, nested });
        }
        all.insert(identity, HeldContext { run: run.clone(), _lock: lock, written: WrittenSteps::default() });
        Ok(())
    }

    /// Writes new facts. After an error the state on disk is unknown, and the next call checks everything.
    pub(crate) fn write_context(
        &self,
        context: &ContextFolder,
        input: &ContextInput<'_>,
        from_the_beginning: bool,
    ) -> Result<(), ArtifactError> {
        let identity = context.root().identity()?;
        let taken = self.lock_all().get_mut(&identity).map(|held| std::mem::take(&mut held.written));
        let mut written = taken.filter(|_| !from_the_beginning).unwrap_or_default();
        context.write(input, &mut written)?;
        if let Some(held) = self.lock_all().get_mut(&identity) {
            held.written = written;
        }
        Ok(())
    }

    pub(crate) fn release(&self, run: &RunId) {
        self.lock_all().retain(|_, held| held.run != *run);
    }

    fn lock_all(&self) -> MutexGuard<'_, BTreeMap<FileIdentity, HeldContext>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
