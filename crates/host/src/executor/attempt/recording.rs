//! Records an attempt before its result is reported to the run, and replays one without starting a program.
//!
//! Owns the definition of equal requests, in a form that is the same on every machine: the number of tries, the text
//! about earlier tries and the agent that finally does it are not part of it. Owns the time of workspace scans, too:
//! each change is recorded once, by the attempt that ends first after it. A replay is strict: an attempt that was not
//! recorded, or has another request, fails with that reason.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value, json};
use skein_core::{
    engine::{AttemptEnd, AttemptReport, Cost},
    ir::{ErrorClass, HoldReason, WorkerSpec},
};

use crate::{
    executor::{
        ExecutorContext, WorkKey,
        attempt::{
            AttemptContext, StageError,
            collect::truncate_message,
            command::to_plain_text,
            handoff::{excluded_folders, import_artifacts, keep_artifacts},
            spec::AttemptSpec,
        },
        worktree::git::GitRunner,
    },
    recording::{
        FileSignatures, PathPlaceholders, RecordedChange, RecordedChangeKind, RecordedFileKind, RecordedFiles,
        RecordedResult, Recording, RecordingEntry, RecordingError, RecordingKey, RecordingMarker, WorkspaceScan,
        attempt_ordinal, diff_requests, strip_times, with_request_hash,
    },
    run_settings::AgentSettings,
    workspace::{GrantError, RootFolder, root::FilePathError},
};

/// The maximum size of the file with the signatures of a workspace's files.
const SIGNS: u64 = 64 * 1024 * 1024;

/// The paths of this machine, which are replaced by placeholders in a recording.
fn machine_places(attempt: &AttemptContext) -> PathPlaceholders {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let settings = &attempt.job.settings;
    let named = [
        ("workspace", settings.workspace.as_path()),
        ("project", &settings.project),
        ("state", attempt.shared.state.path()),
        ("home", &home),
    ];
    PathPlaceholders::new(&named, attempt.job.run.as_str())
}
fn recording_key(attempt: &AttemptContext) -> Result<RecordingKey, RecordingError> {
    let job = &attempt.job;
    let n = attempt_ordinal(&attempt.run, job.attempt, job.mode)?;
    Ok(RecordingKey {
        whole: job.whole,
        path: job.path.clone(),
        round: job.round,
        role: job.attempt.role,
        visit: job.attempt.visit,
        iteration: job.attempt.iteration,
        n,
    })
}

/// The request in its recorded form: without secrets and machine paths.
fn recorded_request(attempt: &AttemptContext, key: &RecordingKey) -> Value {
    let request = attempt.shared.redactor.redact_value(&build_request(&attempt.job, key));
    with_request_hash(machine_places(attempt).replace_value(&request))
}

/// Scans the workspace before the first attempt that works in it.
pub(crate) fn begin_recording(attempt: &AttemptContext, folder: &RootFolder) -> Result<(), RecordingError> {
    let Some(path) = &attempt.job.settings.record else { return Ok(()) };
    let _one = attempt.shared.lock_recording();
    let kept = attempt.run.recording_folder()?;
    let name = signs_file_name(&attempt.job);
    if kept.entry_kind(&name)?.is_some() {
        return Ok(());
    }
    let signs = build_scan(attempt, path, folder).read_signatures()?;
    write_signs(&kept, &name, &signs)
}

fn signs_file_name(job: &AttemptSpec) -> String {
    let given = job.isolation.workspace.as_deref().unwrap_or_default();
    format!("{}.json", &blake3::hash(given.as_bytes()).to_hex().as_str()[..16])
}

fn write_signs(kept: &RootFolder, name: &str, signs: &FileSignatures) -> Result<(), RecordingError> {
    Ok(kept.replace_file(name, &serde_json::to_vec(signs).expect("it is JSON"))?)
}

/// The paths in a workspace that Skein writes itself, so they are not changes of a step.
fn excluded_paths(attempt: &AttemptContext, recording: &Path) -> Vec<PathBuf> {
    let job = &attempt.job;
    let context = job.handoff.context.as_ref().map(|context| job.settings.workspace.join(context));
    [attempt.shared.state.path().to_owned(), recording.to_owned()].into_iter().chain(context).collect()
}

fn build_scan<'a>(attempt: &AttemptContext, recording: &Path, folder: &'a RootFolder) -> WorkspaceScan<'a> {
    let job = &attempt.job;
    let git = GitRunner::new(folder.path(), attempt.files.root(), &attempt.mark);
    let mut without = excluded_paths(attempt, recording);
    without.extend(job.handoff.takes.iter().map(|take| folder.path().join(take.name.as_str())));
    let also = job.handoff.gives.iter().map(|gives| gives.path.clone()).collect();
    WorkspaceScan { folder, without, known: git.known_files(), also }
}

/// Records the end of an attempt. If that fails, the marker says so, and it is reported when the run ends. There is no
/// folder if the attempt failed before it had a workspace.
pub(crate) fn record_end(attempt: &AttemptContext, folder: Option<&RootFolder>, report: &AttemptReport) {
    let Some(path) = &attempt.job.settings.record else { return };
    // No worker was started in these cases.
    if matches!(report.end, AttemptEnd::Blocked { reason: HoldReason::Secret, .. } | AttemptEnd::Interrupted) {
        return;
    }
    let marker = match write_recording(attempt, path, folder, report) {
        Ok(marker) => marker,
        Err(error) => RecordingMarker { place: attempt.job.path.clone(), problem: Some(error.to_string()) },
    };
    // Without its marker the recording is incomplete, which a replay reports.
    let _ = marker.write(attempt.files.root());
}

fn write_recording(
    attempt: &AttemptContext,
    path: &Path,
    folder: Option<&RootFolder>,
    report: &AttemptReport,
) -> Result<RecordingMarker, RecordingError> {
    let AttemptContext { shared, job, .. } = attempt;
    let _one = shared.lock_recording();
    let recording = Recording::open(path)?;
    let key = recording_key(attempt)?;
    let places = machine_places(attempt);
    let kept = attempt.run.recording_folder()?;
    let (mut changes, signs, problem) = match folder.map(|folder| find_changes(attempt, path, folder, &kept)) {
        None => (Vec::new(), None, None),
        Some(Ok((changes, signs))) => (changes, Some(signs), None),
        Some(Err(error)) => (Vec::new(), None, Some(error.to_string())),
    };
    let (mut apart, beside) = match read_apart_files(attempt) {
        Ok(apart) => (apart, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    // Workers choose file names too, so the names are redacted.
    for (change, _) in changes.iter_mut().chain(&mut apart) {
        change.path = shared.redactor.redact_str(&change.path);
    }
    let problem = problem.or(beside).map(|problem| shared.redactor.redact_str(&problem));
    let AttemptReport { end, cost, proofs, by } = shared.redact_report(report.clone());
    let result = RecordedResult {
        end: strip_times(end),
        cost,
        by,
        proofs,
        files: changes.iter().map(|(change, _)| change.clone()).collect(),
        apart: apart.iter().map(|(change, _)| change.clone()).collect(),
        not_whole: problem.clone(),
    };
    let entry = RecordingEntry { request: Value::Null, result };
    let mut entry = places.replace_value(&serde_json::to_value(&entry).expect("it is JSON"));
    entry["request"] = recorded_request(attempt, &key);
    let clean = |kind: RecordedFileKind, (change, bytes): (RecordedChange, Vec<u8>)| {
        (kind, change.path, places.replace_bytes(shared.redactor.redact_bytes(&bytes)))
    };
    let there = changes.into_iter().filter(|(change, _)| change.what != RecordedChangeKind::Removed);
    let files = there.map(|file| clean(RecordedFileKind::Files, file));
    let files: Vec<_> = files.chain(apart.into_iter().map(|file| clean(RecordedFileKind::Apart, file))).collect();
    recording.write_entry(&key, &entry, &files)?;
    if let Some(signs) = signs {
        write_signs(&kept, &signs_file_name(job), &signs)?;
    }
    Ok(RecordingMarker { place: key.file_stem(), problem })
}

fn find_changes(
    attempt: &AttemptContext,
    path: &Path,
    folder: &RootFolder,
    kept: &RootFolder,
) -> Result<(RecordedFiles, FileSignatures), RecordingError> {
    let before = kept.read_file(signs_file_name(&attempt.job), SIGNS)?;
    let before: FileSignatures = serde_json::from_slice(&before)?;
    let scan = build_scan(attempt, path, folder);
    let now = scan.read_signatures()?;
    Ok((scan.collect_changes(&before, &now)?, now))
}

/// The files that a read-only agent wrote in its attempt folder.
fn read_apart_files(AttemptContext { job, files, .. }: &AttemptContext) -> Result<RecordedFiles, RecordingError> {
    if !job.writes_in_attempt_folder() || job.handoff.gives.is_empty() {
        return Ok(Vec::new());
    }
    let back = files.worker_output()?;
    let also = job.handoff.gives.iter().map(|gives| gives.path.clone()).collect();
    WorkspaceScan { folder: &back, without: Vec::new(), known: Some(Default::default()), also }.collect_all()
}
fn build_request(job: &AttemptSpec, key: &RecordingKey) -> Value {
    let mut request = Map::new();
    let mut put = |name: &str, value: Value| {
        let empty = match &value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if !empty {
            request.insert(name.to_owned(), value);
        }
    };
    put("step", job.path.clone().into());
    put("role", key.role.as_str().into());
    put("visit", key.visit.into());
    put("iteration", key.iteration.into());
    put("attempt", key.n.into());
    put("worker", describe_worker(job));
    put("instructions", describe_instructions(job));
    put("inputs", job.given.inputs.clone());
    put("workspace", job.isolation.workspace.clone().into());
    put("secrets", json!(job.isolation.secrets));
    put(
        "takes",
        job.handoff.takes.iter().map(|take| format!("{} of {} as {}", take.artifact, take.from, take.name)).collect(),
    );
    put("gives", job.handoff.gives.iter().map(|gives| format!("{} at {}", gives.name, gives.path)).collect());
    put("outputs", job.outputs.document().cloned().unwrap_or_default());
    if let Some(check) = &job.history.check {
        put("check_said", json!(check.reasons));
        put("check_output", check.output.as_ref().map(|output| split_lines(&output.text)).unwrap_or_default());
    }
    put("overlay", job.stage.prompt.as_deref().map(split_lines).unwrap_or_default());
    Value::Object(request)
}

/// Splits a text into its lines, so that a diff shows single lines.
fn split_lines(text: &str) -> Value {
    text.lines().map(Value::from).collect()
}

/// Describes the worker that the step names, whichever worker does it in the end.
fn describe_worker(job: &AttemptSpec) -> Value {
    match &job.worker {
        WorkerSpec::Script { text, .. } => {
            json!({"script": split_lines(text), "capabilities": job.capabilities()})
        }
        WorkerSpec::Command { program, .. } => json!({"command": program}),
        WorkerSpec::Tool { tool, pinned } => json!({"tool": tool, "driver": pinned}),
        WorkerSpec::Action { action, .. } => json!({"action": action}),
        WorkerSpec::Agent { name, program, model, .. } => {
            let own = job.settings.agents.get(&AgentSettings::settings_key(name.as_deref(), program.as_deref()));
            json!({
                "agent": name,
                "program": program.as_deref().or(own.and_then(|own| own.worker.as_deref())),
                "model": model.as_deref().or(own.and_then(|own| own.model.as_deref())),
                "capabilities": job.capabilities(),
                "standing": own.and_then(|own| own.instructions.as_deref()).map(split_lines),
            })
        }
    }
}

/// The instructions of an agent, or the arguments of a command.
fn describe_instructions(job: &AttemptSpec) -> Value {
    match &job.worker {
        WorkerSpec::Agent { .. } => {
            job.given.texts.first().map(|text| split_lines(&to_plain_text(text))).unwrap_or_default()
        }
        _ => json!(job.given.texts),
    }
}

/// The code of an attempt that cannot be replayed.
const REPLAY: &str = "replay";
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
    job: AttemptSpec,
    path: &Path,
    key: &WorkKey,
) -> AttemptReport {
    replay_recorded(shared, job, path, key)
        .unwrap_or_else(|error| AttemptReport::new(replay_failure(error.to_string()), Cost::default()))
}

fn replay_recorded(
    shared: &Arc<ExecutorContext>,
    job: AttemptSpec,
    path: &Path,
    work: &WorkKey,
) -> Result<AttemptReport, ReplayError> {
    let attempt = AttemptContext::open(shared, job)?;
    let (key, entry) = find_recording(&attempt, path)?;
    let done = apply_recording(&attempt, path, &key, &entry);
    let problem = done.as_ref().err().map(ToString::to_string);
    let marked = RecordingMarker { place: key.file_stem(), problem }.write(attempt.files.root());
    let end = match done.and_then(|end| Ok(marked.map(|()| end)?)) {
        Ok(AttemptEnd::Stopped) => await_recorded_stop(shared, work),
        Ok(end) => end,
        Err(error) => replay_failure(error.to_string()),
    };
    let RecordedResult { cost, by, proofs, .. } = entry.result;
    Ok(AttemptReport { end, cost, by, proofs })
}

/// A failure that a retry would repeat.
fn replay_failure(message: String) -> AttemptEnd {
    let code = Some(REPLAY.to_owned());
    AttemptEnd::Failed { class: ErrorClass::Fatal, code, message: truncate_message(message), retry_at: None }
}

/// Finds the recording of an attempt, if its request is the same.
fn find_recording(attempt: &AttemptContext, path: &Path) -> Result<(RecordingKey, RecordingEntry), ReplayError> {
    let (step, key) = (&attempt.job.path, recording_key(attempt)?);
    let problem = match Recording::open(path)?.read_entry(&key) {
        Ok(Some(entry)) => {
            let request = recorded_request(attempt, &key);
            match (diff_requests(&entry.request, &request), &entry.result.not_whole) {
                (None, None) => return Ok((key, entry)),
                (Some(differs), _) => {
                    format!("the request to `{step}` differs from the recorded one (- recorded, + now):\n{differs}")
                }
                (None, Some(why)) => format!("`{step}` was not recorded completely: {why}"),
            }
        }
        Ok(None) => format!(
            "`{step}` needs {} attempt {} of visit {} and iteration {}, which was not recorded",
            key.role.as_str(),
            key.n,
            key.visit,
            key.iteration
        ),
        Err(error) => error.to_string(),
    };
    let marker = RecordingMarker { place: key.file_stem(), problem: Some(problem.clone()) };
    marker.write(attempt.files.root())?;
    Err(ReplayError::NotRecorded(problem))
}

/// Applies the recorded changes, and returns the recorded end.
fn apply_recording(
    attempt: &AttemptContext,
    path: &Path,
    key: &RecordingKey,
    entry: &RecordingEntry,
) -> Result<AttemptEnd, ReplayError> {
    let AttemptContext { shared, job, files, .. } = attempt;
    let recording = Recording::open(path)?;
    let grants = job.settings.workspace_grants(shared.state.path())?;
    let folder = grants.make_folder(job.isolation.workspace.as_deref())?;
    let context = attempt.update_context_folder(&grants)?;
    import_artifacts(attempt, &folder)?;
    let back = files.worker_output()?;
    let (places, without) = (machine_places(attempt).inverse(), excluded_paths(attempt, path));
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
                RecordedChangeKind::Removed => Vec::new(),
                _ => recording.read_file(key, kind, &change.path)?,
            };
            change.apply(to, &places.replace_bytes(bytes))?;
        }
    }
    let log = format!("[skein: replayed from {}.json]\n", key.file_stem());
    std::fs::write(files.log_path(), log)?;
    let end = serde_json::to_value(&entry.result.end).expect("it is JSON");
    let end: AttemptEnd = serde_json::from_value(places.replace_value(&end))?;
    if matches!(end, AttemptEnd::Succeeded { .. } | AttemptEnd::Unmerged { .. }) && !job.handoff.gives.is_empty() {
        let own = if entry.result.apart.is_empty() { &folder } else { &back };
        keep_artifacts(attempt, own, &excluded_folders(shared, context.as_ref())?)?;
    }
    Ok(end)
}

/// Waits for the stop of an attempt that was also stopped when it was recorded.
fn await_recorded_stop(shared: &ExecutorContext, work: &WorkKey) -> AttemptEnd {
    match shared.wait_for_stop(work, STOPPED) {
        true => AttemptEnd::Stopped,
        false => {
            replay_failure("it was stopped when it was recorded, but nothing stopped it during the replay".to_owned())
        }
    }
}
