//! `skein cancel`: ends a run early, and runs the undo steps of its workflow.

use std::path::Path;

use clap::Args;
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
    state::StateHandle,
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

pub fn run(arguments: &CancelArguments, state: Option<&Path>, output: CliOutput) -> Exit {
    cancel_run(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn cancel_run(arguments: &CancelArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, Exit> {
    let opened = StateHandle::open_run(given, &arguments.run, output);
    let (state, row) = opened.inspect_err(|exit| stop_unopened(*exit, arguments, given, output))?;
    crate::state::refuse_shortened(&row, output)?;
    send_input::require_person(&state, &row.run, "cancel the run", output)?;
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
fn stop_unopened(exit: Exit, arguments: &CancelArguments, given: Option<&Path>, output: CliOutput) {
    if exit != Exit::Store {
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
fn finish_cancel(state: &StateHandle, row: &RunRow, output: CliOutput) -> Result<Exit, Exit> {
    let about = send_input::read_run_settings(row, output)?;
    // Without its secrets an undo step is held, and reports that.
    let secrets = Secrets::load(&about.secrets).unwrap_or_default();
    let (plan, _) = state.load_run(row, output)?;
    let own = HostSession::new(state, secrets, host_session::read_max_workers(&about.project), output)?;
    own.handle_signals(vec![row.run.clone()], &current_user(), output)?;
    let before = own.resume_run(&row.run, output)?;
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
    Ok(match (last.over, last.state.status()) {
        (FollowEnd::Closed, RunStatus::Cancelled | RunStatus::Undone) => Exit::Done,
        (over, _) => watch::follow_exit(&last.state, &over, own.is_stopped(), output),
    })
}
