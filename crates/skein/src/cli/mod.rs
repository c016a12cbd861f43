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
use skein_core::engine::Verdict;

pub use init::{create_file as write_new, quote_path};
pub use load::refuse_invalid;
pub use resume::{ResumeOptions, take_over_run};
pub use run::{AttachOptions, refuse_unprepared, start_run};

use crate::{
    exit::Exit,
    invocation,
    output::{CliOutput, OutputFormat, is_broken_pipe},
};

/// Checks, plans and runs workflows whose steps are done by coding agents, tools, commands and people.
#[derive(Debug, Parser)]
#[command(name = "skein", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
    /// For people, or one JSON value for programs; or a line of JSON for each event of a run.
    #[arg(long, global = true, value_enum, default_value = "human")]
    format: OutputFormat,
    /// Where runs are kept; `.skein` in the project unless told otherwise.
    #[arg(long, global = true, value_name = "DIR", env = "SKEIN_STATE")]
    state: Option<PathBuf>,
    /// The folder from which the project is looked for, instead of the current one.
    #[arg(long, global = true, value_name = "DIR")]
    project: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Checks workflows and says what is wrong, where, and what to do.
    Validate(validate::ValidateArguments),
    /// Shows what a run would do, before anything is spent.
    Plan(plan::PlanArguments),
    /// Does the work of a workflow, and shows it.
    Run(run::RunArguments),
    /// Lists the runs, or shows one of them.
    Runs(runs::RunsArguments),
    /// Shows what the workers of a run printed.
    Logs(logs::LogsArguments),
    /// Shows what happened in a run, event by event.
    Events(events::EventsArguments),
    /// Says yes at a gate or a hold.
    Approve(decide::DecideArguments),
    /// Says no at a gate or a hold.
    Reject(decide::DecideArguments),
    /// Tells a run of something that happened outside.
    Signal(signal::SignalArguments),
    /// Ends a run early.
    Cancel(cancel::CancelArguments),
    /// Goes on with runs that were left, or whose process died.
    Resume(resume::ResumeArguments),
    /// Begins a new run with the results of another, from a step of it on.
    Fork(fork::ForkArguments),
    /// Lists steps that failed for good, and does them again or drops them.
    Dlq(dlq::DlqArguments),
    /// Lists who allowed, refused, revealed or changed what, and checks those records.
    Audit(audit::AuditArguments),
    /// Keeps what a project remembers from run to run, and tells agents.
    Memory(memory::MemoryArguments),
    /// Draws the steps of a workflow.
    Graph(graph::GraphArguments),
    /// Prints the JSON Schema of a format, for editors.
    Schema(schema::SchemaArguments),
    /// Explains a code, with a wrong and a right example.
    Explain(explain::ExplainArguments),
    /// Lists the workflows of the project.
    List,
    /// Lists what workflows of the project can name, where it is described, and who uses it.
    Catalog(catalog::CatalogArguments),
    /// Shows one workflow: what it takes, does and gives.
    Show(show::ShowArguments),
    /// Writes a workflow to begin with, which runs as it is.
    Init(init::InitArguments),
    /// Shows what it means that nothing is lost: a run that is killed half way, and goes on.
    Demo(demo::DemoArguments),
    /// Looks at what there is here to run workflows with, and at what stands in the way.
    Doctor(doctor::DoctorArguments),
    /// Measures how fast Skein is here, beside what the machine can do.
    Bench(bench::BenchArguments),
    /// Prints completions for a shell.
    Completions(completions::CompletionsArguments),
}

impl CliCommand {
    /// Whether it can print a line of JSON for each event.
    fn prints_json_lines(&self) -> bool {
        match self {
            CliCommand::Run(_) | CliCommand::Resume(_) | CliCommand::Fork(_) | CliCommand::Events(_) => true,
            CliCommand::Dlq(arguments) => arguments.is_rerun(),
            CliCommand::Runs(arguments) => arguments.follow,
            _ => false,
        }
    }
}

/// What to say of arguments that could not be read; help and version are what was asked for.
fn refuse_arguments(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return print_clap_error(error, Exit::Done);
    }
    if !asks_for_json(std::env::args_os()) {
        return print_clap_error(error, Exit::Usage);
    }
    let (message, hint) = split_clap_message(&error.render().to_string());
    CliOutput::new(OutputFormat::Json).refuse(Exit::Usage, &message, hint.as_deref())
}

fn print_clap_error(error: &clap::Error, exit: Exit) -> Exit {
    match error.print() {
        Err(error) if !is_broken_pipe(&error) => Exit::Broken,
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
fn split_clap_message(text: &str) -> (String, Option<String>) {
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
        Err(error) => return refuse_arguments(&error),
    };
    let output = CliOutput::new(cli.format);
    if cli.format == OutputFormat::Jsonl && !cli.command.prints_json_lines() {
        let hint = "`run`, `resume`, `fork`, `dlq rerun`, `events` and `runs --follow` do";
        return output.refuse(Exit::Usage, "this command does not print lines of JSON", Some(hint));
    }
    if let Some(folder) = cli.project.as_deref().filter(|folder| !folder.is_dir()) {
        let message = format!("`--project {}` names no folder", folder.display());
        return output.refuse(Exit::Usage, &message, None);
    }
    invocation::remember_flags(cli.state.as_deref(), cli.project.as_deref());
    let state = cli.state.as_deref();
    match cli.command {
        CliCommand::Validate(arguments) => validate::run(&arguments, output),
        CliCommand::Plan(arguments) => plan::run(&arguments, output),
        CliCommand::Run(arguments) => run::run(&arguments, state, output),
        CliCommand::Runs(arguments) => runs::run(&arguments, state, output),
        CliCommand::Logs(arguments) => logs::run(&arguments, state, output),
        CliCommand::Events(arguments) => events::run(&arguments, state, output),
        CliCommand::Approve(arguments) => decide::run(&arguments, Verdict::Approve, state, output),
        CliCommand::Reject(arguments) => decide::run(&arguments, Verdict::Reject, state, output),
        CliCommand::Signal(arguments) => signal::run(&arguments, state, output),
        CliCommand::Cancel(arguments) => cancel::run(&arguments, state, output),
        CliCommand::Resume(arguments) => resume::run(&arguments, state, output),
        CliCommand::Fork(arguments) => fork::run(&arguments, state, output),
        CliCommand::Dlq(arguments) => dlq::run(&arguments, state, output),
        CliCommand::Audit(arguments) => audit::run(&arguments, state, output),
        CliCommand::Memory(arguments) => memory::run(&arguments, state, output),
        CliCommand::Graph(arguments) => graph::run(&arguments, output),
        CliCommand::Schema(arguments) => schema::run(&arguments, output),
        CliCommand::Explain(arguments) => explain::run(&arguments, output),
        CliCommand::List => list::run(output),
        CliCommand::Catalog(arguments) => catalog::run(&arguments, output),
        CliCommand::Show(arguments) => show::run(&arguments, output),
        CliCommand::Init(arguments) => init::run(&arguments, output),
        CliCommand::Demo(arguments) => demo::run(arguments, output),
        CliCommand::Doctor(arguments) => doctor::run(&arguments, state, output),
        CliCommand::Bench(arguments) => bench::run(&arguments, state, output),
        CliCommand::Completions(arguments) => completions::run(&arguments, output),
    }
}
