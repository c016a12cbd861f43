//! `skein events`: the journal of a run, for people as a timeline and for programs event by event.

use std::path::Path;

use clap::Args;
use skein_core::{
    engine::{Batch, JournalError},
    plan::Plan,
    view::{Entry, Level, Timeline},
};
use skein_host::store::{RunRow, Store};

use crate::{
    exit::Exit,
    live::{Jsonl, one_line},
    output::{Format, Output},
    state::{State, failed},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins; the newest unless told otherwise, as for `-`.
    run: Option<String>,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    events(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn events(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, row) = State::with_run_or_newest(given, arguments.run.as_deref(), output)?;
    let plan = state.plan(&row, output)?;
    match output.format {
        Format::Human => {
            let mut timeline = Timeline::new(&plan);
            each(&state, &row, output, |batch| {
                let entries = batch.records.iter().filter_map(|record| timeline.feed(record));
                output.text(&entries.map(|entry| line(&entry, output)).collect::<String>());
                Ok(())
            })
        }
        Format::Json => object(&state, &row, plan, output),
        Format::Jsonl => {
            let mut jsonl = Jsonl::new(plan);
            each(&state, &row, output, |batch| {
                output.json_text(&jsonl.row(batch)?);
                Ok(())
            })
        }
    }?;
    Ok(Exit::Done)
}

/// One object, written as it is read: a journal can be long.
fn object(state: &State, row: &RunRow, plan: Plan, output: Output) -> Result<(), Exit> {
    let mut jsonl = Jsonl::new(plan);
    let run = serde_json::to_string(&row.run).expect("a name is text");
    output.json_text(&format!("{{\n  \"run_id\": {run},\n  \"events\": ["));
    let mut begun = false;
    each(state, row, output, |batch| {
        for line in jsonl.row(batch)?.lines() {
            output.json_text(&format!("{}\n    {line}", if begun { "," } else { "" }));
            begun = true;
        }
        Ok(())
    })?;
    output.json_text(if begun { "\n  ]\n}\n" } else { "]\n}\n" });
    Ok(())
}

fn each(
    state: &State,
    row: &RunRow,
    output: Output,
    mut show: impl FnMut(&Batch) -> Result<(), JournalError>,
) -> Result<(), Exit> {
    let mut broken = None;
    let read = state.store.read(&row.run, 0, &mut |batch| {
        broken = show(&batch).err();
        broken.is_none()
    });
    read.map_err(|error| failed(&error, output))?;
    let told = |error| format!("the journal of `{}` cannot be read: {error}", row.run);
    broken.map_or(Ok(()), |error: JournalError| Err(output.refuse(Exit::Store, &told(error), None)))
}

fn line(entry: &Entry, output: Output) -> String {
    let Entry { at, seq, path, text, level } = entry;
    let text = one_line(text);
    let text = match level {
        Level::Detail => output.paint.faint(&text),
        Level::Info => text,
        Level::Attention | Level::Warning => output.paint.warning(&text),
        Level::Error => output.paint.error(&text),
    };
    let path =
        if path.is_empty() { String::new() } else { format!("{}: ", output.paint.name(&one_line(path))) };
    format!("{} {seq:>5}  {path}{text}\n", output.paint.faint(at))
}
