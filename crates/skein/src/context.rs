//! The context folder of a run: had before it begins, so that two runs never write one.

use skein_core::{ids::RunId, plan::Plan};
use skein_host::{
    crew::About,
    host::Recall,
    store::{Owner, RunRow, Store, Which},
    workspace::{ArtifactError, Context, Contexts},
};

use crate::{exit::Exit, output::Output, state::State};

/// Takes the context folder for a run, or says who has it.
pub fn hold(
    contexts: &Contexts,
    state: &State,
    run: &RunId,
    plan: &Plan,
    about: &About,
) -> Result<(), String> {
    let Some(directory) = directory(plan) else { return Ok(()) };
    match had(contexts, state, run, directory, about) {
        Err(ArtifactError::ContextInUse { folder }) => Err(in_use(state, &folder, directory, about)),
        // A folder that cannot be made is the first step's to tell.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The same for a command that does nothing else then.
pub fn hold_or_refuse(
    contexts: &Contexts,
    state: &State,
    run: &RunId,
    (plan, about): (&Plan, &About),
    output: Output,
) -> Result<(), Exit> {
    let hint = "wait for its end, end it, or give the workflow a `context_dir` of its own";
    hold(contexts, state, run, plan, about)
        .map_err(|message| output.refuse(Exit::Refused, &message, Some(hint)))
}

fn directory(plan: &Plan) -> Option<&str> {
    plan.definition.root().workflow.context.directory.as_deref()
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
fn in_use(state: &State, folder: &str, directory_of_this: &str, about: &About) -> String {
    let names_it = |row: &RunRow| {
        let same = About::read(&row.about).is_ok_and(|other| other.workspace == about.workspace);
        let plan = Recall::new(&*state.store).plan(row);
        same && plan.is_ok_and(|plan| directory(&plan) == Some(directory_of_this))
    };
    let goes = |row: &RunRow| matches!(row.owner, Owner::Other(_) | Owner::Here);
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
