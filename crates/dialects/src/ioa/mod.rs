//! IOA: a `kind: Workflow` resource. Agents that the project names do its steps, which can be compensated.

mod advice;
mod defaults;
mod lower;
mod step;
mod syntax;

pub(crate) use lower::lower;
