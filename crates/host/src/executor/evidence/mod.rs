//! Evidence: checks the required results of a step after its worker reports success.
//!
//! Owns the check of each piece, and the baseline from before the step: no worker may write the schema that judges its
//! own work. Does not know the consequence of a missing piece: the engine decides that.

pub(crate) mod check;
pub(crate) mod protect;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::{EvidenceResult, InstanceIx, StepAt},
    ir::{Evidence, Schema},
    limits,
    time::Millis,
};

use super::{
    attempt::{
        command::WorkerEnvironment,
        non_retryable,
        sandbox_setup::{self, AttemptPaths},
        spec::AttemptSpec,
        worker_output::summarize_names,
    },
    executor_context::{ExecutorContext, WorkKey},
};
use crate::{
    executor::attempt::StageError,
    process::{self, ProcessMark, ProcessOutcome, ProcessSpec},
    sandbox::Sandbox,
    workspace::{
        AttemptDir, FileSurvey, PathPattern, RootFolder, RunDir,
        root::{FileIdentity, FileOrFolder, FilePathError},
    },
};

/// Variables that an evidence command does not get, because it returns no output.
const OF_WORKER: [&str; 3] = ["SKEIN_OUTPUT", "SKEIN_ERROR", "SKEIN_INPUTS"];

/// The baseline that is taken before a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceBaseline {
    /// By file name. The error, if the schema could not be read.
    schemas: BTreeMap<String, Result<Value, String>>,
    files: FileSurvey,
}

/// The environment in which evidence is checked.
pub(crate) struct EvidenceContext {
    /// The folder where the step works, and the folder of its own files.
    folder: RootFolder,
    own_files: RootFolder,
    /// The environment and the sandbox of evidence commands.
    environment: WorkerEnvironment,
    sandbox: Option<Sandbox>,
    files: AttemptDir,
    mark: ProcessMark,
    notes: Option<PathBuf>,
}

impl EvidenceContext {
    /// Takes them from the worker's task, before the task is adapted to an agent.
    pub fn from_task(
        task: &ProcessSpec,
        job: &AttemptSpec,
        places: &AttemptPaths<'_>,
        own_files: &RootFolder,
    ) -> Result<EvidenceContext, FilePathError> {
        let sandbox = |sandbox: &Sandbox| sandbox_setup::evidence_sandbox(sandbox, job, places);
        let told = |(name, _): &&(OsString, OsString)| !OF_WORKER.iter().any(|own| name == own);
        Ok(EvidenceContext {
            folder: places.folder.clone(),
            own_files: own_files.clone(),
            environment: task.environment.iter().filter(told).cloned().collect(),
            sandbox: task.sandbox.as_ref().map(sandbox).transpose()?,
            files: places.files.clone(),
            mark: task.mark.clone(),
            notes: task.notes.clone(),
        })
    }
}

/// The data to check the evidence after the worker has ended.
pub(crate) struct EvidenceCheck {
    evidence: Vec<Evidence>,
    before: EvidenceBaseline,
    ground: EvidenceContext,
    /// The folders that do not count as changes.
    without: Vec<FileIdentity>,
    /// The deadline of the attempt.
    due: Option<Instant>,
}

impl EvidenceCheck {
    /// Prepares the check for an attempt that is about to begin. `None` if no evidence is required.
    pub fn prepare(
        job: &AttemptSpec,
        run: &RunDir,
        ground: EvidenceContext,
        without: &[FileIdentity],
    ) -> Result<Option<EvidenceCheck>, StageError> {
        if job.evidence.is_empty() {
            return Ok(None);
        }
        let before = EvidenceBaseline::load_or_take(job, run, &ground.folder, without)?;
        let due = job.limit.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit.0)));
        let (evidence, without) = (job.evidence.clone(), without.to_vec());
        Ok(Some(EvidenceCheck { evidence, before, ground, without, due }))
    }

    /// Checks every piece. Commands run first, so that the files they leave are checked too. `None` if stopped
    /// meanwhile.
    pub fn prove_all(&self, shared: &ExecutorContext, job: &AttemptSpec, key: &WorkKey) -> Option<Vec<EvidenceResult>> {
        let mut proofs = BTreeMap::new();
        let is_command = |evidence: &Evidence| matches!(evidence, Evidence::Command(_));
        let numbered = || self.evidence.iter().enumerate();
        let order = numbered()
            .filter(|(_, evidence)| is_command(evidence))
            .chain(numbered().filter(|(_, evidence)| !is_command(evidence)));
        for (number, evidence) in order {
            let (holds, found) = match evidence {
                Evidence::Command(words) => self.run_command(shared, job, key, number, words)?,
                Evidence::File(path) => self.check_file(path),
                Evidence::Changed(pattern) => self.check_changed(pattern),
                Evidence::Schema { path, of } => match self.check_schema(path, of) {
                    Ok(()) => (true, String::new()),
                    Err(why) => (false, why),
                },
            };
            proofs.insert(number, EvidenceResult { what: evidence.to_string(), holds, found: keep_tail(&found) });
        }
        Some(proofs.into_values().collect())
    }

    /// Runs a command. Returns true if it exits with 0, and the end of its output. `None` if it was stopped.
    fn run_command(
        &self,
        shared: &ExecutorContext,
        job: &AttemptSpec,
        key: &WorkKey,
        number: usize,
        words: &[String],
    ) -> Option<(bool, String)> {
        let Some((program, arguments)) = words.split_first() else { return Some((false, String::new())) };
        let ground = &self.ground;
        let log = ground.files.root().path().join(format!("proof-{}.log", number + 1));
        let mut task = ProcessSpec::new(program, ground.folder.path(), log, ground.mark.clone());
        task.arguments = arguments.iter().map(Into::into).collect();
        task.environment.clone_from(&ground.environment);
        task.sandbox.clone_from(&ground.sandbox);
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()).as_millis());
        let left = left.map_or(limits::PROOF, |left| u64::try_from(left).unwrap_or(limits::PROOF));
        task.limit = Some(Millis(left.clamp(1, limits::PROOF)));
        task.filter = shared.redaction_filter();
        task.tell = shared.line_callback(job);
        task.notes.clone_from(&ground.notes);
        let ended = process::run_process(task, |handle| shared.attach_process(key, handle));
        match ended.how {
            ProcessOutcome::Stopped => None,
            ProcessOutcome::Exited(0) => Some((true, ended.tail)),
            how => Some((false, format!("{}\n{}", ended.tail, how.message()))),
        }
    }

    fn check_file(&self, path: &str) -> (bool, String) {
        match self.open_file(path) {
            Ok(FileOrFolder::File(_, mark)) => (true, format!("{} bytes", mark.size)),
            Ok(FileOrFolder::Folder(_)) => (true, "a folder".to_owned()),
            Err(error) => (false, error.why.to_string()),
        }
    }

    /// Opens a file in the workspace, or else in the folder where a read-only worker leaves its files.
    fn open_file(&self, path: &str) -> Result<FileOrFolder, FilePathError> {
        match self.ground.folder.open_existing(path) {
            Err(error) if error.is_missing() => self.ground.own_files.open_existing(path),
            other => other,
        }
    }

    fn check_changed(&self, pattern: &str) -> (bool, String) {
        let pattern = PathPattern::new(pattern);
        let now = FileSurvey::scan_folder(&self.ground.folder, std::slice::from_ref(&pattern), &self.without);
        let now = match now {
            Ok(now) => now,
            Err(error) => return (false, error.to_string()),
        };
        let changed = self.before.files.compare_with(&now);
        let changed: Vec<String> =
            changed.into_iter().map(|(path, _)| path).filter(|path| pattern.matches(path)).collect();
        match changed.is_empty() {
            true => (false, "no matching file has changed".to_owned()),
            false => (true, summarize_names(changed.into_iter())),
        }
    }

    fn check_schema(&self, path: &str, of: &str) -> Result<(), String> {
        let schema = match self.before.schemas.get(path) {
            Some(schema) => schema.clone()?,
            None => return Err(format!("`{path}` did not exist before the step")),
        };
        let root = match self.ground.folder.entry_kind(of) {
            Ok(None) => &self.ground.own_files,
            _ => &self.ground.folder,
        };
        let value = read_json(root, of)?;
        Schema::new(schema).check(&value).map_err(|error| error.to_string())
    }
}

impl EvidenceBaseline {
    /// The baseline from before the first attempt of the step. It is kept, so that later attempts compare with the
    /// same.
    fn load_or_take(
        job: &AttemptSpec,
        run: &RunDir,
        folder: &RootFolder,
        without: &[FileIdentity],
    ) -> Result<EvidenceBaseline, StageError> {
        let kept = run.baseline_folder().map_err(non_retryable)?;
        let StepAt(InstanceIx(instance), step) = job.attempt.at;
        let name = format!("{instance}.{step}.{}.evidence.json", job.attempt.visit);
        let known = kept.read_file(&name, limits::SURVEY_BYTES).ok();
        if let Some(before) = known.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(before);
        }
        let schema = |evidence: &Evidence| match evidence {
            Evidence::Schema { path, .. } => Some((path.clone(), read_json(folder, path))),
            _ => None,
        };
        let pattern = |evidence: &Evidence| match evidence {
            Evidence::Changed(pattern) => Some(PathPattern::new(pattern)),
            _ => None,
        };
        let patterns: Vec<PathPattern> = job.evidence.iter().filter_map(pattern).collect();
        let before = EvidenceBaseline {
            schemas: job.evidence.iter().filter_map(schema).collect(),
            files: FileSurvey::scan_folder(folder, &patterns, without).map_err(non_retryable)?,
        };
        let bytes = serde_json::to_vec(&before).expect("what was before is JSON");
        kept.replace_file(&name, &bytes).map_err(non_retryable)?;
        Ok(before)
    }
}

fn read_json(root: &RootFolder, path: &str) -> Result<Value, String> {
    let bytes = root.read_file(path, limits::VALUE_BYTES as u64).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| format!("`{path}` is not JSON: {error}"))
}

/// The end of a text, up to the length that is kept.
fn keep_tail(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().rev().nth(limits::FOUND_CHARS - 1) {
        Some((start, _)) => text[start..].to_owned(),
        None => text.to_owned(),
    }
}
