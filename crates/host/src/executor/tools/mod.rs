//! Calls of tools: fills in arguments, checks inputs and outputs, and interprets error codes.
//!
//! Owns the accepted output of a tool program. A value fills a part of one argument and is never split.

pub(crate) mod builtin;
pub mod remote;

use std::{borrow::Cow, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::AttemptEnd,
    ir::ErrorClass,
    limits,
    time::Millis,
    tool_call::{self, CallTemplateValues},
};

use super::attempt::{collect::truncate_message, command::CommandError};
use crate::{clock::Clock, executor::attempt::StageError, run_settings::ToolSettings};

const INPUT_INVALID: &str = "input_invalid";
const OUTPUT_INVALID: &str = "output_invalid";
/// The driver's word for an exit status that is not a failure.
const FINE: &str = "ok";

/// Checks the inputs against the tool's schema.
pub(crate) fn check_inputs(tool: &ToolSettings, inputs: &Value) -> Result<(), StageError> {
    let checked = tool.inputs.check(inputs);
    checked.map_err(|error| {
        failed_call(
            ErrorClass::Validation,
            INPUT_INVALID,
            format!("the input does not match the schema of the tool: {error}"),
        )
        .into()
    })
}

/// The inputs under the driver's names.
pub(crate) fn rename_inputs<'a>(tool: &ToolSettings, inputs: &'a Value) -> Cow<'a, Value> {
    let Some(fields) = inputs.as_object().filter(|_| !tool.renames.is_empty()) else {
        return Cow::Borrowed(inputs);
    };
    let name = |name: &String| tool.renames.get(name).unwrap_or(name).clone();
    Cow::Owned(fields.iter().map(|(key, value)| (name(key), value.clone())).collect())
}

/// The program and all its arguments.
pub fn build_command(tool: &ToolSettings, inputs: &Value) -> Result<Vec<String>, CommandError> {
    let values = CallTemplateValues { inputs, secret: &|_| None };
    let mut words = tool.command.clone();
    for argument in &tool.arguments {
        let word = tool_call::fill_text(argument, values, str::to_owned)
            .map_err(|unfilled| CommandError::Unfilled(unfilled.to_string()))?;
        if word.contains('\0') {
            return Err(CommandError::NulInput);
        }
        words.push(word);
    }
    Ok(words)
}

/// Determines the end of a call from its exit status and output. `usual` is the failure if the tool does not say more.
pub(crate) fn judge_exit(
    tool: &ToolSettings,
    status: i32,
    printed: &[u8],
    usual: impl FnOnce() -> AttemptEnd,
) -> AttemptEnd {
    let value = serde_json::from_slice::<Value>(printed).ok().filter(Value::is_object);
    if let Some(envelope) = value.as_ref().filter(|value| value.get("ok") == Some(&Value::Bool(false))) {
        return parse_refusal(envelope);
    }
    if status != 0 && tool.exit_codes.get(&status).is_none_or(|code| code != FINE) {
        let end = usual();
        return match (tool.exit_codes.get(&status), end) {
            (Some(known), AttemptEnd::Failed { class: ErrorClass::Transient, code: None, message, retry_at }) => {
                AttemptEnd::Failed { class: classify_code(known, false), code: Some(known.clone()), message, retry_at }
            }
            (_, end) => end,
        };
    }
    check_output(tool, value.unwrap_or_else(|| json!({"stdout": String::from_utf8_lossy(printed).trim_end()})))
}

/// Checks the output of a tool against its schema.
pub fn check_output(tool: &ToolSettings, mut output: Value) -> AttemptEnd {
    if let Some(fields) = output.as_object_mut() {
        fields.retain(|name, _| !tool.drop_outputs.contains(name));
    }
    match tool.outputs.check(&output) {
        Ok(()) => AttemptEnd::Succeeded { output: Arc::new(output) },
        Err(error) => {
            let message = format!("the output does not match the schema of the tool: {error}");
            failed_call(ErrorClass::Validation, OUTPUT_INVALID, message)
        }
    }
}

/// Parses a tool's own error envelope.
fn parse_refusal(value: &Value) -> AttemptEnd {
    let error = &value["error"];
    let code = error["code"].as_str().filter(|code| code.len() <= limits::ID_BYTES).map(str::to_owned);
    let class = classify_code(code.as_deref().unwrap_or_default(), error["retryable"] == Value::Bool(true));
    let message = error["message"].as_str().or(error.as_str());
    let message = message.unwrap_or("the tool refused and gave no reason").to_owned();
    // The requested delay is capped.
    let wait = error["retry_after_ms"].as_u64().map(|wait| Millis(wait.min(limits::RETRY_AFTER)));
    let retry_at = wait.map(|wait| Clock::new().now().saturating_add(wait));
    AttemptEnd::Failed { class, code, message: truncate_message(message), retry_at }
}

/// The class of a standard code. A code of the tool's own is retried only if the tool says so.
fn classify_code(code: &str, retryable: bool) -> ErrorClass {
    match code {
        "rate_limited" => ErrorClass::RateLimit,
        "timeout" => ErrorClass::Timeout,
        "upstream_error" => ErrorClass::External,
        INPUT_INVALID | "input_unsupported" => ErrorClass::Validation,
        _ if retryable => ErrorClass::Transient,
        _ => ErrorClass::NonRetryable,
    }
}

pub(crate) fn failed_call(class: ErrorClass, code: &str, message: String) -> AttemptEnd {
    AttemptEnd::Failed { class, code: Some(code.to_owned()), message: truncate_message(message), retry_at: None }
}

#[cfg(test)]
mod tests {
    use skein_core::{ir::Schema, tool_call::CallTextPiece};

    use super::*;

    fn tool() -> ToolSettings {
        ToolSettings {
            id: "t".into(),
            version: "1.0.0".into(),
            mutates: Vec::new(),
            driver: "d".into(),
            command: vec!["prog".into(), "-v".into()],
            function: None,
            remote: None,
            reach: Default::default(),
            arguments: Vec::new(),
            inputs: Schema::default(),
            outputs: Schema::default(),
            renames: [("title".to_owned(), "subject".to_owned())].into(),
            drop_outputs: vec!["secret".to_owned()],
            exit_codes: [(3, "not_found".to_owned()), (4, "rate_limited".to_owned()), (5, FINE.to_owned())].into(),
            secrets: Vec::new(),
            limit: None,
        }
    }

    fn usual() -> AttemptEnd {
        AttemptEnd::Failed {
            class: ErrorClass::Transient,
            code: None,
            message: "it ended with 3".into(),
            retry_at: None,
        }
    }

    fn told(end: &AttemptEnd) -> (ErrorClass, Option<&str>) {
        let AttemptEnd::Failed { class, code, .. } = end else { panic!("{end:?}") };
        (*class, code.as_deref())
    }

    #[test]
    fn values_stay_in_their_argument() {
        let input = |name: &str, default: Option<&str>| CallTextPiece::Input {
            path: vec![name.to_owned()],
            default: default.map(str::to_owned),
        };
        let arguments = vec![vec![CallTextPiece::Text("--to=".into()), input("to", None)], vec![input("n", Some("7"))]];
        let tool = ToolSettings { arguments, ..tool() };
        let words = build_command(&tool, &json!({"to": "a b; rm -rf $(x)"})).unwrap();
        assert_eq!(words, ["prog", "-v", "--to=a b; rm -rf $(x)", "7"]);
        assert!(build_command(&tool, &json!({})).unwrap_err().to_string().contains("`to`"));
        assert!(build_command(&tool, &json!({"to": "a\0b"})).unwrap_err().to_string().contains("NUL byte"));
        assert_eq!(build_command(&tool, &json!({"to": 5, "n": null})).unwrap()[2..], ["--to=5", "7"]);
    }

    #[test]
    fn what_is_printed_is_the_output() {
        let given = |printed: &[u8]| match judge_exit(&tool(), 0, printed, usual) {
            AttemptEnd::Succeeded { output } => (*output).clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(given(b" {\"a\": 1}\n"), json!({"a": 1}));
        assert_eq!(given(b"[1]\n"), json!({"stdout": "[1]"}));
        assert_eq!(given(b"hello\n"), json!({"stdout": "hello"}));
        assert_eq!(given(b""), json!({"stdout": ""}));
    }

    #[test]
    fn an_envelope_wins_over_the_status() {
        let envelope = br#"{"ok": false, "error": {"code": "rate_limited", "message": "slow down"}}"#;
        for status in [0, 3] {
            let end = judge_exit(&tool(), status, envelope, usual);
            assert_eq!(told(&end), (ErrorClass::RateLimit, Some("rate_limited")));
        }
        let own = br#"{"ok": false, "error": {"code": "stock.empty", "message": "none left", "retryable": true}}"#;
        assert_eq!(told(&judge_exit(&tool(), 1, own, usual)), (ErrorClass::Transient, Some("stock.empty")));
    }

    #[test]
    fn whoever_asks_to_be_left_alone_is_so_for_a_while() {
        let asks = |wait: u64| {
            let error = json!({"code": "rate_limited", "message": "later", "retry_after_ms": wait});
            let printed = json!({"ok": false, "error": error}).to_string();
            let now = Clock::new().now();
            let AttemptEnd::Failed { retry_at: Some(at), .. } = judge_exit(&tool(), 0, printed.as_bytes(), usual)
            else {
                panic!("it asks for a time");
            };
            at.duration_since(now).0
        };
        assert!((60_000..70_000).contains(&asks(60_000)));
        assert!(asks(u64::MAX) <= limits::RETRY_AFTER + 10_000, "and no longer than that");
    }

    #[test]
    fn a_status_has_the_meaning_that_the_driver_gives_it() {
        assert_eq!(told(&judge_exit(&tool(), 3, b"", usual)), (ErrorClass::NonRetryable, Some("not_found")));
        assert_eq!(told(&judge_exit(&tool(), 4, b"", usual)), (ErrorClass::RateLimit, Some("rate_limited")));
        assert_eq!(told(&judge_exit(&tool(), 1, b"", usual)), (ErrorClass::Transient, None));
    }

    #[test]
    fn a_driver_has_its_own_names_and_gives_what_it_says() {
        assert_eq!(*rename_inputs(&tool(), &json!({"title": 1, "to": 2})), json!({"subject": 1, "to": 2}));
        let AttemptEnd::Succeeded { output } = judge_exit(&tool(), 5, br#"{"a": 1, "secret": 2}"#, usual) else {
            panic!("5 is fine");
        };
        assert_eq!(*output, json!({"a": 1}));
    }

    #[test]
    fn both_ways_are_checked() {
        let schema = Schema::new(json!({"type": "object", "required": ["n"]}));
        let tool = ToolSettings { inputs: schema.clone(), outputs: schema, ..tool() };
        assert!(check_inputs(&tool, &json!({"n": 1})).is_ok());
        let refused = check_inputs(&tool, &json!({})).unwrap_err().into();
        assert_eq!(told(&refused), (ErrorClass::Validation, Some(INPUT_INVALID)));
        let end = judge_exit(&tool, 0, b"{}", usual);
        assert_eq!(told(&end), (ErrorClass::Validation, Some(OUTPUT_INVALID)));
    }
}
