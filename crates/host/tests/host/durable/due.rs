//! Very many timers that are due at the same instant (B5): all fire, each once, in rows of bounded size, and requests
//! are answered meanwhile. The number that a release is measured with:
//!
//! ```text
//! cargo test --release -p skein-host --test host -- --ignored --nocapture a_hundred_thousand_timers
//! ```

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::Instant,
};

use serde_json::json;
use skein_core::{
    engine::{
        DecisionActor, Driver, Event, InputToken, InstanceIx, RunInput, RunStart, StepOutcome, TimedInput, Verdict,
        Waitpoint,
    },
    ir::{RunStatus, Step, StepKindSpec, WaitSpec, WaitTimeout},
    limits,
    plan::Plan,
    time::{Millis, Timestamp},
};
use skein_host::{
    host::{Host, HostEvent, WorkerCapacity},
    run_settings::RunSettings,
    store::NewRun,
};

use super::{
    hands::{all_good, scripted},
    kit::{each, gate, graph, plan, signal},
    stage::{LONG, Note, World, id, memory, sqlite, status, watcher},
};
use crate::store::support::head;

/// The maximum number of events in a row, however many timers are due.
const ROW: usize = 10_000;

/// A list whose items all wait until the same time.
fn waiting() -> Plan {
    let wait = WaitSpec { on: vec![signal()], timeout: Some(Millis::from_secs(1)), on_timeout: WaitTimeout::Continue };
    let wait = Step::new(super::kit::id("w"), StepKindSpec::Wait(Box::new(wait)));
    let items: Vec<usize> = (0..limits::ITEMS).collect();
    plan(graph(vec![each("all", json!(items), limits::ITEMS as u32, graph(vec![wait]))]))
}

/// A run that started long ago, and whose host died at once.
fn begun(run: &str, plan: &Plan) -> NewRun {
    let mut driver = Driver::new(plan.clone());
    let input = RunInput::Start(Box::new(RunStart::new(id(run))));
    driver.push_input(InputToken(1), TimedInput { at: Timestamp(1_000), grant: 0, input });
    NewRun {
        run: id(run),
        definition: plan.definition.hash(),
        frozen: serde_json::to_vec(&plan.definition.to_frozen()).unwrap().into(),
        about: RunSettings::default().to_json(),
        head: head(RunStatus::Running, false),
        first: driver.poll_append(),
        open: Vec::new(),
        audit: Vec::new(),
        settles: Vec::new(),
    }
}

fn approve() -> Vec<u8> {
    let by = DecisionActor { name: "ada".into(), roles: Vec::new() };
    let input = RunInput::Decide { opening: Waitpoint(0), decision: Verdict::Approve, by, reason: None };
    serde_json::to_vec(&input).unwrap()
}

/// Starts `runs` runs, each with the maximum number of timers.
fn all_fire(world: &World, runs: usize) {
    let names: Vec<String> = (0..runs).map(|n| format!("r{n}")).collect();
    let (waiting, asks) = (waiting(), plan(graph(vec![gate("g")])));
    let mut new = vec![begun("asks", &asks)];
    new.extend(names.iter().map(|name| begun(name, &waiting)));
    world().create_runs(&new).unwrap();

    let store = world();
    let (mut inner, notes) = watcher();
    let ((fired, first), (goes, on)) = (mpsc::channel(), mpsc::channel::<()>());
    let watcher = move |told: HostEvent<'_>| {
        // A request arrives when some timers have fired and most have not.
        if let HostEvent::Row { running, .. } = &told
            && running.run.as_str() != "asks"
            && fired.send(()).is_ok()
        {
            let _ = on.recv();
        }
        inner(told);
    };
    let (hands, _control) = scripted(all_good);
    let host = Host::new(Arc::clone(&store), Box::new(hands), WorkerCapacity { workers: 4 }, Box::new(watcher));
    let begun = Instant::now();
    let resumed = host.resume_runs(new.iter().map(|new| new.run.clone()).collect());
    assert!(resumed.iter().all(Result::is_ok), "{resumed:?}");
    first.recv_timeout(LONG).unwrap();
    let asked = Instant::now();
    world().send_request(&id("asks"), &approve()).unwrap();
    drop(first);
    drop(goes);

    let (mut seen, mut left, mut answered) = (BTreeSet::new(), runs + 1, false);
    while left > 0 {
        match notes.recv_timeout(LONG).expect("the timers fire") {
            Note::Row { run, batch } => {
                assert!(batch.records.len() <= ROW, "a row of {} events", batch.records.len());
                for record in &batch.records {
                    if let Event::StepEnded { at, outcome: StepOutcome::Succeeded, .. } = &record.event
                        && at.0 != InstanceIx::ROOT
                    {
                        assert!(seen.insert((run.clone(), *at)), "{run} {at:?} fired twice");
                    }
                }
            }
            Note::Closed(run) => {
                left -= 1;
                if run.as_str() == "asks" {
                    println!("answered after {:?}, when {} had fired", asked.elapsed(), seen.len());
                    answered = seen.len() < runs * limits::ITEMS;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    println!("{} timers fired in {:?}", seen.len(), begun.elapsed());
    assert!(answered, "whoever asked waited until all had fired");
    assert_eq!(seen.len(), runs * limits::ITEMS);
    assert!(names.iter().all(|name| status(&*store, name) == RunStatus::Succeeded));
}

#[test]
fn many_timers_due_at_once_fire_once_and_keep_nobody_waiting() {
    all_fire(&memory(), 2);
}

#[test]
#[ignore = "a measurement"]
fn a_hundred_thousand_timers_due_at_once_fire_once() {
    all_fire(&sqlite(), 10);
}
