//! Resuming runs without an owner, because they were released or because their process died.

use skein_core::{engine::RunInput, ir::RunStatus, plan::Plan};
use skein_host::{
    host::RunLoader,
    identity::current_user,
    run_settings::RunSettings,
    store::{ClaimError, RunOwner, RunRow, RunSelection, Store, StoreError},
};

use crate::{
    app::App,
    app_error::AppError,
    prepare::run_folders::{self, ContextHoldError},
    runs::{
        detach,
        follow::RunFrontEnd,
        inbox, send_input,
        session::{HostSession, load_secrets, read_max_workers},
        start::{QueuedRun, RunAttachment, RunOutcome, SessionRun, follow_to_end},
    },
    state::{StateHandle, refuse_claim, refuse_shortened},
};

/// A run to resume.
#[derive(Debug)]
pub struct ResumeRequest {
    /// The run id, or a unique prefix of it; none: the only interrupted run.
    pub run: Option<String>,
    pub attachment: RunAttachment,
    /// Resume a run whose journal lost acknowledged rows. Steps whose end was lost run again.
    pub accept_shortened_journal: bool,
}

/// Resumes a run.
pub fn resume_run(app: &App, request: &ResumeRequest, front_end: &dyn RunFrontEnd) -> Result<RunOutcome, AppError> {
    let (state, row) = match &request.run {
        Some(run) => app.open_run(run)?,
        None => find_only_resumable(app)?,
    };
    let row = if request.accept_shortened_journal { accept_shortened(&state, &row)? } else { row };
    check_resumable(&row)?;
    if request.attachment == RunAttachment::Detached {
        return Ok(RunOutcome::Detached(detach::detach_run(&state, &row.run, Vec::new())?));
    }
    take_over_run(app, &state, &row, request.attachment, front_end)
}

/// Accepts that the journal of a run is shortened, and returns the run in its new state.
fn accept_shortened(state: &StateHandle, row: &RunRow) -> Result<RunRow, AppError> {
    let run = &row.run;
    send_input::require_person(state, run, "accept a shortened journal")?;
    match state.store.accept_shortened(run)? {
        None => Err(AppError::refused(format!("the journal of run `{run}` is not shortened"))),
        Some(false) => Err(AppError::refused(format!(
            "run `{run}` has no events left to resume from; it is no longer listed, start it again with `skein run`"
        ))),
        Some(true) => state.find_run(run),
    }
}

/// Resumes a run without an owner.
pub(crate) fn take_over_run(
    app: &App,
    state: &StateHandle,
    row: &RunRow,
    attachment: RunAttachment,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    let settings = send_input::read_run_settings(row)?;
    let secrets = load_secrets(&settings.secrets)?;
    let known = load_plan(state, row);
    let session = HostSession::new(app, state, secrets, read_max_workers(&settings.project), front_end)?;
    let plan = match known {
        Ok(plan) => plan,
        Err(error) => return Err(refuse_unreadable(&session, row, error)),
    };
    let waits = attachment == RunAttachment::UntilEnd;
    match run_folders::hold_context(&session.contexts, state, &row.run, &plan, &settings) {
        Ok(()) => {}
        Err(taken @ ContextHoldError::InUse(_)) if row.head.status == RunStatus::Queued => {
            app.observer.warn_person(&run_folders::queued_warning(&row.run, &taken));
            if !waits {
                return leave_queued(state, row, settings);
            }
            front_end.claim();
            run_folders::hold_context_when_free(&session.contexts, state, &row.run, (&plan, &settings))?;
        }
        // A run that has already worked is not queued again.
        Err(taken) => return Err(taken.refuse()),
    }
    // The previous holder of the folder may have owned this run, and finished it.
    let now = state.store.find_run(&row.run)?;
    check_resumable(now.as_ref().unwrap_or(row))?;
    session.attach(vec![row.run.clone()], &current_user(), front_end)?;
    let _receiver = inbox::receive_decisions(app, state, &settings.project);
    if row.head.closed {
        request_undo_retry(state, row)?;
    }
    // Another process may have owned and released the run since it was read.
    let before = session.resume_run(&row.run)?;
    front_end.claim();
    let session_run = SessionRun { run: &row.run, plan, settings: &settings, before, waits };
    follow_to_end(state, &session, session_run, front_end)
}

/// Leaves a run that waits for its context folder.
fn leave_queued(state: &StateHandle, row: &RunRow, settings: RunSettings) -> Result<RunOutcome, AppError> {
    let (plan, replayed) = state.load_run(row)?;
    let queued = QueuedRun { plan, state: replayed, warnings: settings.warnings };
    Ok(RunOutcome::Queued(Box::new(queued)))
}

/// Loads the plan of a run, and checks that its journal can be read.
fn load_plan(state: &StateHandle, row: &RunRow) -> Result<Plan, StoreError> {
    Ok(RunLoader::new(&*state.store).load_run(row)?.projection.into_parts().0)
}

/// Reports a journal that cannot be read. A run with a damaged journal is claimed all the same: that ends the processes
/// that it left, and quarantines it.
fn refuse_unreadable(session: &HostSession, row: &RunRow, error: StoreError) -> AppError {
    let taken = match error {
        StoreError::Damaged(_) => session.resume_run(&row.run).map(drop),
        _ => Ok(()),
    };
    taken.err().unwrap_or_else(|| error.into())
}

/// Requests to retry the undo steps that failed when the run ended. The request is sent before the run is claimed,
/// because an ended run does not read its inbox.
fn request_undo_retry(state: &StateHandle, row: &RunRow) -> Result<(), AppError> {
    let input = RunInput::RetryUndo { by: current_user() };
    let body = serde_json::to_vec(&input).expect("an input serialises to JSON");
    state.store.send_request(&row.run, &body).map(drop).map_err(AppError::from)
}

/// Lists the runs that can be resumed.
pub(crate) fn list_resumable_runs(state: &StateHandle) -> Result<Vec<RunRow>, AppError> {
    let unfinished = state.store.select_runs(RunSelection::Unfinished)?;
    let is_unowned = |row: &RunRow| matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_));
    Ok(unfinished.into_iter().filter(is_unowned).collect())
}

/// Finds the only run that can be resumed.
fn find_only_resumable(app: &App) -> Result<(StateHandle, RunRow), AppError> {
    let nothing = || AppError::refused("there is no run to resume");
    let state = app.open_existing_state()?.ok_or_else(nothing)?;
    let left = list_resumable_runs(&state)?;
    match &left[..] {
        [] => Err(nothing()),
        [one] => Ok((state, one.clone())),
        several => {
            let named: Vec<String> = several.iter().take(5).map(|row| format!("`{}`", row.run)).collect();
            let more = if several.len() > named.len() { ", …" } else { "" };
            let message = format!("{} runs can be resumed: {}{more}", several.len(), named.join(", "));
            let hint = "name one of them, or resume all with `--all`";
            Err(AppError::usage(message).with_hint(hint))
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
        return Err(AppError::refused(message).with_hint(hint));
    }
    match &row.owner {
        RunOwner::Other(_) => Err(refuse_claim(run, ClaimError::Owned("another process".to_owned()).into())),
        RunOwner::Nobody | RunOwner::Here | RunOwner::Dead(_) => Ok(()),
    }
}
