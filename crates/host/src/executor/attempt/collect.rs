//! Collects the results of a program that has ended: its output, its artifacts and the end of the attempt.
//!
//! Owns the translation of a process end into an attempt end. Evidence decides: exit status, files, declared artifacts.
//! Claims in a text never do. Also removes secrets from the files that a worker left in the state folder; its artifacts
//! are not changed, because they are the worker's own files.

use std::{
    io::{Read, Write},
    path::Path,
    sync::Arc,
};

use serde::Deserialize;
use serde_json::{Map, Value};
use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, Cost, EvidenceResult},
    ir::ErrorClass,
    limits,
};

use crate::{
    executor::{
        WorkKey,
        agents::{AgentAnswer, agent_launch::AgentLaunch, fallback},
        attempt::{
            AttemptContext, PreparedAttempt, StageError, command::ResultProtocol, failed_attempt,
            handoff::keep_artifacts, non_retryable, recording, sandbox_setup,
        },
        evidence::{self, protect::DISPLACED},
        tools,
        worktree::git::GitRunner,
    },
    json_text::parse_exact,
    process::{ExceededLimit, ProcessOutcome, ProcessReport},
    redact::Redactor,
    start_error::StartError,
    workspace::{
        AttemptDir, RootFolder, WorkerObservation,
        root::{EntryKind, FilePathError},
    },
};

/// The maximum number of bytes of an agent's output that are searched for a decision.
const ANSWER_BYTES: u64 = 256 * 1024;

/// The number of changed files that are listed in the context folder.
const FILES_OBSERVED: usize = 1_000;

impl PreparedAttempt {
    /// The stages after the process, in their order. Each one may change the end that it is given:
    ///
    /// - The end of the process becomes the end of the attempt: its output, its evidence, its artifacts.
    /// - Protected files are compared and restored before anything else reads the workspace.
    /// - Temporary files and secrets are removed before the workspace is compared with its snapshot.
    /// - Another agent may take over a failure, so its record is written before the end is recorded or reported.
    /// - The workspace is finished with the end as it is then: only complete work is merged.
    /// - The recording has the final report, and the workspace as it is after the merge.
    /// - Secrets are removed from the attempt's files last: the stages before read them.
    pub(crate) fn collect(&mut self, key: &WorkKey, ended: &ProcessReport) -> AttemptReport {
        let mut proofs = Vec::new();
        let end = self.collect_end(key, ended, &mut proofs).unwrap_or_else(AttemptEnd::from);
        let end = self.check_protected_files(end);
        self.remove_temporary_files();
        let end = fallback::apply_fallback(&self.attempt, end);
        let report = self.build_report(end, proofs);
        let report = self.workspace.tree.finish_attempt(&self.attempt, report);
        recording::record_end(&self.attempt, Some(&self.base), &report);
        self.write_observation(ended);
        scrub_attempt(&self.attempt.files, &self.attempt.shared.redactor);
        report
    }

    fn check_protected_files(&self, end: AttemptEnd) -> AttemptEnd {
        match &self.baselines.protected {
            Some((protected, occupancy)) => protected.judge(end, &self.attempt.job, occupancy.was_alone()),
            None => end,
        }
    }

    fn remove_temporary_files(&self) {
        // Files that cannot be removed now are removed with the run.
        let AttemptContext { job, run, files, .. } = &*self.attempt;
        let _ = (files.remove_scratch(), run.remove_secrets(job.attempt));
    }

    fn build_report(&self, end: AttemptEnd, proofs: Vec<EvidenceResult>) -> AttemptReport {
        let cost = self.agent.as_ref().map_or_else(Cost::default, AgentLaunch::cost);
        AttemptReport { end, cost, proofs, by: self.attempt.job.agent_task.fallback.substitute_name() }
    }

    /// Saves an observation for the context folder: the changed files and the last message.
    fn write_observation(&self, ended: &ProcessReport) {
        let AttemptContext { shared, job, files, .. } = &*self.attempt;
        if job.attempt.role != AttemptRole::Main || job.handoff.context.is_none() {
            return;
        }
        // An agent prints events; only its last message is meant for people.
        let printed = if self.agent.is_some() { "" } else { ended.tail.as_str() };
        let message = self.last_message.get().map_or(printed, String::as_str).trim();
        let summary =
            (!message.is_empty()).then(|| WorkerObservation::shorten_summary(&shared.redactor.redact_str(message)));
        let files_changed = self.workspace.tree.changed.iter().take(FILES_OBSERVED).cloned().collect();
        // The attempt is valid without an observation.
        let _ = files.save_observation(&WorkerObservation { command: None, files_changed, summary });
    }

    fn collect_end(
        &self,
        key: &WorkKey,
        ended: &ProcessReport,
        proofs: &mut Vec<EvidenceResult>,
    ) -> Result<AttemptEnd, StageError> {
        sandbox_setup::remove_empty_files(&self.made, &self.workspace.folder)?;
        match self.attempt.job.attempt.role {
            AttemptRole::Check => self.collect_check(ended),
            AttemptRole::Main => self.collect_work(key, ended, proofs),
            AttemptRole::Summary => self.collect_summary(ended),
            AttemptRole::Undo => self.collect_result(ended),
        }
    }

    /// Returns the answer of a worker that succeeded. An agent reports success itself; for others only the exit status
    /// counts.
    fn require_success(&self, ended: &ProcessReport) -> Result<Option<AgentAnswer>, StageError> {
        let done = match &self.agent {
            Some(agent) => agent.judge(ended, &self.attempt.job).map(Some),
            None if ended.how == ProcessOutcome::Exited(0) => Ok(None),
            None => Err(None),
        };
        done.map_err(|end| end.unwrap_or_else(|| self.explain_failure(ended)).into())
    }

    fn explain_failure(&self, ended: &ProcessReport) -> AttemptEnd {
        let AttemptContext { shared, job, files, .. } = &*self.attempt;
        match files.worker_output() {
            Ok(back) => {
                classify_failure(ended, &back, job.worker.default_error_class(), self.sandboxed, &shared.redactor)
            }
            Err(error) => StageError::from(error).into(),
        }
    }

    /// Collects the work itself: its result, the evidence for it, and its declared artifacts.
    fn collect_work(
        &self,
        key: &WorkKey,
        ended: &ProcessReport,
        proofs: &mut Vec<EvidenceResult>,
    ) -> Result<AttemptEnd, StageError> {
        let end = self.collect_result(ended)?;
        if !matches!(end, AttemptEnd::Succeeded { .. }) {
            return Ok(end);
        }
        if let Some(proving) = &self.baselines.proving {
            match proving.prove_all(&self.attempt, key) {
                Some(proven) => *proofs = proven,
                None => return Ok(AttemptEnd::Stopped),
            }
        }
        // Artifacts are kept only if all evidence holds.
        if !self.attempt.job.handoff.gives.is_empty() && proofs.iter().all(|proof| proof.holds) {
            keep_artifacts(&self.attempt, &self.workspace.own_files, &self.baselines.without)?;
        }
        Ok(end)
    }

    /// The result of the worker, if it succeeded.
    fn collect_result(&self, ended: &ProcessReport) -> Result<AttemptEnd, StageError> {
        if let (Some(tool), ProcessOutcome::Exited(status)) = (self.attempt.job.tool(), &ended.how) {
            let printed = self.read_stdout(limits::VALUE_BYTES as u64)?;
            return Ok(tools::judge_exit(tool, *status, &printed, || self.explain_failure(ended)));
        }
        let done = self.require_success(ended)?;
        if let Some(done) = &done {
            let _ = self.last_message.set(done.text.clone());
        }
        self.collect_output(done.and_then(|done| done.value))
    }

    /// The output file's value, or else the answer.
    fn collect_output(&self, answered: Option<Value>) -> Result<AttemptEnd, StageError> {
        let written = self.attempt.files.worker_output().map_err(OutputError::from);
        let written = written.and_then(|back| read_output(&back, &self.attempt.shared.redactor));
        let output = match written.map_err(|error| failed_attempt(ErrorClass::Validation, error.to_string()))? {
            Value::Null => answered.unwrap_or_default(),
            output => output,
        };
        Ok(AttemptEnd::Succeeded { output: Arc::new(output) })
    }

    /// The summary: the output file's value, or else the last message.
    fn collect_summary(&self, ended: &ProcessReport) -> Result<AttemptEnd, StageError> {
        let done = self.require_success(ended)?;
        self.collect_output(Some(Value::from(self.final_text(done).trim())))
    }

    fn collect_check(&self, ended: &ProcessReport) -> Result<AttemptEnd, StageError> {
        let check = self.workspace.check.as_deref().unwrap_or_default();
        let file = self.read_decision();
        let verdict = match (&ended.how, self.speaks) {
            (ProcessOutcome::Exited(status), ResultProtocol::File) => {
                evidence::read_script_verdict(*status, file.as_deref(), &ended.recent, check)
                    .ok_or_else(|| self.explain_failure(ended))?
            }
            _ => {
                let answer = self.final_text(self.require_success(ended)?);
                evidence::read_agent_verdict(file.as_deref(), &answer, check)
            }
        };
        self.apply_guard(verdict.into_end())
    }

    /// Applies the convergence guard to a finding, using the list of changed files. Fails if git cannot list them.
    fn apply_guard(&self, end: AttemptEnd) -> Result<AttemptEnd, StageError> {
        let AttemptContext { shared, job, files, mark, .. } = &*self.attempt;
        let (Some(guard), Some(workspace)) = (&job.guard, &self.baselines.guarded) else { return Ok(end) };
        let changed = match self.workspace.tree.changed_files(&self.attempt, workspace, &guard.convergence) {
            Some(changed) => changed,
            None => GitRunner::new(workspace.path(), files.root(), mark).changed_files(workspace, &guard.convergence),
        };
        let changed =
            changed.map_err(|why| non_retryable(format!("cannot determine which files were changed: {why}")))?;
        Ok(guard.judge(end, &changed, shared.state.path().strip_prefix(workspace.path()).ok()))
    }

    fn read_decision(&self) -> Option<String> {
        let name = self.attempt.job.decision_file.as_ref()?;
        String::from_utf8(self.workspace.own_files.read_file(name, limits::DECISION_BYTES).ok()?).ok()
    }

    /// Reads the whole stdout, if it is at most `most` bytes long.
    fn read_stdout(&self, most: u64) -> Result<Vec<u8>, FilePathError> {
        match self.attempt.files.root().read_file(AttemptDir::STDOUT, most) {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            other => other,
        }
    }

    /// The agent's last message, or else the end of stdout. Empty if stdout cannot be read.
    fn final_text(&self, done: Option<AgentAnswer>) -> String {
        if let Some(done) = done {
            return done.text;
        }
        String::from_utf8_lossy(&self.attempt.files.read_tail(true, ANSWER_BYTES).unwrap_or_default()).into_owned()
    }
}

/// The error that a failing worker may report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WorkerErrorReport {
    class: Option<String>,
    code: Option<String>,
    message: Option<String>,
}

/// The maximum length of a message. Longer ones are truncated.
const MESSAGE: usize = 4_000;

/// The message of programs that hit a read-only path, and the hint that is added to it.
const READ_ONLY: &str = "Read-only file system";
const SANDBOX_HINT: &str =
    "a step may write only what its capabilities allow; `writes` in skein.toml allows more paths";

/// The error code of a failed attempt whose worker named a class that does not exist, and no code.
const UNKNOWN_CLASS: &str = "unknown_error_class";

/// The class names that are shown to people. AgentCore's names and its prefix `RETRYABLE_` are accepted as well.
const CLASSES: &str = "transient, rate_limit, network, service, agent_error, validation, external, governance, \
                       non_retryable, fatal";

/// Parses the class of an error as a worker writes it: in either case, with `_` or `-`, also by AgentCore's names.
fn parse_error_class(word: &str) -> Option<ErrorClass> {
    let word = word.trim().to_ascii_lowercase().replace('-', "_");
    let word = word.strip_prefix("retryable_").unwrap_or(&word);
    Some(match word {
        "transient" => ErrorClass::Transient,
        "rate_limit" => ErrorClass::RateLimit,
        "network" => ErrorClass::Network,
        "service" => ErrorClass::Service,
        "agent_error" => ErrorClass::AgentError,
        "validation" => ErrorClass::Validation,
        "external" => ErrorClass::External,
        "governance" => ErrorClass::Governance,
        "non_retryable" | "non_retryable_lint" | "non_retryable_test" => ErrorClass::NonRetryable,
        "fatal" => ErrorClass::Fatal,
        _ => return None,
    })
}

/// The end of an attempt that failed.
pub(crate) fn classify_failure(
    ended: &ProcessReport,
    back: &RootFolder,
    usual: ErrorClass,
    sandboxed: bool,
    redactor: &Redactor,
) -> AttemptEnd {
    match &ended.how {
        ProcessOutcome::Stopped => return AttemptEnd::Stopped,
        ProcessOutcome::TimedOut(ExceededLimit::Total(_)) => return AttemptEnd::TimedOut,
        _ => {}
    }
    // Redaction comes before truncation: a truncated secret would not be recognized.
    let reported = read_error_report(back, redactor);
    let own = || match &ended.how {
        ProcessOutcome::Exited(_) => usual,
        ProcessOutcome::Signal { .. } | ProcessOutcome::NotStarted(StartError::Refused(_)) => ErrorClass::Transient,
        ProcessOutcome::TimedOut(_) => ErrorClass::Timeout,
        ProcessOutcome::NotStarted(_) | ProcessOutcome::Stopped => ErrorClass::NonRetryable,
    };
    let usual_message = || {
        // The system's message does not mention the sandbox.
        let hint = (sandboxed && ended.tail.contains(READ_ONLY)).then_some(SANDBOX_HINT);
        let hint = hint.or(ended.how.hint()).map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{}{hint}", describe_outcome(ended))
    };
    let code = reported.code.filter(|code| code.len() <= limits::ID_BYTES);
    let message = reported.message.unwrap_or_else(usual_message);
    let (class, code, message) = match reported.class.as_deref().map(|word| (word, parse_error_class(word))) {
        None => (own(), code, message),
        Some((_, Some(class))) => (class, code, message),
        // A retry would only repeat the mistake, and a guessed class could cause a wrong retry.
        Some((word, None)) => {
            let code = code.or_else(|| Some(UNKNOWN_CLASS.to_owned()));
            (ErrorClass::NonRetryable, code, unknown_class_message(word, &message))
        }
    };
    AttemptEnd::Failed { class, code, message: truncate_message(message), retry_at: None }
}

/// The outcome of a process, with the last line that it printed.
pub(crate) fn describe_outcome(ended: &ProcessReport) -> String {
    let last = last_line(&ended.tail).map(|line| format!(": {line}")).unwrap_or_default();
    format!("{}{last}", ended.how.message())
}

/// The last line of a text that is not blank.
pub(crate) fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}

/// The message for a class that does not exist, in front of the message of the failure itself.
fn unknown_class_message(word: &str, message: &str) -> String {
    let shown: String = word.chars().take(60).collect();
    format!(
        "unknown class `{shown}` in the file of SKEIN_ERROR; the classes are {CLASSES}. The worker failed: {message}"
    )
}

pub(crate) fn truncate_message(text: String) -> String {
    if text.len() <= MESSAGE { text } else { text.chars().take(MESSAGE).collect() }
}

/// The worker's error file. A file that cannot be read counts as empty.
fn read_error_report(back: &RootFolder, redactor: &Redactor) -> WorkerErrorReport {
    let bytes = back.read_file(AttemptDir::ERROR, limits::VALUE_BYTES as u64).unwrap_or_default();
    let WorkerErrorReport { class, code, message } = serde_json::from_slice(&bytes).unwrap_or_default();
    let clean = |text: Option<String>| text.map(|text| redactor.redact_str(&text));
    WorkerErrorReport { class: clean(class), code: clean(code), message: clean(message) }
}

/// An output file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error(transparent)]
    Folder(#[from] FilePathError),
    #[error("its output cannot be read: {0}")]
    Unreadable(FilePathError),
    #[error("its output is not UTF-8")]
    NotUtf8,
    #[error("its output is not JSON: {0}")]
    NotJson(String),
    #[error("its output is neither a JSON object nor lines of `key=value`: `{0}`")]
    UnknownForm(String),
}

/// The worker's output file: a JSON object, or lines of `key=value`. Null if there is none.
pub(crate) fn read_output(back: &RootFolder, redactor: &Redactor) -> Result<Value, OutputError> {
    let bytes = match back.read_file(AttemptDir::OUTPUT, limits::VALUE_BYTES as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.is_missing() => return Ok(Value::Null),
        Err(error) => return Err(OutputError::Unreadable(error)),
    };
    let text = String::from_utf8(bytes).map_err(|_| OutputError::NotUtf8)?;
    parse_output(&text, redactor)
}

fn parse_output(text: &str, redactor: &Redactor) -> Result<Value, OutputError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(Value::Null);
    }
    if trimmed.starts_with('{') {
        return parse_exact(trimmed).map_err(|error| OutputError::NotJson(error.to_string()));
    }
    let mut object = Map::new();
    for line in trimmed.lines().filter(|line| !line.trim().is_empty()) {
        let Some((key, value)) = line.split_once('=') else {
            let shown: String = redactor.redact_str(line).chars().take(80).collect();
            return Err(OutputError::UnknownForm(shown));
        };
        let value = parse_exact(value.trim()).unwrap_or_else(|_| Value::from(value.trim()));
        object.insert(key.trim().to_owned(), value);
    }
    Ok(Value::Object(object))
}

/// The first few of many names, and the number of the others.
pub(crate) fn summarize_names(names: impl ExactSizeIterator<Item = String>) -> String {
    const NAMED: usize = 10;
    let more = names.len().saturating_sub(NAMED);
    let first = names.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// The maximum number of entries. A larger folder is removed as a whole.
const ENTRIES: usize = 100_000;
/// The number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Removes secrets from the files that an attempt left. Files that cannot be read or rewritten are removed.
pub(crate) fn scrub_attempt(files: &AttemptDir, redactor: &Redactor) {
    if !redactor.has_secrets() {
        return;
    }
    for name in [AttemptDir::BACK, DISPLACED] {
        if matches!(files.root().entry_kind(name), Ok(Some(_)))
            && scrub_folder(files.root(), Path::new(name), redactor).is_err()
        {
            let _ = files.root().remove(name);
        }
    }
}

fn scrub_folder(root: &RootFolder, name: &Path, redactor: &Redactor) -> Result<(), FilePathError> {
    let mut todo = vec![root.open_folder(name)?];
    let mut left = ENTRIES;
    while let Some(folder) = todo.pop() {
        let entries = folder.list_entries(left)?;
        left -= entries.len();
        for entry in entries {
            let shown = entry.name.to_string_lossy();
            if redactor.redact_str(&shown) != shown {
                folder.remove(&entry.name)?;
                continue;
            }
            match entry.thing {
                EntryKind::Folder => todo.push(folder.open_folder(&entry.name)?),
                EntryKind::File => scrub_file(&folder, Path::new(&entry.name), redactor)?,
                // The target of a link is a text that the worker chose.
                EntryKind::Link => drop(folder.remove(&entry.name)?),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Replaces a file that contains secrets by one without them. Other hard links of the file keep the old content.
fn scrub_file(folder: &RootFolder, name: &Path, redactor: &Redactor) -> Result<(), FilePathError> {
    let failed = |error| FilePathError::new(folder.path(), name, error);
    let (mut file, mark) = folder.open_file(name)?;
    let mut pending = folder.create_file(name, mark.executable)?;
    let (mut stream, mut bytes, mut clean) = (redactor.new_stream(), vec![0; CHUNK], Vec::new());
    let (mut before, mut after) = (blake3::Hasher::new(), blake3::Hasher::new());
    loop {
        let read = file.read(&mut bytes).map_err(failed)?;
        match read {
            0 => stream.finish(&mut clean),
            read => {
                before.update(&bytes[..read]);
                stream.push(&bytes[..read], &mut clean);
            }
        }
        after.update(&clean);
        pending.write_all(&clean).map_err(failed)?;
        clean.clear();
        if read == 0 {
            break;
        }
    }
    match before.finalize() == after.finalize() {
        true => Ok(()),
        false => pending.persist_unsynced(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_plain(text: &str) -> Result<Value, String> {
        parse_output(text, &Redactor::new([]).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn outputs_are_json_or_lines() {
        assert_eq!(parse_plain("  \n"), Ok(Value::Null));
        assert_eq!(parse_plain("{\"a\": [1]}\n"), Ok(json!({"a": [1]})));
        assert_eq!(
            parse_plain("n=3\nname = Ada Byron\n\nok=true\nexpr=a=b"),
            Ok(json!({"n": 3, "name": "Ada Byron", "ok": true, "expr": "a=b"}))
        );
        assert!(parse_plain("{\"a\": ").unwrap_err().contains("not JSON"));
        assert!(parse_plain("hello").unwrap_err().contains("`hello`"));
    }

    #[test]
    fn classes_are_known_in_both_spellings() {
        assert_eq!(parse_error_class("RETRYABLE_RATE_LIMIT"), Some(ErrorClass::RateLimit));
        assert_eq!(parse_error_class("NON_RETRYABLE"), Some(ErrorClass::NonRetryable));
        assert_eq!(parse_error_class("non-retryable"), Some(ErrorClass::NonRetryable));
        assert!(CLASSES.split(", ").all(|word| parse_error_class(word).is_some()));
        assert_eq!(parse_error_class(" transient "), Some(ErrorClass::Transient));
        assert_eq!(parse_error_class("nonsense"), None);
    }
}
