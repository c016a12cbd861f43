//! Skein's command line: checks, plans, runs and shows workflows.
//!
//! Owns the terminal, the files and the exit status. What anything means is said by the libraries below it.

mod access;
mod around;
mod ask;
mod bench;
mod capture;
mod catalog;
mod changes;
mod channels;
mod cli;
mod config;
mod context;
mod demo;
mod described;
mod doctor;
mod draw;
mod exit;
mod find;
mod live;
mod orphans;
mod others;
mod output;
mod own;
mod parameters;
mod person;
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
mod state;
mod taped;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    // Not a command: how a worker of ours begins.
    if arguments.next_if(|first| first == skein_host::wall::ARGUMENT).is_some() {
        return skein_host::wall::enter(arguments);
    }
    output::ended(cli::run()).into()
}
