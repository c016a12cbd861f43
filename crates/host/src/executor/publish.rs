//! Publishes the context folder and the output files of a run, beside its steps.

use std::{sync::Arc, thread::JoinHandle};

use skein_core::{engine::Publication, ids::RunId, plan::Plan};

use super::{attempt::spec::RunStateSnapshot, executor_context::ExecutorContext};
use crate::{
    clock::Clock,
    executor_api::{ActiveRun, PublicationReporter},
    run_settings::RunSettings,
    workspace::{
        ArtifactError, GivenFile, GivenOutcome, GrantError, PathTokens, RunDir, StagingError, has_files,
        root::FilePathError, with_root_parameter,
    },
};

/// The reason why something was not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error(transparent)]
    Workspace(#[from] GrantError),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error(transparent)]
    Context(#[from] ArtifactError),
    #[error(transparent)]
    Files(#[from] StagingError),
    /// One reason for each missing file.
    #[error("{}", .0.join("; "))]
    MissingFiles(Vec<String>),
    #[error("the run has not begun")]
    NotBegun,
    #[error("this item is not published here")]
    NotPublished,
}

/// Writes a publication on a thread of its own, and reports its end.
pub(crate) fn publish_item(
    shared: &Arc<ExecutorContext>,
    running: ActiveRun<'_>,
    item: Publication,
    published: PublicationReporter,
) {
    let (shared, settings) = (Arc::clone(shared), Arc::clone(running.settings));
    let (run, snapshot) = (running.run.clone(), RunStateSnapshot::capture(running));
    let body = move || {
        let done = shared
            .run_dir(&run)
            .map_err(PublishError::from)
            .and_then(|run_dir| write_publication(&shared, &run_dir, &settings, &snapshot, item));
        published.report(done.err().map(|error| error.to_string()));
    };
    // If no thread can be spawned, the reporter is dropped, which reports that the publication was not done.
    let _ = std::thread::Builder::new().name("publish".into()).spawn(body);
}

/// Returns an error that names the missing files. It is reported, and does not change the end of the run.
fn check_all_given(given: &[GivenFile]) -> Result<(), PublishError> {
    let why = |one: &GivenFile| match &one.end {
        Ok(GivenOutcome::Written(_)) => None,
        Ok(GivenOutcome::NotMade) => Some(format!("the run made no file `{}`", one.key)),
        Err(error) => Some(format!("`{}` cannot be put into the workspace: {error}", one.key)),
    };
    let told: Vec<String> = given.iter().filter_map(why).collect();
    if told.is_empty() { Ok(()) } else { Err(PublishError::MissingFiles(told)) }
}

/// Stages the input files of a run that is started again from another.
pub(crate) fn stage_run_files(
    shared: &ExecutorContext,
    run: &RunId,
    plan: &Plan,
    settings: &RunSettings,
) -> Result<Plan, PublishError> {
    let workflow = &plan.definition.root().workflow;
    if !has_files(workflow) {
        return Ok(plan.clone());
    }
    let workspace = settings.workspace_grants(shared.state.path()).and_then(|grants| grants.open_folder(None));
    let workspace = workspace?;
    let tokens = PathTokens { run: run.clone(), workflow: workflow.id.clone(), at: Clock::default().now() };
    let folder = shared.run_dir(run)?;
    folder.stage_files(&workspace, &workflow.files_in, &tokens)?;
    let root = RunDir::files_path(folder.path());
    Ok(plan.definition.plan_with_parameters(with_root_parameter(&plan.parameters, &root)))
}

/// Removes the files of a run that is over.
pub(crate) fn remove_run_files(shared: &Arc<ExecutorContext>, run: &RunId) -> Option<JoinHandle<()>> {
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
    settings: &RunSettings,
    snapshot: &RunStateSnapshot,
    item: Publication,
) -> Result<(), PublishError> {
    let workspace = settings.workspace_grants(shared.state.path()).and_then(|grants| grants.open_folder(None))?;
    let workflow = &snapshot.plan.definition.root().workflow;
    let Some(start) = &snapshot.state.start else { return Err(PublishError::NotBegun) };
    match item {
        Publication::Context => {
            let directory = settings.context_directory(&snapshot.plan).unwrap_or_default();
            shared.write_context_folder(&workspace, directory, &start.run, &snapshot.story(run))?;
            Ok(())
        }
        Publication::Files => {
            // Uses the start time of the run, so that a repetition after a crash writes to the same paths.
            let at = snapshot.state.instances.first().map_or(snapshot.state.now, |root| root.started);
            let tokens = PathTokens { run: start.run.clone(), workflow: workflow.id.clone(), at };
            check_all_given(&run.give_files(&workspace, &workflow.files_out, &tokens)?)
        }
        Publication::Hook(_) | Publication::Retry => Err(PublishError::NotPublished),
    }
}
