//! Views: what a run is doing and why, for people and programs.
//!
//! Owns the words: paths of steps, sentences that say why a step waits or did not run, lines of a timeline, a drawing
//! of the steps. Refuses to decide anything: each view is worked out from the plan and the state (or, for the
//! timeline, from events as they come), and nothing is kept that the state has. Read `run` first, then `why`.

mod cost;
mod explain;
mod graph;
mod halt_cause;
mod run;
mod step;
mod step_paths;
mod timeline;
mod timeline_entry;
mod undo;
mod waitpoints;
mod words;

#[cfg(test)]
mod explain_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use cost::CostView;
pub use explain::{StepExplanation, StepReason};
pub use graph::{
    GraphEdge, GraphGroup, GraphGroupKind, GraphMark, GraphNode, GraphNodeKind, GraphView, build_graph,
};
pub use run::{CancelView, RunView, RunViewOptions, WorkflowView, view_run, view_run_with_options};
pub use step::{ErrorView, StepView, view_step};
pub use step_paths::StepPaths;
pub use timeline::Timeline;
pub use timeline_entry::{TimelineEntry, TimelineLevel};
pub use undo::{UndoFailureView, UndoView};
pub use waitpoints::{WaitpointView, WaitpointViewKind, view_waitpoint};
