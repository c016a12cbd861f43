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
    engine::{AttemptEnd, InstanceIx, Proof, StepAt},
    ir::{Evidence, Schema},
    limits,
    time::Millis,
};

use super::{
    Doing, Shared,
    attempt::never,
    back::few,
    confine::{self, Places},
    environment::Environment,
    job::Job,
};
use crate::{
    sandbox::Sandbox,
    worker::{self, How, Mark, Task},
    workspace::{
        AttemptDir, Pattern, Root, RunDir, Survey,
        root::{Identity, Opened, PathError},
    },
};

/// What a command that proves something is not told: it gives nothing back.
const OF_WORKER: [&str; 3] = ["SKEIN_OUTPUT", "SKEIN_ERROR", "SKEIN_INPUTS"];

/// What is remembered from before a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    /// By the name of the file. Why not, where there was none.
    schemas: BTreeMap<String, Result<Value, String>>,
    files: Survey,
}

/// Where the proving is done.
pub(super) struct Ground {
    /// Where the step works, and where its own files are.
    folder: Root,
    own_files: Root,
    /// What commands are given, and what they run behind.
    environment: Environment,
    sandbox: Option<Sandbox>,
    files: AttemptDir,
    mark: Mark,
    notes: Option<PathBuf>,
}

impl Ground {
    /// As the worker of a task works, before the task is fitted to an agent.
    pub fn of(task: &Task, job: &Job, places: &Places<'_>, own_files: &Root) -> Result<Ground, PathError> {
        let sandbox = |sandbox: &Sandbox| confine::proving(sandbox, job, places);
        let told = |(name, _): &&(OsString, OsString)| !OF_WORKER.iter().any(|own| name == own);
        Ok(Ground {
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
pub(super) struct Proving {
    evidence: Vec<Evidence>,
    before: Before,
    ground: Ground,
    /// The folders that are no part of what it does.
    without: Vec<Identity>,
    /// When its time is up.
    due: Option<Instant>,
}

impl Proving {
    /// For an attempt that is about to begin. None: there is nothing to prove.
    pub fn of(
        job: &Job,
        run: &RunDir,
        ground: Ground,
        without: &[Identity],
    ) -> Result<Option<Proving>, AttemptEnd> {
        if job.evidence.is_empty() {
            return Ok(None);
        }
        let before = Before::of(job, run, &ground.folder, without)?;
        let due = job.limit.and_then(|limit| Instant::now().checked_add(Duration::from_millis(limit.0)));
        let (evidence, without) = (job.evidence.clone(), without.to_vec());
        Ok(Some(Proving { evidence, before, ground, without, due }))
    }

    /// Looks at every piece. Commands come first: what they leave is looked at, too. None: it was stopped meanwhile.
    pub fn prove(&self, shared: &Shared, job: &Job, key: &Doing) -> Option<Vec<Proof>> {
        let mut proofs = BTreeMap::new();
        let is_command = |evidence: &Evidence| matches!(evidence, Evidence::Command(_));
        let numbered = || self.evidence.iter().enumerate();
        let order = numbered()
            .filter(|(_, evidence)| is_command(evidence))
            .chain(numbered().filter(|(_, evidence)| !is_command(evidence)));
        for (number, evidence) in order {
            let (holds, found) = match evidence {
                Evidence::Command(words) => self.command(shared, job, key, number, words)?,
                Evidence::File(path) => self.file(path),
                Evidence::Changed(pattern) => self.changed(pattern),
                Evidence::Schema { path, of } => match self.fits(path, of) {
                    Ok(()) => (true, String::new()),
                    Err(why) => (false, why),
                },
            };
            proofs.insert(number, Proof { what: evidence.to_string(), holds, found: end_of(&found) });
        }
        Some(proofs.into_values().collect())
    }

    /// Whether a command ends well, and the end of what it printed.
    fn command(
        &self,
        shared: &Shared,
        job: &Job,
        key: &Doing,
        number: usize,
        words: &[String],
    ) -> Option<(bool, String)> {
        let Some((program, arguments)) = words.split_first() else { return Some((false, String::new())) };
        let ground = &self.ground;
        let log = ground.files.root().path().join(format!("proof-{}.log", number + 1));
        let mut task = Task::new(program, ground.folder.path(), log, ground.mark.clone());
        task.arguments = arguments.iter().map(Into::into).collect();
        task.environment.clone_from(&ground.environment);
        task.sandbox.clone_from(&ground.sandbox);
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()).as_millis());
        let left = left.map_or(limits::PROOF, |left| u64::try_from(left).unwrap_or(limits::PROOF));
        task.limit = Some(Millis(left.clamp(1, limits::PROOF)));
        task.filter = shared.filter();
        task.tell = shared.tell(job);
        task.notes.clone_from(&ground.notes);
        let ended = worker::run(task, |handle| shared.started(key, handle));
        match ended.how {
            How::Stopped => None,
            How::Exited(0) => Some((true, ended.tail)),
            how => Some((false, format!("{}\n{}", ended.tail, how.message()))),
        }
    }

    fn file(&self, path: &str) -> (bool, String) {
        match self.open(path) {
            Ok(Opened::File(_, mark)) => (true, format!("{} bytes", mark.size)),
            Ok(Opened::Folder(_)) => (true, "a folder".to_owned()),
            Err(error) => (false, error.why.to_string()),
        }
    }

    /// In the workspace, or where a worker leaves its files that cannot write there.
    fn open(&self, path: &str) -> Result<Opened, PathError> {
        match self.ground.folder.open_existing(path) {
            Err(error) if error.is_missing() => self.ground.own_files.open_existing(path),
            other => other,
        }
    }

    fn changed(&self, pattern: &str) -> (bool, String) {
        let pattern = Pattern::new(pattern);
        let now = Survey::of(&self.ground.folder, std::slice::from_ref(&pattern), &self.without);
        let now = match now {
            Ok(now) => now,
            Err(error) => return (false, error.to_string()),
        };
        let changed = self.before.files.became(&now);
        let changed: Vec<String> =
            changed.into_iter().map(|(path, _)| path).filter(|path| pattern.matches(path)).collect();
        match changed.is_empty() {
            true => (false, "nothing is".to_owned()),
            false => (true, few(changed.into_iter())),
        }
    }

    fn fits(&self, path: &str, of: &str) -> Result<(), String> {
        let schema = match self.before.schemas.get(path) {
            Some(schema) => schema.clone()?,
            None => return Err(format!("`{path}` was not there before the step")),
        };
        let root = match self.ground.folder.look(of) {
            Ok(None) => &self.ground.own_files,
            _ => &self.ground.folder,
        };
        let value = json(root, of)?;
        Schema::new(schema).check(&value).map_err(|error| error.to_string())
    }
}

impl Before {
    /// How it was before the first attempt at the step. Kept, so that every later one is compared with the same.
    fn of(job: &Job, run: &RunDir, folder: &Root, without: &[Identity]) -> Result<Before, AttemptEnd> {
        let kept = run.before().map_err(never)?;
        let StepAt(InstanceIx(instance), step) = job.attempt.at;
        let name = format!("{instance}.{step}.{}.evidence.json", job.attempt.visit);
        let known = kept.read(&name, limits::SURVEY_BYTES).ok();
        if let Some(before) = known.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(before);
        }
        let schema = |evidence: &Evidence| match evidence {
            Evidence::Schema { path, .. } => Some((path.clone(), json(folder, path))),
            _ => None,
        };
        let pattern = |evidence: &Evidence| match evidence {
            Evidence::Changed(pattern) => Some(Pattern::new(pattern)),
            _ => None,
        };
        let patterns: Vec<Pattern> = job.evidence.iter().filter_map(pattern).collect();
        let before = Before {
            schemas: job.evidence.iter().filter_map(schema).collect(),
            files: Survey::of(folder, &patterns, without).map_err(never)?,
        };
        let bytes = serde_json::to_vec(&before).expect("what was before is JSON");
        kept.replace(&name, &bytes).map_err(never)?;
        Ok(before)
    }
}

fn json(root: &Root, path: &str) -> Result<Value, String> {
    let bytes = root.read(path, limits::VALUE_BYTES as u64).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| format!("`{path}` is not JSON: {error}"))
}

/// As much of a text as is kept, from its end.
fn end_of(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().rev().nth(limits::FOUND_CHARS - 1) {
        Some((start, _)) => text[start..].to_owned(),
        None => text.to_owned(),
    }
}
