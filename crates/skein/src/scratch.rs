//! The files that a workflow takes from its workspace and gives back: they are put into a folder of the run before it begins.
//!
//! Owns that a run with files that are not there does not begin. What is given back is the host's.

use std::path::PathBuf;

use serde_json::{Value, json};
use skein_core::{ids::RunId, plan::Plan};
use skein_host::{
    audit::{Actor, Entry, Subject},
    clock::Clock,
    crew::About,
    host::Begin,
    store::Store,
    workspace::{FileError, Root, RunDir, Tokens, has_files, with_root},
};

use crate::{
    exit::Exit,
    output::Output,
    state::{State, failed},
};

/// The folder of a run's files. It may not be there.
pub fn root(state: &State, run: &RunId) -> PathBuf {
    RunDir::files_below(&state.kept(run))
}

/// A plan whose run finds its files.
pub fn found(plan: &Plan, state: &State, run: &RunId) -> Plan {
    match has_files(&plan.definition.root().workflow) {
        true => plan.definition.given(with_root(&plan.parameters, &root(state, run))),
        false => plan.clone(),
    }
}

/// Puts the files there that the workflow takes.
pub fn stage(state: &State, begin: &Begin, about: &About, output: Output) -> Result<(), Exit> {
    let workflow = &begin.plan.definition.root().workflow;
    if !has_files(workflow) {
        return Ok(());
    }
    let run = &begin.start.run;
    let now = Clock::default().now();
    let tokens = Tokens { run: run.clone(), workflow: workflow.id.clone(), at: now };
    let broken = |why: String| output.refuse(Exit::Store, &why, None);
    let kept = Root::open(&state.path).map_err(|error| broken(error.to_string()))?;
    let workspace = about.grants(&state.path).and_then(|grants| grants.folder(None));
    let workspace = workspace.map_err(|error| output.refuse(Exit::Refused, &error.to_string(), None))?;
    let folder = RunDir::create_synced(&kept, run).map_err(|error| broken(error.to_string()))?;
    let Err(error) = folder.stage(&workspace, &workflow.files_in, &tokens) else { return Ok(()) };
    // Nothing has begun, and nothing of it stays.
    let _ = RunDir::remove(&kept, run);
    let FileError { key, .. } = &error;
    let entry = Entry {
        at: now,
        actor: Actor::person(&about.user),
        action: "run.refuse",
        subject: Subject { kind: "workflow", name: workflow.id.to_string(), path: None },
        input: json!({"file": key, "why": error.to_string()}),
        output: Value::Null,
    };
    state.store.note(&[entry]).map_err(|error| failed(&error, output))?;
    let hint = "`inputsFiles` of the workflow says where it is looked for, from the workspace";
    Err(output.refuse(Exit::Refused, &error.to_string(), Some(hint)))
}
