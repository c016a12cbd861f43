//! `skein signal`: tells a run of something that happened outside.

use std::{path::Path, sync::Arc};

use clap::Args;
use serde_json::{Value, json};
use skein_core::{
    closest::did_you_mean,
    engine::{Input, StepAt},
    ids::SignalName,
    view::{self, WaitsFor},
};
use skein_host::store::RunRow;

use super::decide::{said, then};
use crate::{exit::Exit, output::Output, say, state::State};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins.
    run: String,
    /// The name of what happened.
    event: String,
    /// What comes with it, as JSON.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The one step that it is for; all that wait for it unless told otherwise.
    #[arg(long, value_name = "PATH")]
    step: Option<String>,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    signal(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn signal(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let payload = payload(arguments.payload.as_deref(), output)?;
    let (state, row) = State::with_run(given, &arguments.run, output)?;
    crate::state::refuse_shortened(&row, output)?;
    say::outside(&state, &row.run, &format!("send the signal `{}`", arguments.event), output)?;
    let name = known(&state, &row, &arguments.event, output)?;
    let to = arguments.step.as_deref().map(|step| waiting(&state, &row, step, output)).transpose()?;
    let input = Input::Signal { name, payload: Arc::new(payload), to };
    let taken = say::say(&state, &row.run, &input, output)?;
    if output.is_json() {
        let mut object = said(&state, &row, &taken);
        object["event"] = json!(arguments.event);
        object["step"] = json!(arguments.step);
        output.json(&object);
    } else {
        output.text(&format!("told run {} of `{}`{}\n", row.run, arguments.event, then(&row, &taken)));
    }
    Ok(Exit::Done)
}

fn payload(text: Option<&str>, output: Output) -> Result<Value, Exit> {
    let Some(text) = text else { return Ok(Value::Null) };
    serde_json::from_str(text).map_err(|error| {
        let hint = "text is JSON in quotes, such as `--payload '\"yes\"'`";
        output.refuse(Exit::Usage, &format!("the payload is not JSON: {error}"), Some(hint))
    })
}

/// The signal, if some step of the workflow waits for it at some time.
fn known(state: &State, row: &RunRow, event: &str, output: Output) -> Result<SignalName, Exit> {
    let plan = state.plan(row, output)?;
    let signals = &plan.definition.signals;
    let found = signals.iter().find(|name| name.as_str() == event);
    found.cloned().ok_or_else(|| {
        let hint = did_you_mean(event, signals.iter().map(SignalName::as_str));
        let all = || signals.iter().take(5).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let hint = hint.or_else(|| (!signals.is_empty()).then(|| format!("it waits for {}", all())));
        let message = format!("no step of run `{}` ever waits for `{event}`", row.run);
        output.refuse(Exit::Refused, &message, hint.as_deref())
    })
}

/// The step of a path that waits for a signal.
fn waiting(state: &State, row: &RunRow, step: &str, output: Output) -> Result<StepAt, Exit> {
    let (plan, replayed) = state.recall(row, output)?;
    let open = view::run(&plan, &replayed).waiting_for;
    let mut waits = open.iter().filter(|opening| opening.kind == WaitsFor::Wait);
    if let Some(found) = waits.clone().rfind(|opening| opening.step == step) {
        return Ok(found.at);
    }
    let hint = did_you_mean(step, waits.by_ref().map(|opening| opening.step.as_str()));
    let message = format!("no step `{step}` of run `{}` waits for a signal", row.run);
    Err(output.refuse(Exit::Refused, &message, hint.as_deref()))
}
