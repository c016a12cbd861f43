//! Publishing: what is made known outside a run, beside its steps.

use std::sync::Arc;

use skein_core::engine::Publication;

use super::{Shared, about::About, job::Snapshot};
use crate::{
    hands::{Published, Running},
    workspace::{RunDir, Tokens},
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
            let directory = workflow.context.directory.as_deref().unwrap_or_default();
            let told = shared.tell_context(&workspace, directory, &start.run, &snapshot.story(run));
            told.map(drop).map_err(|error| error.to_string())
        }
        Publication::Files => {
            let tokens =
                Tokens { run: start.run.clone(), workflow: workflow.id.clone(), at: snapshot.state.now };
            let given = run.give_files(&workspace, &workflow.files_out, &tokens);
            given.map(drop).map_err(|error| error.to_string())
        }
        Publication::Hook(_) | Publication::Retry => Err("nobody here does this".to_owned()),
    }
}
