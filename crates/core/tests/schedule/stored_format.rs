//! The JSON of events and of the state, as `docs/design/schedule.md` shows it.

use std::collections::BTreeSet;

use serde_json::Value;
use skein_core::schedule::{OverlapPolicy, TriggerDefinition, TriggerEvent, TriggerState, apply};

use super::harness::{TriggerBench, clock, cron};

const PAGE: &str = include_str!("../../../../docs/design/schedule.md");

/// Returns the fenced blocks with this info string.
fn blocks(word: &str) -> Vec<String> {
    let fence = format!("\n```{word}\n");
    let parts = PAGE.split(&fence).skip(1);
    parts.map(|part| part.split("\n```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_event_of_the_page_decodes_and_encodes_the_same() {
    let mut shown = BTreeSet::new();
    for text in blocks("json").iter().flat_map(|block| block.lines()) {
        let event: TriggerEvent = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(serde_json::to_value(&event).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        shown.insert(event.name().to_owned());
    }
    let error = serde_json::from_str::<TriggerEvent>("\"no such event\"").unwrap_err().to_string();
    let (_, known) = error.split_once("expected one of ").expect("it lists them");
    let known: BTreeSet<String> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(shown, known, "the page has an example of each event");
}

#[test]
fn the_definition_of_the_page_has_only_what_differs_from_the_defaults() {
    let [text] = &blocks("json definition")[..] else { panic!("there is one") };
    let definition: TriggerDefinition = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&definition).unwrap(), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn a_stored_state_continues_where_it_was() {
    let mut definition = cron("0 * * * *");
    definition.overlap = Some(OverlapPolicy::All);
    definition.retry = Some(Default::default());
    let mut bench = TriggerBench::arm(definition, clock("08:00"));
    bench.sleep_until(clock("11:00"));
    bench.fail(clock("11:01"));
    let stored = serde_json::to_string(&bench.state).unwrap();
    assert_eq!(serde_json::from_str::<TriggerState>(&stored).unwrap(), bench.state);
    let mut replayed = TriggerState::default();
    for event in &bench.events {
        let stored = serde_json::to_string(event).unwrap();
        apply(&mut replayed, &serde_json::from_str(&stored).unwrap());
    }
    assert_eq!(replayed, bench.state);
    assert_eq!(serde_json::to_string(&TriggerState::default()).unwrap(), "{\"present\":false}");
    assert_eq!(serde_json::from_str::<TriggerState>("{}").unwrap(), TriggerState::default());
}
