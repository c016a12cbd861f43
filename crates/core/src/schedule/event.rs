//! Events of triggers: the decided facts that the store keeps.
//!
//! An event carries all that was decided, so that `apply` needs neither the definition nor the clock. Its JSON is a
//! stored format: fields are added with a default, never renamed or removed.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    definition::{FailureActions, OverlapPolicy, RoutineEvent, TriggerDefinition, TriggerKey},
    slots::SlotRange,
};
use crate::{
    ids::RunId,
    ir::{ErrorClass, is_default, is_one, one},
    plan::ContentHash,
    time::Timestamp,
};

/// The subject of a fire, unique in its trigger: an instant of the schedule, or the id of what came from outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FireSlot {
    At(Timestamp),
    Delivery(Arc<str>),
    Event(Arc<str>),
    Person(Arc<str>),
}

impl FireSlot {
    pub fn instant(&self) -> Option<Timestamp> {
        match self {
            FireSlot::At(at) => Some(*at),
            _ => None,
        }
    }
}

impl fmt::Display for FireSlot {
    /// Writes the slot as the text that identifies it in a table of fires.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FireSlot::At(at) => write!(f, "at:{}", at.0),
            FireSlot::Delivery(id) => write!(f, "delivery:{id}"),
            FireSlot::Event(id) => write!(f, "event:{id}"),
            FireSlot::Person(id) => write!(f, "person:{id}"),
        }
    }
}

/// The cause of a fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FireOrigin {
    /// A slot, in time.
    Schedule,
    /// A slot that was missed.
    Catchup,
    /// A slot that a person asked for.
    Backfill,
    Delivery,
    Event,
    Person,
}

/// One fire of a trigger: all that a run of it needs, and all that decides when the run may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerFire {
    pub slot: FireSlot,
    pub origin: FireOrigin,
    pub overlap: OverlapPolicy,
    /// The hash of the trigger and its target at the time of the fire. A fire never starts another definition.
    pub hash: ContentHash,
    /// The triggers that led to this fire, without this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<TriggerKey>,
    /// The number of this attempt, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub attempt: u32,
    /// The failed run that this attempt retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// The person who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The outcome of a fire. A fire that was queued gets another outcome later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FireOutcome {
    /// A run is to be created with this id, in the transaction that stores the event.
    Started {
        run: RunId,
        at: Timestamp,
    },
    Queued {
        at: Timestamp,
    },
    /// A run of the same trigger is not over, or a newer fire took the place of this one.
    Skipped {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        active: Option<RunId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced_by: Option<FireSlot>,
    },
    /// Too many fires wait.
    Throttled,
    Refused {
        reason: FireRefusal,
    },
    ConditionFalse,
    ConditionError {
        message: String,
    },
}

/// The reason why a trigger does not fire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FireRefusal {
    Absent,
    Invalid,
    Disabled,
    Unarmed,
    Stale,
    Paused,
    /// The time is outside the windows in which the trigger is valid.
    NotValid,
    /// The trigger or its target changed while the fire waited.
    Changed,
    /// The trigger is already in the chain that led here.
    ChainRepeats,
    ChainTooLong,
    /// The inputs do not fit the workflow.
    Inputs {
        message: String,
    },
    /// The run could not be created.
    Start {
        message: String,
    },
}

/// The end of a run that a trigger started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TriggeredRunEnd {
    Succeeded,
    Failed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<ErrorClass>,
    },
    Cancelled,
}

/// The cause of a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PauseCause {
    Person {
        by: String,
    },
    /// So many fires failed, one after the other.
    Failures {
        count: u32,
    },
}

/// A condition that an operator should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorWarning {
    /// A fire was suppressed because the trigger is not armed.
    Unarmed,
    /// A fire was suppressed because the trigger has changed since it was armed.
    Stale,
    /// The trigger was paused after consecutive failures.
    PausedAfterFailures,
    /// Consecutive fires were skipped because a run was active.
    Overlaps,
}

/// The reason why a request of a person changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestRefusal {
    /// The trigger to arm is not the one that is declared now.
    Changed {
        current: ContentHash,
    },
    /// A trigger that cannot be used cannot be armed.
    Invalid {
        message: String,
    },
    Absent,
    /// The trigger has no slots to backfill.
    NoSchedule,
    TooManySlots {
        limit: u32,
    },
}

/// An event of a trigger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TriggerEvent {
    /// The trigger was declared, changed, or came back. Earlier slots do not fire.
    Declared {
        definition: Arc<TriggerDefinition>,
        target: ContentHash,
        at: Timestamp,
    },
    Removed,
    /// A person armed what this hash identifies. Earlier slots do not fire.
    Armed {
        hash: ContentHash,
        by: String,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    Paused {
        cause: PauseCause,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Slots up to this time do not fire.
    Unpaused {
        by: String,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A request of a person was refused. Changes nothing.
    RequestRefused {
        reason: RequestRefusal,
    },
    /// Slots that are too late and are not caught up.
    SlotsMissed {
        slots: SlotRange,
    },
    /// Slots at which the trigger could not fire.
    SlotsSuppressed {
        slots: SlotRange,
        reason: FireRefusal,
    },
    Fired {
        fire: Box<TriggerFire>,
        outcome: FireOutcome,
    },
    /// An active run is to be cancelled, because a newer fire takes its place.
    CancelRequested {
        run: RunId,
        slot: FireSlot,
    },
    RunEnded {
        run: RunId,
        slot: FireSlot,
        end: TriggeredRunEnd,
    },
    /// A failed run is to be retried at this time.
    RetryScheduled {
        fire: Box<TriggerFire>,
        due: Timestamp,
    },
    /// All attempts of a fire failed.
    FireFailed {
        slot: FireSlot,
        run: RunId,
        attempts: u32,
        #[serde(default, skip_serializing_if = "is_default")]
        actions: FailureActions,
        /// The triggers that led to the failed run, this one last; an event that is emitted carries them.
        chain: Vec<TriggerKey>,
    },
    /// A routine emits an event about itself.
    RoutineEmitted {
        event: RoutineEvent,
        slot: FireSlot,
        run: RunId,
        /// The triggers that led to the event, this one last.
        chain: Vec<TriggerKey>,
    },
    OperatorWarned {
        warning: OperatorWarning,
    },
}

impl TriggerEvent {
    /// The name of the event, as in its JSON.
    pub fn name(&self) -> &'static str {
        match self {
            TriggerEvent::Declared { .. } => "declared",
            TriggerEvent::Removed => "removed",
            TriggerEvent::Armed { .. } => "armed",
            TriggerEvent::Paused { .. } => "paused",
            TriggerEvent::Unpaused { .. } => "unpaused",
            TriggerEvent::RequestRefused { .. } => "request_refused",
            TriggerEvent::SlotsMissed { .. } => "slots_missed",
            TriggerEvent::SlotsSuppressed { .. } => "slots_suppressed",
            TriggerEvent::Fired { .. } => "fired",
            TriggerEvent::CancelRequested { .. } => "cancel_requested",
            TriggerEvent::RunEnded { .. } => "run_ended",
            TriggerEvent::RetryScheduled { .. } => "retry_scheduled",
            TriggerEvent::FireFailed { .. } => "fire_failed",
            TriggerEvent::RoutineEmitted { .. } => "routine_emitted",
            TriggerEvent::OperatorWarned { .. } => "operator_warned",
        }
    }
}

impl FireOutcome {
    /// The name of the outcome, as in its JSON.
    pub fn name(&self) -> &'static str {
        match self {
            FireOutcome::Started { .. } => "started",
            FireOutcome::Queued { .. } => "queued",
            FireOutcome::Skipped { .. } => "skipped",
            FireOutcome::Throttled => "throttled",
            FireOutcome::Refused { .. } => "refused",
            FireOutcome::ConditionFalse => "condition_false",
            FireOutcome::ConditionError { .. } => "condition_error",
        }
    }
}

impl TriggerFire {
    /// Returns the id of the run of this fire. It is a hash, so a fire that is decided twice creates one run.
    pub fn run_id(&self, key: &TriggerKey) -> RunId {
        const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let (slot, attempt) = (self.slot.to_string(), self.attempt.to_le_bytes());
        let hash = ContentHash::hash_bytes(key.as_str().as_bytes()).chain([slot.as_bytes(), &attempt[..]]);
        let text: String = hash.0.iter().take(16).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
        RunId::new(text).expect("letters and digits are a name")
    }
}
