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
            StageError,
            collect::truncate_message,
            command::to_plain_text,
            handoff::{import_artifacts, keep_artifacts},
            spec::AttemptSpec,
            update_context_folder,
        },
        worktree::git::GitRunner,
    },
    process::ProcessMark,
    recording::{
        FileSignatures, PathPlaceholders, RecordedChange, RecordedChangeKind, RecordedFileKind, RecordedFiles,
        RecordedResult, Recording, RecordingEntry, RecordingError, RecordingKey, RecordingMarker, WorkspaceScan,
        attempt_ordinal, diff_requests, strip_times, with_request_hash,
    },
    run_settings::AgentSettings,
    workspace::{AttemptDir, GrantError, RootFolder, RunDir, root::FilePathError},
};

/// The maximum size of the file with the signatures of a workspace's files.
const SIGNS: u64 = 64 * 1024 * 1024;

/// The paths of this machine, which are replaced by placeholders in a recording.
pub(crate) fn machine_places(shared: &ExecutorContext, job: &AttemptSpec) -> PathPlaceholders {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let settings = &job.settings;
    let named = [
        ("workspace", settings.workspace.as_path()),
        ("project", &settings.project),
        ("state", shared.state.path()),
        ("home", &home),
    ];
    PathPlaceholders::new(&named, job.run.as_str())
}

/// The key of an attempt in its recording.
pub(crate) fn recording_key(job: &AttemptSpec, run: &RunDir) -> Result<RecordingKey, RecordingError> {
    let n = attempt_ordinal(run, job.attempt, job.mode)?;
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
pub(crate) fn recorded_request(shared: &ExecutorContext, job: &AttemptSpec, key: &RecordingKey) -> Value {
    let request = machine_places(shared, job).hide_in_value(&shared.redactor.redact_value(&build_request(job, key)));
    with_request_hash(request)
}

/// The folders of an attempt that is recorded.
pub(crate) struct RecordingContext<'a> {
    pub run: &'a RunDir,
    pub files: &'a AttemptDir,
    /// `None` if the attempt failed before it had a workspace.
    pub folder: Option<&'a RootFolder>,
    pub mark: &'a ProcessMark,
}

/// Scans the workspace before the first attempt that works in it.
pub(crate) fn begin_recording(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    around: &RecordingContext<'_>,
) -> Result<(), RecordingError> {
    let (Some(tape), Some(folder)) = (&job.settings.record, around.folder) else { return Ok(()) };
    let _one = shared.lock_recording();
    let kept = around.run.recording_folder()?;
    let name = signs_file_name(job);
    if kept.entry_kind(&name)?.is_some() {
        return Ok(());
    }
    let signs = build_scan(shared, job, tape, around, folder).read_signatures()?;
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
pub(crate) fn excluded_paths(shared: &ExecutorContext, job: &AttemptSpec, tape: &Path) -> Vec<PathBuf> {
    let context = job.context.as_ref().map(|context| job.settings.workspace.join(context));
    [shared.state.path().to_owned(), tape.to_owned()].into_iter().chain(context).collect()
}

fn build_scan<'a>(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    tape: &Path,
    around: &RecordingContext<'_>,
    folder: &'a RootFolder,
) -> WorkspaceScan<'a> {
    let git = GitRunner::new(folder.path(), around.files.root(), around.mark);
    let mut without = excluded_paths(shared, job, tape);
    without.extend(job.takes.iter().map(|take| folder.path().join(take.name.as_str())));
    let also = job.gives.iter().map(|gives| gives.path.clone()).collect();
    WorkspaceScan { folder, without, known: git.known_files(), also }
}

/// Records the end of an attempt. If that fails, the marker says so, and it is reported when the run ends.
pub(crate) fn record_end(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    around: &RecordingContext<'_>,
    report: &AttemptReport,
) {
    let Some(path) = &job.settings.record else { return };
    // No worker was started in these cases.
    if matches!(report.end, AttemptEnd::Blocked { reason: HoldReason::Secret, .. } | AttemptEnd::Interrupted) {
        return;
    }
    let marker = match write_recording(shared, job, path, around, report) {
        Ok(marker) => marker,
        Err(error) => RecordingMarker { place: job.path.clone(), problem: Some(error.to_string()) },
    };
    // Without its marker the recording is incomplete, which a replay reports.
    let _ = marker.write(around.files.root());
}

fn write_recording(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    path: &Path,
    around: &RecordingContext<'_>,
    report: &AttemptReport,
) -> Result<RecordingMarker, RecordingError> {
    let _one = shared.lock_recording();
    let tape = Recording::open(path)?;
    let key = recording_key(job, around.run)?;
    let places = machine_places(shared, job);
    let kept = around.run.recording_folder()?;
    let (mut changes, signs, problem) =
        match around.folder.map(|folder| find_changes(shared, job, path, around, folder, &kept)) {
            None => (Vec::new(), None, None),
            Some(Ok((changes, signs))) => (changes, Some(signs), None),
            Some(Err(error)) => (Vec::new(), None, Some(error.to_string())),
        };
    let (mut apart, beside) = match read_apart_files(job, around.files) {
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
    let mut entry = places.hide_in_value(&serde_json::to_value(&entry).expect("it is JSON"));
    entry["request"] = recorded_request(shared, job, &key);
    let clean = |kind: RecordedFileKind, (change, bytes): (RecordedChange, Vec<u8>)| {
        (kind, change.path, places.hide_bytes(redact_bytes(shared, &bytes)))
    };
    let there = changes.into_iter().filter(|(change, _)| change.what != RecordedChangeKind::Removed);
    let files = there.map(|file| clean(RecordedFileKind::Files, file));
    let files: Vec<_> = files.chain(apart.into_iter().map(|file| clean(RecordedFileKind::Apart, file))).collect();
    tape.write_entry(&key, &entry, &files)?;
    if let Some(signs) = signs {
        write_signs(&kept, &signs_file_name(job), &signs)?;
    }
    Ok(RecordingMarker { place: key.file_stem(), problem })
}

fn find_changes(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    tape: &Path,
    around: &RecordingContext<'_>,
    folder: &RootFolder,
    kept: &RootFolder,
) -> Result<(RecordedFiles, FileSignatures), RecordingError> {
    let before = kept.read_file(signs_file_name(job), SIGNS)?;
    let before: FileSignatures = serde_json::from_slice(&before)?;
    let scan = build_scan(shared, job, tape, around, folder);
    let now = scan.read_signatures()?;
    Ok((scan.collect_changes(&before, &now)?, now))
}

/// The files that a read-only agent wrote in its attempt folder.
fn read_apart_files(job: &AttemptSpec, files: &AttemptDir) -> Result<RecordedFiles, RecordingError> {
    if !job.writes_in_attempt_folder() || job.gives.is_empty() {
        return Ok(Vec::new());
    }
    let back = files.worker_output()?;
    let also = job.gives.iter().map(|gives| gives.path.clone()).collect();
    WorkspaceScan { folder: &back, without: Vec::new(), known: Some(Default::default()), also }.collect_all()
}

fn redact_bytes(shared: &ExecutorContext, bytes: &[u8]) -> Vec<u8> {
    let (mut redactor, mut clean) = (shared.redactor.new_stream(), Vec::new());
    redactor.push(bytes, &mut clean);
    redactor.finish(&mut clean);
    clean
}

/// Builds the request of an attempt.
pub(crate) fn build_request(job: &AttemptSpec, key: &RecordingKey) -> Value {
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
    put("takes", job.takes.iter().map(|take| format!("{} of {} as {}", take.artifact, take.from, take.name)).collect());
    put("gives", job.gives.iter().map(|gives| format!("{} at {}", gives.name, gives.path)).collect());
    put("outputs", job.outputs.document().cloned().unwrap_or_default());
    if let Some(check) = &job.last_check {
        put("check_said", json!(check.reasons));
        put("check_output", check.output.as_ref().map(|output| split_lines(&output.text)).unwrap_or_default());
    }
    put("overlay", job.overlay.as_deref().map(split_lines).unwrap_or_default());
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
pub(crate) const REPLAY: &str = "replay";
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
    let key = recording_key(job, &run)?;
    let tape = Recording::open(path)?;
    let problem = match tape.read_entry(&key) {
        Ok(Some(entry)) => {
            let asked = recorded_request(shared, job, &key);
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
    let (places, without) = (machine_places(shared, job), excluded_paths(shared, job, path));
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
