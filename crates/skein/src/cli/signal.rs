//! `skein signal`: sends a signal to a run.

use std::{path::Path, sync::Arc};

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    state::StateHandle,
};
use skein_core::{
    engine::{RunInput, StepAt},
    ids::SignalName,
    suggest::did_you_mean,
    view::{self, WaitpointViewKind},
};
use skein_host::store::RunRow;

use super::decide::{delivery_to_json, describe_delivery};
use crate::{exit::Exit, output::CliOutput, send_input};

#[derive(Debug, Args)]
#[group(skip)]
pub struct SignalArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// Name of the signal.
    event: String,
    /// Payload, as JSON.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Path of the step to receive it; default: all steps that wait for it.
    #[arg(long, value_name = "PATH")]
    step: Option<String>,
}

pub fn run(arguments: &SignalArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let payload = parse_payload(arguments.payload.as_deref())?;
    let (state, row) = StateHandle::open_run(given, &arguments.run)?;
    skein_app::state::refuse_shortened(&row)?;
    send_input::require_person(&state, &row.run, &format!("send the signal `{}`", arguments.event))?;
    let name = find_signal(&state, &row, &arguments.event)?;
    let to = arguments.step.as_deref().map(|step| find_waiting_step(&state, &row, step)).transpose()?;
    let input = RunInput::Signal { name, payload: Arc::new(payload), to };
    let taken = send_input::send_input(&state, &row.run, &input, output)?;
    if output.is_json() {
        let mut object = delivery_to_json(&state, &row, &taken);
        object["event"] = json!(arguments.event);
        object["step"] = json!(arguments.step);
        output.print_json(&object);
    } else {
        output.print_text(&format!(
            "run {} was sent `{}`{}\n",
            row.run,
            arguments.event,
            describe_delivery(&row, &taken)
        ));
    }
    Ok(Exit::Done)
}

fn parse_payload(text: Option<&str>) -> Result<Value, AppError> {
    let Some(text) = text else { return Ok(Value::Null) };
    serde_json::from_str(text).map_err(|error| {
        let hint = "text is JSON in quotes, such as `--payload '\"yes\"'`";
        AppError::new(AppErrorKind::Usage, &format!("the payload is not JSON: {error}"), Some(hint))
    })
}

/// Finds the signal, if any step of the workflow waits for it.
fn find_signal(state: &StateHandle, row: &RunRow, event: &str) -> Result<SignalName, AppError> {
    let plan = state.load_plan(row)?;
    let signals = &plan.definition.signals;
    let found = signals.iter().find(|name| name.as_str() == event);
    found.cloned().ok_or_else(|| {
        let hint = did_you_mean(event, signals.iter().map(SignalName::as_str));
        let all = || signals.iter().take(5).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let hint = hint.or_else(|| (!signals.is_empty()).then(|| format!("it waits for {}", all())));
        let message = format!("no step of run `{}` ever waits for `{event}`", row.run);
        AppError::new(AppErrorKind::Refused, &message, hint.as_deref())
    })
}

/// Finds the step with this path that waits for a signal.
fn find_waiting_step(state: &StateHandle, row: &RunRow, step: &str) -> Result<StepAt, AppError> {
    let (plan, replayed) = state.load_run(row)?;
    let open = view::view_run(&plan, &replayed).waiting_for;
    let mut waits = open.iter().filter(|opening| opening.kind == WaitpointViewKind::Wait);
    if let Some(found) = waits.clone().rfind(|opening| opening.step == step) {
        return Ok(found.at);
    }
    let hint = did_you_mean(step, waits.by_ref().map(|opening| opening.step.as_str()));
    let message = format!("no step `{step}` of run `{}` waits for a signal", row.run);
    Err(AppError::new(AppErrorKind::Refused, &message, hint.as_deref()))
}
