//! `skein resume --all`: goes on with every run that was left or whose process died, with a line for each event that
//! matters.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::json;
use skein_core::{
    engine::{Batch, RunState, apply},
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    view::{Entry, Level, Timeline},
};
use skein_host::{
    host::Recall,
    secret,
    store::{RunRow, Store, StoreError},
};

use super::resume::left;
use crate::{
    exit::Exit,
    live::one_line,
    output::{Format, Output},
    own::{self, Own},
    person,
    result::result,
    say,
    state::{State, failed},
    watch::{self, Note, Over},
};

/// One of the runs that are gone on with.
struct One {
    plan: Plan,
    state: RunState,
    timeline: Timeline,
    over: Option<Over>,
}

pub fn run(given: Option<&Path>, waits: bool, output: Output) -> Result<Exit, Exit> {
    if output.format == Format::Jsonl {
        let message = "events of several runs are not told apart in lines of JSON";
        return Err(output.refuse(Exit::Usage, message, Some("name one run, or ask for `--format json`")));
    }
    let state = State::find(given, output)?;
    let rows = state.as_ref().map_or(Ok(Vec::new()), |state| left(state, output))?;
    let (Some(state), false) = (state, rows.is_empty()) else {
        match output.is_json() {
            true => output.json(&json!({"runs": []})),
            false => output.text("There is nothing to go on with.\n"),
        }
        return Ok(Exit::Done);
    };
    let (own, mut all) = adopt(&state, &rows, output)?;
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
        let runs: Vec<_> = all.values().map(|one| result(&one.plan, &one.state)).collect();
        output.json(&json!({"runs": runs}));
    }
    Ok(exit(&own, &all, output))
}

/// Takes over those that can be had; each that cannot is told, and harms no other.
fn adopt(state: &State, rows: &[RunRow], output: Output) -> Result<(Own, BTreeMap<RunId, One>), Exit> {
    let (mut secrets, mut all, mut workers) = (BTreeMap::new(), BTreeMap::new(), 0);
    let (mut recall, mut projects) = (Recall::new(&*state.store), BTreeSet::new());
    for row in rows {
        let about = say::about(row, output)?;
        if let Some(name) = clash(&secrets, &about.secrets) {
            let (run, why) = (&row.run, "comes from elsewhere than that of another run");
            output.warn(&format!(
                "run {run} is left: its secret `{name}` {why}; `skein resume {run}` goes on with it"
            ));
            continue;
        }
        secrets.extend(about.secrets);
        if projects.insert(about.project.clone()) {
            workers = workers.max(own::workers(&about.project));
        }
        let one = One::recall(&mut recall, state, row, output).map_err(|error| failed(&error, output))?;
        all.insert(row.run.clone(), one);
    }
    let own = Own::new(state, own::secrets(&secrets, output)?, workers, output)?;
    let runs: Vec<RunId> = all.keys().cloned().collect();
    own.listen(runs.clone(), &person::name(), output)?;
    for (run, result) in runs.iter().zip(own.host.resume(runs.clone())) {
        match result {
            Ok(()) => tell(run, "", "resumed", Level::Info, output),
            Err(error) => {
                output.warn(&format!("run {run} is left: {error}"));
                all.remove(run);
            }
        }
    }
    Ok((own, all))
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
        One { timeline: Timeline::new(&plan), plan, state: RunState::new(), over: None }
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
            Note::NoSpace => output.warn("there is no space left for the journal; runs go on when there is"),
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
fn exit(own: &Own, all: &BTreeMap<RunId, One>, output: Output) -> Exit {
    let each = |one: &One| match &one.over {
        Some(Over::Broken(_)) | None => Exit::Store,
        Some(Over::Lost) => Exit::Refused,
        Some(Over::SetAside(_)) => Exit::Failed,
        Some(over) => watch::exit(&one.state, over, own.is_stopped(), output),
    };
    let order = [Exit::Store, Exit::Stopped, Exit::Failed, Exit::Refused, Exit::Waiting];
    let all: Vec<Exit> = all.values().map(each).collect();
    order.into_iter().find(|exit| all.contains(exit)).unwrap_or(Exit::Done)
}
