//! `skein signal`: sends a signal to a run.

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app::App,
    app_error::AppError,
    runs::decide::{self, SignalRequest},
};

use super::decide::{describe_delivery, report_to_json};
use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct SignalArguments {
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

pub(super) fn run(arguments: SignalArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let payload = parse_payload(arguments.payload.as_deref())?;
    let SignalArguments { run, event, step, .. } = arguments;
    let request = SignalRequest { run, event: event.clone(), payload, step: step.clone() };
    let report = decide::signal_run(app, request)?;
    if output.is_json() {
        let mut object = report_to_json(&report);
        object["event"] = json!(event);
        object["step"] = json!(step);
        output.print_json(&object);
    } else {
        let then = describe_delivery(&report);
        output.print_text(&format!("run {} was sent `{event}`{then}\n", report.run));
    }
    Ok(Exit::Done)
}

fn parse_payload(text: Option<&str>) -> Result<Value, AppError> {
    let Some(text) = text else { return Ok(Value::Null) };
    serde_json::from_str(text).map_err(|error| {
        let hint = "text is JSON in quotes, such as `--payload '\"yes\"'`";
        AppError::usage(format!("the payload is not JSON: {error}")).with_hint(hint)
    })
}
