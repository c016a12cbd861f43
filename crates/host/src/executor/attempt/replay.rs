//! Replays an attempt from its recording, without starting a program.
//!
//! Owns the strictness of a replay: an attempt that was not recorded, or has another request, fails with that reason.

use std::{io, path::Path, sync::Arc, time::Duration};

use skein_core::{
    engine::{AttemptEnd, AttemptReport, Cost},
    ir::ErrorClass,
};

use super::{
    handoff::{import_artifacts, keep_artifacts},
    recording,
    spec::AttemptSpec,
    update_context_folder,
    worker_output::truncate_message,
};
use crate::{
    executor::{
        attempt::StageError,
        executor_context::{ExecutorContext, WorkKey},
    },
    recording::{
        RecordedFileKind, RecordedResult, Recording, RecordingEntry, RecordingError, RecordingKey, RecordingMarker,
        diff_requests,
    },
    workspace::{AttemptDir, GrantError, RunDir, root::FilePathError},
};

/// The code of an attempt that cannot be replayed.
pub const REPLAY: &str = "replay";
/// The time that an attempt with a recorded stop waits for a stop.
const STOPPED: Duration = Duration::from_secs(10);

/// The reason why an attempt cannot be replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    /// It was not recorded, not completely, or with another request.
    #[error("{0}")]
    NotRecorded(String),
    #[error("`{0}` is not a file that a step may change")]
    Foreign(String),
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error(transparent)]
    Workspace(#[from] GrantError),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Log(#[from] io::Error),
    #[error(transparent)]
    End(#[from] serde_json::Error),
}

/// Runs an attempt from a recording.
pub(crate) fn replay_attempt(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    path: &Path,
    doing: &WorkKey,
) -> AttemptReport {
    match find_recording(shared, job, path) {
        Ok((run, files, key, entry)) => {
            let done = apply_recording(shared, job, path, (&run, &files), &key, &entry);
            let problem = done.as_ref().err().map(ToString::to_string);
            let marked = RecordingMarker { place: key.file_stem(), problem: problem.clone() }.write(files.root());
            let end = match problem.or_else(|| marked.err().map(|error| error.to_string())) {
                Some(problem) => replay_failure(problem),
                None => done.unwrap_or_else(|error| replay_failure(error.to_string())),
            };
            let end = if end == AttemptEnd::Stopped { await_recorded_stop(shared, doing) } else { end };
            let RecordedResult { cost, by, proofs, .. } = entry.result;
            AttemptReport { end, cost, by, proofs }
        }
        Err(error) => AttemptReport::new(replay_failure(error.to_string()), Cost::default()),
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
) -> Result<(RunDir, AttemptDir, RecordingKey, RecordingEntry), ReplayError> {
    let run = shared.run_dir(&job.run)?;
    let files = run.create_attempt(job.attempt)?;
    let key = recording::recording_key(job, &run)?;
    let tape = Recording::open(path)?;
    let problem = match tape.read_entry(&key) {
        Ok(Some(entry)) => {
            let asked = recording::recorded_request(shared, job, &key);
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
    marker.write(files.root())?;
    Err(ReplayError::NotRecorded(problem))
}

/// Applies the recorded changes, and returns the recorded end.
fn apply_recording(
    shared: &Arc<ExecutorContext>,
    job: &AttemptSpec,
    path: &Path,
    (run, files): (&RunDir, &AttemptDir),
    key: &RecordingKey,
    entry: &RecordingEntry,
) -> Result<AttemptEnd, ReplayError> {
    let tape = Recording::open(path)?;
    let grants = job.settings.workspace_grants(shared.state.path())?;
    let folder = grants.make_folder(job.isolation.workspace.as_deref())?;
    let context = update_context_folder(shared, run, &grants, job)?;
    import_artifacts(run, &folder, job)?;
    let back = files.worker_output()?;
    let (places, without) = (recording::machine_places(shared, job), recording::excluded_paths(shared, job, path));
    let kinds = [
        (RecordedFileKind::Files, &entry.result.files, &folder),
        (RecordedFileKind::Apart, &entry.result.apart, &back),
    ];
    for (kind, changes, to) in kinds {
        for change in changes {
            if change.is_foreign(to, &without) {
                return Err(ReplayError::Foreign(change.path.clone()));
            }
            let bytes = match change.what {
                crate::recording::RecordedChangeKind::Removed => Vec::new(),
                _ => tape.read_file(key, kind, &change.path)?,
            };
            change.apply(to, &places.show_bytes(bytes))?;
        }
    }
    let log = format!("[skein: replayed from {}.json]\n", key.file_stem());
    std::fs::write(files.log_path(), log)?;
    let end = serde_json::to_value(&entry.result.end).expect("it is JSON");
    let end: AttemptEnd = serde_json::from_value(places.show_in_value(&end))?;
    if matches!(end, AttemptEnd::Succeeded { .. } | AttemptEnd::Unmerged { .. }) && !job.gives.is_empty() {
        let own = if entry.result.apart.is_empty() { &folder } else { &back };
        keep_artifacts(shared, run, job, own, context.as_ref())?;
    }
    Ok(end)
}

/// Waits for the stop of an attempt that was also stopped when it was recorded.
fn await_recorded_stop(shared: &ExecutorContext, doing: &WorkKey) -> AttemptEnd {
    match shared.wait_for_stop(doing, STOPPED) {
        true => AttemptEnd::Stopped,
        false => {
            replay_failure("it was stopped when it was recorded, but nothing stopped it during the replay".to_owned())
        }
    }
}
