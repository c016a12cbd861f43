//! `skein cancel`: ends a run early, and runs the undo steps of its workflow.

use std::path::Path;

use clap::Args;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    state::StateHandle,
};
use skein_core::{engine::RunInput, ids::RunId, ir::RunStatus};
use skein_host::{
    identity::current_user,
    secret::Secrets,
    store::{RunRow, SqliteStore, Store},
};

use super::decide::delivery_to_json;
use crate::{
    exit::Exit,
    host_session::{self, HostSession},
    output::CliOutput,
    send_input::{self, InputDelivery},
    watch::{self, FollowEnd, FollowRequest},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct CancelArguments {
    /// Run id, or a unique prefix of it.
    run: String,
    /// Reason, recorded with the cancellation.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(arguments: &CancelArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let opened = StateHandle::open_run(given, &arguments.run);
    let (state, row) = opened.inspect_err(|error| stop_unopened(error, arguments, given, output))?;
    skein_app::state::refuse_shortened(&row)?;
    send_input::require_person(&state, &row.run, "cancel the run")?;
    let input = RunInput::Cancel { by: current_user(), reason: arguments.reason.clone() };
    let taken = send_input::send_input(&state, &row.run, &input, output)?;
    let run = &row.run;
    let exit = match taken {
        InputDelivery::ByOwner => {
            print_human(
                &format!("run {run} was told to stop; `skein runs {run} --follow` shows it\n"),
                output,
            );
            Exit::Done
        }
        InputDelivery::AndEnded => {
            print_human(&format!("run {run} is cancelled\n"), output);
            Exit::Done
        }
        InputDelivery::Here => finish_cancel(&state, &row, output)?,
    };
    if output.is_json() {
        output.print_json(&delivery_to_json(&state, &row, &InputDelivery::ByOwner));
    }
    Ok(exit)
}

/// Stops the workers of a run whose state folder cannot be opened, such as on a full disk.
fn stop_unopened(error: &AppError, arguments: &CancelArguments, given: Option<&Path>, output: CliOutput) {
    if error.kind != AppErrorKind::Store {
        return;
    }
    if let Ok(run) = RunId::new(&arguments.run)
        && SqliteStore::ask_all_to_leave(&StateHandle::locate(given), &run) > 0
    {
        output.warn(&format!("the owner of run `{run}` was told to stop its workers and to release it"));
    }
}

fn print_human(text: &str, output: CliOutput) {
    if !output.is_json() {
        output.print_text(text);
    }
}

/// Finishes the cancellation in this process, because no other process owns the run. No new steps are started.
fn finish_cancel(state: &StateHandle, row: &RunRow, output: CliOutput) -> Result<Exit, AppError> {
    let about = send_input::read_run_settings(row)?;
    // Without its secrets an undo step is held, and reports that.
    let secrets = Secrets::load(&about.secrets).unwrap_or_default();
    let (plan, _) = state.load_run(row)?;
    let own = HostSession::new(state, secrets, host_session::read_max_workers(&about.project), output)?;
    own.handle_signals(vec![row.run.clone()], &current_user())?;
    let before = own.resume_run(&row.run)?;
    let kept = state.run_folder(&row.run);
    let (store, workspace) = (&*state.store as &dyn Store, about.workspace.as_path());
    // One object is printed at the end, and it is not that of the run.
    let quiet = output.is_json();
    let (waits, had, ask, warnings) = (false, false, None, &about.warnings[..]);
    let follow = FollowRequest {
        run: &row.run,
        plan,
        store,
        workspace,
        warnings,
        kept: &kept,
        before,
        waits,
        quiet,
        had,
        ask,
    };
    let last = watch::watch_run(follow, &own.told, &|| None, output);
    if last.over == FollowEnd::Waits {
        own.host.leave_runs(std::slice::from_ref(&row.run));
    }
    match (last.over, last.state.status()) {
        (FollowEnd::Closed, RunStatus::Cancelled | RunStatus::Undone) => Ok(Exit::Done),
        (over, _) => watch::follow_exit(&last.state, &over, own.is_stopped()),
    }
}
