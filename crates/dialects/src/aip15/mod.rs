//! AIP-15: a WORKFLOW.md, whose front matter is a list of steps with transitions to one another. Each step is a tool, a
//! decision, a wait or a nested list of steps.
//!
//! Reading yields the definitions of [`skein_core::builder`], which lowers them: a file and a program with the same
//! definitions are the same workflow.

mod defaults;
mod files;
mod lower;
mod step;
mod step_kinds;
mod value;
mod workflow;

pub(crate) use lower::lower;
