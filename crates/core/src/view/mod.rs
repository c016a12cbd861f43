//! Views: the status of a run and its explanation, for people and programs.
//!
//! Owns the texts: paths of steps, sentences that explain why a step waits or did not run, lines of a timeline, a graph
//! of the steps. Does not decide anything: each view is computed from the plan and the state (the timeline from events
//! as they arrive) and stores nothing that the state has. Read `run` first, then `explain`.

mod explain;
mod graph;
mod run;
mod timeline;
mod words;

#[cfg(test)]
mod tests;

pub use explain::{StepExplanation, StepReason};
pub use graph::{GraphEdge, GraphGroup, GraphGroupKind, GraphMark, GraphNode, GraphNodeKind, GraphView, build_graph};
pub use run::{
    CancelView, CostView, ErrorView, RunView, RunViewOptions, StepView, UndoFailureView, UndoView, WaitpointView,
    WaitpointViewKind, WorkflowView, view_run, view_run_with_options, view_step, view_waitpoint,
};
pub use timeline::{TimelineEntry, TimelineLevel, describe_record};
pub use words::status_word;
