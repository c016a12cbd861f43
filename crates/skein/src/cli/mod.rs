//! The command line: what can be asked, and who answers. One file a command.

mod audit;
mod bench;
mod cancel;
mod catalog;
mod completions;
mod decide;
mod demo;
mod detach;
mod dlq;
mod doctor;
mod events;
mod explain;
mod fork;
mod graph;
mod init;
mod list;
mod load;
mod logs;
mod memory;
mod plan;
mod reload;
mod resume;
mod resume_all;
mod run;
mod runs;
mod schema;
mod show;
mod signal;
mod validate;

use std::{ffi::OsString, path::PathBuf};

use clap::{Parser, Subcommand};
use skein_core::engine::Decision;

pub use init::{quoted, write as write_new};
pub use load::invalid;
pub use resume::{Stay, take_up};
pub use run::{How, refuse, start};

use crate::{
    exit::Exit,
    invocation,
    output::{Format, Output, reader_left},
};

/// Checks, plans and runs workflows whose steps are done by coding agents, tools, commands and people.
#[derive(Debug, Parser)]
#[command(name = "skein", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// For people, or one JSON value for programs; or a line of JSON for each event of a run.
    #[arg(long, global = true, value_enum, default_value = "human")]
    format: Format,
    /// Where runs are kept; `.skein` in the project unless told otherwise.
    #[arg(long, global = true, value_name = "DIR", env = "SKEIN_STATE")]
    state: Option<PathBuf>,
    /// The folder from which the project is looked for, instead of the current one.
    #[arg(long, global = true, value_name = "DIR")]
    project: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks workflows and says what is wrong, where, and what to do.
    Validate(validate::Arguments),
    /// Shows what a run would do, before anything is spent.
    Plan(plan::Arguments),
    /// Does the work of a workflow, and shows it.
    Run(run::Arguments),
    /// Lists the runs, or shows one of them.
    Runs(runs::Arguments),
    /// Shows what the workers of a run printed.
    Logs(logs::Arguments),
    /// Shows what happened in a run, event by event.
    Events(events::Arguments),
    /// Says yes at a gate or a hold.
    Approve(decide::Arguments),
    /// Says no at a gate or a hold.
    Reject(decide::Arguments),
    /// Tells a run of something that happened outside.
    Signal(signal::Arguments),
    /// Ends a run early.
    Cancel(cancel::Arguments),
    /// Goes on with runs that were left, or whose process died.
    Resume(resume::Arguments),
    /// Begins a new run with the results of another, from a step of it on.
    Fork(fork::Arguments),
    /// Lists steps that failed for good, and does them again or drops them.
    Dlq(dlq::Arguments),
    /// Lists who allowed, refused, revealed or changed what, and checks those records.
    Audit(audit::Arguments),
    /// Keeps what a project remembers from run to run, and tells agents.
    Memory(memory::Arguments),
    /// Draws the steps of a workflow.
    Graph(graph::Arguments),
    /// Prints the JSON Schema of a format, for editors.
    Schema(schema::Arguments),
    /// Explains a code, with a wrong and a right example.
    Explain(explain::Arguments),
    /// Lists the workflows of the project.
    List,
    /// Lists what workflows of the project can name, where it is described, and who uses it.
    Catalog(catalog::Arguments),
    /// Shows one workflow: what it takes, does and gives.
    Show(show::Arguments),
    /// Writes a workflow to begin with, which runs as it is.
    Init(init::Arguments),
    /// Shows what it means that nothing is lost: a run that is killed half way, and goes on.
    Demo(demo::Arguments),
    /// Looks at what there is here to run workflows with, and at what stands in the way.
    Doctor(doctor::Arguments),
    /// Measures how fast Skein is here, beside what the machine can do.
    Bench(bench::Arguments),
    /// Prints completions for a shell.
    Completions(completions::Arguments),
}

impl Command {
    /// Whether it can print a line of JSON for each event.
    fn has_lines(&self) -> bool {
        match self {
            Command::Run(_) | Command::Resume(_) | Command::Fork(_) | Command::Events(_) => true,
            Command::Dlq(arguments) => arguments.reruns(),
            Command::Runs(arguments) => arguments.follow,
            _ => false,
        }
    }
}

/// What to say of arguments that could not be read; help and version are what was asked for.
fn unparsed(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return printed(error, Exit::Done);
    }
    if !asks_for_json(std::env::args_os()) {
        return printed(error, Exit::Usage);
    }
    let (message, hint) = in_lines(&error.render().to_string());
    Output::new(Format::Json).refuse(Exit::Usage, &message, hint.as_deref())
}

fn printed(error: &clap::Error, exit: Exit) -> Exit {
    match error.print() {
        Err(error) if !reader_left(&error) => Exit::Broken,
        _ => exit,
    }
}

/// Whether programs are meant to read the answer, told without understanding the rest.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let arguments: Vec<OsString> = arguments.take_while(|argument| argument != "--").collect();
    let apart = arguments.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    apart || arguments.iter().any(|argument| argument == "--format=json")
}

/// The first paragraph as the message; a tip, or else how the command is used, as the hint.
fn in_lines(text: &str) -> (String, Option<String>) {
    let mut paragraphs = text.split("\n\n").map(|lines| {
        lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let message = paragraphs.next().unwrap_or_default();
    let rest: Vec<String> = paragraphs.collect();
    let tip = rest.iter().find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    let usage = || rest.iter().find(|text| text.starts_with("Usage: ")).cloned();
    (message.strip_prefix("error: ").unwrap_or(&message).to_owned(), tip.or_else(usage))
}

/// Reads the arguments and does what they say.
pub fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    let output = Output::new(cli.format);
    if cli.format == Format::Jsonl && !cli.command.has_lines() {
        let hint = "`run`, `resume`, `fork`, `dlq rerun`, `events` and `runs --follow` do";
        return output.refuse(Exit::Usage, "this command does not print lines of JSON", Some(hint));
    }
    if let Some(folder) = cli.project.as_deref().filter(|folder| !folder.is_dir()) {
        let message = format!("`--project {}` names no folder", folder.display());
        return output.refuse(Exit::Usage, &message, None);
    }
    invocation::remember(cli.state.as_deref(), cli.project.as_deref());
    let state = cli.state.as_deref();
    match cli.command {
        Command::Validate(arguments) => validate::run(&arguments, output),
        Command::Plan(arguments) => plan::run(&arguments, output),
        Command::Run(arguments) => run::run(&arguments, state, output),
        Command::Runs(arguments) => runs::run(&arguments, state, output),
        Command::Logs(arguments) => logs::run(&arguments, state, output),
        Command::Events(arguments) => events::run(&arguments, state, output),
        Command::Approve(arguments) => decide::run(&arguments, Decision::Approve, state, output),
        Command::Reject(arguments) => decide::run(&arguments, Decision::Reject, state, output),
        Command::Signal(arguments) => signal::run(&arguments, state, output),
        Command::Cancel(arguments) => cancel::run(&arguments, state, output),
        Command::Resume(arguments) => resume::run(&arguments, state, output),
        Command::Fork(arguments) => fork::run(&arguments, state, output),
        Command::Dlq(arguments) => dlq::run(&arguments, state, output),
        Command::Audit(arguments) => audit::run(&arguments, state, output),
        Command::Memory(arguments) => memory::run(&arguments, state, output),
        Command::Graph(arguments) => graph::run(&arguments, output),
        Command::Schema(arguments) => schema::run(&arguments, output),
        Command::Explain(arguments) => explain::run(&arguments, output),
        Command::List => list::run(output),
        Command::Catalog(arguments) => catalog::run(&arguments, output),
        Command::Show(arguments) => show::run(&arguments, output),
        Command::Init(arguments) => init::run(&arguments, output),
        Command::Demo(arguments) => demo::run(arguments, output),
        Command::Doctor(arguments) => doctor::run(&arguments, state, output),
        Command::Bench(arguments) => bench::run(&arguments, state, output),
        Command::Completions(arguments) => completions::run(&arguments, output),
    }
}
