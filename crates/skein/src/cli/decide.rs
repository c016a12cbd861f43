//! `skein approve` and `skein reject`: a person decides at a gate or a hold.

use std::path::Path;

use clap::Args;
use serde_json::json;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    invocation::command_prefix,
    state::StateHandle,
};
use skein_core::{
    engine::{RunInput, Verdict, Waitpoint, format_utc},
    suggest::did_you_mean,
    view::{self, StepPaths, WaitpointView},
};
use skein_host::{
    decision_inbox::DecisionRequest,
    store::{RunRow, Store, WaitpointRow},
};

use crate::{
    exit::Exit,
    inbox,
    output::CliOutput,
    send_input::{self, InputDelivery},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct DecideArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// Path of the step; default: the only step that waits for a decision.
    step: Option<String>,
    /// Reason, recorded with the decision.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(
    arguments: &DecideArguments,
    decision: Verdict,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    if let Some(inbox) = inbox::find_foreign_inbox(given) {
        let (run, step, reason) = (arguments.run.clone(), arguments.step.clone(), arguments.reason.clone());
        return inbox::leave_decision(&inbox, &DecisionRequest { run, step, decision, reason }, output);
    }
    let (state, row) = StateHandle::open_run(given, &arguments.run)?;
    skein_app::state::refuse_shortened(&row)?;
    let (word, done) = match decision {
        Verdict::Approve => ("approve", "approved"),
        Verdict::Reject => ("reject", "rejected"),
    };
    let meant = arguments.step.as_ref().map_or(String::new(), |step| format!(" `{step}`"));
    send_input::require_person(&state, &row.run, &format!("{word}{meant}"))?;
    let open = find_waitpoint(&state, &row, arguments.step.as_deref())?;
    let by = send_input::current_actor(&send_input::read_run_settings(&row)?)?;
    let name = by.name.clone();
    let input = RunInput::Decide { opening: open.opening, decision, by, reason: arguments.reason.clone() };
    let taken = send_input::send_input(&state, &row.run, &input, output)?;
    let others = match decision {
        Verdict::Approve => find_open_approvals(&state, &row, open.opening)?,
        Verdict::Reject => None,
    };
    if output.is_json() {
        let mut object = delivery_to_json(&state, &row, &taken);
        object["step"] = json!(open.step);
        object["decision"] = json!(word);
        object["by"] = json!(name);
        object["reason"] = json!(arguments.reason);
        if let Some(others) = &others {
            object["approvals"] = json!({"given": others.approvals.len(), "needed": others.quorum});
        }
        output.print_json(&object);
    } else {
        let others = others.and_then(|others| others.approval_progress());
        let others = others.map_or(String::new(), |far| format!(": {far}, more approvals are needed"));
        let then = describe_delivery(&row, &taken);
        output.print_text(&format!("{done} `{}` of run {}{others}{then}\n", open.step, row.run));
    }
    Ok(Exit::Done)
}

/// Returns the waitpoint if it is still open because more approvals are needed.
fn find_open_approvals(
    state: &StateHandle,
    row: &RunRow,
    opening: Waitpoint,
) -> Result<Option<WaitpointView>, AppError> {
    let (plan, replayed) = state.load_run(row)?;
    if replayed.waitpoint(opening).is_none_or(|opening| opening.closed || opening.quorum < 2) {
        return Ok(None);
    }
    Ok(view::view_waitpoint(&replayed, &StepPaths::from_state(&plan.definition, &replayed), opening))
}

/// Returns the state of a run after an input, as JSON.
pub fn delivery_to_json(state: &StateHandle, row: &RunRow, taken: &InputDelivery) -> serde_json::Value {
    let status = state.store.find_run(&row.run).ok().flatten().map_or(row.head.status, |row| row.head.status);
    let next = (*taken == InputDelivery::Here).then(|| format!("{} resume {}", command_prefix(), row.run));
    json!({"run_id": row.run, "status": status, "next": next})
}

/// Returns the same as text, for the end of a sentence.
pub fn describe_delivery(row: &RunRow, taken: &InputDelivery) -> String {
    match taken {
        InputDelivery::ByOwner => String::new(),
        InputDelivery::Here => format!("; no process is executing it, `skein resume {}` resumes it", row.run),
        InputDelivery::AndEnded => ", which ended it".to_owned(),
    }
}

/// Finds the selected gate or hold.
fn find_waitpoint(state: &StateHandle, row: &RunRow, step: Option<&str>) -> Result<WaitpointRow, AppError> {
    if let Some(found) = send_input::find_decision_waitpoint(row, step) {
        return Ok(found.clone());
    }
    let open: Vec<&WaitpointRow> = send_input::decision_waitpoints(row).collect();
    if let Some(step) = step {
        return Err(refuse_not_open(state, row, step, &open)?);
    }
    if open.is_empty() {
        let message = format!("nothing in run `{}` waits for a decision", row.run);
        return Err(AppError::new(AppErrorKind::Refused, &message, None));
    }
    let steps: Vec<String> = open.iter().take(5).map(|open| format!("`{}`", open.step)).collect();
    let message = format!("{} steps of run `{}` wait for a decision", open.len(), row.run);
    Err(AppError::new(AppErrorKind::Usage, &message, Some(&format!("name one of {}", steps.join(", ")))))
}

/// Refuses a step that cannot be decided: it was already, it waits for something else, or it does not exist.
fn refuse_not_open(
    state: &StateHandle,
    row: &RunRow,
    step: &str,
    open: &[&WaitpointRow],
) -> Result<AppError, AppError> {
    let (plan, replayed) = state.load_run(row)?;
    let names = StepPaths::from_state(&plan.definition, &replayed);
    let last = replayed.openings.iter().rfind(|opening| names.step_path(opening.at) == step);
    let (message, hint) = match last.and_then(|last| last.decided.as_ref()) {
        Some((by, at)) => (format!("`{step}` was decided already, by {by} at {}", format_utc(*at)), None),
        None if row.open.iter().any(|open| open.step == step) => (
            format!("`{step}` waits for a signal, not for a decision"),
            Some("`skein signal RUN EVENT` sends one".to_owned()),
        ),
        None => {
            let hint = did_you_mean(step, open.iter().map(|open| open.step.as_str()));
            let all = || open.iter().take(5).map(|open| format!("`{}`", open.step)).collect::<Vec<_>>();
            let hint =
                hint.or_else(|| (!open.is_empty()).then(|| format!("steps that wait: {}", all().join(", "))));
            (format!("no step `{step}` of run `{}` waits for a decision", row.run), hint)
        }
    };
    Ok(AppError::new(AppErrorKind::Refused, &message, hint.as_deref()))
}
