//! Scheduling of runs: triggers, their slots, and the decisions about their fires.
//!
//! Owns the rules of `docs/design/schedule.md`. [`decide()`] turns an input and the time into events, [`apply`] folds an
//! event into the state, and [`next_wake`] says when the next tick is needed. Like the engine, it knows no clock, no
//! disk and no process: whoever drives it stores the events in the transaction that creates the run, and applies them
//! afterwards. An event that was not stored has not happened.

mod condition;
mod cron;
mod decide;
mod definition;
mod error;
mod event;
mod input;
mod recurrence;
mod slots;
mod state;
mod trigger;

pub use decide::{decide, find_backfill, next_wake};
pub use definition::{
    CatchupPolicy, FailureActions, OverlapPolicy, RetryClass, RoutineEvent, ScheduleSettings, TriggerDefinition,
    TriggerKey, TriggerRetry, TriggerSource, ValidityWindow,
};
pub use error::TriggerError;
pub use event::{
    FireOrigin, FireOutcome, FireRefusal, FireSlot, OperatorWarning, PauseCause, RequestRefusal, TriggerEvent,
    TriggerFire, TriggeredRunEnd,
};
pub use input::{ExternalFire, TriggerInput};
pub use slots::{SlotRange, SlotSchedule, zone_names};
pub use state::{ArmedTrigger, DeclaredTrigger, PendingRetry, TriggerPause, TriggerState, TriggeredRun, apply};
pub use trigger::{Trigger, TriggerStatus};
