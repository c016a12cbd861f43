//! `skein resume`: resumes runs without an owner, because they were released or because their process died.

use std::path::Path;

use clap::Args;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    context::{self, ContextHoldError},
    run_json::run_to_json,
    state::{StateHandle, refuse_shortened, refuse_store_error},
};
use skein_core::{engine::RunInput, ids::RunId, ir::RunStatus, plan::Plan};
use skein_host::{
    executor::RunSettings,
    host::RunLoader,
    identity::current_user,
    store::{ClaimError, RunOwner, RunRow, RunSelection, Store, StoreError},
};

use super::{detach, resume_all};
use crate::{
    exit::Exit,
    host_session::{self, HostSession},
    inbox,
    output::CliOutput,
    recording::RecordingSummary,
    send_input,
    watch::{self, FollowEnd, FollowRequest},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct ResumeArguments {
    /// Run id, or a unique prefix of it; default: the only interrupted run.
    #[arg(conflicts_with = "all")]
    run: Option<String>,
    /// Resume all interrupted runs.
    #[arg(long)]
    all: bool,
    /// Exit when a run waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
    /// Leave the run to a background process.
    #[arg(long, conflicts_with_all = ["all", "no_wait"])]
    detach: bool,
    /// Resume a run whose journal lost acknowledged rows. Steps whose end was lost run again.
    #[arg(long, requires = "run", conflicts_with = "all")]
    accept_shortened_journal: bool,
    /// Internal: this is the background process.
    #[arg(long, hide = true)]
    detached: bool,
}

pub fn run(arguments: &ResumeArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    resume_run(arguments, state, output)
}

fn resume_run(
    arguments: &ResumeArguments,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    if arguments.all {
        return resume_all::run(given, !arguments.no_wait, output);
    }
    let (state, row) = match &arguments.run {
        Some(run) => StateHandle::open_run(given, run)?,
        None => find_only_resumable(given)?,
    };
    let row = if arguments.accept_shortened_journal { accept_shortened(&state, &row)? } else { row };
    check_resumable(&row)?;
    if arguments.detach {
        return detach::detach_run(&state, &row.run, &[], output);
    }
    if arguments.detached {
        detach::begin_session();
    }
    let stay = ResumeOptions { waits: !arguments.no_wait, quiet: false, detached: arguments.detached };
    take_over_run(&state, &row, &stay, output)
}

/// Accepts that the journal of a run is shortened, and returns the run in its new state.
fn accept_shortened(state: &StateHandle, row: &RunRow) -> Result<RunRow, AppError> {
    let run = &row.run;
    send_input::require_person(state, run, "accept a shortened journal")?;
    let refuse = |message: &str| AppError::new(AppErrorKind::Refused, message, None);
    match state.store.accept_shortened(run).map_err(|error| refuse_store_error(&error))? {
        None => Err(refuse(&format!("the journal of run `{run}` is not shortened"))),
        Some(false) => Err(refuse(&format!(
            "run `{run}` has no events left to resume from; it is no longer listed, start it again with `skein run`"
        ))),
        Some(true) => {
            let now = state.store.find_run(run).map_err(|error| refuse_store_error(&error))?;
            now.ok_or_else(|| refuse(&format!("there is no run `{run}`")))
        }
    }
}

/// Options for following a resumed run.
#[derive(Debug)]
pub struct ResumeOptions {
    pub waits: bool,
    /// True if no output for programs is printed.
    pub quiet: bool,
    /// True if this is a background process.
    pub detached: bool,
}

/// Resumes a run without an owner.
pub fn take_over_run(
    state: &StateHandle,
    row: &RunRow,
    stay: &ResumeOptions,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let about = send_input::read_run_settings(row)?;
    let secrets = host_session::load_secrets(&about.secrets)?;
    let known = load_plan(state, row);
    let own = HostSession::new(state, secrets, host_session::read_max_workers(&about.project), output)?;
    let plan = match known {
        Ok(plan) => plan,
        Err(error) => return Err(refuse_unreadable(&own, row, &error)),
    };
    match context::hold_context(&own.contexts, state, &row.run, &plan, &about) {
        Ok(()) => {}
        Err(taken @ ContextHoldError::InUse(_)) if row.head.status == RunStatus::Queued => {
            output.warn_people(&context::queued_warning(&row.run, &taken));
            if !stay.waits {
                return leave_queued(state, row, &about, stay, output);
            }
            if stay.detached {
                detach::notify_parent();
            }
            context::hold_context_when_free(&own.contexts, state, &row.run, (&plan, &about))?;
        }
        // A run that has already worked is not queued again.
        Err(taken) => return Err(taken.refuse()),
    }
    // The previous holder of the folder may have owned this run, and finished it.
    let now = state.store.find_run(&row.run).map_err(|error| refuse_store_error(&error))?;
    check_resumable(now.as_ref().unwrap_or(row))?;
    own.handle_signals(vec![row.run.clone()], &current_user())?;
    inbox::receive_decisions(state, &about.project, output);
    if row.head.closed {
        request_undo_retry(state, row)?;
    }
    // Another process may have owned and released the run since it was read.
    let before = own.resume_run(&row.run)?;
    if stay.detached {
        detach::notify_parent();
    }
    let going =
        SessionRun { run: &row.run, plan, about: &about, before, waits: stay.waits, quiet: stay.quiet };
    follow_to_end(state, &own, going, output)
}

/// Leaves a run that waits for its context folder, and prints its state for programs.
fn leave_queued(
    state: &StateHandle,
    row: &RunRow,
    about: &RunSettings,
    stay: &ResumeOptions,
    output: CliOutput,
) -> Result<Exit, AppError> {
    if output.is_json() && !stay.quiet {
        let (plan, replayed) = state.load_run(row)?;
        output.print_json(&run_to_json(&plan, &replayed, &about.warnings));
    }
    Ok(Exit::Waiting)
}

/// Loads the plan of a run, and checks that its journal can be read.
fn load_plan(state: &StateHandle, row: &RunRow) -> Result<Plan, StoreError> {
    Ok(RunLoader::new(&*state.store).load_run(row)?.driver.into_parts().0)
}

/// Reports a journal that cannot be read. A run with a damaged journal is claimed all the same: that ends the processes
/// that it left, and quarantines it.
fn refuse_unreadable(own: &HostSession, row: &RunRow, error: &StoreError) -> AppError {
    let taken = match error {
        StoreError::Damaged(_) => own.resume_run(&row.run).map(drop),
        _ => Ok(()),
    };
    taken.err().unwrap_or_else(|| refuse_store_error(error))
}

/// Requests to retry the undo steps that failed when the run ended. The request is sent before the run is claimed,
/// because an ended run does not read its inbox.
fn request_undo_retry(state: &StateHandle, row: &RunRow) -> Result<(), AppError> {
    let input = RunInput::RetryUndo { by: current_user() };
    let body = serde_json::to_vec(&input).expect("an input serialises to JSON");
    state.store.send_request(&row.run, &body).map(drop).map_err(|error| refuse_store_error(&error))
}

/// Lists the runs that can be resumed.
pub fn list_resumable_runs(state: &StateHandle) -> Result<Vec<RunRow>, AppError> {
    let unfinished =
        state.store.select_runs(RunSelection::Unfinished).map_err(|error| refuse_store_error(&error))?;
    let nobodys = |row: &RunRow| matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_));
    Ok(unfinished.into_iter().filter(nobodys).collect())
}

/// Finds the only run that can be resumed.
fn find_only_resumable(given: Option<&Path>) -> Result<(StateHandle, RunRow), AppError> {
    let nothing = || AppError::new(AppErrorKind::Refused, "there is no run to resume", None);
    let state = StateHandle::open_existing(given)?.ok_or_else(nothing)?;
    let left = list_resumable_runs(&state)?;
    match &left[..] {
        [] => Err(nothing()),
        [one] => Ok((state, one.clone())),
        several => {
            let named: Vec<String> = several.iter().take(5).map(|row| format!("`{}`", row.run)).collect();
            let more = if several.len() > named.len() { ", …" } else { "" };
            let message = format!("{} runs can be resumed: {}{more}", several.len(), named.join(", "));
            let hint = "name one of them, or resume all with `--all`";
            Err(AppError::new(AppErrorKind::Usage, &message, Some(hint)))
        }
    }
}

/// Refuses a run that has ended, or that another process owns.
fn check_resumable(row: &RunRow) -> Result<(), AppError> {
    let run = &row.run;
    refuse_shortened(row)?;
    if row.head.closed && row.head.status != RunStatus::UndoFailed {
        let message = format!("run `{run}` is over: {}", row.head.native_status);
        let hint = format!("`skein runs {run}` shows how it went");
        return Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)));
    }
    match &row.owner {
        RunOwner::Other(_) => {
            let error = ClaimError::Owned("another process".to_owned()).into();
            Err(skein_app::state::refuse_claim(run, &error))
        }
        RunOwner::Nobody | RunOwner::Here | RunOwner::Dead(_) => Ok(()),
    }
}

/// A run that this process owns.
#[derive(Debug)]
pub struct SessionRun<'a> {
    pub run: &'a RunId,
    pub plan: Plan,
    pub about: &'a RunSettings,
    /// The number of events that are already known.
    pub before: u64,
    pub waits: bool,
    /// True if no output for programs is printed.
    pub quiet: bool,
}

/// Shows a run of this process until it ends or is released, and the runs that retry it.
pub fn follow_to_end(
    state: &StateHandle,
    own: &HostSession,
    going: SessionRun<'_>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let (mut run, mut before) = (going.run.clone(), going.before);
    let mut all = vec![run.clone()];
    loop {
        let ask = if going.waits { own.open_prompt(state, &run, going.about, output) } else { None };
        let follow = FollowRequest {
            run: &run,
            plan: going.plan.clone(),
            store: &*state.store,
            workspace: &going.about.workspace,
            warnings: &going.about.warnings,
            kept: &state.run_folder(&run),
            before,
            waits: going.waits,
            quiet: going.quiet,
            had: false,
            ask,
        };
        let taped = || {
            own.taping.flush();
            RecordingSummary::from_runs(going.about, &state.path, &all)
        };
        let last = watch::watch_run(follow, &own.told, &taped, output);
        if let (FollowEnd::Closed, Some(next)) = (&last.over, last.next) {
            own.add_run(next.clone());
            all.push(next.clone());
            (run, before) = (next, 0);
            continue;
        }
        if last.over == FollowEnd::Waits {
            own.host.leave_runs(&[run]);
        }
        let exit = watch::follow_exit(&last.state, &last.over, own.is_stopped())?;
        let taped = taped().filter(|_| last.over == FollowEnd::Closed);
        return Ok(taped.map_or(exit, |taped| taped.print_summary(exit, output)));
    }
}
