//! The state machine: what an input means for a run, and what the world should be doing because of it.
//!
//! Owns the rules of `docs/design/semantics.md`. Refuses to know clocks, disks, processes, and which format a plan
//! came from. `decide` turns a stimulus into events, one file in `verbs` for each thing that can happen; `apply` folds
//! an event into the state; `transitions` is the table of what is legal; the `Driver` is the loop around them.

mod address;
mod apply;
pub mod code;
mod command;
mod decide;
mod driver;
mod event;
mod fold;
mod fork;
mod hook;
mod input;
mod journal;
mod limit;
pub mod pairs;
mod past;
mod purse;
mod refusal;
mod reload;
mod reused;
mod scope_env;
mod size;
mod stall;
mod state;
pub mod transitions;
mod verbs;

pub use address::{AttemptId, InstanceIx, NotAnAttempt, Opening, Role, StepAt};
pub use apply::apply;
pub use command::{Assignment, Commands};
pub use decide::decide;
pub use driver::{Action, Driver, Token};
pub use event::{
    Error, Event, Given, Halt, InstanceEnd, Mode, Onward, Outcome, Part, Route, Skip, Stop, UndoTarget, Walk,
};
pub use fork::{Again, Fork, NoFork};
pub use hook::{Hooked, hook};
pub use input::{
    Actor, AttemptEnd, CheckOutput, Cost, Decision, Finding, ForkedFrom, Input, Proof, Publication, Report,
    Start, Stimulus,
};
pub use journal::{Batch, JournalError, Record, VERSION};
pub use past::Past;
pub use purse::{BudgetGrant, BudgetOwner, Purse, purses};
pub use refusal::Refusal;
pub use reused::{InstanceReused, Reused, StepReused};
pub use scope_env::utc;
pub use state::{
    Cancel, Completion, Deadline, Instance, InstancePhase, More, OpeningKind, OpeningState, RunEnd, RunPhase,
    RunState, STATE_VERSION, StepState, WalkState, wanted,
};
pub use transitions::Phase;
