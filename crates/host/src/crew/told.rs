//! What is told of a run when it begins or ends: in words for people, and whole for programs.

use serde_json::{Value, json};
use skein_core::{
    engine::{RunState, utc},
    ir::{HookWhen, RunStatus, Workflow},
};

use super::command::plain;
use crate::{hands::Running, notify::Message};

/// The message of a hook. The workflow may say what its text is.
pub fn of(running: Running<'_>, number: u32, channel: &str, text: Option<&Value>) -> Message {
    let Running { run, plan, state, .. } = running;
    let workflow = &plan.definition.root().workflow;
    let when = usize::try_from(number).ok().and_then(|number| workflow.hooks.get(number));
    let (status, event) = match when.map(|hook| hook.when) {
        Some(HookWhen::Start) | None => (RunStatus::Running, "start"),
        Some(HookWhen::Success) => (ended(state), "complete"),
        Some(HookWhen::Failure) => (ended(state), "failure"),
    };
    let name = workflow.name.as_deref().unwrap_or(workflow.id.as_str());
    let error = state.end.as_ref().and_then(|end| end.error.as_ref()).map(|error| error.message.as_str());
    let usual = || usual(status, run.as_str(), error);
    Message {
        id: format!("{run}.hook.{number}"),
        title: format!("{name} {}", word(status)),
        text: text.map_or_else(usual, plain),
        target: channel.split_once(':').map(|(_, target)| target.to_owned()),
        body: body(running, workflow, (event, status), error),
    }
}

fn body(
    running: Running<'_>,
    workflow: &Workflow,
    (event, status): (&str, RunStatus),
    error: Option<&str>,
) -> Value {
    let state = running.state;
    let begun = state.instances.first().map(|root| root.started);
    json!({
        "event": event,
        "run_id": running.run.as_str(),
        "workflow": {"id": workflow.id.as_str(), "name": workflow.name, "version": workflow.version},
        "status": status.as_str(),
        "native_status": workflow.words.run(status),
        "started_at": begun.map(utc),
        "finished_at": state.end.as_ref().map(|end| utc(end.at)),
        "error": error,
    })
}

fn ended(state: &RunState) -> RunStatus {
    state.end.as_ref().map_or(RunStatus::Running, |end| end.status)
}

fn word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running | RunStatus::Queued | RunStatus::Waiting => "has begun",
        RunStatus::Succeeded => "succeeded",
        RunStatus::TimedOut => "ran out of time",
        RunStatus::Undone => "failed and was undone",
        RunStatus::UndoFailed => "failed and could not be undone",
        RunStatus::Cancelled => "was cancelled",
        RunStatus::Failed | RunStatus::Undoing => "failed",
    }
}

fn usual(status: RunStatus, run: &str, error: Option<&str>) -> String {
    match error.filter(|_| status != RunStatus::Succeeded) {
        Some(error) => format!("Run {run}: {error}"),
        None => format!("Run {run}"),
    }
}
