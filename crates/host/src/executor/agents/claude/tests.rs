//! Tests with event streams of Claude Code, shortened to the fields that are read.

use serde_json::json;
use skein_core::ir::{ErrorClass, WorkerCapability};

use super::*;
use crate::executor::agents::agent_launch::test_permissions;

fn heard(events: &[Value]) -> (ClaudeReader, Vec<AgentEvent>) {
    let mut reader = ClaudeReader::default();
    let heard = events.iter().flat_map(|event| reader.read_event(event)).collect();
    (reader, heard)
}

fn result(more: Value) -> Value {
    let mut event = json!({"type": "result", "subtype": "success", "is_error": false, "result": "Done.",
        "model_usage_since_last_result": {"m": {"inputTokens": 2000, "outputTokens": 100,
        "cacheReadInputTokens": 800, "cacheCreationInputTokens": 10, "costUSD": 0.00508}}});
    for (name, value) in more.as_object().unwrap() {
        event[name] = value.clone();
    }
    event
}

fn failed(error: &str, more: Value) -> AgentFailure {
    let (reader, _) = heard(&[json!({"type": "assistant", "error": error, "message": {"content": []}}), result(more)]);
    reader.final_result(1, "").unwrap_err()
}

/// When the model is asked, a server must be connected and list its tools; otherwise it counts as missing.
#[test]
fn a_server_that_is_not_there_with_its_tools_is_missed() {
    let init = |status: &str, tools: &[&str]| {
        let servers = json!([{"name": "else", "status": "failed"}, {"name": "tides", "status": status}]);
        let event =
            json!({"type": "system", "subtype": "init", "session_id": "s", "tools": tools, "mcp_servers": servers});
        let server = ToolServer::default();
        let heard = ClaudeAdapter.new_reader(&AgentHome::user_home(), &[("tides", &server)]).read_event(&event);
        heard.into_iter().find_map(|heard| match heard {
            AgentEvent::Hopeless(failure) => Some((failure.code, failure.message)),
            _ => None,
        })
    };
    let missed = |how: &str| Some((Some("agent_server"), format!("its server `mcp:tides` cannot be used: {how}")));
    assert_eq!(init("connected", &["Read", "mcp__tides__tell"]), None);
    assert_eq!(init("connected", &["Read", "mcp__tides2__tell"]), missed("it lists no tools"));
    assert_eq!(init("pending", &["Read"]), missed("it did not connect in time"));
    assert_eq!(init("failed", &["Read"]), missed("failed"));
}

#[test]
fn a_session_is_told_with_what_it_says_does_and_spends() {
    let (reader, heard) = heard(&[
        json!({"type": "system", "subtype": "init", "session_id": "s-1", "tools": ["Read"]}),
        json!({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m-1",
            "usage": {"input_tokens": 1000, "cache_read_input_tokens": 400, "output_tokens": 1}}}}),
        json!({"type": "assistant", "message": {"id": "m-1", "content": [{"type": "text", "text": "I look."},
            {"type": "tool_use", "name": "Bash", "input": {"command": "ls", "description": "list"}},
            {"type": "new_thing"}]}}),
        json!({"type": "stream_event", "event": {"type": "message_delta", "usage": {"output_tokens": 50}}}),
        json!({"type": "user", "message": {}}),
        json!({"type": "system", "subtype": "unheard_of"}),
        result(json!({"structured_output": {"a": 1}})),
    ]);
    let spent = |input, cached, output, micro_usd| {
        AgentEvent::Used(UsageTotal::Run(TokenUsage { input, cached, output, micro_usd }))
    };
    let tool = AgentEvent::Tool { name: "Bash".into(), on: "ls".into() };
    let wanted = [
        AgentEvent::Session("s-1".into()),
        AgentEvent::Turn,
        spent(1_000, 400, 1, None),
        AgentEvent::Message("I look.".into()),
        tool,
        spent(1_000, 400, 50, None),
        spent(2_010, 800, 100, Some(5_080)),
    ];
    assert_eq!(heard, wanted);
    assert_eq!(reader.final_result(0, ""), Ok(AgentAnswer { text: "Done.".into(), value: Some(json!({"a": 1})) }));
}

#[test]
fn a_limit_says_when_it_ends() {
    let (_, heard) = heard(&[
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 5}}),
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_894_771_000}}),
    ]);
    assert_eq!(heard, [AgentEvent::LimitedUntil(Timestamp(1_894_771_000_000))]);
}

#[test]
fn errors_are_told_apart_though_all_are_called_success() {
    let is_error = json!({"is_error": true, "api_error_status": 500});
    let of = |error: &str, status: Option<u64>, more: Value| {
        let mut all = json!({"is_error": true, "api_error_status": status});
        more.as_object().unwrap().iter().for_each(|(name, value)| all[name] = value.clone());
        let failure = failed(error, all);
        (failure.class, failure.code.unwrap(), failure.goes_on)
    };
    assert_eq!(failed("server_error", is_error).class, ErrorClass::Transient);
    assert_eq!(of("rate_limit", Some(429), json!({})), (ErrorClass::RateLimit, "agent_limit", true));
    assert_eq!(of("billing_error", Some(400), json!({})), (ErrorClass::Fatal, "agent_billing", false));
    assert_eq!(of("authentication_failed", None, json!({})), (ErrorClass::Fatal, "agent_auth", false));
    assert_eq!(of("server_error", None, json!({})), (ErrorClass::Transient, "agent_service", true));
    assert_eq!(of("model_not_found", Some(404), json!({})), (ErrorClass::Fatal, "agent_model", false));
    assert_eq!(of("unknown", Some(400), json!({})), (ErrorClass::NonRetryable, "agent_request", false));
    let long = json!({"terminal_reason": "prompt_too_long"});
    assert_eq!(of("invalid_request", Some(400), long), (ErrorClass::NonRetryable, "agent_context", false));
    let turns = json!({"subtype": "error_max_turns", "result": null, "errors": ["Reached maximum number of turns"]});
    assert_eq!(of("", None, turns), (ErrorClass::NonRetryable, "max_steps", false));
    let spent = json!({"subtype": "error_max_budget_usd", "result": null, "errors": ["Reached maximum budget"]});
    assert_eq!(of("", None, spent), (ErrorClass::NonRetryable, "budget", false));
    let aborted = json!({"subtype": "error_during_execution", "terminal_reason": "aborted_tools"});
    assert_eq!(of("", None, aborted), (ErrorClass::AgentError, "agent_no_end", false));
}

#[test]
fn without_a_result_nothing_is_done() {
    let reader = ClaudeReader::default();
    assert_eq!(reader.final_result(0, "").unwrap_err().class, ErrorClass::AgentError);
    assert_eq!(reader.final_result(1, "error: unknown option '--x'\n").unwrap_err().class, ErrorClass::Fatal);
    assert!(reader.final_result(1, "No conversation found with session ID: s-9\n").unwrap_err().lost);
    let lost =
        failed("", json!({"is_error": true, "result": "", "errors": ["No conversation found with session ID: s"]}));
    assert!(lost.lost);
}

#[test]
fn a_refused_key_is_not_tried_ten_times() {
    let retry = |status: u64| json!({"type": "system", "subtype": "api_retry", "error_status": status});
    let (_, told) = heard(&[retry(500), retry(401)]);
    assert!(matches!(&told[0], AgentEvent::Note(_)));
    assert!(matches!(&told[1], AgentEvent::Hopeless(failure) if failure.class == ErrorClass::Fatal));
}

#[test]
fn it_may_do_what_a_rule_allows() {
    let told = AgentPermissions {
        folder: "/w".into(),
        files: vec![".decision.json".into()],
        ..test_permissions(&[WorkerCapability::Read], &[])
    };
    let (tools, rules) = tool_flags(&told);
    assert_eq!(tools, "Read,Glob,Grep,Edit,Write");
    assert_eq!(rules, "Read,Glob,Grep,Edit(//s/runs/r/attempts/a/back/**),Edit(//w/.decision.json)");
    assert!(tool_flags(&test_permissions(&[], &[])).1.ends_with("Edit(./**)"));
    let named = test_permissions(
        &[WorkerCapability::Read, WorkerCapability::RunTests],
        &[&["cargo", "test"], &["sh", "-c", "a b"]],
    );
    assert!(tool_flags(&named).1.ends_with("Bash(cargo test),Bash(sh -c 'a b')"));
}

/// Each kind of event that was observed, with the events it becomes.
#[test]
fn what_goes_wrong_on_the_way_is_told_and_the_rest_passed_over() {
    let note = |text: &str| vec![AgentEvent::Note(text.to_owned())];
    let system = |subtype: &str, more: Value| {
        let mut event = json!({"type": "system", "subtype": subtype, "session_id": "s-1"});
        more.as_object().unwrap().iter().for_each(|(name, value)| event[name] = value.clone());
        event
    };
    let result = |error: bool| {
        let part = json!({"type": "tool_result", "content": "No such tool: Bash", "is_error": error});
        json!({"type": "user", "message": {"role": "user", "content": [part]}})
    };
    let cases = [
        (
            system("permission_denied", json!({"tool_name": "Read", "message": "not in this mode"})),
            note("Read was not allowed: not in this mode"),
        ),
        (system("model_fallback", json!({"content": "Another model is used"})), note("Another model is used")),
        (system("informational", json!({"content": "Nobody can be asked"})), note("Nobody can be asked")),
        (
            system("api_retry", json!({"attempt": 1, "error_status": 529})),
            note("its service returned status 529; it retries"),
        ),
        (system("task_started", json!({"task_type": "local_bash"})), Vec::new()),
        (system("task_notification", json!({"status": "stopped"})), Vec::new()),
        (system("hook_started", json!({"hook_event": "SessionStart"})), Vec::new()),
        (system("hook_response", json!({"exit_code": 0})), Vec::new()),
        (system("ui_invalidate", json!({"event": "ui.render"})), Vec::new()),
        (result(true), note("No such tool: Bash")),
        (result(false), vec![AgentEvent::Result("No such tool: Bash".into())]),
        (
            json!({"type": "user", "message": {"content": [{"type": "tool_result", "content":
                [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}]}}),
            vec![AgentEvent::Result("one\ntwo".into())],
        ),
        (json!({"type": "user", "message": {"content": "plain words"}}), Vec::new()),
        (json!({"type": "assistant", "message": {"content": [{"type": "text"}, {"type": "tool_use"}]}}), Vec::new()),
        (json!({"type": "stream_event", "event": {"type": "content_block_delta"}}), Vec::new()),
    ];
    for (event, wanted) in cases {
        assert_eq!(heard(std::slice::from_ref(&event)).1, wanted, "{event}");
    }
}

#[test]
fn answers_that_are_cut_off_or_missing_are_told_apart() {
    let dropped = json!({"is_error": true, "terminal_reason": "api_error", "api_error": "connection_failed"});
    assert_eq!(failed("server_error", dropped).class, ErrorClass::Transient);
    let long = json!({"is_error": true, "api_error": "max_output_tokens"});
    assert_eq!(failed("max_output_tokens", long).class, ErrorClass::NonRetryable);
    for (status, class) in [(529, ErrorClass::Transient), (403, ErrorClass::Fatal)] {
        assert_eq!(failed("", json!({"is_error": true, "api_error_status": status})).class, class, "{status}");
    }
    let limit = failed("rate_limit", json!({"is_error": true, "result": "Limit reached. Try again in 2 hours."}));
    assert!(limit.until.is_some());
    // The agent was asked for a value, never gave one, and reports success.
    let (reader, _) = heard(&[result(json!({"structured_output": null}))]);
    assert_eq!(reader.final_result(0, "").unwrap().value, None);
    let taken = ClaudeReader::default().final_result(1, "Error: Session ID x is already in use.\n").unwrap_err();
    assert_eq!((taken.class, taken.lost), (ErrorClass::Fatal, false));
}
