//! Skein's command line: checks, plans, runs and shows workflows.
//!
//! Owns the terminal, the files and the exit status. The libraries below it define the meaning of workflows and runs.

mod agent_config;
mod agent_context;
mod attempt_logs;
mod bench;
mod bindings;
mod capture;
mod catalog;
mod catalog_check;
mod channels;
mod cli;
mod conditions;
mod config;
mod context;
mod demo;
mod doctor;
mod draw;
mod enforcement;
mod exit;
mod file_changes;
mod file_limit;
mod follow_run;
mod host_session;
mod inbox;
mod invocation;
mod live;
mod mcp_servers;
mod missing_env;
mod orphans;
mod output;
mod parameters;
mod past_time;
mod plan;
mod prepare_run;
mod probe;
mod project;
mod prompt;
mod recording;
mod resolve;
mod run_files;
mod run_json;
mod secret_access;
mod send_input;
mod source_file;
mod source_search;
mod state;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // This invocation is not a command but the inner process of a worker's sandbox.
    if let Some(ended) = skein_host::sandbox::enter_sandbox(std::env::args_os().skip(1)) {
        return ended;
    }
    output::final_exit(cli::run()).into()
}
