//! Skein's command line: checks, plans, runs and shows workflows.
//!
//! Owns the terminal, the files and the exit status. What anything means is said by the libraries below it.

mod access;
mod around;
mod ask;
mod bench;
mod bindings;
mod capture;
mod catalog;
mod changes;
mod channels;
mod cli;
mod conditions;
mod config;
mod context;
mod demo;
mod described;
mod descriptors;
mod doctor;
mod draw;
mod enforcement;
mod exit;
mod find;
mod inbox;
mod invocation;
mod live;
mod missing_env;
mod orphans;
mod others;
mod output;
mod own;
mod parameters;
mod persona;
mod plan;
mod printed;
mod project;
mod question;
mod read;
mod resolve;
mod result;
mod say;
mod scratch;
mod servers;
mod settle;
mod since;
mod state;
mod taped;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Not a command: a process of a worker's sandbox.
    if let Some(ended) = skein_host::sandbox::enter(std::env::args_os().skip(1)) {
        return ended;
    }
    output::ended(cli::run()).into()
}
