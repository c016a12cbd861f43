//! Tests with event streams of Codex, shortened to the fields that are read.

use std::io::Write;

use serde_json::json;
use skein_core::ir::{ErrorClass, WorkerCapability};

use super::*;
use crate::executor::agents::agent_launch::test_permissions;

fn heard(events: &[Value]) -> (CodexReader, Vec<AgentEvent>) {
    let mut reader = CodexReader::default();
    let heard = events.iter().flat_map(|event| reader.read_event(event)).collect();
    (reader, heard)
}

fn failed(message: &str) -> AgentFailure {
    let (reader, _) = heard(&[
        json!({"type": "error", "message": "Reconnecting... 1/1"}),
        json!({"type": "turn.failed", "error": {"message": message}}),
    ]);
    reader.final_result(1, "Reading additional input from stdin...").unwrap_err()
}

#[test]
fn a_turn_is_told_with_what_it_says_does_and_spends() {
    let (reader, heard) = heard(&[
        json!({"type": "thread.started", "thread_id": "t-1"}),
        json!({"type": "item.completed", "item": {"type": "error", "message": "Model metadata not found."}}),
        json!({"type": "turn.started"}),
        json!({"type": "item.completed", "item": {"type": "agent_message", "text": "I begin."}}),
        json!({"type": "item.started", "item": {"type": "file_change", "changes": [{"path": "a.txt"}]}}),
        json!({"type": "item.completed", "item": {"type": "file_change", "changes": [{"path": "a.txt"}]}}),
        json!({"type": "item.started", "item": {"id": "c-1", "type": "command_execution", "command": "cargo test"}}),
        json!({"type": "item.completed", "item": {"id": "c-1", "type": "command_execution", "exit_code": 0,
            "aggregated_output": "all well\n"}}),
        json!({"type": "item.completed", "item": {"type": "agent_message", "text": "{\"a\": 1}"}}),
        json!({"type": "turn.completed", "usage": {"input_tokens": 3000, "cached_input_tokens": 1200,
            "output_tokens": 150, "reasoning_output_tokens": 30}}),
    ]);
    let tool = |name: &str, on: &str| AgentEvent::Tool { name: name.into(), on: on.into() };
    let wanted = [
        AgentEvent::Session("t-1".into()),
        AgentEvent::Note("Model metadata not found.".into()),
        AgentEvent::Message("I begin.".into()),
        tool("edit", "a.txt"),
        AgentEvent::Turn,
        tool("run", "cargo test"),
        AgentEvent::Turn,
        AgentEvent::Begun("c-1".into()),
        AgentEvent::Result("all well\n".into()),
        AgentEvent::Over("c-1".into()),
        AgentEvent::Message("{\"a\": 1}".into()),
        AgentEvent::Used(UsageTotal::Session(TokenUsage { input: 1_800, cached: 1_200, output: 150, micro_usd: None })),
    ];
    assert_eq!(heard, wanted);
    assert_eq!(reader.final_result(0, ""), Ok(AgentAnswer { text: "{\"a\": 1}".into(), value: Some(json!({"a": 1})) }));
}

#[test]
fn errors_are_told_apart_by_their_words() {
    let cases = [
        ("exceeded retry limit, last status: 429 Too Many Requests", ErrorClass::RateLimit),
        ("Quota exceeded. Check your plan and billing details.", ErrorClass::Fatal),
        ("We’re currently experiencing high demand, which may cause temporary errors.", ErrorClass::Transient),
        ("Selected model is at capacity. Please try a different model.", ErrorClass::Transient),
        ("stream disconnected before completion: stream closed", ErrorClass::Transient),
        ("unexpected status 401 Unauthorized: Incorrect API key provided.", ErrorClass::Fatal),
        ("The model does not exist or you do not have access to it.", ErrorClass::Fatal),
        ("{\"error\": {\"type\": \"invalid_request_error\", \"code\": \"invalid_value\"}}", ErrorClass::NonRetryable),
        ("Codex ran out of room in the model's context window.", ErrorClass::NonRetryable),
    ];
    for (message, class) in cases {
        assert_eq!(failed(message).class, class, "{message}");
    }
    let limited = failed("You've hit your usage limit. Try again in 2 hours.");
    assert_eq!((limited.class, limited.until.is_some()), (ErrorClass::RateLimit, true));
    assert_eq!(failed("Connection failed; retry in 2s").until, None, "only a limit says when it ends");
}

/// Codex itself would wait as long as its service says.
#[test]
fn what_it_would_try_for_ever_is_stopped() {
    let again = |n: u32, why: &str| json!({"type": "error", "message": format!("Reconnecting... {n}/5 ({why})")});
    let cut = "stream disconnected before completion: stream closed before response.completed";
    let item = json!({"type": "item.completed", "item": {"type": "agent_message", "text": "Well."}});
    let (_, told) = heard(&[again(1, cut), again(2, cut), item, again(1, cut), again(2, cut)]);
    assert!(!told.iter().any(|heard| matches!(heard, AgentEvent::Hopeless(_))), "{told:?}");
    let (_, told) = heard(&[again(1, cut), again(2, cut), again(3, cut)]);
    let Some(AgentEvent::Hopeless(failure)) = told.last() else { panic!("{told:?}") };
    assert_eq!((failure.class, failure.message.as_str()), (ErrorClass::Transient, cut));
    let (_, told) = heard(&[again(1, "exceeded retry limit, last status: 429 Too Many Requests")]);
    assert!(matches!(&told[..], [AgentEvent::Hopeless(failure)] if failure.class == ErrorClass::RateLimit));
    let (_, told) = heard(&[again(1, "unexpected status 401 Unauthorized: Incorrect API key provided")]);
    assert!(matches!(&told[..], [AgentEvent::Hopeless(failure)] if failure.class == ErrorClass::Fatal));
}

#[test]
fn without_the_end_of_a_turn_nothing_is_done() {
    let (reader, _) = heard(&[json!({"type": "item.completed", "item": {"type": "agent_message", "text": "Done!"}})]);
    assert_eq!(reader.final_result(0, "").unwrap_err().class, ErrorClass::AgentError);
    assert_eq!(reader.final_result(2, "error: unexpected argument '--x'").unwrap_err().class, ErrorClass::Fatal);
    assert!(reader.final_result(1, "Error: thread/resume failed: no rollout found for thread id x").unwrap_err().lost);
    let key = reader.final_result(1, "Error: Missing environment variable: `KEY`.").unwrap_err();
    assert_eq!((key.class, key.message.as_str()), (ErrorClass::Fatal, "Error: Missing environment variable: `KEY`."));
}

#[test]
fn what_a_session_has_spent_is_read_on_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let day = dir.path().join("sessions/2026/11/16");
    fs::create_dir_all(&day).unwrap();
    fs::write(day.join("rollout-1-t-1-other.jsonl"), "").unwrap();
    let mut file = File::create(day.join("rollout-2-t-1.jsonl")).unwrap();
    let line = |input: u64| {
        let usage = json!({"input_tokens": input, "cached_input_tokens": 4, "output_tokens": 5});
        let payload = json!({"type": "token_count", "info": {"total_token_usage": usage}});
        json!({"type": "event_msg", "payload": payload}).to_string() + "\n"
    };
    let home = AgentHome { path: Some(dir.path().to_owned()) };
    let mut events = CodexReader::new(&home, "t-1");
    assert_eq!(events.read_session_file(), None);
    write!(file, "{}{}no event\n{}", line(10), line(20), &line(30)[..20]).unwrap();
    assert_eq!(events.read_session_file().unwrap().total_tokens(), 25);
    assert_eq!(events.read_session_file(), None, "there is no news");
    write!(file, "{}", &line(30)[20..]).unwrap();
    assert_eq!(events.read_session_file().unwrap().total_tokens(), 35);
    assert_eq!(CodexAdapter.read_session_usage(&home, "t-1").unwrap().total_tokens(), 35);
    assert_eq!(CodexAdapter.read_session_usage(&home, "t-9"), None);
    assert_eq!(CodexAdapter.read_session_usage(&home, ""), None);
}

#[test]
fn a_schema_is_made_strict_or_not_used() {
    let closed = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}},
        "required": ["a"]});
    assert_eq!(to_strict_schema(&closed).unwrap()["additionalProperties"], false);
    let optional = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let open = json!({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]});
    let either = json!({"type": "object", "properties": {"a": {"oneOf": []}}, "required": ["a"]});
    for schema in [optional, open, either, json!({"type": "string"}), json!(true)] {
        assert_eq!(to_strict_schema(&schema), None, "{schema}");
    }
}

#[test]
fn it_writes_nothing_or_below_its_folder() {
    assert_eq!(sandbox_flags(&test_permissions(&[WorkerCapability::Read], &[])), ["-s", "read-only"]);
    let edits = sandbox_flags(&test_permissions(&[], &[]));
    assert_eq!(edits[..4], ["-s", "workspace-write", "--add-dir", "/s/runs/r/attempts/a/back"]);
    assert!(edits.contains(&"sandbox_workspace_write.network_access=false".to_owned()));
}

/// The other kinds of events that were observed, with the events they become.
#[test]
fn warnings_and_what_is_unknown_end_nothing() {
    let note = |text: &str| vec![AgentEvent::Note(text.to_owned())];
    let item = |kind: &str, over: bool| {
        let event = if over { "item.completed" } else { "item.started" };
        json!({"type": event, "item": {"id": "item_1", "type": kind, "query": "tides", "exit_code": 1}})
    };
    let tool = AgentEvent::Tool { name: "web_search".into(), on: "tides".into() };
    let cases = [
        (json!({"type": "turn.started"}), Vec::new()),
        (json!({"type": "error", "message": "exceeded retry limit"}), note("exceeded retry limit")),
        (item("reasoning", true), Vec::new()),
        (item("todo_list", false), Vec::new()),
        (item("web_search", false), vec![tool, AgentEvent::Turn]),
        (
            item("command_execution", true),
            vec![AgentEvent::Result("exit status 1\n".into()), AgentEvent::Over("item_1".into())],
        ),
        (json!({"type": "item.completed"}), Vec::new()),
        (json!({"type": "unheard.of"}), Vec::new()),
    ];
    for (event, wanted) in cases {
        assert_eq!(heard(std::slice::from_ref(&event)).1, wanted, "{event}");
    }
    for (message, class) in [
        ("Connection failed: error sending request", ErrorClass::Transient),
        ("Missing environment variable: `A_KEY`.", ErrorClass::Fatal),
        ("unexpected status 403 Forbidden: no access", ErrorClass::Fatal),
        ("rate limit exceeded: Rate limit reached. Please try again in 1s.", ErrorClass::RateLimit),
    ] {
        assert_eq!(failed(message).class, class, "{message}");
    }
}
