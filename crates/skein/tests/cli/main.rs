//! The command line from outside: the built program, its whole output and its exit status.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod agents;
mod attacks;
mod bench;
mod builtin;
mod catalog;
mod contexts;
mod crash;
mod damage;
mod decisions;
mod demo;
mod disk;
mod doctor;
mod documents;
mod ends;
mod evidence;
mod examples;
mod files;
mod forks;
mod hooks;
mod init;
mod kept;
mod large;
mod pages;
mod parameters;
mod policies;
mod project;
mod promises;
mod replay;
mod resolver;
mod run;
mod runs;
mod session;
mod telemetry;
mod terminal;
mod told;
mod trees;
mod undo;
mod validate;
mod wall;
mod workers;
