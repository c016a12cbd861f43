//! The state machine: decides the events that follow from an input, and the work that the host should be doing.
//!
//! Owns the rules of `docs/design/semantics.md`. Does not know clocks, disks, processes, or the format that a plan came
//! from. `decide` turns an input into events, with one file in `verbs` for each kind of event; `apply` folds an event
//! into the state; `transitions` is the table of legal transitions; the `Driver` is the loop around them.

mod address;
mod apply;
mod budget;
pub mod code;
mod decide;
mod driver;
mod event;
mod fork;
mod input;
mod journal;
mod projection;
mod reusable_results;
mod scope_env;
mod state;
pub mod transitions;
mod verbs;

pub use address::{AttemptId, AttemptIdError, AttemptRole, InstanceIx, StepAt, Waitpoint};
pub use apply::apply;
pub use budget::{BudgetGrant, BudgetOwner, BudgetUsage, find_budgets};
pub use decide::decide;
pub use driver::{Driver, DriverAction, DriverAnswer, InputToken};
pub use event::{
    AttemptInput, AttemptMode, AttemptStopReason, CursorRoute, Event, EventSubject, ExecutionError, HaltReason,
    InstanceEnd, InstancePart, NextAction, SkipReason, StepOutcome, UndoTarget, UndoWalk,
};
pub use fork::{ForkRefusal, ForkSeed, RerunReason};
pub use input::{
    AttemptEnd, AttemptReport, CheckFinding, CheckOutput, Cost, DecisionActor, EvidenceResult, ForkOrigin, Publication,
    Refusal, RunInput, RunStart, TIMEOUT_ACTOR, TimedInput, Verdict,
};
pub use journal::{JournalBatch, JournalError, JournalRecord, VERSION};
pub use projection::{
    CheckRecord, LedgerEntry, MainAttempt, MainAttemptEnd, RunLedger, RunProjection, StageRaise, StepPaths,
};
pub use reusable_results::{InstanceReused, ReusableResults, ReusedResult, StepReused};
pub use scope_env::{EvaluatedHook, evaluate_hook};
pub use state::{
    AttemptAssignment, CompletedVisit, Deadline, InstancePhase, InstanceState, RunCancellation, RunConclusion,
    RunPhase, RunState, STATE_VERSION, StepState, UndoWalkState, VisitState, WaitpointKind, WaitpointState, WantedWork,
    wanted,
};
pub use transitions::StepPhase;

pub use crate::time::format_utc;
