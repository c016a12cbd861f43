//! A trigger with its state, as a host would keep it: events are applied as soon as they are decided.

use std::sync::Arc;

use skein_core::{
    ids::RunId,
    plan::ContentHash,
    schedule::{
        ExternalFire, FireOutcome, FireSlot, ScheduleSettings, Trigger, TriggerDefinition, TriggerEvent, TriggerInput,
        TriggerKey, TriggerSource, TriggerState, TriggerStatus, TriggeredRunEnd, apply, decide, next_wake,
    },
    time::Timestamp,
};

/// Parses an instant.
pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

/// An instant of one day: `2026-01-05`, a Monday.
pub(crate) fn clock(time: &str) -> Timestamp {
    let seconds = if time.len() == 5 { ":00" } else { "" };
    at(&format!("2026-01-05T{time}{seconds}Z"))
}

/// The time of day of an instant, for lists.
fn show_time(at: Timestamp) -> String {
    let text = jiff::Timestamp::from_millisecond(at.0).unwrap().to_string();
    text.replace("2026-01-05T", "").replace(":00Z", "").replace('Z', "")
}

pub(crate) fn cron(text: &str) -> TriggerDefinition {
    let source = TriggerSource::Cron { cron: text.into(), timezone: "UTC".into() };
    TriggerDefinition::new(TriggerKey::from_workflow("w", &source), "w", source)
}

pub(crate) fn hook() -> TriggerDefinition {
    TriggerDefinition::new(TriggerKey::new("w/webhook/p"), "w", TriggerSource::Webhook { path: "/p".into() })
}

pub(crate) fn event() -> TriggerDefinition {
    TriggerDefinition::new(TriggerKey::new("w/event/paid"), "w", TriggerSource::Event { event: "paid".into() })
}

pub(crate) struct TriggerBench {
    pub trigger: Trigger,
    pub state: TriggerState,
    pub events: Vec<TriggerEvent>,
}

impl TriggerBench {
    /// Declares a trigger.
    pub(crate) fn declare(definition: TriggerDefinition, now: Timestamp) -> TriggerBench {
        let trigger = Trigger::compile(definition, ContentHash::ZERO, ScheduleSettings::default());
        assert_eq!(trigger.error(), None);
        let mut bench = TriggerBench { trigger, state: TriggerState::default(), events: Vec::new() };
        bench.input(TriggerInput::Declared { auto_arm: false }, now);
        bench
    }

    /// Declares and arms a trigger.
    pub(crate) fn arm(definition: TriggerDefinition, now: Timestamp) -> TriggerBench {
        let mut bench = TriggerBench::declare(definition, now);
        bench.rearm(now);
        assert_eq!(bench.status(), TriggerStatus::Armed);
        bench
    }

    pub(crate) fn rearm(&mut self, now: Timestamp) -> Vec<String> {
        let hash = self.trigger.hash();
        self.input(TriggerInput::Armed { by: "ann".into(), hash, note: None }, now)
    }

    /// Declares the trigger anew, perhaps changed.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut TriggerDefinition), now: Timestamp) -> Vec<String> {
        let mut definition = TriggerDefinition::clone(self.trigger.definition());
        change(&mut definition);
        self.trigger = Trigger::compile(definition, self.trigger.target(), self.trigger.settings());
        self.input(TriggerInput::Declared { auto_arm: false }, now)
    }

    pub(crate) fn input(&mut self, input: TriggerInput, now: Timestamp) -> Vec<String> {
        let events = decide(&self.trigger, &self.state, &input, now);
        let position = self.state.position;
        events.iter().for_each(|event| apply(&mut self.state, event));
        assert!(self.state.position >= position, "the position moved back");
        let again = decide(&self.trigger, &self.state, &TriggerInput::Tick, now);
        if input == TriggerInput::Tick {
            assert_eq!(again, [], "a second tick decides nothing");
        }
        let shown = events.iter().map(show_event).collect();
        self.events.extend(events);
        shown
    }

    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<String> {
        self.input(TriggerInput::Tick, now)
    }

    /// Ticks at every time at which the trigger wants to be woken, up to a time.
    pub(crate) fn sleep_until(&mut self, until: Timestamp) -> Vec<String> {
        let mut shown = Vec::new();
        while let Some(wake) = next_wake(&self.trigger, &self.state).filter(|wake| *wake <= until) {
            shown.extend(self.tick(wake));
        }
        shown
    }

    pub(crate) fn end(&mut self, end: TriggeredRunEnd, now: Timestamp) -> Vec<String> {
        let run = self.active().first().expect("a run is active").clone();
        self.input(TriggerInput::RunEnded { run, end }, now)
    }

    pub(crate) fn succeed(&mut self, now: Timestamp) -> Vec<String> {
        self.end(TriggeredRunEnd::Succeeded, now)
    }

    pub(crate) fn fail(&mut self, now: Timestamp) -> Vec<String> {
        self.end(TriggeredRunEnd::Failed { class: None }, now)
    }

    pub(crate) fn deliver(&mut self, id: &str, now: Timestamp) -> Vec<String> {
        self.input(TriggerInput::Delivery(external(id)), now)
    }

    pub(crate) fn fire(&mut self, id: &str, now: Timestamp) -> Vec<String> {
        let input = TriggerInput::Fire { id: id.into(), by: "ann".into(), overlap: None, refused: None };
        self.input(input, now)
    }

    pub(crate) fn active(&self) -> Vec<RunId> {
        self.state.active.keys().cloned().collect()
    }

    pub(crate) fn status(&self) -> TriggerStatus {
        self.trigger.status(&self.state)
    }
}

pub(crate) fn external(id: &str) -> ExternalFire {
    ExternalFire { id: id.into(), payload: Arc::default(), ..ExternalFire::default() }
}

fn show_slot(slot: &FireSlot) -> String {
    match slot {
        FireSlot::At(at) => show_time(*at),
        FireSlot::Delivery(id) | FireSlot::Event(id) | FireSlot::Person(id) => id.to_string(),
    }
}

/// Shows an event in a few words.
fn show_event(event: &TriggerEvent) -> String {
    match event {
        TriggerEvent::Fired { fire, outcome } => {
            let attempt = if fire.attempt > 1 { format!(" attempt {}", fire.attempt) } else { String::new() };
            let detail = match outcome {
                FireOutcome::Refused { reason } => format!(" {}", show_json(reason)),
                FireOutcome::Skipped { replaced_by: Some(slot), .. } => format!(" for {}", show_slot(slot)),
                _ => String::new(),
            };
            format!("{} {}{attempt}{detail}", outcome.name(), show_slot(&fire.slot))
        }
        TriggerEvent::SlotsMissed { slots } => {
            format!("missed {} to {}: {}", show_time(slots.first), show_time(slots.last), slots.count)
        }
        TriggerEvent::SlotsSuppressed { slots, reason } => {
            let (first, last) = (show_time(slots.first), show_time(slots.last));
            format!("suppressed {first} to {last}: {}, {}", slots.count, show_json(reason))
        }
        TriggerEvent::RetryScheduled { due, .. } => format!("retry at {}", show_time(*due)),
        TriggerEvent::OperatorWarned { warning } => format!("warned {}", show_json(warning)),
        TriggerEvent::RequestRefused { reason } => format!("request refused {}", show_json(reason)),
        TriggerEvent::FireFailed { attempts, .. } => format!("failed after {attempts}"),
        TriggerEvent::RoutineEmitted { event, .. } => format!("emitted {}", show_json(event)),
        other => other.name().to_owned(),
    }
}

/// The name of a value of an enum, as in its JSON.
fn show_json(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(value).unwrap();
    let name = json.as_str().or_else(|| json.as_object()?.keys().next().map(String::as_str));
    name.unwrap().to_owned()
}
