//! The command line: what can be asked, and who answers. One file a command.

mod completions;
mod explain;
mod graph;
mod list;
mod load;
mod plan;
mod run;
mod schema;
mod show;
mod validate;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    exit::Exit,
    output::{Format, Output, reader_left},
};

/// Checks, plans and draws workflows whose steps are done by coding agents, tools, commands and people.
#[derive(Debug, Parser)]
#[command(name = "skein", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// For people, or one JSON value for programs.
    #[arg(long, global = true, value_enum, default_value = "human")]
    format: Format,
    /// Where runs are kept; `.skein` in the project unless told otherwise.
    #[arg(long, global = true, value_name = "DIR", env = "SKEIN_STATE")]
    state: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks workflows and says what is wrong, where, and what to do.
    Validate(validate::Arguments),
    /// Shows what a run would do, before anything is spent.
    Plan(plan::Arguments),
    /// Does the work of a workflow, and shows it.
    Run(run::Arguments),
    /// Draws the steps of a workflow.
    Graph(graph::Arguments),
    /// Prints the JSON Schema of a format, for editors.
    Schema(schema::Arguments),
    /// Explains a code, with a wrong and a right example.
    Explain(explain::Arguments),
    /// Lists the workflows of the project.
    List,
    /// Shows one workflow: what it takes, does and gives.
    Show(show::Arguments),
    /// Prints completions for a shell.
    Completions(completions::Arguments),
}

/// Reads the arguments and does what they say.
pub fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are what was asked for.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let printed = error.print();
            let broken = printed.is_err_and(|error| !reader_left(&error));
            return if broken { Exit::Broken } else { exit };
        }
    };
    let output = Output::new(cli.format);
    match cli.command {
        Command::Validate(arguments) => validate::run(&arguments, output),
        Command::Plan(arguments) => plan::run(&arguments, output),
        Command::Run(arguments) => run::run(&arguments, cli.state.as_deref(), output),
        Command::Graph(arguments) => graph::run(&arguments, output),
        Command::Schema(arguments) => schema::run(&arguments, output),
        Command::Explain(arguments) => explain::run(&arguments, output),
        Command::List => list::run(output),
        Command::Show(arguments) => show::run(&arguments, output),
        Command::Completions(arguments) => completions::run(&arguments, output),
    }
}
