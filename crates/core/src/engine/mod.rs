//! The state machine: what an input means for a run, and what the world should be doing because of it.
//!
//! Owns the rules of `docs/design/semantics.md`. Refuses to know clocks, disks, processes, and which format a plan
//! came from. `decide` turns a stimulus into events, one file in `verbs` for each thing that can happen; `apply` folds
//! an event into the state; `transitions` is the table of what is legal; the `Driver` is the loop around them.

mod address;
mod command;
mod event;
mod input;
mod refusal;

pub use address::{AttemptId, InstanceIx, NotAnAttempt, Opening, Role, StepAt};
pub use command::{Assignment, Commands};
pub use event::{
    Error, Event, Given, Halt, InstanceEnd, Mode, Onward, Outcome, Part, Route, Skip, Stop, UndoTarget, Walk,
};
pub use input::{Actor, AttemptEnd, Cost, Decision, Finding, Input, Publication, Report, Start, Stimulus};
pub use refusal::Refusal;
