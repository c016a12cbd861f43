//! `skein cancel`: ends a run early, and runs the undo steps of its workflow.

use clap::Args;
use serde_json::json;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::{
        cancel::{self, CancelOutcome},
        send_input::InputDelivery,
    },
};

use crate::{
    exit::Exit,
    render::{follow::TerminalFrontEnd, output::CliOutput},
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct CancelArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// Reason, recorded with the cancellation.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn run(arguments: CancelArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    // One object is printed at the end, and it is not that of the run.
    let front_end = if output.is_json() { TerminalFrontEnd::quiet(output) } else { TerminalFrontEnd::new(output) };
    let CancelOutcome { report, end } = cancel::cancel_run(app, &arguments.run, arguments.reason, &front_end)?;
    let run = &report.run;
    if output.is_json() {
        output.print_json(&json!({"run_id": run, "status": report.status, "next": null}));
    } else {
        match report.delivery {
            InputDelivery::ByOwner => {
                output.print_text(&format!("run {run} was told to stop; `skein runs {run} --follow` shows it\n"))
            }
            InputDelivery::AndEnded => output.print_text(&format!("run {run} is cancelled\n")),
            InputDelivery::Here => {}
        }
    }
    Ok(end.map_or(Exit::Done, Exit::from))
}
