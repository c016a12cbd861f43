//! `skein completions`: prints the completion script of a shell.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use skein_app::app_error::AppError;

use super::Cli;
use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &CompletionsArguments, output: CliOutput) -> Result<Exit, AppError> {
    let mut text = Vec::new();
    generate(arguments.shell, &mut Cli::command(), "skein", &mut text);
    output.print_exact(&String::from_utf8_lossy(&text));
    Ok(Exit::Done)
}
