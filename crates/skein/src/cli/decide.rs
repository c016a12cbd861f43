//! `skein approve` and `skein reject`, `skein signal` and `skein cancel`: a person's inputs to a run.

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app::App,
    app_error::AppError,
    runs::{
        cancel::{self, CancelOutcome},
        decide::{self, DecisionOutcome, DeliveredDecision, SignalRequest},
        send_input::{DeliveryReport, InputDelivery},
    },
};
use skein_core::engine::Verdict;
use skein_host::decision_inbox::DecisionRequest;

use crate::{
    exit::Exit,
    render::{commands::command_line, follow::TerminalFrontEnd, output::CliOutput},
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct DecideArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// Path of the step; default: the only step that waits for a decision.
    step: Option<String>,
    /// Reason, recorded with the decision.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn run(
    arguments: DecideArguments,
    decision: Verdict,
    app: &App,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let DecideArguments { run, step, reason } = arguments;
    let request = DecisionRequest { run, step, decision, reason };
    match decide::decide_run(app, &request)? {
        DecisionOutcome::Delivered(delivered) => {
            print_delivered(&delivered, &request, output);
            Ok(Exit::Done)
        }
        DecisionOutcome::TakenByOwner { message } => {
            output.print_result(|| json!({"done": true, "message": message}), || format!("{message}\n"));
            Ok(Exit::Done)
        }
        DecisionOutcome::LeftForOwner { folder } => {
            let place = folder.display();
            output.print_result(
                || json!({"run_id": request.run, "decision": decision, "left": true}),
                || format!("left in `{place}`: it is applied when the owner of the state folder resumes the run\n"),
            );
            Ok(Exit::Waiting)
        }
    }
}

fn print_delivered(delivered: &DeliveredDecision, request: &DecisionRequest, output: CliOutput) {
    let DeliveredDecision { report, step, by, missing_approvals } = delivered;
    let (word, done) = match request.decision {
        Verdict::Approve => ("approve", "approved"),
        Verdict::Reject => ("reject", "rejected"),
    };
    if output.is_json() {
        let mut object = report_to_json(report);
        object["step"] = json!(step);
        object["decision"] = json!(word);
        object["by"] = json!(by);
        object["reason"] = json!(request.reason);
        if let Some(missing) = missing_approvals {
            object["approvals"] = json!({"given": missing.approvals.len(), "needed": missing.quorum});
        }
        return output.print_json(&object);
    }
    let missing = missing_approvals.as_ref().and_then(|missing| missing.approval_progress());
    let missing = missing.map_or(String::new(), |far| format!(": {far}, more approvals are needed"));
    let then = describe_delivery(report);
    output.print_text(&format!("{done} `{step}` of run {}{missing}{then}\n", report.run));
}

/// Returns the state of a run after an input, as JSON.
pub(super) fn report_to_json(report: &DeliveryReport) -> Value {
    let next = (report.delivery == InputDelivery::Here).then(|| command_line(&["resume", report.run.as_str()]));
    json!({"run_id": report.run, "status": report.status, "next": next})
}

/// Returns the same as text, for the end of a sentence.
pub(super) fn describe_delivery(report: &DeliveryReport) -> String {
    match report.delivery {
        InputDelivery::ByOwner => String::new(),
        InputDelivery::Here => {
            format!("; no process is executing it, `skein resume {}` resumes it", report.run)
        }
        InputDelivery::AndEnded => ", which ended it".to_owned(),
    }
}

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

pub(super) fn run_signal(arguments: SignalArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
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

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct CancelArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// Reason, recorded with the cancellation.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn run_cancel(arguments: CancelArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
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
