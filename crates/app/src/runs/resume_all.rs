//! Resuming all interrupted runs in one process.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skein_core::{
    engine::{JournalBatch, RunProjection},
    ids::RunId,
    ir::RunStatus,
    view::{TimelineEntry, TimelineLevel, describe_record},
};
use skein_host::{
    host::{ResumeError, RunLoader},
    identity::current_user,
    run_settings::RunSettings,
    secret::SecretSource,
    store::{RunRow, Store, StoreError},
};

use crate::{
    app::App,
    app_error::{AppError, AppErrorKind},
    prepare::run_folders,
    runs::{
        follow::{self, DiskSpaceWarning, ExecutionEnd, FollowEnd, FollowEvent, RunFrontEnd},
        inbox::{self, DecisionReceiver},
        resume::list_resumable_runs,
        run_json::run_to_json,
        send_input::read_run_settings,
        session::{HostSession, load_secrets, read_max_workers},
    },
    state::{StateHandle, shortened_warnings},
};

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
    let receiver = projects.first().map(|project| inbox::receive_decisions(app, state, project));
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
