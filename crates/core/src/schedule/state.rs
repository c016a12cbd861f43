//! The state of a trigger, and the fold of events into it.
//!
//! Owns what must survive a restart. The fold never fails and needs no definition, so stored events always lead to the
//! same state.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    definition::TriggerDefinition,
    event::{
        FireOrigin, FireOutcome, FireRefusal, FireSlot, OperatorWarning, PauseCause, TriggerEvent, TriggerFire,
        TriggeredRunEnd,
    },
};
use crate::{
    ids::RunId,
    ir::is_default,
    limits,
    plan::ContentHash,
    time::{Millis, Timestamp},
};

/// The span in which the starts of a trigger are counted.
pub(super) const RATE_WINDOW: Millis = Millis::from_mins(1);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerState {
    /// The declaration that was seen last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredTrigger>,
    /// True if the declaration is there now.
    pub present: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub armed: Option<ArmedTrigger>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<TriggerPause>,
    /// Every slot up to this time is settled. Never moves back, whatever the clock does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Timestamp>,
    /// The runs that are not over.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub active: BTreeMap<RunId, TriggeredRun>,
    /// The fires that wait for a start, in their order.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub queue: VecDeque<TriggerFire>,
    /// The failed runs that wait for their next attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<PendingRetry>,
    /// The times of the latest starts.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub starts: VecDeque<Timestamp>,
    /// Consecutive failures, and consecutive overlaps.
    #[serde(skip_serializing_if = "is_default")]
    pub failures: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub overlaps: u32,
    /// True if the operator has been warned that fires are suppressed.
    #[serde(skip_serializing_if = "is_default")]
    pub warned: bool,
    /// The latest fires, against duplicates.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub recent: VecDeque<FireSlot>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTrigger {
    pub definition: Arc<TriggerDefinition>,
    pub target: ContentHash,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmedTrigger {
    pub hash: ContentHash,
    pub by: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerPause {
    pub cause: PauseCause,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggeredRun {
    pub fire: TriggerFire,
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancelling: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingRetry {
    pub fire: TriggerFire,
    pub due: Timestamp,
}

impl TriggerState {
    /// The time from which intervals and recurrence rules count.
    pub fn anchor(&self, now: Timestamp) -> Timestamp {
        self.armed.as_ref().map_or(now, |armed| armed.at)
    }

    /// True if a fire with this slot waits, runs, is to be retried, or was seen lately.
    pub fn holds(&self, slot: &FireSlot) -> bool {
        self.queue.iter().any(|fire| fire.slot == *slot)
            || self.active.values().any(|run| run.fire.slot == *slot)
            || self.retries.iter().any(|retry| retry.fire.slot == *slot)
            || self.recent.contains(slot)
    }

    /// Moves the position forward. A time before it changes nothing.
    fn settle_until(&mut self, at: Timestamp) {
        self.position = self.position.max(Some(at));
    }

    fn remember(&mut self, slot: &FireSlot) {
        if !self.recent.contains(slot) {
            self.recent.push_back(slot.clone());
        }
        while self.recent.len() > limits::TRIGGER_RECENT {
            self.recent.pop_front();
        }
    }

    /// Removes a fire from where it waits.
    fn take_waiting(&mut self, fire: &TriggerFire) {
        self.queue.retain(|waiting| (&waiting.slot, waiting.attempt) != (&fire.slot, fire.attempt));
        self.retries.retain(|retry| (&retry.fire.slot, retry.fire.attempt) != (&fire.slot, fire.attempt));
    }

    fn record_start(&mut self, at: Timestamp) {
        self.starts.push_back(at);
        self.starts.retain(|start| is_within_minute(*start, at));
    }
}

/// True if a start counts towards the rate at this time. A start in the future, which a clock that was set back leaves,
/// counts for a minute too, and is then forgotten.
pub(super) fn is_within_minute(start: Timestamp, now: Timestamp) -> bool {
    start.duration_since(now).max(now.duration_since(start)) < RATE_WINDOW
}

/// Folds an event into the state.
pub fn apply(state: &mut TriggerState, event: &TriggerEvent) {
    match event {
        TriggerEvent::Declared { definition, target, at } => {
            state.declared = Some(DeclaredTrigger { definition: definition.clone(), target: *target });
            state.present = true;
            if state.position.is_some() {
                state.settle_until(*at);
            }
        }
        TriggerEvent::Removed => state.present = false,
        TriggerEvent::Armed { hash, by, at, note } => {
            state.armed = Some(ArmedTrigger { hash: *hash, by: by.clone(), at: *at, note: note.clone() });
            state.settle_until(*at);
            (state.failures, state.overlaps, state.warned) = (0, 0, false);
        }
        TriggerEvent::Paused { cause, at, note } => {
            state.paused = Some(TriggerPause { cause: cause.clone(), at: *at, note: note.clone() });
        }
        TriggerEvent::Unpaused { at, .. } => {
            state.paused = None;
            state.failures = 0;
            if state.position.is_some() {
                state.settle_until(*at);
            }
        }
        TriggerEvent::SlotsMissed { slots } | TriggerEvent::SlotsSuppressed { slots, .. } => {
            state.settle_until(slots.last);
        }
        TriggerEvent::Fired { fire, outcome } => apply_fire(state, fire, outcome),
        TriggerEvent::CancelRequested { run, .. } => {
            if let Some(active) = state.active.get_mut(run) {
                active.cancelling = true;
            }
        }
        TriggerEvent::RunEnded { run, end, .. } => {
            state.active.remove(run);
            if *end == TriggeredRunEnd::Succeeded {
                state.failures = 0;
            }
        }
        TriggerEvent::RetryScheduled { fire, due } => {
            state.retries.push(PendingRetry { fire: fire.as_ref().clone(), due: *due });
        }
        TriggerEvent::FireFailed { .. } => state.failures = state.failures.saturating_add(1),
        TriggerEvent::OperatorWarned { warning: OperatorWarning::Stale | OperatorWarning::Unarmed } => {
            state.warned = true;
        }
        TriggerEvent::OperatorWarned { .. }
        | TriggerEvent::RoutineEmitted { .. }
        | TriggerEvent::RequestRefused { .. } => {}
    }
}

fn apply_fire(state: &mut TriggerState, fire: &TriggerFire, outcome: &FireOutcome) {
    if let (FireOrigin::Schedule | FireOrigin::Catchup, FireSlot::At(slot)) = (fire.origin, &fire.slot) {
        state.settle_until(*slot);
    }
    state.take_waiting(fire);
    match outcome {
        FireOutcome::Started { run, at } => {
            state.active.insert(run.clone(), TriggeredRun { fire: fire.clone(), cancelling: false });
            state.record_start(*at);
            state.overlaps = 0;
        }
        FireOutcome::Queued { .. } => state.queue.push_back(fire.clone()),
        FireOutcome::Skipped { replaced_by: None, .. } => state.overlaps = state.overlaps.saturating_add(1),
        FireOutcome::Refused { reason: FireRefusal::Start { .. } } => {
            state.active.retain(|_, run| (&run.fire.slot, run.fire.attempt) != (&fire.slot, fire.attempt));
        }
        _ => {}
    }
    // A fire that was refused may come again, and so may a slot that has not started.
    let counts = match outcome {
        FireOutcome::Refused { .. } => false,
        FireOutcome::Started { .. } => true,
        _ => fire.slot.instant().is_none(),
    };
    if counts {
        state.remember(&fire.slot);
    } else if matches!(outcome, FireOutcome::Refused { .. }) {
        state.recent.retain(|slot| *slot != fire.slot);
    }
}
