//! The context folder of a run: had before it begins, so that two runs never write one.

use skein_core::{ids::RunId, plan::Plan};
use skein_host::{
    crew::About,
    host::Recall,
    store::{Owner, RunRow, Store, Which},
    workspace::{ArtifactError, Context, Contexts},
};

use crate::{
    exit::Exit,
    output::Output,
    state::{State, failed},
};

/// The reason why a run cannot have its context folder.
#[derive(Debug)]
pub enum ContextTaken {
    /// Another run is at work in it, and will let it go.
    InUse(String),
    /// It lies inside of or around that of another run.
    Nested(String),
}

impl ContextTaken {
    pub fn message(&self) -> &str {
        match self {
            ContextTaken::InUse(message) | ContextTaken::Nested(message) => message,
        }
    }

    /// Refuses a command because of it.
    pub fn refuse(&self, output: Output) -> Exit {
        let hint = "wait for its end, end it, or name another folder with `--context`";
        output.refuse(Exit::Refused, self.message(), Some(hint))
    }
}

/// Takes the context folder for a run, or says who has it.
pub fn hold(
    contexts: &Contexts,
    state: &State,
    run: &RunId,
    plan: &Plan,
    about: &About,
) -> Result<(), ContextTaken> {
    let Some(directory) = about.context_directory(plan) else { return Ok(()) };
    match had(contexts, state, run, directory, about) {
        Err(ArtifactError::ContextInUse { folder }) => {
            Err(ContextTaken::InUse(in_use(state, run, &folder, directory, about)))
        }
        Err(error @ ArtifactError::ContextNested { .. }) => Err(ContextTaken::Nested(error.to_string())),
        // A folder that cannot be made is the first step's to tell.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes the context folder once the run that has it is over. Meanwhile the run is queued, and whoever ends it ends this.
pub fn hold_when_free(
    contexts: &Contexts,
    state: &State,
    run: &RunId,
    (plan, about): (&Plan, &About),
    output: Output,
) -> Result<(), Exit> {
    loop {
        // It looks for a moment before it says no, so that this does not spin.
        match hold(contexts, state, run, plan, about) {
            Ok(()) => return Ok(()),
            Err(taken @ ContextTaken::Nested(_)) => return Err(taken.refuse(output)),
            Err(ContextTaken::InUse(_)) => {}
        }
        let row = state.store.run(run).map_err(|error| failed(&error, output))?;
        if row.is_none_or(|row| row.head.closed) {
            return Ok(());
        }
    }
}

/// Tells people why a run does not start yet.
pub fn tell_queued(run: &RunId, taken: &ContextTaken, output: Output) {
    if output.is_json() {
        return;
    }
    output.warn(&format!(
        "run {run} is queued: {}. It starts when that run is over; a run with `--context DIR` starts at once",
        taken.message()
    ));
}

/// The reason why a queued run does not start, if it waits for its context folder.
pub fn queued_because(state: &State, row: &RunRow, plan: &Plan) -> Option<String> {
    let about = About::read(&row.about).ok()?;
    let directory = about.context_directory(plan)?;
    let workspace = about.grants(&state.path).ok()?.folder(None).ok()?;
    let folder = workspace.folder(directory).ok()?;
    let waits = matches!(row.owner, Owner::Nobody | Owner::Dead(_)) && folder.is_locked().unwrap_or(false);
    waits.then(|| in_use(state, &row.run, &folder.path().display().to_string(), directory, &about))
}

fn had(
    contexts: &Contexts,
    state: &State,
    run: &RunId,
    directory: &str,
    about: &About,
) -> Result<(), ArtifactError> {
    let grants = about.grants(&state.path);
    // What is not granted was refused before.
    let Ok(workspace) = grants.and_then(|grants| grants.folder(None)) else { return Ok(()) };
    contexts.hold(&Context::open(&workspace, directory)?, run)
}

/// Another run that someone has and that names the same folder; it may be kept in another state folder.
fn in_use(state: &State, run: &RunId, folder: &str, directory: &str, about: &About) -> String {
    let names_it = |row: &RunRow| {
        let plan = Recall::new(&*state.store).plan(row);
        let other = About::read(&row.about).ok().filter(|other| other.workspace == about.workspace);
        other.zip(plan.ok()).is_some_and(|(other, plan)| other.context_directory(&plan) == Some(directory))
    };
    let goes = |row: &RunRow| row.run != *run && matches!(row.owner, Owner::Other(_) | Owner::Here);
    let rows = state.store.runs(Which::Unfinished).unwrap_or_default();
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
