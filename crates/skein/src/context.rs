//! The context folder of a run: had before it begins, so that two runs never write one.

use skein_core::{ids::RunId, plan::Plan};
use skein_host::{
    executor::RunSettings,
    host::RunLoader,
    store::{RunOwner, RunRow, RunSelection, Store},
    workspace::{ArtifactError, ContextFolder, ContextLocks},
};

use crate::{
    exit::Exit,
    output::CliOutput,
    state::{StateHandle, refuse_store_error},
};

/// The reason why a run cannot have its context folder.
#[derive(Debug)]
pub enum ContextHoldError {
    /// Another run is at work in it, and will let it go.
    InUse(String),
    /// It lies inside of or around that of another run.
    Nested(String),
}

impl ContextHoldError {
    pub fn message(&self) -> &str {
        match self {
            ContextHoldError::InUse(message) | ContextHoldError::Nested(message) => message,
        }
    }

    /// Refuses a command because of it.
    pub fn refuse(&self, output: CliOutput) -> Exit {
        let hint = "wait for its end, end it, or name another folder with `--context`";
        output.refuse(Exit::Refused, self.message(), Some(hint))
    }
}

/// Takes the context folder for a run, or says who has it.
pub fn hold_context(
    contexts: &ContextLocks,
    state: &StateHandle,
    run: &RunId,
    plan: &Plan,
    about: &RunSettings,
) -> Result<(), ContextHoldError> {
    let Some(directory) = about.context_directory(plan) else { return Ok(()) };
    match try_hold(contexts, state, run, directory, about) {
        Err(ArtifactError::ContextInUse { folder }) => {
            Err(ContextHoldError::InUse(describe_holder(state, run, &folder, directory, about)))
        }
        Err(error @ ArtifactError::ContextNested { .. }) => Err(ContextHoldError::Nested(error.to_string())),
        // A folder that cannot be made is the first step's to tell.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes the context folder once the run that has it is over. Meanwhile the run is queued, and whoever ends it ends this.
pub fn hold_context_when_free(
    contexts: &ContextLocks,
    state: &StateHandle,
    run: &RunId,
    (plan, about): (&Plan, &RunSettings),
    output: CliOutput,
) -> Result<(), Exit> {
    loop {
        // It looks for a moment before it says no, so that this does not spin.
        match hold_context(contexts, state, run, plan, about) {
            Ok(()) => return Ok(()),
            Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse(output)),
            Err(ContextHoldError::InUse(_)) => {}
        }
        let row = state.store.find_run(run).map_err(|error| refuse_store_error(&error, output))?;
        if row.is_none_or(|row| row.head.closed) {
            return Ok(());
        }
    }
}

/// Tells people why a run does not start yet.
pub fn warn_queued(run: &RunId, taken: &ContextHoldError, output: CliOutput) {
    if output.is_json() {
        return;
    }
    output.warn(&format!(
        "run {run} is queued: {}. It starts when that run is over; a run with `--context DIR` starts at once",
        taken.message()
    ));
}

/// The reason why a queued run does not start, if it waits for its context folder.
pub fn explain_queued(state: &StateHandle, row: &RunRow, plan: &Plan) -> Option<String> {
    let about = RunSettings::from_json(&row.about).ok()?;
    let directory = about.context_directory(plan)?;
    let workspace = about.workspace_grants(&state.path).ok()?.open_folder(None).ok()?;
    let folder = workspace.open_folder(directory).ok()?;
    let waits =
        matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_)) && folder.is_locked().unwrap_or(false);
    waits.then(|| describe_holder(state, &row.run, &folder.path().display().to_string(), directory, &about))
}

fn try_hold(
    contexts: &ContextLocks,
    state: &StateHandle,
    run: &RunId,
    directory: &str,
    about: &RunSettings,
) -> Result<(), ArtifactError> {
    let grants = about.workspace_grants(&state.path);
    // What is not granted was refused before.
    let Ok(workspace) = grants.and_then(|grants| grants.open_folder(None)) else { return Ok(()) };
    contexts.acquire(&ContextFolder::open(&workspace, directory)?, run)
}

/// Another run that someone has and that names the same folder; it may be kept in another state folder.
fn describe_holder(
    state: &StateHandle,
    run: &RunId,
    folder: &str,
    directory: &str,
    about: &RunSettings,
) -> String {
    let names_it = |row: &RunRow| {
        let plan = RunLoader::new(&*state.store).load_plan(row);
        let other =
            RunSettings::from_json(&row.about).ok().filter(|other| other.workspace == about.workspace);
        other.zip(plan.ok()).is_some_and(|(other, plan)| other.context_directory(&plan) == Some(directory))
    };
    let goes = |row: &RunRow| row.run != *run && matches!(row.owner, RunOwner::Other(_) | RunOwner::Here);
    let rows = state.store.select_runs(RunSelection::Unfinished).unwrap_or_default();
    match rows.iter().find(|row| goes(row) && names_it(row)) {
        Some(row) => {
            let run = &row.run;
            format!(
                "run {run} is at work with the context folder `{folder}`; \
                 `skein runs {run} --follow` shows it, `skein cancel {run}` ends it"
            )
        }
        None => format!("another run is at work with the context folder `{folder}`"),
    }
}
