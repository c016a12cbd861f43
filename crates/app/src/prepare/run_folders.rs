//! The folders that a run needs before it starts: its context folder, and the folder with copies of the files that its
//! workflow takes from the workspace.
//!
//! Owns the lock of the context folder, so that two runs never write to the same one, and the rule that a run with missing
//! files does not start. Files that a run returns belong to the host.

use std::path::PathBuf;

use serde_json::{Value, json};
use skein_core::{ids::RunId, plan::Plan};
use skein_host::{
    audit::{AuditActor, AuditEntry, AuditSubject},
    clock::Clock,
    host::{RunLaunch, RunLoader},
    run_settings::RunSettings,
    store::{RunOwner, RunRow, RunSelection, Store},
    workspace::{
        ArtifactError, ContextFolder, ContextLocks, PathTokens, RootFolder, RunDir, StagingError, has_files,
        with_root_parameter,
    },
};

use crate::{app_error::AppError, state::StateHandle};

/// The reason why a run cannot lock its context folder.
#[derive(Debug)]
pub(crate) enum ContextHoldError {
    /// Another run is using it, and will release it.
    InUse(String),
    /// It lies inside of or around the context folder of another run.
    Nested(String),
}

impl ContextHoldError {
    pub(crate) fn message(&self) -> &str {
        match self {
            ContextHoldError::InUse(message) | ContextHoldError::Nested(message) => message,
        }
    }

    /// Refuses a command for this reason.
    pub(crate) fn refuse(&self) -> AppError {
        let hint = "wait until it ends, cancel it, or use another folder with `--context`";
        AppError::refused(self.message()).with_hint(hint)
    }
}

/// Locks the context folder for a run, or returns the run that holds it.
pub(crate) fn hold_context(
    contexts: &ContextLocks,
    state: &StateHandle,
    run: &RunId,
    plan: &Plan,
    settings: &RunSettings,
) -> Result<(), ContextHoldError> {
    let Some(directory) = settings.context_directory(plan) else { return Ok(()) };
    match try_hold(contexts, state, run, directory, settings) {
        Err(ArtifactError::ContextInUse { folder }) => {
            Err(ContextHoldError::InUse(describe_holder(state, run, &folder, directory, settings)))
        }
        Err(error @ ArtifactError::ContextNested { .. }) => Err(ContextHoldError::Nested(error.to_string())),
        // A folder that cannot be created is reported by the first step.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Locks the context folder once the run that holds it has ended. Meanwhile the run is queued; cancelling the run also
/// ends this wait.
pub(crate) fn hold_context_when_free(
    contexts: &ContextLocks,
    state: &StateHandle,
    run: &RunId,
    (plan, settings): (&Plan, &RunSettings),
) -> Result<(), AppError> {
    loop {
        // `hold_context` waits for a moment before it fails, so this loop does not spin.
        match hold_context(contexts, state, run, plan, settings) {
            Ok(()) => return Ok(()),
            Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse()),
            Err(ContextHoldError::InUse(_)) => {}
        }
        let row = state.store.find_run(run)?;
        if row.is_none_or(|row| row.head.closed) {
            return Ok(());
        }
    }
}

/// Returns a warning that a run does not start yet, with the reason.
pub(crate) fn queued_warning(run: &RunId, taken: &ContextHoldError) -> String {
    format!(
        "run {run} is queued: {}. It starts when that run is over; a run with `--context DIR` starts at once",
        taken.message()
    )
}

/// Returns the reason why a queued run does not start, if it waits for its context folder.
pub(crate) fn explain_queued(state: &StateHandle, row: &RunRow, plan: &Plan) -> Option<String> {
    let settings = RunSettings::from_json(&row.about).ok()?;
    let directory = settings.context_directory(plan)?;
    let workspace = settings.workspace_grants(&state.path).ok()?.open_folder(None).ok()?;
    let folder = workspace.open_folder(directory).ok()?;
    let waits = matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_)) && folder.is_locked().unwrap_or(false);
    waits.then(|| describe_holder(state, &row.run, &folder.path().display().to_string(), directory, &settings))
}

fn try_hold(
    contexts: &ContextLocks,
    state: &StateHandle,
    run: &RunId,
    directory: &str,
    settings: &RunSettings,
) -> Result<(), ArtifactError> {
    let grants = settings.workspace_grants(&state.path);
    // A folder that is not granted was refused before.
    let Ok(workspace) = grants.and_then(|grants| grants.open_folder(None)) else { return Ok(()) };
    contexts.acquire(&ContextFolder::open(&workspace, directory)?, run)
}

/// Describes the running run that uses the same folder. That run may be in another state folder.
fn describe_holder(state: &StateHandle, run: &RunId, folder: &str, directory: &str, settings: &RunSettings) -> String {
    let names_it = |row: &RunRow| {
        let plan = RunLoader::new(&*state.store).load_plan(row);
        let other = RunSettings::from_json(&row.about).ok().filter(|other| other.workspace == settings.workspace);
        other.zip(plan.ok()).is_some_and(|(other, plan)| other.context_directory(&plan) == Some(directory))
    };
    let goes = |row: &RunRow| row.run != *run && matches!(row.owner, RunOwner::Other(_) | RunOwner::Here);
    let rows = state.store.select_runs(RunSelection::Unfinished).unwrap_or_default();
    match rows.iter().find(|row| goes(row) && names_it(row)) {
        Some(row) => {
            let run = &row.run;
            format!(
                "run {run} is using the context folder `{folder}`; \
                 `skein runs {run} --follow` shows it, `skein cancel {run}` ends it"
            )
        }
        None => format!("another run is using the context folder `{folder}`"),
    }
}

/// Returns the folder of a run's files, which may not exist.
pub(crate) fn files_root(state: &StateHandle, run: &RunId) -> PathBuf {
    RunDir::files_path(&state.run_folder(run))
}

/// Returns the plan with the path of the run's files as a parameter, if its workflow uses files.
pub(crate) fn bind_files_root(plan: &Plan, state: &StateHandle, run: &RunId) -> Plan {
    match has_files(&plan.definition.root().workflow) {
        true => plan.definition.plan_with_parameters(with_root_parameter(&plan.parameters, &files_root(state, run))),
        false => plan.clone(),
    }
}

/// Copies the files that the workflow takes into the run's folder.
pub(crate) fn stage_files(state: &StateHandle, launch: &RunLaunch, settings: &RunSettings) -> Result<(), AppError> {
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
