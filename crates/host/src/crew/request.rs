//! What is asked of a worker, in a form that is the same on every machine.
//!
//! Owns what counts as asking for the same. How often it was tried, what an agent is told of earlier tries, and who does it in
//! the end is none of it.

use serde_json::{Map, Value, json};
use skein_core::ir::Worker;

use super::{about::Agent, command::plain, job::Job};
use crate::tape::Key;

/// The request of a job.
pub fn of(job: &Job, key: &Key) -> Value {
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
    put("worker", worker(job));
    put("instructions", told(job));
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
        put("check_output", check.output.as_ref().map(|output| lines(&output.text)).unwrap_or_default());
    }
    put("overlay", job.overlay.as_deref().map(lines).unwrap_or_default());
    Value::Object(request)
}

/// A text as its lines, which differ one by one.
fn lines(text: &str) -> Value {
    text.lines().map(Value::from).collect()
}

/// Who is asked: whom the step names, whoever does it.
fn worker(job: &Job) -> Value {
    match &job.worker {
        Worker::Script { text, .. } => json!({"script": lines(text), "capabilities": job.capabilities()}),
        Worker::Command { program, .. } => json!({"command": program}),
        Worker::Tool { tool, pinned } => json!({"tool": tool, "driver": pinned}),
        Worker::Action { action, .. } => json!({"action": action}),
        Worker::Agent { name, program, model, .. } => {
            let own = job.about.agents.get(&Agent::key(name.as_deref(), program.as_deref()));
            json!({
                "agent": name,
                "program": program.as_deref().or(own.and_then(|own| own.worker.as_deref())),
                "model": model.as_deref().or(own.and_then(|own| own.model.as_deref())),
                "capabilities": job.capabilities(),
                "standing": own.and_then(|own| own.instructions.as_deref()).map(lines),
            })
        }
    }
}

/// What an agent is to do, or the arguments of a command.
fn told(job: &Job) -> Value {
    match &job.worker {
        Worker::Agent { .. } => job.given.texts.first().map(|text| lines(&plain(text))).unwrap_or_default(),
        _ => json!(job.given.texts),
    }
}
