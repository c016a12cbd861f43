//! Views: the status of a run and its explanation, for people and programs.
//!
//! Owns the texts: paths of steps, sentences that explain why a step waits or did not run, lines of a timeline, a graph
//! of the steps. Does not decide anything: each view is computed from the plan and the state (the timeline from events
//! as they arrive) and stores nothing that the state has. Read `run` first, then `explain`.

mod explain;
mod graph;
mod halt_cause;
mod run;
mod step;
mod timeline;
mod undo;
mod waitpoints;
mod words;

#[cfg(test)]
mod explain_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use explain::{StepExplanation, StepReason};
pub use graph::{GraphEdge, GraphGroup, GraphGroupKind, GraphMark, GraphNode, GraphNodeKind, GraphView, build_graph};
pub use run::{CancelView, RunView, RunViewOptions, WorkflowView, view_run, view_run_with_options};
pub use step::{CostView, ErrorView, StepView, view_step};
pub use timeline::{TimelineEntry, TimelineLevel, describe_record};
pub use undo::{UndoFailureView, UndoView};
pub use waitpoints::{WaitpointView, WaitpointViewKind, view_waitpoint};
pub use words::status_word;
