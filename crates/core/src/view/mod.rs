//! Views: what a run is doing and why, for people and programs.
//!
//! Owns the words: paths of steps, sentences that say why a step waits or did not run, lines of a timeline, a drawing
//! of the steps. Refuses to decide anything: each view is worked out from the plan and the state (or, for the
//! timeline, from events as they come), and nothing is kept that the state has. Read `run` first, then `why`.

mod cost;
mod drawing;
mod entry;
mod halt;
mod names;
mod openings;
mod run;
mod step;
mod timeline;
mod undo;
mod why;
mod words;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod why_tests;

pub use cost::CostView;
pub use drawing::{Edge, Graph, Group, GroupKind, Mark, Node, NodeKind, graph};
pub use entry::{Entry, Level};
pub use names::Names;
pub use openings::{OpeningView, WaitsFor, opening};
pub use run::{CancelView, RunOptions, RunView, WorkflowView, run, run_with};
pub use step::{ErrorView, StepView, step};
pub use timeline::Timeline;
pub use undo::{UndoFailureView, UndoView};
pub use why::{Reason, Why};
