//! Decides the events that follow from one input of a trigger.
//!
//! Owns the order of consequences: fires that wait come before new ones, slots before any change of the trigger's
//! status. Each event is applied as soon as it is decided. Which slots there are is decided in `slots`, and whether a
//! trigger may fire at all in `trigger`.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    condition,
    definition::{CatchupPolicy, OverlapPolicy, RoutineEvent, TriggerKey, TriggerSource},
    event::{
        FireOrigin, FireOutcome, FireRefusal, FireSlot, OperatorWarning, PauseCause, RequestRefusal, TriggerEvent,
        TriggerFire, TriggeredRunEnd,
    },
    input::{ExternalFire, TriggerInput},
    slots::SlotSchedule,
    state::{RATE_WINDOW, TriggerState, apply, is_within_minute},
    trigger::{Trigger, TriggerStatus},
};
use crate::{ids::RunId, limits, plan::ContentHash, time::Timestamp};

/// The name under which a trigger is armed that needs no person.
const AUTO_ARM: &str = "auto";

/// Decides the events of an input. They take effect when they are stored and applied; until then nothing has happened.
/// The same input may be decided again, and an input that changes nothing has no events.
pub fn decide(trigger: &Trigger, state: &TriggerState, input: &TriggerInput, now: Timestamp) -> Vec<TriggerEvent> {
    let mut decision = TriggerDecision { trigger, state: Cow::Borrowed(state), now, events: Vec::new() };
    decision.handle_input(input);
    decision.start_waiting();
    decision.events
}

/// Returns the time at which a trigger needs the next tick if no other input comes before. It may have passed.
pub fn next_wake(trigger: &Trigger, state: &TriggerState) -> Option<Timestamp> {
    let slot = match trigger.status(state) {
        TriggerStatus::Armed => next_due(trigger, state),
        // The first suppressed slot causes a warning. All others are recorded with the next change.
        TriggerStatus::Stale if !state.warned => next_due(trigger, state),
        _ => None,
    };
    let retry = state.retries.iter().map(|retry| retry.due).min();
    let limits = StartLimits::new(trigger, state);
    let queued = state.queue.iter().any(|fire| limits.admits(fire.overlap)).then(|| limits.free_at(&state.starts));
    [slot, retry, queued].into_iter().flatten().min()
}

fn next_due(trigger: &Trigger, state: &TriggerState) -> Option<Timestamp> {
    let position = state.position?;
    let anchor = state.anchor(position);
    let slot = trigger.schedule()?.next_after(anchor, position)?;
    Some(trigger.due_time(anchor, slot))
}

/// The limits on starts, apart from the clock.
struct StartLimits {
    active: usize,
    max_active: usize,
    rate: usize,
}

impl StartLimits {
    fn new(trigger: &Trigger, state: &TriggerState) -> StartLimits {
        let to_usize = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let definition = trigger.definition();
        StartLimits {
            active: state.active.len(),
            max_active: to_usize(definition.max_active),
            rate: to_usize(definition.rate),
        }
    }

    /// True if the active runs let a fire with this policy start.
    fn admits(&self, overlap: OverlapPolicy) -> bool {
        self.active == 0 || (overlap == OverlapPolicy::Allow && self.active < self.max_active)
    }

    /// True if the rate lets a fire start now.
    fn has_rate(&self, starts: impl IntoIterator<Item = Timestamp>, now: Timestamp) -> bool {
        starts.into_iter().filter(|start| is_within_minute(*start, now)).count() < self.rate
    }

    /// The time from which the rate lets another fire start.
    fn free_at<'a>(&self, starts: impl IntoIterator<Item = &'a Timestamp>) -> Timestamp {
        let mut starts: Vec<Timestamp> = starts.into_iter().copied().collect();
        starts.sort_unstable();
        let blocking = starts.len().checked_sub(self.rate).and_then(|index| starts.get(index));
        blocking.map_or(Timestamp(i64::MIN), |start| start.saturating_add(RATE_WINDOW))
    }
}

/// A decision in progress.
struct TriggerDecision<'a> {
    trigger: &'a Trigger,
    /// The state with all events of this decision. Most decisions have none.
    state: Cow<'a, TriggerState>,
    now: Timestamp,
    events: Vec<TriggerEvent>,
}

impl TriggerDecision<'_> {
    fn emit(&mut self, event: TriggerEvent) {
        apply(self.state.to_mut(), &event);
        self.events.push(event);
    }

    fn key(&self) -> &TriggerKey {
        &self.trigger.definition().key
    }

    fn handle_input(&mut self, input: &TriggerInput) {
        match input {
            TriggerInput::Tick => {
                self.start_waiting();
                self.settle_slots();
            }
            TriggerInput::Declared { auto_arm } => self.declare(*auto_arm),
            TriggerInput::Removed => self.remove(),
            TriggerInput::Armed { by, hash, note } => self.arm(by, *hash, note),
            TriggerInput::Paused { by, note } => self.pause(by, note),
            TriggerInput::Unpaused { by, note } => self.unpause(by, note),
            TriggerInput::Delivery(fire) => {
                if matches!(self.trigger.definition().source, TriggerSource::Webhook { .. }) {
                    self.fire_external(FireSlot::Delivery(fire.id.clone()), FireOrigin::Delivery, fire);
                }
            }
            TriggerInput::Event { name, fire } => {
                if matches!(&self.trigger.definition().source, TriggerSource::Event { event } if **event == **name) {
                    self.fire_external(FireSlot::Event(fire.id.clone()), FireOrigin::Event, fire);
                }
            }
            TriggerInput::Fire { id, by, overlap, refused } => self.fire_for_person(id, by, *overlap, refused),
            TriggerInput::Backfill { by, from, to, overlap, started } => {
                self.backfill(by, (*from, *to), *overlap, started);
            }
            TriggerInput::RunEnded { run, end } => self.end_run(run, *end),
            TriggerInput::StartRefused { run, message } => self.refuse_start(run, message),
        }
    }

    // Declaration, arming and pausing.

    fn declare(&mut self, auto_arm: bool) {
        let trigger = self.trigger;
        let known = self.state.declared.clone();
        let is_same = |known: &super::DeclaredTrigger| {
            known.target == trigger.target() && known.definition == *trigger.definition()
        };
        if !self.state.present || !known.as_ref().is_some_and(is_same) {
            if let Some(known) = known {
                // The slots up to now are those of the declaration that was in force.
                let before = if is_same(&known) {
                    Cow::Borrowed(trigger)
                } else {
                    Cow::Owned(Trigger::compile(known.definition, known.target, trigger.settings()))
                };
                let reason = before.status(&self.state).refusal().unwrap_or(FireRefusal::Stale);
                self.suppress_slots(before.schedule(), reason);
            }
            let definition = trigger.definition().clone();
            self.emit(TriggerEvent::Declared { definition, target: trigger.target(), at: self.now });
        }
        let is_armed = self.state.armed.as_ref().is_some_and(|armed| armed.hash == trigger.hash());
        if auto_arm && !is_armed && trigger.error().is_none() {
            self.emit(TriggerEvent::Armed { hash: trigger.hash(), by: AUTO_ARM.to_owned(), at: self.now, note: None });
        }
    }

    fn remove(&mut self) {
        if self.state.present {
            self.suppress_own_slots(FireRefusal::Absent);
            self.emit(TriggerEvent::Removed);
        }
    }

    fn arm(&mut self, by: &str, hash: ContentHash, note: &Option<String>) {
        let current = self.trigger.hash();
        let refusal = match self.trigger.error() {
            _ if !self.state.present => Some(RequestRefusal::Absent),
            Some(error) => Some(RequestRefusal::Invalid { message: error.to_string() }),
            None if hash != current => Some(RequestRefusal::Changed { current }),
            None => None,
        };
        if let Some(reason) = refusal {
            return self.emit(TriggerEvent::RequestRefused { reason });
        }
        if self.state.armed.as_ref().is_some_and(|armed| armed.hash == hash) {
            return;
        }
        self.suppress_own_slots(FireRefusal::Unarmed);
        self.emit(TriggerEvent::Armed { hash, by: by.to_owned(), at: self.now, note: note.clone() });
    }

    fn pause(&mut self, by: &str, note: &Option<String>) {
        if self.state.paused.is_none() {
            self.suppress_own_slots(FireRefusal::Paused);
            let cause = PauseCause::Person { by: by.to_owned() };
            self.emit(TriggerEvent::Paused { cause, at: self.now, note: note.clone() });
        }
    }

    fn unpause(&mut self, by: &str, note: &Option<String>) {
        if self.state.paused.is_some() {
            self.suppress_own_slots(FireRefusal::Paused);
            self.emit(TriggerEvent::Unpaused { by: by.to_owned(), at: self.now, note: note.clone() });
        }
    }

    // Slots.

    /// Records the slots up to now as suppressed: for the present status, or for `otherwise` if they could fire.
    fn suppress_own_slots(&mut self, otherwise: FireRefusal) {
        let reason = self.trigger.status(&self.state).refusal().unwrap_or(otherwise);
        self.suppress_slots(self.trigger.schedule(), reason);
    }

    fn suppress_slots(&mut self, schedule: Option<&SlotSchedule>, reason: FireRefusal) {
        let Some((schedule, position)) = schedule.zip(self.state.position) else { return };
        if let Some(slots) = schedule.range_in(self.state.anchor(position), position, self.now) {
            self.emit(TriggerEvent::SlotsSuppressed { slots, reason: reason.clone() });
            self.warn_of_suppression(&reason);
        }
    }

    fn warn_of_suppression(&mut self, reason: &FireRefusal) {
        let warning = match reason {
            FireRefusal::Unarmed => OperatorWarning::Unarmed,
            FireRefusal::Stale => OperatorWarning::Stale,
            _ => return,
        };
        if !self.state.warned {
            self.emit(TriggerEvent::OperatorWarned { warning });
        }
    }

    /// Fires the slots that are due, catches up or records those that are too late.
    fn settle_slots(&mut self) {
        let trigger = self.trigger;
        let (Some(schedule), Some(position)) = (trigger.schedule(), self.state.position) else { return };
        if let Some(reason) = trigger.status(&self.state).refusal() {
            return self.suppress_slots(Some(schedule), reason);
        }
        let (anchor, now) = (self.state.anchor(position), self.now);
        let Some(first) = schedule.next_after(anchor, position).filter(|slot| *slot <= now) else { return };
        let grace = trigger.settings().grace;
        // A slot up to this time is too late even with the longest jitter.
        let reach = grace.saturating_add(trigger.definition().jitter).0;
        let reach = i64::try_from(reach).unwrap_or(i64::MAX);
        let late = Timestamp(now.0.saturating_sub(reach).saturating_sub(1)).max(position);
        let (mut missed, mut in_time) = (None, Vec::new());
        for slot in schedule.slots_in(anchor, late, now) {
            let due = trigger.due_time(anchor, slot);
            if due > now {
                break;
            }
            if now.duration_since(due) > grace {
                missed = Some(slot);
            } else {
                in_time.push(slot);
            }
        }
        if first <= late {
            missed = missed.or_else(|| schedule.last_before(anchor, position, late));
        }
        if let Some(last) = missed {
            self.settle_missed(schedule, (position, last), in_time.is_empty());
        }
        for slot in in_time {
            self.fire_slot(slot, FireOrigin::Schedule);
        }
    }

    /// Catches up the slots after a position up to the last that was missed, and records the others.
    fn settle_missed(&mut self, schedule: &SlotSchedule, missed: (Timestamp, Timestamp), is_latest: bool) {
        let (position, last) = missed;
        let anchor = self.state.anchor(position);
        let caught_up = match self.trigger.definition().catchup {
            CatchupPolicy::Skip => Vec::new(),
            // A later slot that fires in time does the work of the missed ones.
            CatchupPolicy::One if !is_latest => Vec::new(),
            CatchupPolicy::One => vec![last],
            CatchupPolicy::All => {
                let window = i64::try_from(self.trigger.settings().catchup_window.0).unwrap_or(i64::MAX);
                let oldest = self.now.0.saturating_sub(window).saturating_sub(1);
                schedule.latest(anchor, position.max(Timestamp(oldest)), last, limits::TRIGGER_CATCHUP)
            }
        };
        let until = caught_up.first().map_or(last, |first| Timestamp(first.0.saturating_sub(1)));
        if let Some(slots) = schedule.range_in(anchor, position, until) {
            self.emit(TriggerEvent::SlotsMissed { slots });
        }
        for slot in caught_up {
            self.fire_slot(slot, FireOrigin::Catchup);
        }
    }

    fn fire_slot(&mut self, slot: Timestamp, origin: FireOrigin) {
        let overlap = match origin {
            FireOrigin::Schedule => self.trigger.definition().default_overlap(),
            _ => OverlapPolicy::All,
        };
        let fire = self.new_fire(FireSlot::At(slot), origin, overlap);
        self.admit(fire, &Value::Null, None);
    }

    // Fires from outside.

    fn new_fire(&self, slot: FireSlot, origin: FireOrigin, overlap: OverlapPolicy) -> TriggerFire {
        let hash = self.trigger.hash();
        TriggerFire { slot, origin, overlap, hash, chain: Vec::new(), attempt: 1, retry_of: None, by: None }
    }

    fn fire_external(&mut self, slot: FireSlot, origin: FireOrigin, external: &ExternalFire) {
        self.start_waiting();
        if external.known || self.state.holds(&slot) {
            return;
        }
        let mut fire = self.new_fire(slot, origin, self.trigger.definition().default_overlap());
        fire.chain.clone_from(&external.chain);
        self.admit(fire, &external.payload, external.refused.as_deref());
    }

    fn fire_for_person(&mut self, id: &Arc<str>, by: &str, overlap: Option<OverlapPolicy>, refused: &Option<String>) {
        self.start_waiting();
        let slot = FireSlot::Person(id.clone());
        if self.state.holds(&slot) {
            return;
        }
        let overlap = overlap.unwrap_or(self.trigger.definition().default_overlap());
        let mut fire = self.new_fire(slot, FireOrigin::Person, overlap);
        fire.by = Some(by.to_owned());
        self.admit(fire, &Value::Null, refused.as_deref());
    }

    fn backfill(
        &mut self,
        by: &str,
        span: (Timestamp, Timestamp),
        overlap: Option<OverlapPolicy>,
        started: &BTreeSet<Timestamp>,
    ) {
        self.start_waiting();
        self.settle_slots();
        let slots = match find_backfill(self.trigger, &self.state, span, started, self.now) {
            Ok(slots) => slots,
            Err(reason) => return self.emit(TriggerEvent::RequestRefused { reason }),
        };
        for slot in slots {
            let overlap = overlap.unwrap_or(OverlapPolicy::All);
            let mut fire = self.new_fire(FireSlot::At(slot), FireOrigin::Backfill, overlap);
            fire.by = Some(by.to_owned());
            self.admit(fire, &Value::Null, None);
        }
    }

    // Admission.

    /// Decides the outcome of a new fire.
    fn admit(&mut self, fire: TriggerFire, payload: &Value, refused: Option<&str>) {
        if let Err(reason) = self.check_fire(&fire, refused) {
            return self.refuse(fire, reason);
        }
        match condition::holds_for(self.trigger.definition(), payload) {
            _ if is_by_person(fire.origin) => self.place(fire),
            Ok(true) => self.place(fire),
            Ok(false) => self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome: FireOutcome::ConditionFalse }),
            Err(error) => {
                let outcome = FireOutcome::ConditionError { message: error.to_string() };
                self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome });
            }
        }
    }

    fn check_fire(&self, fire: &TriggerFire, refused: Option<&str>) -> Result<(), FireRefusal> {
        self.trigger.may_fire(&self.state, fire.origin)?;
        let at = fire.slot.instant().unwrap_or(self.now);
        if !is_by_person(fire.origin) && !self.trigger.definition().is_valid_at(at) {
            return Err(FireRefusal::NotValid);
        }
        if fire.chain.contains(self.key()) {
            return Err(FireRefusal::ChainRepeats);
        }
        if fire.chain.len() >= limits::TRIGGER_CHAIN {
            return Err(FireRefusal::ChainTooLong);
        }
        refused.map_or(Ok(()), |message| Err(FireRefusal::Inputs { message: message.to_owned() }))
    }

    /// Starts a fire, lets it wait, or drops it.
    fn place(&mut self, fire: TriggerFire) {
        if self.can_start(fire.overlap) {
            return self.start(fire);
        }
        let active = self.state.active.keys().next().cloned();
        match fire.overlap {
            OverlapPolicy::Skip if active.is_some() => {
                let outcome = FireOutcome::Skipped { active, replaced_by: None };
                self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome });
                if self.state.overlaps == limits::TRIGGER_OVERLAPS_WARN {
                    self.emit(TriggerEvent::OperatorWarned { warning: OperatorWarning::Overlaps });
                }
                return;
            }
            OverlapPolicy::Queue => self.replace_waiting(&fire),
            OverlapPolicy::Cancel => {
                self.cancel_active(&fire);
                self.replace_waiting(&fire);
            }
            OverlapPolicy::Skip | OverlapPolicy::All | OverlapPolicy::Allow => {}
        }
        self.enqueue(fire);
    }

    /// Drops the fire whose place a newer one takes.
    fn replace_waiting(&mut self, newer: &TriggerFire) {
        let is_replaced = |fire: &&TriggerFire| matches!(fire.overlap, OverlapPolicy::Queue | OverlapPolicy::Cancel);
        if let Some(fire) = self.state.queue.iter().find(is_replaced).cloned() {
            let outcome = FireOutcome::Skipped { active: None, replaced_by: Some(newer.slot.clone()) };
            self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome });
        }
    }

    fn cancel_active(&mut self, newer: &TriggerFire) {
        let active = self.state.active.iter().filter(|(_, run)| !run.cancelling);
        let runs: Vec<RunId> = active.map(|(run, _)| run.clone()).collect();
        for run in runs {
            self.emit(TriggerEvent::CancelRequested { run, slot: newer.slot.clone() });
        }
    }

    fn enqueue(&mut self, fire: TriggerFire) {
        let is_full = self.state.queue.len() >= limits::TRIGGER_QUEUE;
        let outcome = if is_full { FireOutcome::Throttled } else { FireOutcome::Queued { at: self.now } };
        let failed = (is_full && fire.attempt > 1).then(|| fire.clone());
        self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome });
        failed.into_iter().for_each(|fire| self.fail_retry(&fire));
    }

    fn can_start(&self, overlap: OverlapPolicy) -> bool {
        let limits = StartLimits::new(self.trigger, &self.state);
        limits.admits(overlap) && limits.has_rate(self.state.starts.iter().copied(), self.now)
    }

    fn start(&mut self, fire: TriggerFire) {
        let run = fire.run_id(self.key());
        let (slot, chain) = (fire.slot.clone(), fire.chain.clone());
        let outcome = FireOutcome::Started { run: run.clone(), at: self.now };
        self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome });
        self.emit_about(RoutineEvent::RoutineTriggered, &slot, &run, &chain);
    }

    fn refuse(&mut self, fire: TriggerFire, reason: FireRefusal) {
        let failed = (fire.attempt > 1).then(|| fire.clone());
        let outcome = FireOutcome::Refused { reason: reason.clone() };
        self.emit(TriggerEvent::Fired { fire: Box::new(fire), outcome });
        self.warn_of_suppression(&reason);
        failed.into_iter().for_each(|fire| self.fail_retry(&fire));
    }

    /// Starts the retries that are due, then the fires that wait, as far as the limits let them. Each is checked again.
    fn start_waiting(&mut self) {
        while let Some(fire) = self.find_due_retry() {
            match self.recheck(&fire) {
                Err(reason) => self.refuse(fire, reason),
                Ok(()) if self.can_start(fire.overlap) => self.start(fire),
                Ok(()) => self.enqueue(fire),
            }
        }
        while let Some(fire) = self.state.queue.iter().find(|fire| self.can_start(fire.overlap)).cloned() {
            match self.recheck(&fire) {
                Err(reason) => self.refuse(fire, reason),
                Ok(()) => self.start(fire),
            }
        }
    }

    fn find_due_retry(&self) -> Option<TriggerFire> {
        let due = self.state.retries.iter().filter(|retry| retry.due <= self.now);
        due.min_by_key(|retry| retry.due).map(|retry| retry.fire.clone())
    }

    fn recheck(&self, fire: &TriggerFire) -> Result<(), FireRefusal> {
        self.trigger.may_fire(&self.state, fire.origin)?;
        if fire.hash != self.trigger.hash() {
            return Err(FireRefusal::Changed);
        }
        if !is_by_person(fire.origin) && !self.trigger.definition().is_valid_at(self.now) {
            return Err(FireRefusal::NotValid);
        }
        Ok(())
    }

    // Ends of runs.

    fn end_run(&mut self, run: &RunId, end: TriggeredRunEnd) {
        let Some(fire) = self.state.active.get(run).map(|active| active.fire.clone()) else { return };
        self.emit(TriggerEvent::RunEnded { run: run.clone(), slot: fire.slot.clone(), end });
        match end {
            TriggeredRunEnd::Succeeded => {
                self.emit_about(RoutineEvent::RoutineCompleted, &fire.slot, run, &fire.chain);
            }
            TriggeredRunEnd::Cancelled => {}
            TriggeredRunEnd::Failed { class } => {
                let retry = self.trigger.definition().retry.as_ref();
                let retry = retry.filter(|retry| fire.attempt < retry.max_attempts && retry.applies_to(class));
                match retry.map(|retry| retry.backoff.retry_delay(fire.attempt)) {
                    Some(delay) => self.schedule_retry(run, fire, self.now.saturating_add(delay)),
                    None => self.fail_fire(run, &fire, fire.attempt),
                }
            }
        }
    }

    fn schedule_retry(&mut self, run: &RunId, failed: TriggerFire, due: Timestamp) {
        let overlap = if failed.overlap == OverlapPolicy::Allow { OverlapPolicy::Allow } else { OverlapPolicy::All };
        let attempt = failed.attempt + 1;
        let fire = TriggerFire { overlap, attempt, retry_of: Some(run.clone()), ..failed };
        self.emit(TriggerEvent::RetryScheduled { fire: Box::new(fire), due });
    }

    /// Gives up a fire whose next attempt cannot start.
    fn fail_retry(&mut self, fire: &TriggerFire) {
        if let Some(run) = &fire.retry_of {
            self.fail_fire(run, fire, fire.attempt.saturating_sub(1));
        }
    }

    fn fail_fire(&mut self, run: &RunId, fire: &TriggerFire, attempts: u32) {
        let definition = self.trigger.definition();
        let actions = definition.on_failure.clone();
        let chain = self.extend_chain(&fire.chain);
        self.emit(TriggerEvent::FireFailed { slot: fire.slot.clone(), run: run.clone(), attempts, actions, chain });
        self.emit_about(RoutineEvent::RoutineFailed, &fire.slot, run, &fire.chain);
        // A sender could switch a hook off by making it fail.
        let pauses = definition.source.is_schedule() || matches!(definition.source, TriggerSource::Event { .. });
        let count = self.state.failures;
        if pauses && definition.pause_after > 0 && count >= definition.pause_after && self.state.paused.is_none() {
            let cause = PauseCause::Failures { count };
            self.emit(TriggerEvent::Paused { cause, at: self.now, note: None });
            self.emit(TriggerEvent::OperatorWarned { warning: OperatorWarning::PausedAfterFailures });
        }
    }

    fn refuse_start(&mut self, run: &RunId, message: &str) {
        if let Some(fire) = self.state.active.get(run).map(|active| active.fire.clone()) {
            self.refuse(fire, FireRefusal::Start { message: message.to_owned() });
        }
    }

    fn emit_about(&mut self, event: RoutineEvent, slot: &FireSlot, run: &RunId, chain: &[TriggerKey]) {
        if self.trigger.definition().emits.contains(&event) {
            let chain = self.extend_chain(chain);
            self.emit(TriggerEvent::RoutineEmitted { event, slot: slot.clone(), run: run.clone(), chain });
        }
    }

    /// Returns the chain with this trigger at its end.
    fn extend_chain(&self, chain: &[TriggerKey]) -> Vec<TriggerKey> {
        chain.iter().chain([self.key()]).cloned().collect()
    }
}

fn is_by_person(origin: FireOrigin) -> bool {
    matches!(origin, FireOrigin::Person | FireOrigin::Backfill)
}

/// Finds the slots that a backfill of a span would fire: those that are settled and have not started a run. A span with
/// too many slots is refused.
pub fn find_backfill(
    trigger: &Trigger,
    state: &TriggerState,
    span: (Timestamp, Timestamp),
    started: &BTreeSet<Timestamp>,
    now: Timestamp,
) -> Result<Vec<Timestamp>, RequestRefusal> {
    if !state.present {
        return Err(RequestRefusal::Absent);
    }
    if let Some(error) = trigger.error() {
        return Err(RequestRefusal::Invalid { message: error.to_string() });
    }
    let schedule = trigger.schedule().ok_or(RequestRefusal::NoSchedule)?;
    let (floor, until) = (Timestamp(span.0.0.saturating_sub(1)), span.1.min(state.position.unwrap_or(now)));
    let slots = schedule.slots_in(state.anchor(now), floor, until);
    let mut found: Vec<Timestamp> = slots.take(limits::TRIGGER_BACKFILL + 1).collect();
    if found.len() > limits::TRIGGER_BACKFILL {
        let limit = u32::try_from(limits::TRIGGER_BACKFILL).unwrap_or(u32::MAX);
        return Err(RequestRefusal::TooManySlots { limit });
    }
    found.retain(|slot| !started.contains(slot) && !state.holds(&FireSlot::At(*slot)));
    Ok(found)
}
