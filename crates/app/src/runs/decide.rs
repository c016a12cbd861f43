//! Answers to a run that waits: a person's decision at a gate or a hold, and signals.

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use skein_core::{
    engine::{RunInput, StepAt, StepPaths, Verdict, Waitpoint, format_utc},
    ids::SignalName,
    suggest::did_you_mean,
    view::{self, WaitpointView, WaitpointViewKind},
};
use skein_host::{
    decision_inbox::DecisionRequest,
    store::{RunRow, WaitpointRow},
};

use crate::{
    app::App,
    app_error::AppError,
    runs::{
        inbox,
        send_input::{self, DeliveryReport},
    },
    state::{StateHandle, refuse_shortened},
};

/// The result of a decision.
#[derive(Debug)]
pub enum DecisionOutcome {
    Delivered(Box<DeliveredDecision>),
    /// The owner of the state folder, who is another user, has taken the decision.
    TakenByOwner {
        message: String,
    },
    /// The decision is applied when the owner of the state folder, who is another user, resumes the run.
    LeftForOwner {
        folder: PathBuf,
    },
}

/// A decision that a run has recorded.
#[derive(Debug)]
pub struct DeliveredDecision {
    pub report: DeliveryReport,
    pub step: String,
    pub by: String,
    /// The waitpoint, if it is still open because more approvals are needed.
    pub missing_approvals: Option<WaitpointView>,
}

/// Decides at a gate or a hold; without a step, at the only one of the run.
pub fn decide_run(app: &App, request: &DecisionRequest) -> Result<DecisionOutcome, AppError> {
    if let Some(inbox) = inbox::find_foreign_inbox(app) {
        return Ok(match inbox::leave_decision(&inbox, request)? {
            Some(message) => DecisionOutcome::TakenByOwner { message },
            None => DecisionOutcome::LeftForOwner { folder: inbox.folder().to_owned() },
        });
    }
    let (state, row) = app.open_run(&request.run)?;
    refuse_shortened(&row)?;
    let word = match request.decision {
        Verdict::Approve => "approve",
        Verdict::Reject => "reject",
    };
    let step = request.step.as_ref().map_or(String::new(), |step| format!(" `{step}`"));
    send_input::require_person(&state, &row.run, &format!("{word}{step}"))?;
    let open = find_waitpoint(&state, &row, request.step.as_deref())?;
    let by = send_input::current_actor(&send_input::read_run_settings(&row)?)?;
    let name = by.name.clone();
    let (decision, reason) = (request.decision, request.reason.clone());
    let input = RunInput::Decide { opening: open.opening, decision, by, reason };
    let delivery = send_input::send_input(app, &state, &row.run, &input)?;
    let missing_approvals = match decision {
        Verdict::Approve => find_open_approvals(&state, &row, open.opening)?,
        Verdict::Reject => None,
    };
    let report = DeliveryReport::new(&state, &row, delivery);
    let delivered = DeliveredDecision { report, step: open.step, by: name, missing_approvals };
    Ok(DecisionOutcome::Delivered(Box::new(delivered)))
}

/// A signal to a run.
#[derive(Debug)]
pub struct SignalRequest {
    /// The run id, or a unique prefix of it.
    pub run: String,
    pub event: String,
    pub payload: Value,
    /// The path of the step that receives it. None: all steps that wait for it.
    pub step: Option<String>,
}

/// Sends a signal to a run.
pub fn signal_run(app: &App, request: SignalRequest) -> Result<DeliveryReport, AppError> {
    let SignalRequest { run, event, payload, step } = request;
    let (state, row) = app.open_run(&run)?;
    refuse_shortened(&row)?;
    send_input::require_person(&state, &row.run, &format!("send the signal `{event}`"))?;
    let name = find_signal(&state, &row, &event)?;
    let to = step.as_deref().map(|step| find_waiting_step(&state, &row, step)).transpose()?;
    let input = RunInput::Signal { name, payload: Arc::new(payload), to };
    let delivery = send_input::send_input(app, &state, &row.run, &input)?;
    Ok(DeliveryReport::new(&state, &row, delivery))
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
        return Err(AppError::refused(message));
    }
    let steps: Vec<String> = open.iter().take(5).map(|open| format!("`{}`", open.step)).collect();
    let message = format!("{} steps of run `{}` wait for a decision", open.len(), row.run);
    Err(AppError::usage(message).with_hint(format!("name one of {}", steps.join(", "))))
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
            let hint = hint.or_else(|| (!open.is_empty()).then(|| format!("steps that wait: {}", all().join(", "))));
            (format!("no step `{step}` of run `{}` waits for a decision", row.run), hint)
        }
    };
    Ok(AppError::refused(message).with_optional_hint(hint))
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
        AppError::refused(message).with_optional_hint(hint)
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
    Err(AppError::refused(message).with_optional_hint(hint))
}
