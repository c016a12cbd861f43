//! Publishing: what is made known outside a run, beside its steps.

use std::{sync::Arc, thread::JoinHandle};

use serde_json::Value;
use skein_core::{engine::Publication, ids::RunId, plan::Plan};

use super::{Shared, about::About, job::Snapshot};
use crate::{
    clock::Clock,
    hands::{Published, Running},
    workspace::{Given, GivenAs, RunDir, Tokens, has_files, with_root},
};

/// Files are written in a thread of their own; it is told when they are.
pub(super) fn publish(shared: &Arc<Shared>, running: Running<'_>, item: Publication, published: Published) {
    let about = match About::read(running.about) {
        Ok(about) => about,
        Err(why) => return published.tell(Some(why)),
    };
    let (shared, run, snapshot) = (Arc::clone(shared), running.run.clone(), Snapshot::of(running));
    let body = move || {
        let done = shared
            .run_dir(&run)
            .map_err(|error| error.to_string())
            .and_then(|run_dir| write(&shared, &run_dir, &about, &snapshot, item));
        published.tell(done.err());
    };
    // Without a thread it is dropped, and so told that nobody did it.
    let _ = std::thread::Builder::new().name("publish".into()).spawn(body);
}

/// What was not given back. It is told, and changes nothing about how the run ended.
fn missed(given: &[Given]) -> Result<(), String> {
    let why = |one: &Given| match &one.end {
        Ok(GivenAs::Written(_)) => None,
        Ok(GivenAs::NotMade) => Some(format!("the run made no file `{}`", one.key)),
        Err(error) => Some(format!("`{}` cannot be put into the workspace: {error}", one.key)),
    };
    let told: Vec<String> = given.iter().filter_map(why).collect();
    if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
}

/// Stages the files of a run that is begun as another was.
pub(super) fn renew(shared: &Shared, run: &RunId, plan: &Plan, about: &Value) -> Result<Plan, String> {
    let workflow = &plan.definition.root().workflow;
    if !has_files(workflow) {
        return Ok(plan.clone());
    }
    let about = About::read(about)?;
    let workspace = about.grants(shared.state.path()).and_then(|grants| grants.folder(None));
    let workspace = workspace.map_err(|error| error.to_string())?;
    let tokens = Tokens { run: run.clone(), workflow: workflow.id.clone(), at: Clock::default().now() };
    let folder = shared.run_dir(run).map_err(|error| error.to_string())?;
    folder.stage(&workspace, &workflow.files_in, &tokens).map_err(|error| error.to_string())?;
    let root = RunDir::files_below(folder.path());
    Ok(plan.definition.given(with_root(&plan.parameters, &root)))
}

/// A run that is over needs its files no more.
pub(super) fn close(shared: &Arc<Shared>, run: &RunId) -> Option<JoinHandle<()>> {
    let (shared, run) = (Arc::clone(shared), run.clone());
    let body = move || {
        // What stays goes with the run.
        let _ = RunDir::open(&shared.state, &run).and_then(|folder| folder.remove_files());
    };
    std::thread::Builder::new().name("files".into()).spawn(body).ok()
}

fn write(
    shared: &Shared,
    run: &RunDir,
    about: &About,
    snapshot: &Snapshot,
    item: Publication,
) -> Result<(), String> {
    let workspace = about
        .grants(shared.state.path())
        .and_then(|grants| grants.folder(None))
        .map_err(|error| error.to_string())?;
    let workflow = &snapshot.plan.definition.root().workflow;
    let Some(start) = &snapshot.state.start else { return Err("the run has not begun".to_owned()) };
    match item {
        Publication::Context => {
            let directory = about.context_directory(&snapshot.plan).unwrap_or_default();
            let told = shared.tell_context(&workspace, directory, &start.run, &snapshot.story(run));
            told.map(drop).map_err(|error| error.to_string())
        }
        Publication::Files => {
            // The day on which it began: done again after a crash, the files go where they went.
            let at = snapshot.state.instances.first().map_or(snapshot.state.now, |root| root.started);
            let tokens = Tokens { run: start.run.clone(), workflow: workflow.id.clone(), at };
            let given = run.give_files(&workspace, &workflow.files_out, &tokens);
            missed(&given.map_err(|error| error.to_string())?)
        }
        Publication::Hook(_) | Publication::Retry => Err("nobody here does this".to_owned()),
    }
}
