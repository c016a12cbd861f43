//! The operations that a person or a program can ask of Skein, over a project on disk.
//!
//! Owns projects, their configuration and catalog, the choice of drivers, the settings of a run, views of plans, the
//! execution and inspection of runs, and the errors of operations ([`app_error::AppError`]). Does not print, does not
//! exit, and does not parse arguments: front ends such as the command line call operations with an [`app::App`], and
//! render results and errors.

pub mod app;
pub mod app_error;
pub mod audit;
pub mod dead_letters;
pub mod doctor;
pub mod init;
pub mod memory;
pub mod plan;
pub mod prepare;
pub mod project;
pub mod runs;
pub mod state;
pub mod validate;
pub mod workflows;
