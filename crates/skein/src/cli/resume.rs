//! `skein resume`: resumes runs without an owner, because they were released or because their process died.

use clap::Args;
use serde_json::json;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::{
        resume::{self, ResumeAllRequest, ResumeRequest},
        start::RunAttachment,
    },
};

use super::run::report_outcome;
use crate::{
    exit::Exit,
    render::{
        follow::TerminalFrontEnd,
        output::{CliOutput, OutputFormat},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct ResumeArguments {
    /// Run id, or a unique prefix of it; default: the only interrupted run.
    #[arg(conflicts_with = "all")]
    run: Option<String>,
    /// Resume all interrupted runs.
    #[arg(long)]
    all: bool,
    /// Exit when a run waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
    /// Leave the run to a background process.
    #[arg(long, conflicts_with_all = ["all", "no_wait"])]
    detach: bool,
    /// Resume a run whose journal lost acknowledged rows. Steps whose end was lost run again.
    #[arg(long, requires = "run", conflicts_with = "all")]
    accept_shortened_journal: bool,
    /// Internal: this is the background process.
    #[arg(long, hide = true)]
    detached: bool,
}

pub(super) fn run(arguments: ResumeArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    if arguments.all {
        return resume_all(app, !arguments.no_wait, output);
    }
    let attachment = match (arguments.detach, arguments.no_wait) {
        (true, _) => RunAttachment::Detached,
        (false, true) => RunAttachment::UntilWaiting,
        (false, false) => RunAttachment::UntilEnd,
    };
    let front_end = match arguments.detached {
        true => TerminalFrontEnd::detached(output),
        false => TerminalFrontEnd::new(output),
    };
    let accept_shortened_journal = arguments.accept_shortened_journal;
    let request = ResumeRequest { run: arguments.run, attachment, accept_shortened_journal };
    Ok(report_outcome(&resume::resume_run(app, &request, &front_end)?, output))
}

fn resume_all(app: &App, waits: bool, output: CliOutput) -> Result<Exit, AppError> {
    if output.format == OutputFormat::Jsonl {
        return Err(AppError::usage("lines of JSON do not distinguish the events of several runs")
            .with_hint("name one run, or use `--format json`"));
    }
    let request = ResumeAllRequest { waits, shows_entries: !output.is_json() };
    let resumed = resume::resume_all_runs(app, &request, &TerminalFrontEnd::new(output))?;
    if output.is_json() {
        output.print_json(&json!({"runs": resumed.runs}));
    } else if resumed.found == 0 {
        output.print_text("There are no runs to resume.\n");
    }
    let exits = resumed.ends.into_iter().map(|end| end.map_or_else(Exit::from, Exit::from));
    Ok(Exit::worst(&exits.collect::<Vec<_>>()))
}
