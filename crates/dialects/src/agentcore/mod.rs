//! AgentCore: a mapping of steps, each done by a coding agent or a script, that pass files to one another.

mod defaults;
mod lower;
mod rules;
mod step_syntax;
mod syntax;

pub(crate) use lower::lower;
