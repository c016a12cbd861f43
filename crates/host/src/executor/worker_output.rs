//! The results of a worker: its output file, its error file, and the failure that they explain.
//!
//! Owns the translation of a process end into an attempt end. Evidence decides: exit status, files, declared artifacts.
//! Claims in a text never do.

use serde::Deserialize;
use serde_json::{Map, Value};
use skein_core::{engine::AttemptEnd, ir::ErrorClass, limits};

use crate::{
    json_text::parse_exact,
    process::{ExceededLimit, ProcessOutcome, ProcessReport},
    redact::Redactor,
    workspace::{AttemptDir, RootFolder},
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
        ProcessOutcome::Signal { .. } | ProcessOutcome::CannotStart(_) => ErrorClass::Transient,
        ProcessOutcome::TimedOut(_) => ErrorClass::Timeout,
        ProcessOutcome::NotFound(_)
        | ProcessOutcome::NotExecutable(_)
        | ProcessOutcome::WrongFormat { .. }
        | ProcessOutcome::Stopped => ErrorClass::NonRetryable,
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

/// The worker's output file: a JSON object, or lines of `key=value`. Null if there is none.
pub fn read_output(back: &RootFolder, redactor: &Redactor) -> Result<Value, String> {
    let bytes = match back.read_file(AttemptDir::OUTPUT, limits::VALUE_BYTES as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.is_missing() => return Ok(Value::Null),
        Err(error) => return Err(format!("its output cannot be read: {error}")),
    };
    let text = String::from_utf8(bytes).map_err(|_| "its output is not UTF-8".to_owned())?;
    parse_output(&text, redactor)
}

fn parse_output(text: &str, redactor: &Redactor) -> Result<Value, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Ok(Value::Null);
    }
    if trimmed.starts_with('{') {
        return parse_exact(trimmed).map_err(|error| format!("its output is not JSON: {error}"));
    }
    let mut object = Map::new();
    for line in trimmed.lines().filter(|line| !line.trim().is_empty()) {
        let Some((key, value)) = line.split_once('=') else {
            let shown: String = redactor.redact_str(line).chars().take(80).collect();
            return Err(format!("its output is neither a JSON object nor lines of `key=value`: `{shown}`"));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_plain(text: &str) -> Result<Value, String> {
        parse_output(text, &Redactor::new([]).unwrap())
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
