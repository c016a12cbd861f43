//! Skein's command line: checks, plans and shows workflows.
//!
//! Owns the terminal, the files and the exit status. What anything means is said by the libraries below it.

mod cli;
mod config;
mod draw;
mod exit;
mod find;
mod live;
mod output;
mod parameters;
mod person;
mod plan;
mod project;
mod read;
mod result;
mod settle;
mod state;
mod tools;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().into()
}
