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

mod context_locks;
mod context_writer;
mod documents;

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptId, InstanceIx, RunLedger, RunState, StepAt, StepOutcome},
    ids::{ArtifactName, StepId},
    ir::StepKindSpec,
    limits,
    plan::Plan,
};

use crate::workspace::{
    AttemptDir, RootFolder, RunDir,
    artifact::{ArtifactError, KeptArtifact},
    root::FilePathError,
    run_dir::none_if_missing,
};

pub use context_locks::ContextLocks;
pub use context_writer::{WrittenArtifacts, WrittenSteps};

const WORKFLOW: &str = "_workflow.json";
const META: &str = "_meta.json";
const CONVERGENCE: &str = "_convergence";
const CALLED: &str = "_subworkflows";
/// The maximum size of Skein's files in a context.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
const STEPS: usize = 1_000_000;

/// A context folder.
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

    /// Uses a folder of Skein, for a run whose workflow names none.
    pub fn from_root(root: RootFolder) -> ContextFolder {
        ContextFolder { root }
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
