//! `skein resume --all`: resumes all interrupted runs, with a line for each event that matters.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    context,
    run_json::run_to_json,
    state::{StateHandle, shortened_warnings},
};
use skein_core::{
    engine::{JournalBatch, RunState, apply},
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    view::{Timeline, TimelineEntry, TimelineLevel},
};
use skein_host::{
    executor::RunSettings,
    host::{ResumeError, RunLoader},
    identity::current_user,
    secret::{self, Secrets},
    store::{RunRow, Store, StoreError},
};

use super::resume::list_resumable_runs;
use crate::{
    exit::Exit,
    host_session::{self, HostSession},
    inbox,
    live::one_line,
    output::{CliOutput, OutputFormat},
    watch::{self, DiskSpaceWarning, FollowEnd, FollowEvent},
};

/// One of the resumed runs.
struct ResumedRun {
    plan: Plan,
    state: RunState,
    timeline: Timeline,
    over: Option<FollowEnd>,
    space: DiskSpaceWarning,
    /// Warnings about the workflow, as diagnostics in JSON.
    warnings: Vec<Value>,
}

pub fn run(given: Option<&Path>, waits: bool, output: CliOutput) -> Result<Exit, AppError> {
    if output.format == OutputFormat::Jsonl {
        let message = "lines of JSON do not distinguish the events of several runs";
        return Err(AppError::new(
            AppErrorKind::Usage,
            message,
            Some("name one run, or use `--format json`"),
        ));
    }
    let state = StateHandle::open_existing(given)?;
    let shortened = state.as_ref().map_or(Ok(Vec::new()), shortened_warnings)?;
    shortened.iter().for_each(|warning| output.warn(warning));
    let rows = state.as_ref().map_or(Ok(Vec::new()), list_resumable_runs)?;
    let (Some(state), false) = (state, rows.is_empty()) else {
        match output.is_json() {
            true => output.print_json(&json!({"runs": []})),
            false => output.print_text("There are no runs to resume.\n"),
        }
        return Ok(if !shortened.is_empty() { Exit::Store } else { Exit::Done });
    };
    let AdoptedRuns { own, mut all, worst } = adopt_runs(&state, &rows, output)?;
    let worst = if !shortened.is_empty() { Some(Exit::Store) } else { worst };
    if !waits {
        leave_waiting_runs(&own, &mut all);
    }
    while all.values().any(|one| one.over.is_none()) {
        let Ok((run, note)) = own.told.next_event() else { break };
        handle_follow_event(&mut all, run.as_ref(), note, output);
        if !waits {
            leave_waiting_runs(&own, &mut all);
        }
    }
    if output.is_json() {
        let runs: Vec<_> =
            all.values().map(|one| run_to_json(&one.plan, &one.state, &one.warnings)).collect();
        output.print_json(&json!({"runs": runs}));
    }
    Ok(worst_exit(&own, &all, worst))
}

/// The resumed runs, and the host that owns them.
struct AdoptedRuns {
    own: HostSession,
    all: BTreeMap<RunId, ResumedRun>,
    /// The exit status for runs that could not be resumed.
    worst: Option<Exit>,
}

/// Claims the runs that can be resumed. Each of the others is reported, and does not affect the rest.
fn adopt_runs(state: &StateHandle, rows: &[RunRow], output: CliOutput) -> Result<AdoptedRuns, AppError> {
    let (mut secrets, mut found, mut workers, mut worst) = (BTreeMap::new(), Vec::new(), 0, None);
    let (mut recall, mut projects) = (RunLoader::new(&*state.store), BTreeSet::new());
    for row in rows {
        match load_run_settings(row, &secrets) {
            Ok(about) => {
                secrets.extend(about.secrets.clone());
                if projects.insert(about.project.clone()) {
                    workers = workers.max(host_session::read_max_workers(&about.project));
                }
                let one = ResumedRun::load_run(&mut recall, state, row, output);
                found.push((row, about, one));
            }
            Err(why) => report_skipped(&row.run, &why, &mut worst, output),
        }
    }
    let own = HostSession::new(state, host_session::load_secrets(&secrets)?, workers, output)?;
    let (mut all, mut runs) = (BTreeMap::new(), Vec::new());
    for (row, about, one) in found {
        let run = row.run.clone();
        match one {
            Ok(one) => match context::hold_context(&own.contexts, state, &run, &one.plan, &about) {
                Ok(()) => drop(all.insert(run.clone(), ResumedRun { warnings: about.warnings, ..one })),
                Err(taken) => {
                    report_skipped(&run, taken.message(), &mut worst, output);
                    continue;
                }
            },
            // Claimed all the same: that ends the processes that it left, and quarantines it.
            Err(StoreError::Damaged(_)) => {}
            Err(error) => {
                report_skipped(&run, &error.to_string(), &mut worst, output);
                continue;
            }
        }
        runs.push(run);
    }
    own.handle_signals(all.keys().cloned().collect(), &current_user())?;
    // All of them are in one state folder, and usually of one project.
    if let Some(project) = projects.first() {
        inbox::receive_decisions(state, project, output);
    }
    for (run, result) in runs.iter().zip(own.host.resume_runs(runs.clone())) {
        match result {
            Ok(events) => {
                print_entry(run, "", "resumed", TimelineLevel::Info, output);
                // Another process may have owned and released the run since it was read.
                if let Some(one) = all.get_mut(run) {
                    one.catch_up(state, run, events);
                }
            }
            Err(ResumeError::SetAside(why)) => {
                output.warn(&format!("run {run} was set aside: {why}"));
                worst = Some(Exit::Store);
                all.remove(run);
            }
            Err(error) => {
                report_skipped(run, &error.to_string(), &mut worst, output);
                all.remove(run);
            }
        }
    }
    Ok(AdoptedRuns { own, all, worst })
}

fn report_skipped(run: &RunId, why: &str, worst: &mut Option<Exit>, output: CliOutput) {
    output.warn(&format!("run {run} is skipped: {why}"));
    worst.get_or_insert(Exit::Refused);
}

/// Returns the settings of a run, if it can be resumed together with runs that use these secrets.
fn load_run_settings(
    row: &RunRow,
    secrets: &BTreeMap<String, secret::SecretSource>,
) -> Result<RunSettings, String> {
    let about = RunSettings::from_json(&row.about)?;
    if let Some(name) = find_secret_clash(secrets, &about.secrets) {
        let (run, why) = (&row.run, "has another source than in another run");
        return Err(format!("its secret `{name}` {why}; `skein resume {run}` resumes it"));
    }
    let loaded = Secrets::load(&about.secrets);
    loaded.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok(about)
}

/// Returns a secret with the same name but another source.
fn find_secret_clash<'a>(
    known: &BTreeMap<String, secret::SecretSource>,
    new: &'a BTreeMap<String, secret::SecretSource>,
) -> Option<&'a String> {
    new.iter().find(|(name, from)| known.get(*name).is_some_and(|known| known != *from)).map(|(name, _)| name)
}

impl ResumedRun {
    fn new(plan: Plan) -> ResumedRun {
        ResumedRun {
            timeline: Timeline::new(&plan),
            plan,
            state: RunState::new(),
            over: None,
            space: DiskSpaceWarning::default(),
            warnings: Vec::new(),
        }
    }

    /// Loads a run in its present state. Past events are not shown again; new events are shown only to people.
    fn load_run(
        recall: &mut RunLoader<'_>,
        state: &StateHandle,
        row: &RunRow,
        output: CliOutput,
    ) -> Result<ResumedRun, StoreError> {
        if output.is_json() {
            let (plan, state) = recall.load_run(row)?.driver.into_parts();
            return Ok(ResumedRun { state, ..ResumedRun::new(plan) });
        }
        let mut one = ResumedRun::new(recall.load_plan(row)?);
        state.store.read_journal(&row.run, 0, &mut |batch| {
            one.apply_batch(&batch);
            true
        })?;
        Ok(one)
    }

    /// Applies the rows up to the one that ends with this event, without showing them.
    fn catch_up(&mut self, state: &StateHandle, run: &RunId, events: u64) {
        if self.state.events < events {
            // If a row cannot be read, the host, which owns the run, reports it.
            let _ = state.store.read_journal(run, self.state.events, &mut |batch| {
                self.apply_batch(&batch);
                self.state.events < events
            });
        }
    }

    fn apply_batch(&mut self, batch: &JournalBatch) -> Vec<TimelineEntry> {
        if batch.seq != self.state.events {
            return Vec::new();
        }
        let mut entries = Vec::new();
        for record in &batch.records {
            apply(&self.plan, &mut self.state, record.at, &record.event);
            entries.extend(self.timeline.push_record(record));
        }
        entries
    }
}

fn handle_follow_event(
    all: &mut BTreeMap<RunId, ResumedRun>,
    run: Option<&RunId>,
    note: FollowEvent,
    output: CliOutput,
) {
    let runs: BTreeSet<RunId> = run.map_or_else(|| all.keys().cloned().collect(), |run| [run.clone()].into());
    for run in runs {
        let Some(one) = all.get_mut(&run) else { continue };
        if let FollowEvent::Next(next) = &note {
            let next_one = ResumedRun::new(one.plan.clone());
            all.insert(next.clone(), next_one);
            continue;
        }
        match &note {
            FollowEvent::Row(batch) => {
                one.space.warn_restored(output);
                watch::warn_if_long(batch, output);
                for TimelineEntry { path, text, level, .. } in one.apply_batch(batch) {
                    print_entry(&run, &path, &text, level, output);
                }
            }
            FollowEvent::Over(over) => {
                one.over.get_or_insert_with(|| over.clone());
                match over {
                    FollowEnd::Lost => output.warn(&format!("another process owns run {run} now")),
                    FollowEnd::SetAside(why) => output.warn(&format!("run {run} was set aside: {why}")),
                    FollowEnd::Broken(why) => output.warn(why),
                    FollowEnd::Closed | FollowEnd::Waits | FollowEnd::Left => {}
                }
            }
            FollowEvent::NoSpace => one.space.warn_full(output),
            FollowEvent::Cancelling => output.warn(&watch::cancelling_message(&run)),
            FollowEvent::Line(..) | FollowEvent::Typed(_) | FollowEvent::Next(_) => {}
        }
    }
}

fn print_entry(run: &RunId, path: &str, text: &str, level: TimelineLevel, output: CliOutput) {
    if level > TimelineLevel::Detail && output.format == OutputFormat::Human {
        let path =
            if path.is_empty() { String::new() } else { format!("{}: ", output.paint.name(&one_line(path))) };
        let text = match level {
            TimelineLevel::Error => output.paint.error(&one_line(text)),
            TimelineLevel::Warning | TimelineLevel::Attention => output.paint.warning(&one_line(text)),
            TimelineLevel::Detail | TimelineLevel::Info => one_line(text),
        };
        output.print_text(&format!("{run}  {path}{text}\n"));
    }
}

fn leave_waiting_runs(own: &HostSession, all: &mut BTreeMap<RunId, ResumedRun>) {
    let waits = |one: &ResumedRun| one.over.is_none() && one.state.status() == RunStatus::Waiting;
    let mut left = Vec::new();
    for (run, one) in all.iter_mut().filter(|(_, one)| waits(one)) {
        one.over = Some(FollowEnd::Waits);
        left.push(run.clone());
    }
    if !left.is_empty() {
        own.host.leave_runs(&left);
    }
}

/// Returns the most severe exit status of all runs.
fn worst_exit(own: &HostSession, all: &BTreeMap<RunId, ResumedRun>, worst: Option<Exit>) -> Exit {
    let each = |one: &ResumedRun| match &one.over {
        Some(FollowEnd::Broken(_)) | None => Exit::Store,
        Some(FollowEnd::Lost) => Exit::Refused,
        Some(FollowEnd::SetAside(_)) => Exit::Failed,
        Some(over) => watch::follow_exit(&one.state, over, own.is_stopped())
            .unwrap_or_else(|error| Exit::from(error.kind)),
    };
    let order = [Exit::Store, Exit::Stopped, Exit::Failed, Exit::Refused, Exit::Waiting];
    let all: Vec<Exit> = all.values().map(each).chain(worst).collect();
    order.into_iter().find(|exit| all.contains(exit)).unwrap_or(Exit::Done)
}
