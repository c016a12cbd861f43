//! SWDL: a list of stages, each done by an agent, decided by a person, or done once for each item of a list; with
//! `${{ }}` between them and a file of overrides beside them.

mod command;
mod defaults;
mod lower;
mod override_limits;
mod overrides;
mod status_words;
mod syntax;
mod types;

pub(crate) use command::split_plain_command;
pub(crate) use lower::lower;
