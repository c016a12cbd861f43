//! Publishes the context folder and the output files of a run, beside its steps.

use std::{sync::Arc, thread::JoinHandle};

use serde_json::Value;
use skein_core::{engine::Publication, ids::RunId, plan::Plan};

use super::{ExecutorContext, attempt_spec::RunStateSnapshot, run_settings::RunSettings};
use crate::{
    clock::Clock,
    executor_api::{ActiveRun, PublicationReporter},
    workspace::{GivenFile, GivenOutcome, PathTokens, RunDir, has_files, with_root_parameter},
};

/// Writes a publication on a thread of its own, and reports its end.
pub(super) fn publish_item(
    shared: &Arc<ExecutorContext>,
    running: ActiveRun<'_>,
    item: Publication,
    published: PublicationReporter,
) {
    let about = match RunSettings::from_json(running.about) {
        Ok(about) => about,
        Err(why) => return published.report(Some(why)),
    };
    let (shared, run, snapshot) =
        (Arc::clone(shared), running.run.clone(), RunStateSnapshot::capture(running));
    let body = move || {
        let done = shared
            .run_dir(&run)
            .map_err(|error| error.to_string())
            .and_then(|run_dir| write_publication(&shared, &run_dir, &about, &snapshot, item));
        published.report(done.err());
    };
    // If no thread can be spawned, the reporter is dropped, which reports that the publication was not done.
    let _ = std::thread::Builder::new().name("publish".into()).spawn(body);
}

/// Returns an error that names the missing files. It is reported, and does not change the end of the run.
fn check_all_given(given: &[GivenFile]) -> Result<(), String> {
    let why = |one: &GivenFile| match &one.end {
        Ok(GivenOutcome::Written(_)) => None,
        Ok(GivenOutcome::NotMade) => Some(format!("the run made no file `{}`", one.key)),
        Err(error) => Some(format!("`{}` cannot be put into the workspace: {error}", one.key)),
    };
    let told: Vec<String> = given.iter().filter_map(why).collect();
    if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
}

/// Stages the input files of a run that is started again from another.
pub(super) fn stage_run_files(
    shared: &ExecutorContext,
    run: &RunId,
    plan: &Plan,
    about: &Value,
) -> Result<Plan, String> {
    let workflow = &plan.definition.root().workflow;
    if !has_files(workflow) {
        return Ok(plan.clone());
    }
    let about = RunSettings::from_json(about)?;
    let workspace = about.workspace_grants(shared.state.path()).and_then(|grants| grants.open_folder(None));
    let workspace = workspace.map_err(|error| error.to_string())?;
    let tokens = PathTokens { run: run.clone(), workflow: workflow.id.clone(), at: Clock::default().now() };
    let folder = shared.run_dir(run).map_err(|error| error.to_string())?;
    folder.stage_files(&workspace, &workflow.files_in, &tokens).map_err(|error| error.to_string())?;
    let root = RunDir::files_path(folder.path());
    Ok(plan.definition.plan_with_parameters(with_root_parameter(&plan.parameters, &root)))
}

/// Removes the files of a run that is over.
pub(super) fn remove_run_files(shared: &Arc<ExecutorContext>, run: &RunId) -> Option<JoinHandle<()>> {
    let (shared, run) = (Arc::clone(shared), run.clone());
    let body = move || {
        // Remaining files are removed with the run.
        let _ = RunDir::open(&shared.state, &run).and_then(|folder| folder.remove_files());
    };
    std::thread::Builder::new().name("files".into()).spawn(body).ok()
}

fn write_publication(
    shared: &ExecutorContext,
    run: &RunDir,
    about: &RunSettings,
    snapshot: &RunStateSnapshot,
    item: Publication,
) -> Result<(), String> {
    let workspace = about
        .workspace_grants(shared.state.path())
        .and_then(|grants| grants.open_folder(None))
        .map_err(|error| error.to_string())?;
    let workflow = &snapshot.plan.definition.root().workflow;
    let Some(start) = &snapshot.state.start else { return Err("the run has not begun".to_owned()) };
    match item {
        Publication::Context => {
            let directory = about.context_directory(&snapshot.plan).unwrap_or_default();
            let told = shared.write_context_folder(&workspace, directory, &start.run, &snapshot.story(run));
            told.map(drop).map_err(|error| error.to_string())
        }
        Publication::Files => {
            // Uses the start time of the run, so that a repetition after a crash writes to the same paths.
            let at = snapshot.state.instances.first().map_or(snapshot.state.now, |root| root.started);
            let tokens = PathTokens { run: start.run.clone(), workflow: workflow.id.clone(), at };
            let given = run.give_files(&workspace, &workflow.files_out, &tokens);
            check_all_given(&given.map_err(|error| error.to_string())?)
        }
        Publication::Hook(_) | Publication::Retry => Err("this item is not published here".to_owned()),
    }
}
