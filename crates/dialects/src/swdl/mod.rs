//! SWDL: a list of stages, each done by an agent, decided by a person, or done once for each item of a list; with
//! `${{ }}` between them and a file of overrides beside them.

mod command;
mod defaults;
mod lower;
mod narrow;
mod overrides;
mod syntax;
mod types;
mod words;

pub(crate) use command::split_plain;
pub(crate) use lower::lower;
