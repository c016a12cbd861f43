//! Skein's command line: checks, plans and shows workflows.
//!
//! Owns the terminal, the files and the exit status. What anything means is said by the libraries below it.

mod cli;
mod config;
mod draw;
mod exit;
mod find;
#[cfg(test)]
mod live;
mod output;
mod parameters;
mod plan;
mod project;
mod read;
#[cfg(test)]
mod result;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().into()
}
