//! IOA: a `kind: Workflow` resource, whose steps are done by agents that the project names, and can be compensated.

mod advice;
mod defaults;
mod lower;
mod step;
mod syntax;
mod words;

pub(crate) use lower::lower;
pub(crate) use syntax::Metadata;
