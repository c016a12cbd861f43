//! `skein resume --all`: goes on with every run that was left or whose process died, with a line for each event that
//! matters.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Value, json};
use skein_core::{
    engine::{Batch, RunState, apply},
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    view::{Entry, Level, Timeline},
};
use skein_host::{
    crew::About,
    host::{Recall, ResumeError},
    identity::current_user,
    secret::{self, Secrets},
    store::{RunRow, Store, StoreError},
};

use super::resume::left;
use crate::{
    context,
    exit::Exit,
    inbox,
    live::one_line,
    output::{Format, Output},
    own::{self, Own},
    result::result,
    state::{State, warn_of_shortened},
    watch::{self, Note, Over, Space},
};

/// One of the runs that are gone on with.
struct One {
    plan: Plan,
    state: RunState,
    timeline: Timeline,
    over: Option<Over>,
    space: Space,
    /// Warnings about the workflow, as diagnostics in JSON.
    warnings: Vec<Value>,
}

pub fn run(given: Option<&Path>, waits: bool, output: Output) -> Result<Exit, Exit> {
    if output.format == Format::Jsonl {
        let message = "events of several runs are not told apart in lines of JSON";
        return Err(output.refuse(Exit::Usage, message, Some("name one run, or ask for `--format json`")));
    }
    let state = State::find(given, output)?;
    let shortened = state.as_ref().map_or(Ok(false), |state| warn_of_shortened(state, output))?;
    let rows = state.as_ref().map_or(Ok(Vec::new()), |state| left(state, output))?;
    let (Some(state), false) = (state, rows.is_empty()) else {
        match output.is_json() {
            true => output.json(&json!({"runs": []})),
            false => output.text("There is nothing to go on with.\n"),
        }
        return Ok(if shortened { Exit::Store } else { Exit::Done });
    };
    let Adopted { own, mut all, worst } = adopt(&state, &rows, output)?;
    let worst = if shortened { Some(Exit::Store) } else { worst };
    if !waits {
        leave_waiting(&own, &mut all);
    }
    while all.values().any(|one| one.over.is_none()) {
        let Ok((run, note)) = own.told.any() else { break };
        hear(&mut all, run.as_ref(), note, output);
        if !waits {
            leave_waiting(&own, &mut all);
        }
    }
    if output.is_json() {
        let runs: Vec<_> = all.values().map(|one| result(&one.plan, &one.state, &one.warnings)).collect();
        output.json(&json!({"runs": runs}));
    }
    Ok(exit(&own, &all, worst, output))
}

/// The runs that are gone on with.
struct Adopted {
    own: Own,
    all: BTreeMap<RunId, One>,
    /// What is to be said at the end of those that are not.
    worst: Option<Exit>,
}

/// Takes over those that can be had; each that cannot is told, and harms no other.
fn adopt(state: &State, rows: &[RunRow], output: Output) -> Result<Adopted, Exit> {
    let (mut secrets, mut found, mut workers, mut worst) = (BTreeMap::new(), Vec::new(), 0, None);
    let (mut recall, mut projects) = (Recall::new(&*state.store), BTreeSet::new());
    for row in rows {
        match ready(row, &secrets) {
            Ok(about) => {
                secrets.extend(about.secrets.clone());
                if projects.insert(about.project.clone()) {
                    workers = workers.max(own::workers(&about.project));
                }
                let one = One::recall(&mut recall, state, row, output);
                found.push((row, about, one));
            }
            Err(why) => left_alone(&row.run, &why, &mut worst, output),
        }
    }
    let own = Own::new(state, own::secrets(&secrets, output)?, workers, output)?;
    let (mut all, mut runs) = (BTreeMap::new(), Vec::new());
    for (row, about, one) in found {
        let run = row.run.clone();
        match one {
            Ok(one) => match context::hold(&own.contexts, state, &run, &one.plan, &about) {
                Ok(()) => drop(all.insert(run.clone(), One { warnings: about.warnings, ..one })),
                Err(taken) => {
                    left_alone(&run, taken.message(), &mut worst, output);
                    continue;
                }
            },
            // Taken all the same: what it left running is ended, and it is set aside.
            Err(StoreError::Damaged(_)) => {}
            Err(error) => {
                left_alone(&run, &error.to_string(), &mut worst, output);
                continue;
            }
        }
        runs.push(run);
    }
    own.listen(all.keys().cloned().collect(), &current_user(), output)?;
    // All of them are of one state folder, and mostly of one project.
    if let Some(project) = projects.first() {
        inbox::receive(state, project, output);
    }
    for (run, result) in runs.iter().zip(own.host.resume(runs.clone())) {
        match result {
            Ok(events) => {
                tell(run, "", "resumed", Level::Info, output);
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
                left_alone(run, &error.to_string(), &mut worst, output);
                all.remove(run);
            }
        }
    }
    Ok(Adopted { own, all, worst })
}

fn left_alone(run: &RunId, why: &str, worst: &mut Option<Exit>, output: Output) {
    output.warn(&format!("run {run} is left: {why}"));
    worst.get_or_insert(Exit::Refused);
}

/// What was settled about a run, if it can be gone on with beside those that have these secrets.
fn ready(row: &RunRow, secrets: &BTreeMap<String, secret::From>) -> Result<About, String> {
    let about = About::read(&row.about)?;
    if let Some(name) = clash(secrets, &about.secrets) {
        let (run, why) = (&row.run, "comes from elsewhere than that of another run");
        return Err(format!("its secret `{name}` {why}; `skein resume {run}` goes on with it"));
    }
    let loaded = Secrets::load(&about.secrets);
    loaded.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok(about)
}

/// A secret of the same name that is not the same.
fn clash<'a>(
    known: &BTreeMap<String, secret::From>,
    new: &'a BTreeMap<String, secret::From>,
) -> Option<&'a String> {
    new.iter().find(|(name, from)| known.get(*name).is_some_and(|known| known != *from)).map(|(name, _)| name)
}

impl One {
    fn new(plan: Plan) -> One {
        One {
            timeline: Timeline::new(&plan),
            plan,
            state: RunState::new(),
            over: None,
            space: Space::default(),
            warnings: Vec::new(),
        }
    }

    /// A run as it was left. What happened before is not told again, and only people are told what happens then.
    fn recall(
        recall: &mut Recall<'_>,
        state: &State,
        row: &RunRow,
        output: Output,
    ) -> Result<One, StoreError> {
        if output.is_json() {
            let (plan, state) = recall.run(row)?.driver.into_parts();
            return Ok(One { state, ..One::new(plan) });
        }
        let mut one = One::new(recall.plan(row)?);
        state.store.read(&row.run, 0, &mut |batch| {
            one.take(&batch);
            true
        })?;
        Ok(one)
    }

    /// Takes the rows up to the one that ends with this event, without telling of them.
    fn catch_up(&mut self, state: &State, run: &RunId, events: u64) {
        if self.state.events < events {
            // A row that cannot be read was seen by the host, which has the run.
            let _ = state.store.read(run, self.state.events, &mut |batch| {
                self.take(&batch);
                self.state.events < events
            });
        }
    }

    fn take(&mut self, batch: &Batch) -> Vec<Entry> {
        if batch.seq != self.state.events {
            return Vec::new();
        }
        let mut entries = Vec::new();
        for record in &batch.records {
            apply(&self.plan, &mut self.state, record.at, &record.event);
            entries.extend(self.timeline.feed(record));
        }
        entries
    }
}

fn hear(all: &mut BTreeMap<RunId, One>, run: Option<&RunId>, note: Note, output: Output) {
    let runs: BTreeSet<RunId> = run.map_or_else(|| all.keys().cloned().collect(), |run| [run.clone()].into());
    for run in runs {
        let Some(one) = all.get_mut(&run) else { continue };
        if let Note::Next(next) = &note {
            let next_one = One::new(one.plan.clone());
            all.insert(next.clone(), next_one);
            continue;
        }
        match &note {
            Note::Row(batch) => {
                one.space.back(output);
                watch::warn_if_long(batch, output);
                for Entry { path, text, level, .. } in one.take(batch) {
                    tell(&run, &path, &text, level, output);
                }
            }
            Note::Over(over) => {
                one.over.get_or_insert_with(|| over.clone());
                match over {
                    Over::Lost => output.warn(&format!("another process has run {run} now")),
                    Over::SetAside(why) => output.warn(&format!("run {run} was set aside: {why}")),
                    Over::Broken(why) => output.warn(why),
                    Over::Closed | Over::Waits | Over::Left => {}
                }
            }
            Note::NoSpace => one.space.out(output),
            Note::Cancelling => output.warn(&watch::cancelling(&run)),
            Note::Line(..) | Note::Typed(_) | Note::Next(_) => {}
        }
    }
}

fn tell(run: &RunId, path: &str, text: &str, level: Level, output: Output) {
    if level > Level::Detail && output.format == Format::Human {
        let path =
            if path.is_empty() { String::new() } else { format!("{}: ", output.paint.name(&one_line(path))) };
        let text = match level {
            Level::Error => output.paint.error(&one_line(text)),
            Level::Warning | Level::Attention => output.paint.warning(&one_line(text)),
            Level::Detail | Level::Info => one_line(text),
        };
        output.text(&format!("{run}  {path}{text}\n"));
    }
}

fn leave_waiting(own: &Own, all: &mut BTreeMap<RunId, One>) {
    let waits = |one: &One| one.over.is_none() && one.state.status() == RunStatus::Waiting;
    let mut left = Vec::new();
    for (run, one) in all.iter_mut().filter(|(_, one)| waits(one)) {
        one.over = Some(Over::Waits);
        left.push(run.clone());
    }
    if !left.is_empty() {
        own.host.leave(&left);
    }
}

/// The worst of them.
fn exit(own: &Own, all: &BTreeMap<RunId, One>, worst: Option<Exit>, output: Output) -> Exit {
    let each = |one: &One| match &one.over {
        Some(Over::Broken(_)) | None => Exit::Store,
        Some(Over::Lost) => Exit::Refused,
        Some(Over::SetAside(_)) => Exit::Failed,
        Some(over) => watch::exit(&one.state, over, own.is_stopped(), output),
    };
    let order = [Exit::Store, Exit::Stopped, Exit::Failed, Exit::Refused, Exit::Waiting];
    let all: Vec<Exit> = all.values().map(each).chain(worst).collect();
    order.into_iter().find(|exit| all.contains(exit)).unwrap_or(Exit::Done)
}
