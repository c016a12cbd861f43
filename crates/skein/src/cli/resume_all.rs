//! `skein resume --all`: goes on with every run that was left or whose process died, with a line for each event that
//! matters.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Value, json};
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
    context,
    exit::Exit,
    host_session::{self, HostSession},
    inbox,
    live::one_line,
    output::{CliOutput, OutputFormat},
    run_json::run_to_json,
    state::{StateHandle, warn_shortened},
    watch::{self, DiskSpaceWarning, FollowEnd, FollowEvent},
};

/// One of the runs that are gone on with.
struct ResumedRun {
    plan: Plan,
    state: RunState,
    timeline: Timeline,
    over: Option<FollowEnd>,
    space: DiskSpaceWarning,
    /// Warnings about the workflow, as diagnostics in JSON.
    warnings: Vec<Value>,
}

pub fn run(given: Option<&Path>, waits: bool, output: CliOutput) -> Result<Exit, Exit> {
    if output.format == OutputFormat::Jsonl {
        let message = "events of several runs are not told apart in lines of JSON";
        return Err(output.refuse(Exit::Usage, message, Some("name one run, or ask for `--format json`")));
    }
    let state = StateHandle::open_existing(given, output)?;
    let shortened = state.as_ref().map_or(Ok(false), |state| warn_shortened(state, output))?;
    let rows = state.as_ref().map_or(Ok(Vec::new()), |state| list_resumable_runs(state, output))?;
    let (Some(state), false) = (state, rows.is_empty()) else {
        match output.is_json() {
            true => output.print_json(&json!({"runs": []})),
            false => output.print_text("There is nothing to go on with.\n"),
        }
        return Ok(if shortened { Exit::Store } else { Exit::Done });
    };
    let AdoptedRuns { own, mut all, worst } = adopt_runs(&state, &rows, output)?;
    let worst = if shortened { Some(Exit::Store) } else { worst };
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
    Ok(worst_exit(&own, &all, worst, output))
}

/// The runs that are gone on with.
struct AdoptedRuns {
    own: HostSession,
    all: BTreeMap<RunId, ResumedRun>,
    /// What is to be said at the end of those that are not.
    worst: Option<Exit>,
}

/// Takes over those that can be had; each that cannot is told, and harms no other.
fn adopt_runs(state: &StateHandle, rows: &[RunRow], output: CliOutput) -> Result<AdoptedRuns, Exit> {
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
    let own = HostSession::new(state, host_session::load_secrets(&secrets, output)?, workers, output)?;
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
            // Taken all the same: what it left running is ended, and it is set aside.
            Err(StoreError::Damaged(_)) => {}
            Err(error) => {
                report_skipped(&run, &error.to_string(), &mut worst, output);
                continue;
            }
        }
        runs.push(run);
    }
    own.handle_signals(all.keys().cloned().collect(), &current_user(), output)?;
    // All of them are of one state folder, and mostly of one project.
    if let Some(project) = projects.first() {
        inbox::receive_decisions(state, project, output);
    }
    for (run, result) in runs.iter().zip(own.host.resume_runs(runs.clone())) {
        match result {
            Ok(events) => {
                print_entry(run, "", "resumed", TimelineLevel::Info, output);
                // Another process may have had the run, and left it, since it was read.
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
    output.warn(&format!("run {run} is left: {why}"));
    worst.get_or_insert(Exit::Refused);
}

/// What was settled about a run, if it can be gone on with beside those that have these secrets.
fn load_run_settings(
    row: &RunRow,
    secrets: &BTreeMap<String, secret::SecretSource>,
) -> Result<RunSettings, String> {
    let about = RunSettings::from_json(&row.about)?;
    if let Some(name) = find_secret_clash(secrets, &about.secrets) {
        let (run, why) = (&row.run, "comes from elsewhere than that of another run");
        return Err(format!("its secret `{name}` {why}; `skein resume {run}` goes on with it"));
    }
    let loaded = Secrets::load(&about.secrets);
    loaded.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok(about)
}

/// A secret of the same name that is not the same.
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

    /// A run as it was left. What happened before is not told again, and only people are told what happens then.
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

    /// Takes the rows up to the one that ends with this event, without telling of them.
    fn catch_up(&mut self, state: &StateHandle, run: &RunId, events: u64) {
        if self.state.events < events {
            // A row that cannot be read was seen by the host, which has the run.
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
                    FollowEnd::Lost => output.warn(&format!("another process has run {run} now")),
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

/// The worst of them.
fn worst_exit(
    own: &HostSession,
    all: &BTreeMap<RunId, ResumedRun>,
    worst: Option<Exit>,
    output: CliOutput,
) -> Exit {
    let each = |one: &ResumedRun| match &one.over {
        Some(FollowEnd::Broken(_)) | None => Exit::Store,
        Some(FollowEnd::Lost) => Exit::Refused,
        Some(FollowEnd::SetAside(_)) => Exit::Failed,
        Some(over) => watch::follow_exit(&one.state, over, own.is_stopped(), output),
    };
    let order = [Exit::Store, Exit::Stopped, Exit::Failed, Exit::Refused, Exit::Waiting];
    let all: Vec<Exit> = all.values().map(each).chain(worst).collect();
    order.into_iter().find(|exit| all.contains(exit)).unwrap_or(Exit::Done)
}
