//! Tests with event streams of OpenCode, shortened to the fields that are read.

use serde_json::json;
use skein_core::ir::{ErrorClass, WorkerCapability};

use super::*;
use crate::executor::agents::agent_launch::test_permissions;

fn heard(events: &[Value]) -> (OpenCodeReader, Vec<AgentEvent>) {
    let mut reader = OpenCodeReader::default();
    let heard = events.iter().flat_map(|event| reader.read_event(event)).collect();
    (reader, heard)
}

fn finish(reason: &str) -> Value {
    json!({"type": "step_finish", "part": {"reason": reason, "cost": 0.0007,
        "tokens": {"input": 600, "output": 50, "reasoning": 0, "cache": {"write": 0, "read": 400}}}})
}

fn failed(name: &str, data: Value) -> AgentFailure {
    let (reader, _) = heard(&[json!({"type": "error", "error": {"name": name, "data": data}})]);
    reader.final_result(1, "").unwrap_err()
}

#[test]
fn a_session_is_told_with_what_it_says_does_and_spends() {
    let (reader, heard) = heard(&[
        json!({"type": "step_start", "sessionID": "ses_1", "part": {}}),
        json!({"type": "tool_use", "part": {"tool": "bash", "state": {"status": "error", "error": "denied",
            "input": {"command": "ls"}}}}),
        finish("tool-calls"),
        json!({"type": "text", "part": {"text": "Done."}}),
        finish("stop"),
    ]);
    let spent = |times: u64| {
        let spent =
            TokenUsage { input: 600 * times, cached: 400 * times, output: 50 * times, micro_usd: Some(700 * times) };
        AgentEvent::Used(UsageTotal::Run(spent))
    };
    let wanted = [
        AgentEvent::Session("ses_1".into()),
        AgentEvent::Turn,
        AgentEvent::Tool { name: "bash".into(), on: "ls".into() },
        AgentEvent::Note("denied".into()),
        spent(1),
        AgentEvent::Message("Done.".into()),
        spent(2),
    ];
    assert_eq!(heard, wanted);
    assert_eq!(reader.final_result(0, ""), Ok(AgentAnswer { text: "Done.".into(), value: None }));
    assert!(reader.final_result(1, "").is_err(), "an exit status still counts");
}

#[test]
fn an_end_without_an_answer_is_none() {
    let (reader, _) = heard(&[finish("tool-calls")]);
    assert_eq!(
        reader.final_result(0, "permission requested; auto-rejecting").unwrap_err().class,
        ErrorClass::AgentError
    );
    assert!(OpenCodeReader::default().final_result(1, "Error: Session not found").unwrap_err().lost);
    assert_eq!(OpenCodeReader::default().final_result(1, "Unknown argument: x").unwrap_err().class, ErrorClass::Fatal);
}

#[test]
fn errors_are_told_apart_by_their_status() {
    let cases = [
        ("APIError", json!({"statusCode": 500, "message": "m"}), ErrorClass::Transient),
        ("APIError", json!({"statusCode": 401}), ErrorClass::Fatal),
        ("APIError", json!({"statusCode": 404}), ErrorClass::Fatal),
        ("APIError", json!({"statusCode": 400}), ErrorClass::NonRetryable),
        ("APIError", json!({"message": "Unable to connect."}), ErrorClass::Transient),
        ("UnknownError", json!({"message": "The operation timed out."}), ErrorClass::Transient),
        ("ContextOverflowError", json!({"message": "too long"}), ErrorClass::NonRetryable),
        ("APIError", json!({"statusCode": 429, "responseBody": "insufficient_quota"}), ErrorClass::Fatal),
    ];
    for (name, data, class) in cases {
        assert_eq!(failed(name, data.clone()).class, class, "{name} {data}");
    }
    let limited = failed("APIError", json!({"statusCode": 429, "responseHeaders": {"retry-after": "3600"}}));
    let wait = limited.until.unwrap().duration_since(Clock::new().now());
    assert_eq!((limited.class, wait.0 > 3_000_000), (ErrorClass::RateLimit, true));
}

#[test]
fn what_it_would_try_for_ever_is_stopped() {
    let hopeless = |heard: &[AgentEvent]| heard.iter().filter(|heard| matches!(heard, AgentEvent::Hopeless(_))).count();
    let (_, told) =
        heard(&[finish("unknown"), finish("unknown"), finish("stop"), finish("unknown"), finish("unknown")]);
    assert_eq!(hopeless(&told), 0);
    let (_, told) = heard(&[finish("unknown"), finish("unknown"), finish("unknown")]);
    assert_eq!(hopeless(&told), 1);
    // Both kinds of failures alternate.
    let (mut reader, _) = heard(&[finish("unknown")]);
    let error = "timestamp=1 level=ERROR message=\"stream error\" error.error=\"Cannot connect to API\"";
    assert_eq!(hopeless(&reader.read_error_line(error).unwrap()), 0);
    assert_eq!(hopeless(&reader.read_event(&finish("unknown"))), 1);
    let long = json!({"type": "error", "error": {"name": "ContextOverflowError", "data": {}}});
    assert_eq!(hopeless(&heard(&[long.clone(), long]).1), 1);
}

/// The model must not be asked before every requested server is reported as connected.
#[test]
fn a_server_that_is_not_known_to_be_there_is_missed() {
    let missed = |events: &[Value]| {
        let server = ToolServer::default();
        let mut reader = OpenCodeAdapter.new_reader(&AgentHome::user_home(), &[("bells", &server), ("tides", &server)]);
        let heard: Vec<AgentEvent> = events.iter().flat_map(|event| reader.read_event(event)).collect();
        heard.into_iter().find_map(|heard| match heard {
            AgentEvent::Hopeless(failure) => Some((failure.code, failure.message)),
            _ => None,
        })
    };
    let told =
        |tides: Value| json!({"type": "skein.servers", "servers": {"bells": {"status": "connected"}, "tides": tides}});
    let of =
        |name: &str, how: &str| Some((Some("agent_server"), format!("its server `mcp:{name}` cannot be used: {how}")));
    let turn = json!({"type": "step_start", "part": {}});
    assert_eq!(missed(&[told(json!({"status": "connected"})), turn.clone()]), None);
    assert_eq!(missed(&[told(json!({"status": "failed", "error": "no tools"}))]), of("tides", "no tools"));
    assert_eq!(missed(&[told(json!({"status": "needs_auth"}))]), of("tides", "needs_auth"));
    assert_eq!(missed(std::slice::from_ref(&turn)), of("bells", "it was not reported as connected"));
}

#[test]
fn its_log_tells_the_session_and_each_error() {
    let mut reader = OpenCodeReader::default();
    let mut hear = |line: &str| reader.read_error_line(line);
    assert_eq!(hear("permission requested"), None);
    assert_eq!(hear("timestamp=1 level=INFO message=\"event connected\""), Some(Vec::new()));
    let created = "timestamp=1 level=INFO run=x message=created id=ses_7 slug=a directory=/w";
    assert_eq!(hear(created), Some(vec![AgentEvent::Session("ses_7".into())]));
    let failed = |why: &str| format!("timestamp=1 level=ERROR message=\"stream error\" error.error=\"{why}\"");
    let server = failed("AI_APICallError: The server had an error.");
    assert!(matches!(&hear(&server).unwrap()[..], [AgentEvent::Note(_)]));
    assert!(matches!(&hear(&server).unwrap()[..], [AgentEvent::Note(_)]));
    assert!(matches!(&hear(&server).unwrap()[..], [AgentEvent::Hopeless(_)]));
    let limit = hear(&failed("AI_APICallError: Rate limit reached. Please try again in 2h.")).unwrap();
    let [AgentEvent::Hopeless(limit)] = &limit[..] else { panic!("{limit:?}") };
    assert_eq!((limit.class, limit.until.is_some()), (ErrorClass::RateLimit, true));
}

#[test]
fn what_it_would_obey_is_found_as_far_as_the_repository_goes() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().canonicalize().unwrap().join("repository/a/b");
    std::fs::create_dir_all(&deep).unwrap();
    let repository = deep.ancestors().nth(2).unwrap();
    std::fs::create_dir(repository.join(".git")).unwrap();
    std::fs::write(repository.with_file_name("opencode.json"), "{}").unwrap();
    assert_eq!(OpenCodeAdapter.find_overriding_config(&deep), None);
    std::fs::create_dir(repository.join(".opencode")).unwrap();
    assert_eq!(OpenCodeAdapter.find_overriding_config(&deep), Some(repository.join(".opencode")));
}

#[test]
fn it_may_do_what_is_not_denied() {
    let told =
        AgentPermissions { files: vec![".decision.json".into()], ..test_permissions(&[WorkerCapability::Read], &[]) };
    assert_eq!(permission_rules(&told)["bash"], "deny");
    assert_eq!(
        permission_rules(&told)["edit"],
        json!({"*": "deny", "*runs/r/attempts/a/back/*": "allow", ".decision.json": "allow", "*/.decision.json": "allow"})
    );
    let edits = permission_rules(&test_permissions(&[], &[]));
    assert_eq!((&edits["edit"], &edits["external_directory"]["*"]), (&json!({"*": "allow"}), &json!("deny")));
    let named = test_permissions(
        &[WorkerCapability::Read, WorkerCapability::RunTests],
        &[&["cargo", "test"], &["sh", "-c", "a b"]],
    );
    assert_eq!(permission_rules(&named)["bash"], json!({"*": "deny", "cargo test": "allow", "sh -c 'a b'": "allow"}));
}

/// The other kinds of events that were observed, with the events they become.
#[test]
fn tools_are_told_with_what_they_are_used_on() {
    let used = |tool: &str, status: &str, input: Value| {
        let state = json!({"status": status, "input": input, "error": "The user has denied this", "output": "done"});
        json!({"type": "tool_use", "part": {"tool": tool, "state": state}})
    };
    let tool = |name: &str, on: &str| AgentEvent::Tool { name: name.into(), on: on.into() };
    let done = AgentEvent::Result("done".into());
    let denied = AgentEvent::Note("The user has denied this".into());
    let cases = [
        (used("bash", "completed", json!({"command": "ls"})), vec![tool("bash", "ls"), done.clone()]),
        (
            used("write", "completed", json!({"filePath": "/w/a", "content": "x"})),
            vec![tool("write", "/w/a"), done.clone()],
        ),
        (used("write", "error", json!({"filePath": "/w/a"})), vec![tool("write", "/w/a"), denied.clone()]),
        (used("read", "error", json!({"filePath": "/b"})), vec![tool("read", "/b"), denied]),
        (used("list", "completed", json!({})), vec![tool("list", ""), done]),
        (json!({"_note": "without a type"}), Vec::new()),
        (json!({"type": "unheard.of", "part": {}}), Vec::new()),
    ];
    for (event, wanted) in cases {
        assert_eq!(heard(std::slice::from_ref(&event)).1, wanted, "{event}");
    }
    assert_eq!(failed("APIError", json!({"statusCode": 503, "isRetryable": true})).class, ErrorClass::Transient);
    assert_eq!(failed("APIError", json!({"statusCode": 403})).class, ErrorClass::Fatal);
    assert_eq!(failed("ProviderAuthError", json!({"message": "no key"})).class, ErrorClass::Fatal);
    assert_eq!(failed("UnknownError", json!({"message": "Unexpected server error."})).class, ErrorClass::Transient);
    let missing =
        OpenCodeReader::default().final_result(1, "\u{1b}[91mError: \u{1b}[0mSession not found\n").unwrap_err();
    assert!(missing.lost);
}

/// The model cannot raise this timeout.
#[test]
fn its_shell_ends_what_takes_too_long() {
    let (path, script) = timeout_shell(Path::new("/files"), Millis(90_500));
    let script = String::from_utf8(script).unwrap();
    assert_eq!(path, Path::new("/files/shell/bash"));
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("timeout -k 2 90.500 "), "{script}");
}
