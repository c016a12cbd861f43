//! The command line from outside: the built program, its whole output and its exit status.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod agents;
mod decisions;
mod documents;
mod examples;
mod files;
mod kept;
mod large;
mod pages;
mod parameters;
mod project;
mod run;
mod runs;
mod session;
mod terminal;
mod validate;
mod workers;
