//! Skein's command line: checks, plans, runs and shows workflows.
//!
//! Owns the arguments, the terminal and the exit status. The application layer below it has the operations.

mod cli;
mod exit;
mod render;

use std::process::ExitCode;

fn main() -> ExitCode {
    // This invocation is not a command but the inner process of a worker's sandbox.
    if let Some(ended) = skein_host::sandbox::enter_sandbox(std::env::args_os().skip(1)) {
        return ended;
    }
    render::output::final_exit(cli::run()).into()
}
