//! Cancelling a run: its owner is asked to, or this process finishes the cancellation and runs the undo steps.

use skein_core::{engine::RunInput, ids::RunId, ir::RunStatus};
use skein_host::{
    identity::current_user,
    secret::Secrets,
    store::{RunRow, SqliteStore},
};

use crate::{
    app::App,
    app_error::{AppError, AppErrorKind},
    runs::{
        follow::{ExecutionEnd, FollowEnd, RunFrontEnd},
        send_input::{self, DeliveryReport, InputDelivery},
        session::{HostSession, read_max_workers},
    },
    state::{StateHandle, refuse_shortened},
};

/// The result of cancelling a run.
#[derive(Debug)]
pub struct CancelOutcome {
    pub report: DeliveryReport,
    /// The end of the run, if this process finished the cancellation.
    pub end: Option<ExecutionEnd>,
}

/// Cancels a run, for a recorded reason.
pub fn cancel_run(
    app: &App,
    run: &str,
    reason: Option<String>,
    front_end: &dyn RunFrontEnd,
) -> Result<CancelOutcome, AppError> {
    let (state, row) = app.open_run(run).inspect_err(|error| stop_unopened(app, error, run))?;
    refuse_shortened(&row)?;
    send_input::require_person(&state, &row.run, "cancel the run")?;
    let input = RunInput::Cancel { by: current_user(), reason };
    let delivery = send_input::send_input(app, &state, &row.run, &input)?;
    let end = match delivery {
        InputDelivery::Here => Some(finish_cancel(app, &state, &row, front_end)?),
        InputDelivery::ByOwner | InputDelivery::AndEnded => None,
    };
    Ok(CancelOutcome { report: DeliveryReport::new(&state, &row, delivery), end })
}

/// Stops the workers of a run whose state folder cannot be opened, such as on a full disk.
fn stop_unopened(app: &App, error: &AppError, run: &str) {
    if error.kind != AppErrorKind::Store {
        return;
    }
    if let Ok(run) = RunId::new(run)
        && SqliteStore::ask_all_to_leave(&app.state_path(), &run) > 0
    {
        app.warn(&format!("the owner of run `{run}` was told to stop its workers and to release it"));
    }
}

/// Finishes the cancellation in this process, because no other process owns the run. No new steps are started.
fn finish_cancel(
    app: &App,
    state: &StateHandle,
    row: &RunRow,
    front_end: &dyn RunFrontEnd,
) -> Result<ExecutionEnd, AppError> {
    let settings = send_input::read_run_settings(row)?;
    // Without its secrets an undo step is held, and reports that.
    let secrets = Secrets::load(&settings.secrets).unwrap_or_default();
    let plan = state.load_run(row)?.plan().clone();
    let session = HostSession::new(app, state, secrets, read_max_workers(&settings.project), front_end)?;
    session.attach(vec![row.run.clone()], &current_user(), front_end)?;
    let before = session.resume_run(&row.run)?;
    let last = front_end.follow(&session.feed(state, &row.run, plan, &settings, before));
    if last.end == FollowEnd::Waits {
        session.host.leave_runs(std::slice::from_ref(&row.run));
    }
    match (last.end, last.state.status()) {
        (FollowEnd::Closed, RunStatus::Cancelled | RunStatus::Undone) => Ok(ExecutionEnd::Succeeded),
        (end, _) => end.to_execution_end(&last.state, session.is_stopped()),
    }
}
