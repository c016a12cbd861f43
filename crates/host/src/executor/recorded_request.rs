//! The request to a worker, in a form that is the same on every machine.
//!
//! Owns the definition of equal requests. The number of tries, the text about earlier tries and the agent that finally
//! does it are not part of it.

use serde_json::{Map, Value, json};
use skein_core::ir::WorkerSpec;

use super::{attempt_spec::AttemptSpec, run_settings::AgentSettings, worker_command::to_plain_text};
use crate::recording::RecordingKey;

/// Builds the request of an attempt.
pub fn build_request(job: &AttemptSpec, key: &RecordingKey) -> Value {
    let mut request = Map::new();
    let mut put = |name: &str, value: Value| {
        let empty = match &value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if !empty {
            request.insert(name.to_owned(), value);
        }
    };
    put("step", job.path.clone().into());
    put("role", key.role.as_str().into());
    put("visit", key.visit.into());
    put("iteration", key.iteration.into());
    put("attempt", key.n.into());
    put("worker", describe_worker(job));
    put("instructions", describe_instructions(job));
    put("inputs", job.given.inputs.clone());
    put("workspace", job.isolation.workspace.clone().into());
    put("secrets", json!(job.isolation.secrets));
    put(
        "takes",
        job.takes.iter().map(|take| format!("{} of {} as {}", take.artifact, take.from, take.name)).collect(),
    );
    put("gives", job.gives.iter().map(|gives| format!("{} at {}", gives.name, gives.path)).collect());
    put("outputs", job.outputs.document().cloned().unwrap_or_default());
    if let Some(check) = &job.last_check {
        put("check_said", json!(check.reasons));
        put(
            "check_output",
            check.output.as_ref().map(|output| split_lines(&output.text)).unwrap_or_default(),
        );
    }
    put("overlay", job.overlay.as_deref().map(split_lines).unwrap_or_default());
    Value::Object(request)
}

/// Splits a text into its lines, so that a diff shows single lines.
fn split_lines(text: &str) -> Value {
    text.lines().map(Value::from).collect()
}

/// Describes the worker that the step names, whichever worker does it in the end.
fn describe_worker(job: &AttemptSpec) -> Value {
    match &job.worker {
        WorkerSpec::Script { text, .. } => {
            json!({"script": split_lines(text), "capabilities": job.capabilities()})
        }
        WorkerSpec::Command { program, .. } => json!({"command": program}),
        WorkerSpec::Tool { tool, pinned } => json!({"tool": tool, "driver": pinned}),
        WorkerSpec::Action { action, .. } => json!({"action": action}),
        WorkerSpec::Agent { name, program, model, .. } => {
            let own = job.about.agents.get(&AgentSettings::settings_key(name.as_deref(), program.as_deref()));
            json!({
                "agent": name,
                "program": program.as_deref().or(own.and_then(|own| own.worker.as_deref())),
                "model": model.as_deref().or(own.and_then(|own| own.model.as_deref())),
                "capabilities": job.capabilities(),
                "standing": own.and_then(|own| own.instructions.as_deref()).map(split_lines),
            })
        }
    }
}

/// The instructions of an agent, or the arguments of a command.
fn describe_instructions(job: &AttemptSpec) -> Value {
    match &job.worker {
        WorkerSpec::Agent { .. } => {
            job.given.texts.first().map(|text| split_lines(&to_plain_text(text))).unwrap_or_default()
        }
        _ => json!(job.given.texts),
    }
}
