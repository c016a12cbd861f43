//! Failures of an agent's service, and their effects on the step.

use serde_json::{Value, json};

use super::{
    alone::for_each_agent,
    kind::Kind,
    model::{Model, Turn, say},
};

const RETRIED: &str = "name: retried\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
    instructions: Do it.\n    capabilities: [READ]\n    on_failure: retry\n    max_retries: 1\n";

for_each_agent!(
    a_server_error_is_retried,
    an_answer_that_is_cut_off_is_asked_for_again,
    a_wrong_key_is_not,
    too_long_a_conversation_is_not
);

fn fail(status: u16, kind: &str, code: &str, message: &str) -> Turn {
    let error = json!({"type": "error", "error": {"type": kind, "code": code, "message": message}});
    Turn::Fail(status, Vec::new(), error)
}

fn error(kind: Kind, turn: Turn) -> Value {
    let model = Model::new([turn]);
    let project = kind.project(&model, RETRIED);
    let result = project.json("run flow.yaml", 4);
    assert_eq!(result["steps"][0]["attempts"], 1, "{result}");
    result["steps"][0]["error"].clone()
}

fn a_server_error_is_retried(kind: Kind) {
    passes(kind, fail(500, "api_error", "server_error", "The server had an error."));
}

/// The connection is closed in the middle of an answer.
fn an_answer_that_is_cut_off_is_asked_for_again(kind: Kind) {
    passes(kind, Turn::Cut);
}

/// The agent's own retries fail, then the retry of the engine succeeds.
fn passes(kind: Kind, turn: Turn) {
    let model = Model::new([turn]);
    let project = kind.project(&model, RETRIED);
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    going.until("retry_scheduled");
    model.then([say("It works now.")]);
    let (code, rest, errors) = going.end();
    assert_eq!(code, Some(0), "{rest}{errors}");
    let result = project.json(&format!("runs {run}"), 0);
    assert_eq!(result["steps"][0]["attempts"], 2);
    let ends = project.events(&run);
    let first = ends.iter().find_map(|event| event["event"].get("attempt_ended").cloned()).unwrap();
    let failed = &first["end"]["failed"];
    assert_eq!((&failed["class"], &failed["code"]), (&json!("transient"), &json!("agent_service")), "{first}");
}

fn a_wrong_key_is_not(kind: Kind) {
    let error = error(kind, fail(401, "authentication_error", "invalid_api_key", "Incorrect API key provided."));
    assert_eq!((&error["class"], &error["code"]), (&json!("fatal"), &json!("agent_auth")), "{error}");
}

fn too_long_a_conversation_is_not(kind: Kind) {
    let message = match kind.word {
        "CLAUDE_CODE" => "prompt is too long: 250000 tokens > 200000 maximum",
        _ => "Your input exceeds the context window of this model.",
    };
    let error = error(kind, fail(400, "invalid_request_error", "context_length_exceeded", message));
    assert_eq!((&error["class"], &error["code"]), (&json!("non_retryable"), &json!("agent_context")), "{error}");
}
