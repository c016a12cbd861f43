//! The operations that a person or a program can ask of Skein, over a project on disk.
//!
//! Owns projects, their configuration and catalog, the choice of drivers, the settings of a run, views of plans and the
//! errors of operations ([`app_error::AppError`]). Does not print, does not exit, and does not parse arguments: front ends
//! such as the command line render results and errors.

pub mod agent_config;
pub mod agent_context;
pub mod app_error;
pub mod bindings;
pub mod catalog;
pub mod catalog_check;
pub mod channels;
pub mod conditions;
pub mod config;
pub mod context;
pub mod enforcement;
pub mod file_changes;
pub mod file_limit;
pub mod invocation;
pub mod mcp_servers;
pub mod missing_env;
pub mod parameters;
pub mod past_time;
pub mod plan;
pub mod prepare_run;
pub mod probe;
pub mod project;
pub mod resolve;
pub mod run_files;
pub mod run_json;
pub mod secret_access;
pub mod source_file;
pub mod source_search;
pub mod state;
