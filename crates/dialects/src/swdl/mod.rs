//! SWDL: a list of stages. Each is done by an agent, decided by a person, or done once for each item of a list.
//! `${{ }}` passes values between them, and a file of overrides can change them.

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
