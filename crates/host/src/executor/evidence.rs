//! Evidence: whether what a step must have come to is so, looked at when its worker says that it is done.
//!
//! Owns how each piece is looked at, and what is remembered from before the step for that: nobody writes the schema that
//! their own work is judged by. Refuses to decide what a missing piece means: that is the engine's.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, EvidenceResult, InstanceIx, StepAt},
    ir::{Evidence, Schema},
    limits,
    time::Millis,
};

use super::{
    ExecutorContext, WorkKey,
    attempt::non_retryable,
    attempt_spec::AttemptSpec,
    environment::WorkerEnvironment,
    sandbox_setup::{self, AttemptPaths},
    worker_output::summarize_names,
};
use crate::{
    process::{self, ProcessMark, ProcessOutcome, ProcessSpec},
    sandbox::Sandbox,
    workspace::{
        AttemptDir, FileSurvey, PathPattern, RootFolder, RunDir,
        root::{FileIdentity, FileOrFolder, FilePathError},
    },
};

/// What a command that proves something is not told: it gives nothing back.
const OF_WORKER: [&str; 3] = ["SKEIN_OUTPUT", "SKEIN_ERROR", "SKEIN_INPUTS"];

/// What is remembered from before a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvidenceBaseline {
    /// By the name of the file. Why not, where there was none.
    schemas: BTreeMap<String, Result<Value, String>>,
    files: FileSurvey,
}

/// Where the proving is done.
pub(super) struct EvidenceContext {
    /// Where the step works, and where its own files are.
    folder: RootFolder,
    own_files: RootFolder,
    /// What commands are given, and what they run behind.
    environment: WorkerEnvironment,
    sandbox: Option<Sandbox>,
    files: AttemptDir,
    mark: ProcessMark,
    notes: Option<PathBuf>,
}

impl EvidenceContext {
    /// As the worker of a task works, before the task is fitted to an agent.
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

/// All that is needed to prove something once the worker has ended.
pub(super) struct EvidenceCheck {
    evidence: Vec<Evidence>,
    before: EvidenceBaseline,
    ground: EvidenceContext,
    /// The folders that are no part of what it does.
    without: Vec<FileIdentity>,
    /// When its time is up.
    due: Option<Instant>,
}

impl EvidenceCheck {
    /// For an attempt that is about to begin. None: there is nothing to prove.
    pub fn prepare(
        job: &AttemptSpec,
        run: &RunDir,
        ground: EvidenceContext,
        without: &[FileIdentity],
    ) -> Result<Option<EvidenceCheck>, AttemptEnd> {
        if job.evidence.is_empty() {
            return Ok(None);
        }
        let before = EvidenceBaseline::load_or_take(job, run, &ground.folder, without)?;
        let due = job.limit.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit.0)));
        let (evidence, without) = (job.evidence.clone(), without.to_vec());
        Ok(Some(EvidenceCheck { evidence, before, ground, without, due }))
    }

    /// Looks at every piece. Commands come first: what they leave is looked at, too. None: it was stopped meanwhile.
    pub fn prove_all(
        &self,
        shared: &ExecutorContext,
        job: &AttemptSpec,
        key: &WorkKey,
    ) -> Option<Vec<EvidenceResult>> {
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
            proofs.insert(
                number,
                EvidenceResult { what: evidence.to_string(), holds, found: keep_tail(&found) },
            );
        }
        Some(proofs.into_values().collect())
    }

    /// Whether a command ends well, and the end of what it printed.
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

    /// In the workspace, or where a worker leaves its files that cannot write there.
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
            true => (false, "nothing is".to_owned()),
            false => (true, summarize_names(changed.into_iter())),
        }
    }

    fn check_schema(&self, path: &str, of: &str) -> Result<(), String> {
        let schema = match self.before.schemas.get(path) {
            Some(schema) => schema.clone()?,
            None => return Err(format!("`{path}` was not there before the step")),
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
    /// How it was before the first attempt at the step. Kept, so that every later one is compared with the same.
    fn load_or_take(
        job: &AttemptSpec,
        run: &RunDir,
        folder: &RootFolder,
        without: &[FileIdentity],
    ) -> Result<EvidenceBaseline, AttemptEnd> {
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

/// As much of a text as is kept, from its end.
fn keep_tail(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().rev().nth(limits::FOUND_CHARS - 1) {
        Some((start, _)) => text[start..].to_owned(),
        None => text.to_owned(),
    }
}
