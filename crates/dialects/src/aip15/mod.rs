//! AIP-15: a WORKFLOW.md, whose front matter is a list of steps that go on to one another, each a tool, a decision, a
//! wait, or a list of steps of its own.
//!
//! Reading gives the definitions of [`skein_core::builder`], which lowers them: a file and a program that say the same
//! are the same workflow.

mod defaults;
mod files;
mod kinds;
mod lower;
mod policy;
mod routines;
mod schedule;
mod step;
mod triggers;
mod value;
mod workflow;

pub(crate) use lower::lower;
