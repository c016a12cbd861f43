//! Records an attempt: its request and its result, before the result is reported to the run.
//!
//! Owns the time of workspace scans. Each change is recorded once: by the attempt that ends first after it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, AttemptReport},
    ir::HoldReason,
};

use super::{ExecutorContext, attempt_spec::AttemptSpec, git::GitRunner, recorded_request};
use crate::{
    process::ProcessMark,
    recording::{
        FileSignatures, PathPlaceholders, RecordedChange, RecordedChangeKind, RecordedFileKind,
        RecordedFiles, RecordedResult, Recording, RecordingEntry, RecordingKey, RecordingMarker,
        WorkspaceScan, attempt_ordinal, strip_times, with_request_hash,
    },
    workspace::{AttemptDir, RootFolder, RunDir},
};

/// The maximum size of the file with the signatures of a workspace's files.
const SIGNS: u64 = 64 * 1024 * 1024;

/// The paths of this machine, which are replaced by placeholders in a recording.
pub(super) fn machine_places(shared: &ExecutorContext, job: &AttemptSpec) -> PathPlaceholders {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let about = &job.about;
    let named = [
        ("workspace", about.workspace.as_path()),
        ("project", &about.project),
        ("state", shared.state.path()),
        ("home", &home),
    ];
    PathPlaceholders::new(&named, job.run.as_str())
}

/// The key of an attempt in its recording.
pub(super) fn recording_key(job: &AttemptSpec, run: &RunDir) -> Result<RecordingKey, String> {
    let n = attempt_ordinal(run, job.attempt, job.mode).map_err(|error| error.to_string())?;
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
pub(super) fn recorded_request(shared: &ExecutorContext, job: &AttemptSpec, key: &RecordingKey) -> Value {
    let request = machine_places(shared, job)
        .hide_in_value(&shared.redactor.redact_value(&recorded_request::build_request(job, key)));
    with_request_hash(request)
}

/// The folders of an attempt that is recorded.
pub(super) struct RecordingContext<'a> {
    pub run: &'a RunDir,
    pub files: &'a AttemptDir,
    /// `None` if the attempt failed before it had a workspace.
    pub folder: Option<&'a RootFolder>,
    pub mark: &'a ProcessMark,
}

/// Scans the workspace before the first attempt that works in it.
pub(super) fn begin_recording(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    around: &RecordingContext<'_>,
) -> Result<(), String> {
    let (Some(tape), Some(folder)) = (&job.about.record, around.folder) else { return Ok(()) };
    let _one = shared.lock_recording();
    let kept = around.run.recording_folder().map_err(|error| error.to_string())?;
    let name = signs_file_name(job);
    if kept.entry_kind(&name).map_err(|error| error.to_string())?.is_some() {
        return Ok(());
    }
    let signs = build_scan(shared, job, tape, around, folder).read_signatures()?;
    write_signs(&kept, &name, &signs)
}

fn signs_file_name(job: &AttemptSpec) -> String {
    let given = job.isolation.workspace.as_deref().unwrap_or_default();
    format!("{}.json", &blake3::hash(given.as_bytes()).to_hex().as_str()[..16])
}

fn write_signs(kept: &RootFolder, name: &str, signs: &FileSignatures) -> Result<(), String> {
    kept.replace_file(name, &serde_json::to_vec(signs).expect("it is JSON"))
        .map_err(|error| error.to_string())
}

/// The paths in a workspace that Skein writes itself, so they are not changes of a step.
pub(super) fn excluded_paths(shared: &ExecutorContext, job: &AttemptSpec, tape: &Path) -> Vec<PathBuf> {
    let context = job.context.as_ref().map(|context| job.about.workspace.join(context));
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
pub(super) fn record_end(
    shared: &ExecutorContext,
    job: &AttemptSpec,
    around: &RecordingContext<'_>,
    report: &AttemptReport,
) {
    let Some(path) = &job.about.record else { return };
    // No worker was started in these cases.
    if matches!(report.end, AttemptEnd::Blocked { reason: HoldReason::Secret, .. } | AttemptEnd::Interrupted)
    {
        return;
    }
    let marker = match write_recording(shared, job, path, around, report) {
        Ok(marker) => marker,
        Err(problem) => RecordingMarker { place: job.path.clone(), problem: Some(problem) },
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
) -> Result<RecordingMarker, String> {
    let _one = shared.lock_recording();
    let told = |error: &dyn ToString| error.to_string();
    let tape = Recording::open(path).map_err(|error| told(&error))?;
    let key = recording_key(job, around.run)?;
    let places = machine_places(shared, job);
    let kept = around.run.recording_folder().map_err(|error| told(&error))?;
    let (mut changes, signs, problem) =
        match around.folder.map(|folder| find_changes(shared, job, path, around, folder, &kept)) {
            None => (Vec::new(), None, None),
            Some(Ok((changes, signs))) => (changes, Some(signs), None),
            Some(Err(problem)) => (Vec::new(), None, Some(problem)),
        };
    let (mut apart, beside) = match read_apart_files(job, around.files) {
        Ok(apart) => (apart, None),
        Err(problem) => (Vec::new(), Some(problem)),
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
    let files: Vec<_> =
        files.chain(apart.into_iter().map(|file| clean(RecordedFileKind::Apart, file))).collect();
    tape.write_entry(&key, &entry, &files).map_err(|error| told(&error))?;
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
) -> Result<(RecordedFiles, FileSignatures), String> {
    let before = kept.read_file(signs_file_name(job), SIGNS).map_err(|error| error.to_string())?;
    let before: FileSignatures = serde_json::from_slice(&before).map_err(|error| error.to_string())?;
    let scan = build_scan(shared, job, tape, around, folder);
    let now = scan.read_signatures()?;
    Ok((scan.collect_changes(&before, &now)?, now))
}

/// The files that a read-only agent wrote in its attempt folder.
fn read_apart_files(job: &AttemptSpec, files: &AttemptDir) -> Result<RecordedFiles, String> {
    if !job.writes_in_attempt_folder() || job.gives.is_empty() {
        return Ok(Vec::new());
    }
    let back = files.worker_output().map_err(|error| error.to_string())?;
    let also = job.gives.iter().map(|gives| gives.path.clone()).collect();
    WorkspaceScan { folder: &back, without: Vec::new(), known: Some(Default::default()), also }.collect_all()
}

fn redact_bytes(shared: &ExecutorContext, bytes: &[u8]) -> Vec<u8> {
    let (mut redactor, mut clean) = (shared.redactor.new_stream(), Vec::new());
    redactor.push(bytes, &mut clean);
    redactor.finish(&mut clean);
    clean
}
