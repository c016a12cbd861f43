//! Output for people and programs: the display of a run, plans, graphs, tables, diagnostics and prompts.

pub(crate) mod commands;
pub(crate) mod follow;
pub(crate) mod graph;
pub(crate) mod live;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod tables;
