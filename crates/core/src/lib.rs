//! The semantics of Skein's workflows: a deterministic core with no clock, no randomness and no IO.
//!
//! A [`ir::Workflow`] is checked and frozen into a [`plan`]. [`engine`] decides the effect of each input on a run and
//! folds the decisions into its state; [`view`] shows it. The host and the simulator both drive the same
//! [`engine::Driver`].

pub mod agents;
pub mod builder;
pub mod engine;
pub mod expr;
pub mod ids;
pub mod ir;
pub mod limits;
pub mod plan;
pub mod reserved_variables;
pub mod schedule;
pub mod secret_name;
pub mod suggest;
pub mod terms;
pub mod time;
pub mod tool_call;
pub mod view;
