//! Replays an attempt from its recording, without starting a program.
//!
//! Owns the strictness of a replay: an attempt that was not recorded, or has another request, fails with that reason.

use std::{path::Path, sync::Arc, time::Duration};

use skein_core::{
    engine::{AttemptEnd, AttemptReport, Cost},
    ir::ErrorClass,
};

use super::{
    ExecutorContext, WorkKey,
    artifacts::{import_artifacts, keep_artifacts},
    attempt::update_context_folder,
    attempt_recording,
    attempt_spec::AttemptSpec,
    worker_output::truncate_message,
};
use crate::{
    recording::{
        RecordedFileKind, RecordedResult, Recording, RecordingEntry, RecordingKey, RecordingMarker,
        diff_requests,
    },
    workspace::{AttemptDir, RunDir},
};

/// The code of an attempt that cannot be replayed.
pub const REPLAY: &str = "replay";
/// The time that an attempt with a recorded stop waits for a stop.
const STOPPED: Duration = Duration::from_secs(10);

/// Runs an attempt from a recording.
pub(super) fn replay_attempt(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    path: &Path,
    doing: &WorkKey,
) -> AttemptReport {
    match find_recording(shared, job, path) {
        Ok((run, files, key, entry)) => {
            let done = apply_recording(shared, job, path, (&run, &files), &key, &entry);
            let problem = done.as_ref().err().cloned();
            let marked =
                RecordingMarker { place: key.file_stem(), problem: problem.clone() }.write(files.root());
            let end = match problem.or_else(|| marked.err().map(|error| error.to_string())) {
                Some(problem) => replay_failure(problem),
                None => done.unwrap_or_else(replay_failure),
            };
            let end = if end == AttemptEnd::Stopped { await_recorded_stop(shared, doing) } else { end };
            let RecordedResult { cost, by, proofs, .. } = entry.result;
            AttemptReport { end, cost, by, proofs }
        }
        Err(problem) => AttemptReport::new(replay_failure(problem), Cost::default()),
    }
}

/// A failure that a retry would repeat.
fn replay_failure(message: String) -> AttemptEnd {
    let code = Some(REPLAY.to_owned());
    AttemptEnd::Failed { class: ErrorClass::Fatal, code, message: truncate_message(message), retry_at: None }
}

/// Finds the recording of an attempt, if its request is the same.
fn find_recording(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    path: &Path,
) -> Result<(RunDir, AttemptDir, RecordingKey, RecordingEntry), String> {
    let told = |error: &dyn ToString| error.to_string();
    let run = shared.run_dir(&job.run).map_err(|error| told(&error))?;
    let files = run.create_attempt(job.attempt).map_err(|error| told(&error))?;
    let key = attempt_recording::recording_key(job, &run)?;
    let tape = Recording::open(path).map_err(|error| told(&error))?;
    let problem = match tape.read_entry(&key) {
        Ok(Some(entry)) => {
            let asked = attempt_recording::recorded_request(shared, job, &key);
            match (diff_requests(&entry.request, &asked), &entry.result.not_whole) {
                (None, None) => return Ok((run, files, key, entry)),
                (Some(differs), _) => format!(
                    "the request to `{}` differs from the recorded one (- recorded, + now):\n{differs}",
                    job.path
                ),
                (None, Some(why)) => format!("`{}` was not recorded completely: {why}", job.path),
            }
        }
        Ok(None) => format!(
            "`{}` needs {} attempt {} of visit {} and iteration {}, which was not recorded",
            job.path,
            key.role.as_str(),
            key.n,
            key.visit,
            key.iteration
        ),
        Err(error) => error.to_string(),
    };
    let marker = RecordingMarker { place: key.file_stem(), problem: Some(problem.clone()) };
    marker.write(files.root()).map_err(|error| told(&error))?;
    Err(problem)
}

/// Applies the recorded changes, and returns the recorded end.
fn apply_recording(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    path: &Path,
    (run, files): (&RunDir, &AttemptDir),
    key: &RecordingKey,
    entry: &RecordingEntry,
) -> Result<AttemptEnd, String> {
    let told = |error: &dyn ToString| error.to_string();
    let said = |end: AttemptEnd| match end {
        AttemptEnd::Failed { message, .. } => message,
        other => format!("{other:?}"),
    };
    let tape = Recording::open(path).map_err(|error| told(&error))?;
    let grants = job.about.workspace_grants(shared.state.path()).map_err(|error| told(&error))?;
    let folder = grants.make_folder(job.isolation.workspace.as_deref()).map_err(|error| told(&error))?;
    let context = update_context_folder(shared, run, &grants, job).map_err(said)?;
    import_artifacts(run, &folder, job).map_err(said)?;
    let back = files.worker_output().map_err(|error| told(&error))?;
    let (places, without) = (
        attempt_recording::machine_places(shared, job),
        attempt_recording::excluded_paths(shared, job, path),
    );
    let kinds = [
        (RecordedFileKind::Files, &entry.result.files, &folder),
        (RecordedFileKind::Apart, &entry.result.apart, &back),
    ];
    for (kind, changes, to) in kinds {
        for change in changes {
            if change.is_foreign(to, &without) {
                return Err(format!("`{}` is not a file that a step may change", change.path));
            }
            let bytes = match change.what {
                crate::recording::RecordedChangeKind::Removed => Vec::new(),
                _ => tape.read_file(key, kind, &change.path).map_err(|error| told(&error))?,
            };
            change.apply(to, &places.show_bytes(bytes)).map_err(|error| told(&error))?;
        }
    }
    let log = format!("[skein: replayed from {}.json]\n", key.file_stem());
    std::fs::write(files.log_path(), log).map_err(|error| told(&error))?;
    let end = serde_json::to_value(&entry.result.end).expect("it is JSON");
    let end: AttemptEnd = serde_json::from_value(places.show_in_value(&end)).map_err(|error| told(&error))?;
    if matches!(end, AttemptEnd::Succeeded { .. } | AttemptEnd::Unmerged { .. }) && !job.gives.is_empty() {
        let own = if entry.result.apart.is_empty() { &folder } else { &back };
        keep_artifacts(shared, run, job, own, context.as_ref()).map_err(said)?;
    }
    Ok(end)
}

/// Waits for the stop of an attempt that was also stopped when it was recorded.
fn await_recorded_stop(shared: &ExecutorContext, doing: &WorkKey) -> AttemptEnd {
    match shared.wait_for_stop(doing, STOPPED) {
        true => AttemptEnd::Stopped,
        false => replay_failure(
            "it was stopped when it was recorded, but nothing stopped it during the replay".to_owned(),
        ),
    }
}
