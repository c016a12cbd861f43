//! The results of a worker: its output file, its error file, and the failure that they explain.
//!
//! Owns the translation of a process end into an attempt end. Evidence decides: exit status, files, declared artifacts.
//! Claims in a text never do. Also removes secrets from the files that a worker left in the state folder; its artifacts
//! are not changed, because they are the worker's own files.

use std::{
    io::{Read, Write},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Map, Value};
use skein_core::{engine::AttemptEnd, ir::ErrorClass, limits};

use crate::{
    executor::evidence::protect::DISPLACED,
    json_text::parse_exact,
    process::{ExceededLimit, ProcessOutcome, ProcessReport},
    redact::Redactor,
    start_error::StartError,
    workspace::{
        AttemptDir, RootFolder,
        root::{EntryKind, FilePathError},
    },
};

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
pub fn classify_failure(
    ended: &ProcessReport,
    back: &RootFolder,
    usual: ErrorClass,
    sandboxed: bool,
    redactor: &Redactor,
) -> AttemptEnd {
    match &ended.how {
        ProcessOutcome::Stopped => return AttemptEnd::Stopped,
        ProcessOutcome::TimedOut(ExceededLimit::Total(_)) => {
            return AttemptEnd::TimedOut;
        }
        _ => {}
    }
    // Redaction comes before truncation: a truncated secret would not be recognized.
    let said = read_error_report(back, redactor);
    let own = || match &ended.how {
        ProcessOutcome::Exited(_) => usual,
        ProcessOutcome::Signal { .. } | ProcessOutcome::NotStarted(StartError::Refused(_)) => ErrorClass::Transient,
        ProcessOutcome::TimedOut(_) => ErrorClass::Timeout,
        ProcessOutcome::NotStarted(_) | ProcessOutcome::Stopped => ErrorClass::NonRetryable,
    };
    let told = || {
        // The system's message does not mention the sandbox.
        let hint = (sandboxed && ended.tail.contains(READ_ONLY)).then_some(SANDBOX_HINT);
        let hint = hint.or(ended.how.hint()).map(|hint| format!(" ({hint})")).unwrap_or_default();
        let last = ended.tail.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
        format!("{}{last}{hint}", ended.how.message())
    };
    let code = said.code.filter(|code| code.len() <= limits::ID_BYTES);
    let message = said.message.unwrap_or_else(told);
    let (class, code, message) = match said.class.as_deref().map(|word| (word, parse_error_class(word))) {
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

/// The message for a class that does not exist, in front of the message of the failure itself.
fn unknown_class_message(word: &str, message: &str) -> String {
    let shown: String = word.chars().take(60).collect();
    format!(
        "unknown class `{shown}` in the file of SKEIN_ERROR; the classes are {CLASSES}. The worker failed: {message}"
    )
}

pub fn truncate_message(text: String) -> String {
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
pub enum OutputError {
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
pub fn read_output(back: &RootFolder, redactor: &Redactor) -> Result<Value, OutputError> {
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
pub fn summarize_names(names: impl ExactSizeIterator<Item = String>) -> String {
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
