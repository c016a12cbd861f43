//! Compiled triggers: a definition with its hash and its schedule.
//!
//! Owns the checks of a definition, jitter, and the one function that decides whether a trigger may fire. Does not know
//! how fires wait for one another; `decide` does.

use std::sync::Arc;

use super::{
    definition::{CatchupPolicy, ScheduleSettings, TriggerDefinition, TriggerSource},
    error::TriggerError,
    event::{FireOrigin, FireRefusal},
    slots::SlotSchedule,
    state::TriggerState,
};
use crate::{
    limits,
    plan::ContentHash,
    time::{Millis, Timestamp},
};

/// A declared trigger, ready to decide with.
#[derive(Debug, Clone)]
pub struct Trigger {
    definition: Arc<TriggerDefinition>,
    target: ContentHash,
    hash: ContentHash,
    settings: ScheduleSettings,
    schedule: Result<Option<SlotSchedule>, TriggerError>,
}

/// The state of a trigger, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerStatus {
    /// Its declaration is gone.
    Absent,
    /// Its declaration cannot be used.
    Invalid,
    /// Its declaration switches it off.
    Disabled,
    /// No person has armed it.
    Unarmed,
    /// It has changed since it was armed.
    Stale,
    Paused,
    Armed,
}

impl TriggerStatus {
    pub const ALL: [TriggerStatus; 7] = [
        TriggerStatus::Absent,
        TriggerStatus::Invalid,
        TriggerStatus::Disabled,
        TriggerStatus::Unarmed,
        TriggerStatus::Stale,
        TriggerStatus::Paused,
        TriggerStatus::Armed,
    ];

    /// The reason for which a trigger with this status does not fire by itself.
    pub fn refusal(self) -> Option<FireRefusal> {
        match self {
            TriggerStatus::Absent => Some(FireRefusal::Absent),
            TriggerStatus::Invalid => Some(FireRefusal::Invalid),
            TriggerStatus::Disabled => Some(FireRefusal::Disabled),
            TriggerStatus::Unarmed => Some(FireRefusal::Unarmed),
            TriggerStatus::Stale => Some(FireRefusal::Stale),
            TriggerStatus::Paused => Some(FireRefusal::Paused),
            TriggerStatus::Armed => None,
        }
    }
}

impl Trigger {
    /// Compiles a definition. `target` is the hash of the workflow that it starts, with all that the workflow calls and
    /// binds. A definition that cannot be used becomes a trigger whose status is invalid.
    pub fn compile(
        definition: impl Into<Arc<TriggerDefinition>>,
        target: ContentHash,
        settings: ScheduleSettings,
    ) -> Trigger {
        let definition = definition.into();
        let hash = ContentHash::hash_json(&*definition).chain([&target.0[..]]);
        let schedule = check_definition(&definition).and_then(|()| SlotSchedule::compile(&definition));
        Trigger { definition, target, hash, settings, schedule }
    }

    pub fn definition(&self) -> &Arc<TriggerDefinition> {
        &self.definition
    }

    /// The hash of the workflow that the trigger starts.
    pub fn target(&self) -> ContentHash {
        self.target
    }

    /// The hash that a person arms: of the definition and of the target.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    pub fn settings(&self) -> ScheduleSettings {
        self.settings
    }

    /// The reason why the definition cannot be used.
    pub fn error(&self) -> Option<&TriggerError> {
        self.schedule.as_ref().err()
    }

    /// The slots of the trigger, if it is a valid schedule.
    pub fn schedule(&self) -> Option<&SlotSchedule> {
        self.schedule.as_ref().ok()?.as_ref()
    }

    pub fn status(&self, state: &TriggerState) -> TriggerStatus {
        if !state.present {
            return TriggerStatus::Absent;
        }
        if self.error().is_some() {
            return TriggerStatus::Invalid;
        }
        if !self.definition.enabled {
            return TriggerStatus::Disabled;
        }
        match &state.armed {
            None => TriggerStatus::Unarmed,
            Some(armed) if armed.hash != self.hash => TriggerStatus::Stale,
            Some(_) if state.paused.is_some() => TriggerStatus::Paused,
            Some(_) => TriggerStatus::Armed,
        }
    }

    /// Decides whether the trigger may fire. The clock, hooks, events and people all ask here. A person may also fire a
    /// trigger that is not armed, paused or disabled, because that equals starting the workflow with the trigger's inputs.
    pub fn may_fire(&self, state: &TriggerState, origin: FireOrigin) -> Result<(), FireRefusal> {
        let by_person = matches!(origin, FireOrigin::Person | FireOrigin::Backfill);
        match self.status(state) {
            TriggerStatus::Disabled | TriggerStatus::Unarmed | TriggerStatus::Stale | TriggerStatus::Paused
                if by_person =>
            {
                Ok(())
            }
            status => status.refusal().map_or(Ok(()), Err),
        }
    }

    /// The time at which a slot fires: the slot and its jitter. The jitter is a hash, so it survives a restart, and is
    /// at most half the distance to the next slot, so it never changes the order of slots.
    pub fn due_time(&self, anchor: Timestamp, slot: Timestamp) -> Timestamp {
        let Some(schedule) = self.schedule().filter(|_| self.definition.jitter.0 > 0) else { return slot };
        let next = schedule.next_after(anchor, slot);
        let half = next.map_or(u64::MAX, |next| next.duration_since(slot).0 / 2);
        let most = self.definition.jitter.0.min(half);
        let hash = ContentHash::hash_bytes(self.definition.key.as_str().as_bytes()).chain([&slot.0.to_le_bytes()[..]]);
        let drawn = hash.0.iter().take(8).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        let jitter = (u128::from(drawn) * (u128::from(most) + 1)) >> 64;
        slot.saturating_add(Millis(u64::try_from(jitter).unwrap_or(most)))
    }

    /// Returns the times at which the trigger will fire if nothing changes: each slot with its due time.
    pub fn upcoming(
        &self,
        state: &TriggerState,
        now: Timestamp,
        count: usize,
    ) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let anchor = state.anchor(now);
        let after = state.position.unwrap_or(now).max(now);
        let next = move |after: &Timestamp| self.schedule()?.next_after(anchor, *after);
        let slots = std::iter::successors(next(&after), next);
        slots.take(count).map(move |slot| (slot, self.due_time(anchor, slot)))
    }
}

fn check_definition(definition: &TriggerDefinition) -> Result<(), TriggerError> {
    if definition.jitter.0 > limits::TRIGGER_JITTER {
        return Err(TriggerError::LongJitter(definition.jitter));
    }
    if definition.catchup != CatchupPolicy::Skip && !matches!(definition.source, TriggerSource::Cron { .. }) {
        return Err(TriggerError::CatchupWithoutCron);
    }
    for (name, number) in [("max_active", definition.max_active), ("rate", definition.rate)] {
        if number == 0 {
            return Err(TriggerError::Zero(name));
        }
    }
    let attempts = definition.retry.as_ref().map_or(1, |retry| retry.max_attempts);
    if !(1..=limits::TRIGGER_ATTEMPTS).contains(&attempts) {
        return Err(TriggerError::Attempts(attempts));
    }
    let is_empty = |first: Option<Timestamp>, last: Option<Timestamp>| first.zip(last).is_some_and(|(a, b)| b < a);
    if definition.valid.iter().any(|window| is_empty(window.not_before, window.not_after)) {
        return Err(TriggerError::EmptyWindow);
    }
    Ok(())
}
