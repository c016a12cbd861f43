//! Resuming runs without an owner, because they were released or because their process died: one of them, or all of them
//! in one process.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skein_core::{
    engine::{JournalBatch, RunInput, RunProjection},
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    view::{TimelineEntry, TimelineLevel, describe_record},
};
use skein_host::{
    host::{ResumeError, RunLoader},
    identity::current_user,
    run_settings::RunSettings,
    secret::SecretSource,
    store::{ClaimError, RunOwner, RunRow, RunSelection, Store, StoreError},
};

use crate::{
    app::App,
    app_error::{AppError, AppErrorKind},
    prepare::run_folders::{self, ContextHoldError},
    runs::{
        decide::{self, DecisionReceiver},
        follow::{self, DiskSpaceWarning, ExecutionEnd, FollowEnd, FollowEvent, RunFrontEnd},
        inspect::run_to_json,
        send_input::{self, read_run_settings},
        session::{HostSession, load_secrets, read_max_workers},
        start::{self, QueuedRun, RunAttachment, RunOutcome, SessionRun, follow_to_end},
    },
    state::{StateHandle, refuse_claim, refuse_shortened, shortened_warnings},
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
        return Ok(RunOutcome::Detached(start::detach_run(&state, &row.run, Vec::new())?));
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
                let queued = QueuedRun { run: state.load_run(row)?, warnings: settings.warnings };
                return Ok(RunOutcome::Queued(Box::new(queued)));
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
    let _receiver = decide::receive_decisions(app, state, &settings.project);
    if row.head.closed {
        request_undo_retry(state, row)?;
    }
    // Another process may have owned and released the run since it was read.
    let before = session.resume_run(&row.run)?;
    front_end.claim();
    let session_run = SessionRun { run: &row.run, plan, settings: &settings, before, waits };
    follow_to_end(state, &session, session_run, front_end)
}

/// Loads the plan of a run, and checks that its journal can be read.
fn load_plan(state: &StateHandle, row: &RunRow) -> Result<Plan, StoreError> {
    Ok(RunLoader::new(&*state.store).load_run(row)?.projection.plan().clone())
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
    state.send_request(&row.run, &RunInput::RetryUndo { by: current_user() })?;
    Ok(())
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

/// A request to resume all interrupted runs.
#[derive(Debug)]
pub struct ResumeAllRequest {
    /// True if the operation waits for people and signals.
    pub waits: bool,
    /// True if the front end shows the entries of the runs' timelines.
    pub shows_entries: bool,
}

/// The result of resuming all interrupted runs.
#[derive(Debug, Default)]
pub struct ResumeAllOutcome {
    /// The number of runs that could be resumed.
    pub found: usize,
    /// The objects of the resumed runs.
    pub runs: Vec<Value>,
    /// The end of each resumed run, and the most severe problem of those that were not.
    pub ends: Vec<Result<ExecutionEnd, AppErrorKind>>,
}

/// Resumes all interrupted runs. A run that cannot be resumed is reported, and does not affect the others.
pub fn resume_all_runs(
    app: &App,
    request: &ResumeAllRequest,
    front_end: &dyn RunFrontEnd,
) -> Result<ResumeAllOutcome, AppError> {
    let state = app.open_existing_state()?;
    let shortened = state.as_ref().map_or(Ok(Vec::new()), shortened_warnings)?;
    shortened.iter().for_each(|warning| app.warn(warning));
    let shortened = (!shortened.is_empty()).then_some(AppErrorKind::Store);
    let rows = state.as_ref().map_or(Ok(Vec::new()), list_resumable_runs)?;
    let (Some(state), false) = (state, rows.is_empty()) else {
        let ends = shortened.into_iter().map(Err).collect();
        return Ok(ResumeAllOutcome { ends, ..ResumeAllOutcome::default() });
    };
    let AdoptedRuns { session, mut runs, worst, receiver: _receiver } =
        adopt_runs(app, &state, &rows, request.shows_entries, front_end)?;
    if !request.waits {
        leave_waiting_runs(&session, &mut runs);
    }
    while runs.values().any(|run| run.end.is_none()) {
        let Ok((run, event)) = session.events.next_event() else { break };
        handle_follow_event(app, &mut runs, run.as_ref(), &event, front_end);
        if !request.waits {
            leave_waiting_runs(&session, &mut runs);
        }
    }
    let ends = runs.values().map(|run| run.to_execution_end(session.is_stopped()));
    let ends = ends.chain(shortened.or(worst).map(Err)).collect();
    let runs =
        runs.values().map(|run| run_to_json(run.projection.plan(), run.projection.state(), &run.warnings)).collect();
    Ok(ResumeAllOutcome { found: rows.len(), runs, ends })
}

/// One of the resumed runs.
struct ResumedRun {
    projection: RunProjection,
    end: Option<FollowEnd>,
    space: DiskSpaceWarning,
    /// Warnings about the workflow, as diagnostics in JSON.
    warnings: Vec<Value>,
}

/// The resumed runs, and the host that owns them.
struct AdoptedRuns {
    session: HostSession,
    runs: BTreeMap<RunId, ResumedRun>,
    /// The most severe problem of runs that could not be resumed.
    worst: Option<AppErrorKind>,
    receiver: Option<DecisionReceiver>,
}

/// Claims the runs that can be resumed. Each of the others is reported, and does not affect the rest.
fn adopt_runs(
    app: &App,
    state: &StateHandle,
    rows: &[RunRow],
    shows_entries: bool,
    front_end: &dyn RunFrontEnd,
) -> Result<AdoptedRuns, AppError> {
    let (mut secrets, mut found, mut workers, mut worst) = (BTreeMap::new(), Vec::new(), 0, None);
    let (mut loader, mut projects) = (RunLoader::new(&*state.store), BTreeSet::new());
    for row in rows {
        match load_run_settings(row, &secrets) {
            Ok(settings) => {
                secrets.extend(settings.secrets.clone());
                if projects.insert(settings.project.clone()) {
                    workers = workers.max(read_max_workers(&settings.project));
                }
                let loaded = ResumedRun::load_run(&mut loader, state, row, shows_entries);
                found.push((row, settings, loaded));
            }
            Err(error) => report_skipped(app, &row.run, &error.message, &mut worst),
        }
    }
    let session = HostSession::new(app, state, load_secrets(&secrets)?, workers, front_end)?;
    let (mut adopted, mut ids) = (BTreeMap::new(), Vec::new());
    for (row, settings, loaded) in found {
        let run = row.run.clone();
        match loaded {
            Ok(loaded) => {
                match run_folders::hold_context(&session.contexts, state, &run, loaded.projection.plan(), &settings) {
                    Ok(()) => drop(adopted.insert(run.clone(), ResumedRun { warnings: settings.warnings, ..loaded })),
                    Err(taken) => {
                        report_skipped(app, &run, taken.message(), &mut worst);
                        continue;
                    }
                }
            }
            // Claimed all the same: that ends the processes that it left, and quarantines it.
            Err(StoreError::Damaged(_)) => {}
            Err(error) => {
                report_skipped(app, &run, &error.to_string(), &mut worst);
                continue;
            }
        }
        ids.push(run);
    }
    session.attach(adopted.keys().cloned().collect(), &current_user(), front_end)?;
    // All of them are in one state folder, and usually of one project.
    let receiver = projects.first().map(|project| decide::receive_decisions(app, state, project));
    for (run, result) in ids.iter().zip(session.host.resume_runs(ids.clone())) {
        match result {
            Ok(events) => {
                front_end.show_entry(run, "", "resumed", TimelineLevel::Info);
                // Another process may have owned and released the run since it was read.
                if let Some(resumed) = adopted.get_mut(run) {
                    resumed.catch_up(state, run, events);
                }
            }
            Err(ResumeError::SetAside(why)) => {
                app.warn(&format!("run {run} was set aside: {why}"));
                worst = Some(AppErrorKind::Store);
                adopted.remove(run);
            }
            Err(error) => {
                report_skipped(app, run, &error.to_string(), &mut worst);
                adopted.remove(run);
            }
        }
    }
    Ok(AdoptedRuns { session, runs: adopted, worst, receiver })
}

fn report_skipped(app: &App, run: &RunId, why: &str, worst: &mut Option<AppErrorKind>) {
    app.warn(&format!("run {run} is skipped: {why}"));
    worst.get_or_insert(AppErrorKind::Refused);
}

/// Returns the settings of a run, if it can be resumed together with runs that use these secrets.
fn load_run_settings(row: &RunRow, secrets: &BTreeMap<String, SecretSource>) -> Result<RunSettings, AppError> {
    let settings = read_run_settings(row)?;
    if let Some(name) = find_secret_clash(secrets, &settings.secrets) {
        let (run, why) = (&row.run, "has another source than in another run");
        return Err(AppError::refused(format!("its secret `{name}` {why}; `skein resume {run}` resumes it")));
    }
    load_secrets(&settings.secrets)?;
    Ok(settings)
}

/// Returns a secret with the same name but another source.
fn find_secret_clash<'a>(
    known: &BTreeMap<String, SecretSource>,
    new: &'a BTreeMap<String, SecretSource>,
) -> Option<&'a String> {
    new.iter().find(|(name, from)| known.get(*name).is_some_and(|known| known != *from)).map(|(name, _)| name)
}

impl ResumedRun {
    fn new(projection: RunProjection) -> ResumedRun {
        ResumedRun { projection, end: None, space: DiskSpaceWarning::default(), warnings: Vec::new() }
    }

    /// Loads a run in its present state. Past events are not shown again; new events are shown only to people.
    fn load_run(
        loader: &mut RunLoader<'_>,
        state: &StateHandle,
        row: &RunRow,
        shows_entries: bool,
    ) -> Result<ResumedRun, StoreError> {
        if !shows_entries {
            return Ok(ResumedRun::new(loader.load_run(row)?.projection));
        }
        let mut resumed = ResumedRun::new(RunProjection::new(loader.load_plan(row)?));
        state.store.read_journal(&row.run, 0, &mut |batch| {
            resumed.apply_batch(&batch);
            true
        })?;
        Ok(resumed)
    }

    /// Applies the rows up to the one that ends with this event, without showing them.
    fn catch_up(&mut self, state: &StateHandle, run: &RunId, events: u64) {
        if self.projection.state().events < events {
            // If a row cannot be read, the host, which owns the run, reports it.
            let _ = state.store.read_journal(run, self.projection.state().events, &mut |batch| {
                self.apply_batch(&batch);
                self.projection.state().events < events
            });
        }
    }

    fn apply_batch(&mut self, batch: &JournalBatch) -> Vec<TimelineEntry> {
        if batch.seq != self.projection.state().events {
            return Vec::new();
        }
        let mut entries = Vec::new();
        for (seq, record) in (batch.seq..).zip(&batch.records) {
            self.projection.apply_record(record);
            entries.extend(describe_record(self.projection.names(), seq, record));
        }
        entries
    }

    /// Returns the end of the run, or the kind of error that prevented one.
    fn to_execution_end(&self, stopped: bool) -> Result<ExecutionEnd, AppErrorKind> {
        match &self.end {
            Some(FollowEnd::Broken(_)) | None => Err(AppErrorKind::Store),
            Some(end) => end.to_execution_end(self.projection.state(), stopped).map_err(|error| error.kind),
        }
    }
}

fn handle_follow_event(
    app: &App,
    all: &mut BTreeMap<RunId, ResumedRun>,
    run: Option<&RunId>,
    event: &FollowEvent,
    front_end: &dyn RunFrontEnd,
) {
    let observer = &*app.observer;
    let runs: BTreeSet<RunId> = run.map_or_else(|| all.keys().cloned().collect(), |run| [run.clone()].into());
    for run in runs {
        let Some(resumed) = all.get_mut(&run) else { continue };
        if let FollowEvent::Next(next) = event {
            let retry = ResumedRun::new(RunProjection::new(resumed.projection.plan().clone()));
            all.insert(next.clone(), retry);
            continue;
        }
        match event {
            FollowEvent::Row(batch) => {
                resumed.space.warn_restored(observer);
                follow::warn_if_long(batch, observer);
                for TimelineEntry { path, text, level, .. } in resumed.apply_batch(batch) {
                    front_end.show_entry(&run, &path, &text, level);
                }
            }
            FollowEvent::Over(end) => {
                resumed.end.get_or_insert_with(|| end.clone());
                match end {
                    FollowEnd::Lost => observer.warn(&format!("another process owns run {run} now")),
                    FollowEnd::SetAside(why) => observer.warn(&format!("run {run} was set aside: {why}")),
                    FollowEnd::Broken(why) => observer.warn(why),
                    FollowEnd::Closed | FollowEnd::Waits | FollowEnd::Left => {}
                }
            }
            FollowEvent::NoSpace => resumed.space.warn_full(observer),
            FollowEvent::Cancelling => observer.warn(&follow::cancelling_message(&run)),
            FollowEvent::Line(..) | FollowEvent::Typed(_) | FollowEvent::Next(_) => {}
        }
    }
}

fn leave_waiting_runs(session: &HostSession, all: &mut BTreeMap<RunId, ResumedRun>) {
    let waits = |run: &ResumedRun| run.end.is_none() && run.projection.state().status() == RunStatus::Waiting;
    let mut left = Vec::new();
    for (id, run) in all.iter_mut().filter(|(_, run)| waits(run)) {
        run.end = Some(FollowEnd::Waits);
        left.push(id.clone());
    }
    if !left.is_empty() {
        session.host.leave_runs(&left);
    }
}
