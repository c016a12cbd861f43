//! The files that a workflow takes from its workspace: copied into a folder of the run before it starts.
//!
//! Owns the rule that a run with missing files does not start. Files that a run returns belong to the host.

use std::path::PathBuf;

use serde_json::{Value, json};
use skein_core::{ids::RunId, plan::Plan};
use skein_host::{
    audit::{AuditActor, AuditEntry, AuditSubject},
    clock::Clock,
    host::RunLaunch,
    run_settings::RunSettings,
    store::Store,
    workspace::{PathTokens, RootFolder, RunDir, StagingError, has_files, with_root_parameter},
};

use crate::{app_error::AppError, state::StateHandle};

/// Returns the folder of a run's files, which may not exist.
pub fn files_root(state: &StateHandle, run: &RunId) -> PathBuf {
    RunDir::files_path(&state.run_folder(run))
}

/// Returns the plan with the path of the run's files as a parameter, if its workflow uses files.
pub fn bind_files_root(plan: &Plan, state: &StateHandle, run: &RunId) -> Plan {
    match has_files(&plan.definition.root().workflow) {
        true => plan.definition.plan_with_parameters(with_root_parameter(&plan.parameters, &files_root(state, run))),
        false => plan.clone(),
    }
}

/// Copies the files that the workflow takes into the run's folder.
pub fn stage_files(state: &StateHandle, launch: &RunLaunch, settings: &RunSettings) -> Result<(), AppError> {
    let workflow = &launch.plan.definition.root().workflow;
    if !has_files(workflow) {
        return Ok(());
    }
    let run = &launch.start.run;
    let now = Clock::default().now();
    let tokens = PathTokens { run: run.clone(), workflow: workflow.id.clone(), at: now };
    let root = RootFolder::open(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    let workspace = settings.workspace_grants(&state.path).and_then(|grants| grants.open_folder(None));
    let workspace = workspace.map_err(|error| AppError::refused(error.to_string()))?;
    let folder = RunDir::create_synced(&root, run).map_err(|error| AppError::store(error.to_string()))?;
    let Err(error) = folder.stage_files(&workspace, &workflow.files_in, &tokens) else { return Ok(()) };
    // The run has not started, so its folder is removed.
    let _ = RunDir::remove(&root, run);
    let StagingError { key, .. } = &error;
    let entry = AuditEntry {
        at: now,
        actor: AuditActor::from_user(&settings.user),
        action: "run.refuse",
        subject: AuditSubject { kind: "workflow", name: workflow.id.to_string(), path: None },
        input: json!({"file": key, "why": error.to_string()}),
        output: Value::Null,
    };
    state.store.append_audit(&[entry])?;
    let hint = "`inputsFiles` of the workflow sets its path, relative to the workspace";
    Err(AppError::refused(error.to_string()).with_hint(hint))
}
