//! Replaying an attempt: what was recorded of it happens again, and no program is started.
//!
//! Owns that nothing is made up: what was not recorded, or was asked in other words, is a failure that says so.

use std::{path::Path, sync::Arc, time::Duration};

use skein_core::{
    engine::{AttemptEnd, Cost, Report},
    ir::ErrorClass,
};

use super::{
    Doing, Shared,
    artifacts::{keep, take_in},
    attempt::tell_context,
    back::cut,
    job::Job,
    record,
};
use crate::{
    tape::{Entry, Key, Kind, Marker, Taken, Tape, differs},
    workspace::{AttemptDir, RunDir},
};

/// The code of an attempt that cannot be replayed.
pub const REPLAY: &str = "replay";
/// How long one that was stopped when it was recorded waits for that.
const STOPPED: Duration = Duration::from_secs(10);

/// Does an attempt from a recording.
pub(super) fn attempt(shared: &Arc<Shared>, job: &Job, path: &Path, doing: &Doing) -> Report {
    match found(shared, job, path) {
        Ok((run, files, key, entry)) => {
            let done = again(shared, job, path, (&run, &files), &key, &entry);
            let problem = done.as_ref().err().cloned();
            let marked = Marker { place: key.place(), problem: problem.clone() }.write(files.root());
            let end = match problem.or_else(|| marked.err().map(|error| error.to_string())) {
                Some(problem) => cannot(problem),
                None => done.unwrap_or_else(cannot),
            };
            let end = if end == AttemptEnd::Stopped { stopped(shared, doing) } else { end };
            let Taken { cost, by, proofs, .. } = entry.result;
            Report { end, cost, by, proofs }
        }
        Err(problem) => Report::new(cannot(problem), Cost::default()),
    }
}

/// Trying again would come to the same.
fn cannot(message: String) -> AttemptEnd {
    let code = Some(REPLAY.to_owned());
    AttemptEnd::Failed { class: ErrorClass::Fatal, code, message: cut(message), retry_at: None }
}

/// What was recorded of an attempt, if it is asked for the same.
fn found(shared: &Shared, job: &Job, path: &Path) -> Result<(RunDir, AttemptDir, Key, Entry), String> {
    let told = |error: &dyn ToString| error.to_string();
    let run = shared.run_dir(&job.run).map_err(|error| told(&error))?;
    let files = run.attempt(job.attempt).map_err(|error| told(&error))?;
    let key = record::key(job, &run)?;
    let tape = Tape::open(path).map_err(|error| told(&error))?;
    let problem = match tape.read(&key) {
        Ok(Some(entry)) => {
            let asked = record::asked(shared, job, &key);
            match (differs(&entry.request, &asked), &entry.result.not_whole) {
                (None, None) => return Ok((run, files, key, entry)),
                (Some(differs), _) => format!(
                    "`{}` is asked for something else than was recorded (- recorded, + asked now):\n{differs}",
                    job.path
                ),
                (None, Some(why)) => format!("`{}` was not recorded whole: {why}", job.path),
            }
        }
        Ok(None) => format!(
            "`{}` is asked for its {} {} of visit {} and iteration {}, which was not recorded",
            job.path,
            key.role.as_str(),
            key.n,
            key.visit,
            key.iteration
        ),
        Err(error) => error.to_string(),
    };
    let marker = Marker { place: key.place(), problem: Some(problem.clone()) };
    marker.write(files.root()).map_err(|error| told(&error))?;
    Err(problem)
}

/// What was done then is done again.
fn again(
    shared: &Arc<Shared>,
    job: &Job,
    path: &Path,
    (run, files): (&RunDir, &AttemptDir),
    key: &Key,
    entry: &Entry,
) -> Result<AttemptEnd, String> {
    let told = |error: &dyn ToString| error.to_string();
    let said = |end: AttemptEnd| match end {
        AttemptEnd::Failed { message, .. } => message,
        other => format!("{other:?}"),
    };
    let tape = Tape::open(path).map_err(|error| told(&error))?;
    let grants = job.about.grants(shared.state.path()).map_err(|error| told(&error))?;
    let folder = grants.make_folder(job.isolation.workspace.as_deref()).map_err(|error| told(&error))?;
    let context = tell_context(shared, run, &grants, job).map_err(said)?;
    take_in(run, &folder, job).map_err(said)?;
    let back = files.back().map_err(|error| told(&error))?;
    let (places, without) = (record::places(shared, job), record::not_its_own(shared, job, path));
    let kinds = [(Kind::Files, &entry.result.files, &folder), (Kind::Apart, &entry.result.apart, &back)];
    for (kind, changes, to) in kinds {
        for change in changes {
            if change.is_foreign(to, &without) {
                return Err(format!("`{}` is none of what a step may change", change.path));
            }
            let bytes = match change.what {
                crate::tape::What::Removed => Vec::new(),
                _ => tape.read_file(key, kind, &change.path).map_err(|error| told(&error))?,
            };
            change.apply(to, &places.show_bytes(bytes)).map_err(|error| told(&error))?;
        }
    }
    let log = format!("[skein: replayed from {}.json]\n", key.place());
    std::fs::write(files.log(), log).map_err(|error| told(&error))?;
    let end = serde_json::to_value(&entry.result.end).expect("it is JSON");
    let end: AttemptEnd = serde_json::from_value(places.show_in(&end)).map_err(|error| told(&error))?;
    if matches!(end, AttemptEnd::Succeeded { .. } | AttemptEnd::Unmerged { .. }) && !job.gives.is_empty() {
        let own = if entry.result.apart.is_empty() { &folder } else { &back };
        keep(shared, run, job, own, context.as_ref()).map_err(said)?;
    }
    Ok(end)
}

/// One that was stopped is stopped again, by whatever did so.
fn stopped(shared: &Shared, doing: &Doing) -> AttemptEnd {
    match shared.wait_for_stop(doing, STOPPED) {
        true => AttemptEnd::Stopped,
        false => cannot("it was stopped when it was recorded, and nothing stops it now".to_owned()),
    }
}
