//! Recording an attempt: what it was asked, and what came of it, before that is told to the run.
//!
//! Owns when a workspace is looked at, and that each change in it is recorded once: by the attempt that ends first after it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, Report},
    ir::HoldReason,
};

use super::{Shared, git::Git, job::Job, request};
use crate::{
    tape::{
        Change, Entry, Files, Key, Kind, Marker, Places, Scan, Signs, Taken, Tape, What, hashed, ordinal,
        timeless,
    },
    worker::Mark,
    workspace::{AttemptDir, Root, RunDir},
};

/// The list of how the files of a workspace looked is smaller.
const SIGNS: u64 = 64 * 1024 * 1024;

/// The places of the machine that no recording names.
pub(super) fn places(shared: &Shared, job: &Job) -> Places {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let about = &job.about;
    let named = [
        ("workspace", about.workspace.as_path()),
        ("project", &about.project),
        ("state", shared.state.path()),
        ("home", &home),
    ];
    Places::new(&named, job.run.as_str())
}

/// Which attempt of its recording a job is.
pub(super) fn key(job: &Job, run: &RunDir) -> Result<Key, String> {
    let n = ordinal(run, job.attempt, job.mode).map_err(|error| error.to_string())?;
    Ok(Key {
        whole: job.whole,
        path: job.path.clone(),
        round: job.round,
        role: job.attempt.role,
        visit: job.attempt.visit,
        iteration: job.attempt.iteration,
        n,
    })
}

/// A request as it is recorded: without secrets and places.
pub(super) fn asked(shared: &Shared, job: &Job, key: &Key) -> Value {
    let request = places(shared, job).hide_in(&shared.redactor.redact_value(&request::of(job, key)));
    hashed(request)
}

/// Where an attempt works.
pub(super) struct Around<'a> {
    pub run: &'a RunDir,
    pub files: &'a AttemptDir,
    /// None: it came to nothing before it had one.
    pub folder: Option<&'a Root>,
    pub mark: &'a Mark,
}

/// Looks at the workspace before anything is done in it, if nobody has yet.
pub(super) fn begin(shared: &Shared, job: &Job, around: &Around<'_>) -> Result<(), String> {
    let (Some(tape), Some(folder)) = (&job.about.record, around.folder) else { return Ok(()) };
    let _one = shared.taping();
    let kept = around.run.tape().map_err(|error| error.to_string())?;
    let name = signs_of(job);
    if kept.look(&name).map_err(|error| error.to_string())?.is_some() {
        return Ok(());
    }
    let signs = scan(shared, job, tape, around, folder).signs()?;
    write_signs(&kept, &name, &signs)
}

fn signs_of(job: &Job) -> String {
    let given = job.isolation.workspace.as_deref().unwrap_or_default();
    format!("{}.json", &blake3::hash(given.as_bytes()).to_hex().as_str()[..16])
}

fn write_signs(kept: &Root, name: &str, signs: &Signs) -> Result<(), String> {
    kept.replace(name, &serde_json::to_vec(signs).expect("it is JSON")).map_err(|error| error.to_string())
}

/// What is in a workspace and is none of what its steps change: Skein writes it.
pub(super) fn not_its_own(shared: &Shared, job: &Job, tape: &Path) -> Vec<PathBuf> {
    let context = job.context.as_ref().map(|context| job.about.workspace.join(context));
    [shared.state.path().to_owned(), tape.to_owned()].into_iter().chain(context).collect()
}

fn scan<'a>(shared: &Shared, job: &Job, tape: &Path, around: &Around<'_>, folder: &'a Root) -> Scan<'a> {
    let git = Git::new(folder.path(), around.files.root(), around.mark);
    let mut without = not_its_own(shared, job, tape);
    without.extend(job.takes.iter().map(|take| folder.path().join(take.name.as_str())));
    let also = job.gives.iter().map(|gives| gives.path.clone()).collect();
    Scan { folder, without, known: git.known(), also }
}

/// Records how an attempt ended. What cannot be recorded is marked, and told when the run is over.
pub(super) fn end(shared: &Shared, job: &Job, around: &Around<'_>, report: &Report) {
    let Some(path) = &job.about.record else { return };
    // Nothing was asked of anyone.
    if matches!(report.end, AttemptEnd::Blocked { reason: HoldReason::Secret, .. } | AttemptEnd::Interrupted)
    {
        return;
    }
    let marker = match record(shared, job, path, around, report) {
        Ok(marker) => marker,
        Err(problem) => Marker { place: job.path.clone(), problem: Some(problem) },
    };
    // Without it the recording is not whole, which replaying it tells.
    let _ = marker.write(around.files.root());
}

fn record(
    shared: &Shared,
    job: &Job,
    path: &Path,
    around: &Around<'_>,
    report: &Report,
) -> Result<Marker, String> {
    let _one = shared.taping();
    let told = |error: &dyn ToString| error.to_string();
    let tape = Tape::open(path).map_err(|error| told(&error))?;
    let key = key(job, around.run)?;
    let places = places(shared, job);
    let kept = around.run.tape().map_err(|error| told(&error))?;
    let (mut changes, signs, problem) =
        match around.folder.map(|folder| changed(shared, job, path, around, folder, &kept)) {
            None => (Vec::new(), None, None),
            Some(Ok((changes, signs))) => (changes, Some(signs), None),
            Some(Err(problem)) => (Vec::new(), None, Some(problem)),
        };
    let (mut apart, beside) = match apart(job, around.files) {
        Ok(apart) => (apart, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    // The names of files are for the worker to choose, too.
    for (change, _) in changes.iter_mut().chain(&mut apart) {
        change.path = shared.redactor.redact_str(&change.path);
    }
    let problem = problem.or(beside).map(|problem| shared.redactor.redact_str(&problem));
    let Report { end, cost, proofs, by } = shared.without_secrets(report.clone());
    let result = Taken {
        end: timeless(end),
        cost,
        by,
        proofs,
        files: changes.iter().map(|(change, _)| change.clone()).collect(),
        apart: apart.iter().map(|(change, _)| change.clone()).collect(),
        not_whole: problem.clone(),
    };
    let entry = Entry { request: Value::Null, result };
    let mut entry = places.hide_in(&serde_json::to_value(&entry).expect("it is JSON"));
    entry["request"] = asked(shared, job, &key);
    let clean = |kind: Kind, (change, bytes): (Change, Vec<u8>)| {
        (kind, change.path, places.hide_bytes(without_secrets(shared, &bytes)))
    };
    let there = changes.into_iter().filter(|(change, _)| change.what != What::Removed);
    let files = there.map(|file| clean(Kind::Files, file));
    let files: Vec<_> = files.chain(apart.into_iter().map(|file| clean(Kind::Apart, file))).collect();
    tape.write(&key, &entry, &files).map_err(|error| told(&error))?;
    if let Some(signs) = signs {
        write_signs(&kept, &signs_of(job), &signs)?;
    }
    Ok(Marker { place: key.place(), problem })
}

fn changed(
    shared: &Shared,
    job: &Job,
    tape: &Path,
    around: &Around<'_>,
    folder: &Root,
    kept: &Root,
) -> Result<(Files, Signs), String> {
    let before = kept.read(signs_of(job), SIGNS).map_err(|error| error.to_string())?;
    let before: Signs = serde_json::from_slice(&before).map_err(|error| error.to_string())?;
    let scan = scan(shared, job, tape, around, folder);
    let now = scan.signs()?;
    Ok((scan.changes(&before, &now)?, now))
}

/// What an agent that writes nothing in its workspace gave.
fn apart(job: &Job, files: &AttemptDir) -> Result<Files, String> {
    if !job.writes_apart() || job.gives.is_empty() {
        return Ok(Vec::new());
    }
    let back = files.back().map_err(|error| error.to_string())?;
    let also = job.gives.iter().map(|gives| gives.path.clone()).collect();
    Scan { folder: &back, without: Vec::new(), known: Some(Default::default()), also }.all()
}

fn without_secrets(shared: &Shared, bytes: &[u8]) -> Vec<u8> {
    let (mut redactor, mut clean) = (shared.redactor.fresh(), Vec::new());
    redactor.push(bytes, &mut clean);
    redactor.finish(&mut clean);
    clean
}
