//! The command line: the commands and their arguments. One file per command.

mod audit;
mod bench;
mod catalog;
mod decide;
mod demo;
mod dlq;
mod doctor;
mod events;
mod explain;
mod fork;
mod init;
mod logs;
mod memory;
mod plan;
mod resume;
mod run;
mod runs;
mod show;
mod validate;

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use clap::{
    Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use skein_app::{app::App, app_error::AppError};
use skein_core::engine::Verdict;

use crate::{
    exit::Exit,
    render::{
        commands,
        output::{CliOutput, OutputFormat, is_broken_pipe},
    },
};

/// Check, plan and run workflows whose steps are done by coding agents, tools, commands and people.
#[derive(Debug, Parser)]
#[command(name = "skein", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: CliCommand,
    /// Output for people, one JSON value, or one line of JSON for each event of a run.
    #[arg(long, global = true, value_enum, default_value = "human")]
    format: OutputFormat,
    /// State folder; default: `.skein` in the project.
    #[arg(long, global = true, value_name = "DIR", env = "SKEIN_STATE")]
    state: Option<PathBuf>,
    /// Folder where the search for the project starts; default: the current folder.
    #[arg(long, global = true, value_name = "DIR")]
    project: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Check workflows, and report each problem with its place and a hint.
    Validate(validate::ValidateArguments),
    /// Show what a run would do, without running anything.
    Plan(plan::PlanArguments),
    /// Run a workflow.
    Run(run::RunArguments),
    /// List runs, or show one.
    Runs(runs::RunsArguments),
    /// Show the output of a run's workers.
    Logs(logs::LogsArguments),
    /// Show the events of a run.
    Events(events::EventsArguments),
    /// Approve a gate or a held step.
    Approve(decide::DecideArguments),
    /// Reject a gate or a held step.
    Reject(decide::DecideArguments),
    /// Send a signal to a run.
    Signal(decide::SignalArguments),
    /// Cancel a run.
    Cancel(decide::CancelArguments),
    /// Resume interrupted runs.
    Resume(resume::ResumeArguments),
    /// Start a new run from a step of another run, and reuse its results.
    Fork(fork::ForkArguments),
    /// List steps that failed permanently, and rerun or drop them.
    Dlq(dlq::DlqArguments),
    /// List and verify the audit records.
    Audit(audit::AuditArguments),
    /// Manage what a project remembers between runs.
    Memory(memory::MemoryArguments),
    /// Draw the steps of a workflow.
    Graph(show::GraphArguments),
    /// Print the JSON Schema of a format, for editors.
    Schema(explain::SchemaArguments),
    /// Explain a code, with a wrong and a right example.
    Explain(explain::ExplainArguments),
    /// List the workflows of the project.
    List,
    /// List all names that workflows can use, with their definitions and uses.
    Catalog(catalog::CatalogArguments),
    /// Show a workflow: its inputs, outputs and steps.
    Show(show::ShowArguments),
    /// Create a first workflow, which runs without changes.
    Init(init::InitArguments),
    /// Demonstrate recovery: a run is killed halfway and resumed.
    Demo(demo::DemoArguments),
    /// Check this machine's setup.
    Doctor(doctor::DoctorArguments),
    /// Measure the speed of Skein, compared with that of the machine.
    Bench(bench::BenchArguments),
    /// Print completions for a shell.
    Completions(explain::CompletionsArguments),
}

/// Returns the parser of an argument that is one of a few words.
fn parse_word<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    word: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|value| word(*value)))
        .try_map(move |text| all.iter().copied().find(|value| word(*value) == text).ok_or("no such word"))
}

impl CliCommand {
    /// Returns true if the command can print a line of JSON for each event.
    fn prints_json_lines(&self) -> bool {
        match self {
            CliCommand::Run(_) | CliCommand::Resume(_) | CliCommand::Fork(_) | CliCommand::Events(_) => true,
            CliCommand::Dlq(arguments) => arguments.is_rerun(),
            CliCommand::Runs(arguments) => arguments.follow,
            _ => false,
        }
    }
}

/// Reports arguments that could not be parsed. Help and version are no errors.
fn refuse_arguments(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return print_clap_error(error, Exit::Done);
    }
    if !asks_for_json(std::env::args_os()) {
        return print_clap_error(error, Exit::Usage);
    }
    let (message, hint) = split_clap_message(&error.render().to_string());
    let error = AppError::usage(message).with_optional_hint(hint);
    CliOutput::new(OutputFormat::Json).report_error(&error)
}

fn print_clap_error(error: &clap::Error, exit: Exit) -> Exit {
    match error.print() {
        Err(error) if !is_broken_pipe(&error) => Exit::Broken,
        _ => exit,
    }
}

/// Returns true if the arguments ask for JSON, without parsing the rest.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let arguments: Vec<OsString> = arguments.take_while(|argument| argument != "--").collect();
    let apart = arguments.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    apart || arguments.iter().any(|argument| argument == "--format=json")
}

/// Returns the first paragraph as the message; a tip, or else the usage of the command, as the hint.
fn split_clap_message(text: &str) -> (String, Option<String>) {
    let mut paragraphs = text
        .split("\n\n")
        .map(|lines| lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let rest: Vec<String> = paragraphs.collect();
    let tip = rest.iter().find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    let usage = || rest.iter().find(|text| text.starts_with("Usage: ")).cloned();
    (message.strip_prefix("error: ").unwrap_or(&message).to_owned(), tip.or_else(usage))
}

/// Parses the arguments and runs the command.
pub(crate) fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse_arguments(&error),
    };
    let output = CliOutput::new(cli.format);
    run_command(cli, output).unwrap_or_else(|error| output.report_error(&error))
}

fn run_command(cli: Cli, output: CliOutput) -> Result<Exit, AppError> {
    if cli.format == OutputFormat::Jsonl && !cli.command.prints_json_lines() {
        let hint = "`run`, `resume`, `fork`, `dlq rerun`, `events` and `runs --follow` do";
        return Err(AppError::usage("this command does not print lines of JSON").with_hint(hint));
    }
    if let Some(folder) = cli.project.as_deref().filter(|folder| !folder.is_dir()) {
        let message = format!("`--project {}` is not a folder", folder.display());
        return Err(AppError::usage(message));
    }
    commands::remember_flags(cli.state.as_deref(), cli.project.as_deref());
    let project = cli.project.unwrap_or_else(|| PathBuf::from("."));
    let app = &App { project, state: cli.state, observer: Arc::new(output) };
    match cli.command {
        CliCommand::Validate(arguments) => validate::run(&arguments, app, output),
        CliCommand::Plan(arguments) => plan::run(arguments, app, output),
        CliCommand::Run(arguments) => run::run(arguments, app, output),
        CliCommand::Runs(arguments) => runs::run(arguments, app, output),
        CliCommand::Logs(arguments) => logs::run(arguments, app, output),
        CliCommand::Events(arguments) => events::run(&arguments, app, output),
        CliCommand::Approve(arguments) => decide::run(arguments, Verdict::Approve, app, output),
        CliCommand::Reject(arguments) => decide::run(arguments, Verdict::Reject, app, output),
        CliCommand::Signal(arguments) => decide::run_signal(arguments, app, output),
        CliCommand::Cancel(arguments) => decide::run_cancel(arguments, app, output),
        CliCommand::Resume(arguments) => resume::run(arguments, app, output),
        CliCommand::Fork(arguments) => fork::run(arguments, app, output),
        CliCommand::Dlq(arguments) => dlq::run(arguments, app, output),
        CliCommand::Audit(arguments) => audit::run(arguments, app, output),
        CliCommand::Memory(arguments) => memory::run(arguments, app, output),
        CliCommand::Graph(arguments) => show::run_graph(&arguments, app, output),
        CliCommand::Schema(arguments) => explain::run_schema(&arguments, output),
        CliCommand::Explain(arguments) => explain::run(&arguments, output),
        CliCommand::List => show::run_list(app, output),
        CliCommand::Catalog(arguments) => catalog::run(&arguments, app, output),
        CliCommand::Show(arguments) => show::run(&arguments, app, output),
        CliCommand::Init(arguments) => init::run(&arguments, output),
        CliCommand::Demo(arguments) => demo::run(&arguments, output),
        CliCommand::Doctor(arguments) => doctor::run(&arguments, app, output),
        CliCommand::Bench(arguments) => bench::run(&arguments, app, output),
        CliCommand::Completions(arguments) => explain::run_completions(&arguments, output),
    }
}
