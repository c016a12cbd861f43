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

mod artifact_source;
mod clear;
mod context_locks;
mod context_writer;
mod convergence;
mod meta;
mod observation;
mod summary;
mod written_steps;

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{InstanceIx, RunLedger, RunState, StepAt},
    plan::Plan,
};

use super::{RootFolder, RunDir, artifact::ArtifactError, root::FilePathError, run_dir::none_if_missing};

pub use artifact_source::{ArtifactSource, find_step};
pub use clear::WrittenArtifacts;
pub use context_locks::ContextLocks;
pub use observation::WorkerObservation;
pub use written_steps::WrittenSteps;

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

    pub fn root(&self) -> &RootFolder {
        &self.root
    }

    /// Returns the run that wrote here last. Another active run must not be disturbed.
    pub fn read_holder(&self) -> Result<Option<ContextHolder>, FilePathError> {
        let bytes = none_if_missing(self.root.read_file(WORKFLOW, FILE_BYTES))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Removes the files of an earlier run: its metadata, and its artifacts that are unchanged. All other files stay.
    pub fn clear(&self, written: &WrittenArtifacts) -> Result<(), FilePathError> {
        clear::clear_workflow(&self.root, written)
    }

    /// Writes all facts that have not been written yet. Files that are equal already are not changed.
    pub fn write(&self, story: &ContextInput<'_>, written: &mut WrittenSteps) -> Result<(), ArtifactError> {
        context_writer::write_context(&self.root, story, written)
    }
}
