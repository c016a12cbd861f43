//! `skein events`: the journal of a run, for people as a timeline and for programs event by event.

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::inspect::{self, RunJournal},
};
use skein_core::{
    engine::StepPaths,
    view::{TimelineEntry, TimelineLevel, describe_record},
};

use crate::{
    exit::Exit,
    render::{
        live::{JsonlEncoder, one_line},
        output::{CliOutput, OutputFormat},
        tables,
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct EventsArguments {
    /// Run id, or a unique prefix of it; default, and for `-`: the newest run.
    run: Option<String>,
}

pub(super) fn run(arguments: &EventsArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let journal = inspect::open_journal(app, arguments.run.as_deref())?;
    match output.format {
        OutputFormat::Human => {
            let mut names = StepPaths::new(journal.plan.definition.clone());
            journal.read_rows(|batch| {
                batch.records.iter().for_each(|record| names.note_event(&record.event));
                let numbered = (batch.seq..).zip(&batch.records);
                let entries = numbered.filter_map(|(seq, record)| describe_record(&names, seq, record));
                output.print_text(&entries.map(|entry| render_entry(&entry, output)).collect::<String>());
                Ok(())
            })
        }
        OutputFormat::Json => print_json(&journal, output),
        OutputFormat::Jsonl => {
            let mut jsonl = JsonlEncoder::new(&journal.plan);
            journal.read_rows(|batch| {
                output.print_json_text(&jsonl.encode_row(batch)?);
                Ok(())
            })
        }
    }?;
    Ok(Exit::Done)
}

/// Prints one object, written while it is read, because a journal can be long.
fn print_json(journal: &RunJournal, output: CliOutput) -> Result<(), AppError> {
    let mut jsonl = JsonlEncoder::new(&journal.plan);
    let run = serde_json::to_string(journal.run()).expect("a name is text");
    output.print_json_text(&format!("{{\n  \"run_id\": {run},\n  \"events\": ["));
    let mut begun = false;
    journal.read_rows(|batch| {
        for line in jsonl.encode_row(batch)?.lines() {
            output.print_json_text(&format!("{}\n    {line}", if begun { "," } else { "" }));
            begun = true;
        }
        Ok(())
    })?;
    output.print_json_text(if begun { "\n  ]\n}\n" } else { "]\n}\n" });
    Ok(())
}

fn render_entry(entry: &TimelineEntry, output: CliOutput) -> String {
    let TimelineEntry { at, seq, path, text, level } = entry;
    let text = match level {
        TimelineLevel::Detail => output.paint.faint(&one_line(text)),
        level => tables::paint_level(*level, &one_line(text), output.paint),
    };
    let path = if path.is_empty() { String::new() } else { format!("{}: ", output.paint.name(&one_line(path))) };
    format!("{} {seq:>5}  {path}{text}\n", output.paint.faint(at))
}
