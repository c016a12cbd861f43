//! IOA: a `kind: Workflow` resource, whose steps are done by agents that the project names, and can be compensated.

mod advice;
mod defaults;
mod lower;
mod status_words;
mod step;
mod syntax;

pub(crate) use lower::lower;
pub(crate) use syntax::IoaMetadata;
