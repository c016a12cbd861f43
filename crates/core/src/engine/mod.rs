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
mod fold;
mod fork;
mod hook;
mod input;
mod journal;
mod ledger;
pub mod map_as_pairs;
mod projection;
mod reload;
mod reusable_results;
mod scope_env;
mod state;
pub mod transitions;
mod verbs;
mod wanted_work;

pub use address::{AttemptId, AttemptIdError, AttemptRole, InstanceIx, StepAt, Waitpoint};
pub use apply::apply;
pub use budget::{BudgetGrant, BudgetOwner, BudgetUsage, find_budgets};
pub use decide::decide;
pub use driver::{Driver, DriverAction, InputToken};
pub use event::{
    AttemptInput, AttemptMode, AttemptStopReason, CursorRoute, Event, EventSubject, ExecutionError, HaltReason,
    InstanceEnd, InstancePart, NextAction, SkipReason, StepOutcome, UndoTarget, UndoWalk,
};
pub use fork::{ForkRefusal, ForkSeed, RerunReason};
pub use hook::{EvaluatedHook, evaluate_hook};
pub use input::{
    AttemptEnd, AttemptReport, CheckFinding, CheckOutput, Cost, DecisionActor, EvidenceResult, ForkOrigin, Publication,
    Refusal, RunInput, RunStart, TimedInput, Verdict,
};
pub use journal::{JournalBatch, JournalError, JournalRecord, VERSION};
pub use ledger::{CheckRecord, LedgerEntry, MainAttempt, MainAttemptEnd, RunLedger, StageRaise};
pub use projection::{RunProjection, StepPaths};
pub use reusable_results::{InstanceReused, ReusableResults, ReusedResult, StepReused};
pub use scope_env::format_utc;
pub use state::{
    CompletedVisit, Deadline, InstancePhase, InstanceState, RunCancellation, RunConclusion, RunPhase, RunState,
    STATE_VERSION, StepState, UndoWalkState, VisitState, WaitpointKind, WaitpointState, wanted,
};
pub use transitions::StepPhase;
pub use wanted_work::{AttemptAssignment, WantedWork};
