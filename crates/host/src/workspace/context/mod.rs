//! The context folder of AgentCore: how its steps hand files to one another, and what people look into afterwards.
//!
//! Owns the names and the fields that the format promises. Everything is worked out from the plan, the state, the
//! journal ([`Ledger`]) and the run's folder, so that it can be written again from nothing and comes out the same.
//! Refuses to be read by us: what a step is given comes from the run's folder, where no worker could change it.
//!
//! ```text
//! <context>/
//!   _workflow.json
//!   <step>/
//!     _meta.json
//!     <artifact>/<path>      as the path was in the workspace; empty where the step gave none
//!     _convergence/          state.json, stage-transition.json, scope.json
//!     _subworkflows/         the context of the workflow that the step called
//! ```

mod artifact_source;
mod clear;
mod context_locks;
mod context_writer;
mod convergence;
mod ledger;
mod meta;
mod observation;
mod summary;
mod written_steps;

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{InstanceIx, RunState, StepAt},
    plan::Plan,
};

use super::{RootFolder, RunDir, artifact::ArtifactError, root::FilePathError, run_dir::none_if_missing};

pub use artifact_source::{ArtifactSource, find_step};
pub use clear::WrittenArtifacts;
pub use context_locks::ContextLocks;
pub use ledger::{CheckRecord, Ledger};
pub use observation::WorkerObservation;
pub use written_steps::WrittenSteps;

const WORKFLOW: &str = "_workflow.json";
const META: &str = "_meta.json";
const CONVERGENCE: &str = "_convergence";
const CALLED: &str = "_subworkflows";
/// More than any file of ours in a context has.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
const STEPS: usize = 1_000_000;

/// A context folder.
#[derive(Debug, Clone)]
pub struct ContextFolder {
    root: RootFolder,
}

/// What a context tells of.
#[derive(Debug, Clone, Copy)]
pub struct ContextInput<'a> {
    pub plan: &'a Plan,
    pub state: &'a RunState,
    /// Fed with every record of the run so far.
    pub ledger: &'a Ledger,
    pub run: &'a RunDir,
}

impl ContextInput<'_> {
    /// The steps of an instance, by number.
    fn instance_steps(&self, ix: InstanceIx) -> impl Iterator<Item = StepAt> + use<> {
        let count = self.plan.definition.scope(self.state.instance(ix).scope).scope.steps.len();
        (0..).take(count).map(move |number| StepAt(ix, number))
    }
}

/// The run that a context tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextHolder {
    /// The run's id, as it was written; anyone may have changed it.
    pub id: String,
    pub status: String,
}

impl ContextFolder {
    /// The context folder of a workflow, made where it is not there yet.
    pub fn open(workspace: &RootFolder, directory: &str) -> Result<ContextFolder, FilePathError> {
        Ok(ContextFolder { root: workspace.make_folders(directory, false)? })
    }

    /// A folder of ours, for a run whose workflow names none.
    pub fn from_root(root: RootFolder) -> ContextFolder {
        ContextFolder { root }
    }

    pub fn root(&self) -> &RootFolder {
        &self.root
    }

    /// Which run was the last to write here. Another one that still goes on must not be disturbed.
    pub fn read_holder(&self) -> Result<Option<ContextHolder>, FilePathError> {
        let bytes = none_if_missing(self.root.read_file(WORKFLOW, FILE_BYTES))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Removes what an earlier run wrote: what it told of itself and its steps, and the artifacts that are as it put them
    /// there. Whatever else is there stays.
    pub fn clear(&self, written: &WrittenArtifacts) -> Result<(), FilePathError> {
        clear::clear_workflow(&self.root, written)
    }

    /// Writes everything that is known and has not been written. What is there already and the same is left alone.
    pub fn write(&self, story: &ContextInput<'_>, written: &mut WrittenSteps) -> Result<(), ArtifactError> {
        context_writer::write_context(&self.root, story, written)
    }
}
