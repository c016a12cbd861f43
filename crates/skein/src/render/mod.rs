//! Output for people and programs: the display of a run, plans, graphs, tables, diagnostics and prompts.

pub mod commands;
pub mod follow;
pub mod graph;
pub mod live;
pub mod output;
pub mod plan;
pub mod prompt;
pub mod tables;
