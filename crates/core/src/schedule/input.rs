//! Inputs of triggers: the facts and requests from outside to which `decide` responds.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    definition::{OverlapPolicy, TriggerKey},
    event::TriggeredRunEnd,
};
use crate::{ids::RunId, plan::ContentHash, time::Timestamp};

#[derive(Debug, Clone, PartialEq)]
pub enum TriggerInput {
    /// Time has passed. Safe at any time and as often as anyone likes.
    Tick,
    /// The trigger is declared as given. `auto_arm`: no person has to arm it.
    Declared {
        auto_arm: bool,
    },
    /// The declaration is gone. The trigger given is the last that was declared.
    Removed,
    /// A person arms the trigger that the hash identifies.
    Armed {
        by: String,
        hash: ContentHash,
        note: Option<String>,
    },
    Paused {
        by: String,
        note: Option<String>,
    },
    Unpaused {
        by: String,
        note: Option<String>,
    },
    /// A webhook delivery.
    Delivery(ExternalFire),
    /// An event of this name.
    Event {
        name: Arc<str>,
        fire: ExternalFire,
    },
    /// A person fires the trigger. The id makes the fire unique.
    Fire {
        id: Arc<str>,
        by: String,
        overlap: Option<OverlapPolicy>,
        refused: Option<String>,
    },
    /// A person fires the settled slots in a span, both ends included. `started` are those slots that have started a run
    /// before; they do not fire again.
    Backfill {
        by: String,
        from: Timestamp,
        to: Timestamp,
        overlap: Option<OverlapPolicy>,
        started: BTreeSet<Timestamp>,
    },
    RunEnded {
        run: RunId,
        end: TriggeredRunEnd,
    },
    /// A run that was to be started could not be created.
    StartRefused {
        run: RunId,
        message: String,
    },
}

/// A delivery or an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExternalFire {
    /// Unique among the deliveries or events of the trigger.
    pub id: Arc<str>,
    pub payload: Arc<Value>,
    /// The triggers that led to it.
    pub chain: Vec<TriggerKey>,
    /// True if the store has a fire of this trigger with this id.
    pub known: bool,
    /// The reason why the inputs do not fit the workflow.
    pub refused: Option<String>,
}

impl TriggerInput {
    pub const KINDS: [&'static str; 12] = [
        "tick",
        "declared",
        "removed",
        "armed",
        "paused",
        "unpaused",
        "delivery",
        "event",
        "fire",
        "backfill",
        "run_ended",
        "start_refused",
    ];

    pub fn kind(&self) -> &'static str {
        match self {
            TriggerInput::Tick => "tick",
            TriggerInput::Declared { .. } => "declared",
            TriggerInput::Removed => "removed",
            TriggerInput::Armed { .. } => "armed",
            TriggerInput::Paused { .. } => "paused",
            TriggerInput::Unpaused { .. } => "unpaused",
            TriggerInput::Delivery(_) => "delivery",
            TriggerInput::Event { .. } => "event",
            TriggerInput::Fire { .. } => "fire",
            TriggerInput::Backfill { .. } => "backfill",
            TriggerInput::RunEnded { .. } => "run_ended",
            TriggerInput::StartRefused { .. } => "start_refused",
        }
    }
}
