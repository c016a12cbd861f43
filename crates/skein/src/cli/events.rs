//! `skein events`: the journal of a run, for people as a timeline and for programs event by event.

use std::path::Path;

use clap::Args;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    state::{StateHandle, refuse_store_error},
};
use skein_core::{
    engine::{JournalBatch, JournalError},
    plan::Plan,
    view::{Timeline, TimelineEntry, TimelineLevel},
};
use skein_host::store::{RunRow, Store};

use crate::{
    exit::Exit,
    live::{JsonlEncoder, one_line},
    output::{CliOutput, OutputFormat},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct EventsArguments {
    /// Run id, or a unique prefix of it; default, and for `-`: the newest run.
    run: Option<String>,
}

pub fn run(arguments: &EventsArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let (state, row) = StateHandle::open_run_or_newest(given, arguments.run.as_deref())?;
    let plan = state.load_plan(&row)?;
    match output.format {
        OutputFormat::Human => {
            let mut timeline = Timeline::new(&plan);
            for_each_batch(&state, &row, |batch| {
                let entries = batch.records.iter().filter_map(|record| timeline.push_record(record));
                output.print_text(&entries.map(|entry| render_entry(&entry, output)).collect::<String>());
                Ok(())
            })
        }
        OutputFormat::Json => print_json(&state, &row, plan, output),
        OutputFormat::Jsonl => {
            let mut jsonl = JsonlEncoder::new(plan);
            for_each_batch(&state, &row, |batch| {
                output.print_json_text(&jsonl.encode_row(batch)?);
                Ok(())
            })
        }
    }?;
    Ok(Exit::Done)
}

/// Prints one object, written while it is read, because a journal can be long.
fn print_json(state: &StateHandle, row: &RunRow, plan: Plan, output: CliOutput) -> Result<(), AppError> {
    let mut jsonl = JsonlEncoder::new(plan);
    let run = serde_json::to_string(&row.run).expect("a name is text");
    output.print_json_text(&format!("{{\n  \"run_id\": {run},\n  \"events\": ["));
    let mut begun = false;
    for_each_batch(state, row, |batch| {
        for line in jsonl.encode_row(batch)?.lines() {
            output.print_json_text(&format!("{}\n    {line}", if begun { "," } else { "" }));
            begun = true;
        }
        Ok(())
    })?;
    output.print_json_text(if begun { "\n  ]\n}\n" } else { "]\n}\n" });
    Ok(())
}

fn for_each_batch(
    state: &StateHandle,
    row: &RunRow,
    mut show: impl FnMut(&JournalBatch) -> Result<(), JournalError>,
) -> Result<(), AppError> {
    let mut broken = None;
    let read = state.store.read_journal(&row.run, 0, &mut |batch| {
        broken = show(&batch).err();
        broken.is_none()
    });
    read.map_err(|error| refuse_store_error(&error))?;
    let told = |error| format!("the journal of `{}` cannot be read: {error}", row.run);
    broken.map_or(Ok(()), |error: JournalError| Err(AppError::new(AppErrorKind::Store, &told(error), None)))
}

fn render_entry(entry: &TimelineEntry, output: CliOutput) -> String {
    let TimelineEntry { at, seq, path, text, level } = entry;
    let text = one_line(text);
    let text = match level {
        TimelineLevel::Detail => output.paint.faint(&text),
        TimelineLevel::Info => text,
        TimelineLevel::Attention | TimelineLevel::Warning => output.paint.warning(&text),
        TimelineLevel::Error => output.paint.error(&text),
    };
    let path =
        if path.is_empty() { String::new() } else { format!("{}: ", output.paint.name(&one_line(path))) };
    format!("{} {seq:>5}  {path}{text}\n", output.paint.faint(at))
}
