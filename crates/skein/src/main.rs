//! Skein's command line: checks, plans, runs and shows workflows.
//!
//! Owns the terminal, the files and the exit status. The libraries below it define the meaning of workflows and runs.

mod attempt_logs;
mod bench;
mod capture;
mod cli;
mod demo;
mod doctor;
mod draw;
mod exit;
mod follow_run;
mod host_session;
mod inbox;
mod live;
mod orphans;
mod output;
mod plan_text;
mod prompt;
mod recording;
mod send_input;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // This invocation is not a command but the inner process of a worker's sandbox.
    if let Some(ended) = skein_host::sandbox::enter_sandbox(std::env::args_os().skip(1)) {
        return ended;
    }
    output::final_exit(cli::run()).into()
}
