//! A run that reaches the maximum length (A13): it fails with its own error code, and its steps are undone.
//!
//! ```text
//! cargo test -p skein-host --test host -- --ignored --nocapture a_run_at_its_limit
//! ```

use std::{sync::Arc, time::Instant};

use serde_json::json;
use skein_core::{
    engine::{AttemptRole, code},
    ir::{RunStatus, Step, StepKindSpec, WaitSpec, WaitTimeout},
    limits,
    plan::Plan,
    time::Millis,
};

use super::{
    hands::{all_good, scripted},
    kit::{after, each, graph, plan, repeat, signal, undone_by, work},
    stage::{Stage, events, memory, starts, view},
};

/// A step that can be undone, and then an endless loop over a list of the maximum length.
fn endless() -> Plan {
    let wait = WaitSpec { on: vec![signal()], timeout: Some(Millis(1)), on_timeout: WaitTimeout::Continue };
    let wait = Step::new(super::kit::id("w"), StepKindSpec::Wait(Box::new(wait)));
    let items: Vec<usize> = (0..limits::ITEMS).collect();
    let list = each("list", json!(items), limits::ITEMS as u32, graph(vec![wait]));
    let again = repeat("again", "1 == 1", limits::ITERATIONS, graph(vec![list]));
    let mut root = graph(vec![undone_by(work("first"), ":"), after(again, &["first"])]);
    root.undo.on_timeout = true;
    plan(root)
}

#[test]
#[ignore = "takes a minute: a million events"]
fn a_run_at_its_limit_fails_with_its_own_code_and_is_undone() {
    let store = memory()();
    let (hands, _control) = scripted(all_good);
    let stage = Stage::new(Arc::clone(&store), hands, 4);
    let begun = Instant::now();
    stage.begin(&[("r", &endless())]);
    stage.closed(&["r"]);
    let events = events(&*store, "r");
    println!("{} events in {:?}", events.len(), begun.elapsed());
    // One decision may exceed the limit by the events that it adds at once.
    assert!((limits::EVENTS..limits::EVENTS + limits::EVENTS / 10).contains(&(events.len() as u64)));
    let run = view(&*store, &super::stage::id("r"));
    assert_eq!(run.status, RunStatus::Undone);
    assert_eq!(run.error.and_then(|error| error.code).as_deref(), Some(code::TOO_MANY_EVENTS));
    assert_eq!(starts(&events).iter().filter(|attempt| attempt.role == AttemptRole::Undo).count(), 1);
}
