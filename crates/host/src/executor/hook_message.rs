//! The message about a run that begins or ends: a text for people and a complete body for programs.

use serde_json::{Value, json};
use skein_core::{
    engine::{RunState, format_utc},
    ir::{HookTiming, RunStatus, Workflow},
};

use super::worker_command::to_plain_text;
use crate::{executor_api::ActiveRun, notify::ChannelMessage};

/// Builds the message of a hook. The workflow may define its text.
pub fn build_hook_message(
    running: ActiveRun<'_>,
    number: u32,
    channel: &str,
    text: Option<&Value>,
) -> ChannelMessage {
    let ActiveRun { run, plan, state, .. } = running;
    let workflow = &plan.definition.root().workflow;
    let when = usize::try_from(number).ok().and_then(|number| workflow.hooks.get(number));
    let (status, event) = match when.map(|hook| hook.when) {
        Some(HookTiming::Start) | None => (RunStatus::Running, "start"),
        Some(HookTiming::Success) => (end_status(state), "complete"),
        Some(HookTiming::Failure) => (end_status(state), "failure"),
    };
    let name = workflow.name.as_deref().unwrap_or(workflow.id.as_str());
    let error = state.end.as_ref().and_then(|end| end.error.as_ref()).map(|error| error.message.as_str());
    let usual = || default_text(status, run.as_str(), error);
    ChannelMessage {
        id: format!("{run}.hook.{number}"),
        title: format!("{name} {}", status_phrase(status)),
        text: text.map_or_else(usual, to_plain_text),
        target: channel.split_once(':').map(|(_, target)| target.to_owned()),
        body: build_body(running, workflow, (event, status), error),
    }
}

fn build_body(
    running: ActiveRun<'_>,
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
        "native_status": workflow.words.run_word(status),
        "started_at": begun.map(format_utc),
        "finished_at": state.end.as_ref().map(|end| format_utc(end.at)),
        "error": error,
    })
}

fn end_status(state: &RunState) -> RunStatus {
    state.end.as_ref().map_or(RunStatus::Running, |end| end.status)
}

fn status_phrase(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running | RunStatus::Queued | RunStatus::Waiting => "started",
        RunStatus::Succeeded => "succeeded",
        RunStatus::TimedOut => "timed out",
        RunStatus::Undone => "failed and was undone",
        RunStatus::UndoFailed => "failed and could not be undone",
        RunStatus::Cancelled => "was cancelled",
        RunStatus::Failed | RunStatus::Undoing => "failed",
    }
}

fn default_text(status: RunStatus, run: &str, error: Option<&str>) -> String {
    match error.filter(|_| status != RunStatus::Succeeded) {
        Some(error) => format!("Run {run}: {error}"),
        None => format!("Run {run}"),
    }
}
