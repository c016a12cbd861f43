//! Runs that are retried as a whole: exactly once, whatever happens in between.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::json;
use skein_core::{
    builder::{RetryDefinition, StepDefinition, ToolStep, WorkflowDefinition, define_step, define_workflow},
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, Cost, Event, Publication, RunInput, RunPhase,
        RunStart, RunState,
    },
    ids::RunId,
    ir::{ErrorClass, RunStatus},
    plan::Plan,
    time::Timestamp,
};
use skein_host::{
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter},
    host::{Host, HostEvent, RunLaunch, WorkerCapacity},
    run_settings::RunSettings,
    store::{DeadLetterSelection, DeadLetterSettlement, Store},
};
use skein_testkit::store::MemoryStore;

/// The maximum time that a test waits.
const LONG: Duration = Duration::from_secs(60);

/// An executor whose attempts all fail.
#[derive(Debug)]
struct Unlucky;

impl Executor for Unlucky {
    fn start_attempt(&mut self, _: ActiveRun<'_>, _: AttemptId, _: &AttemptAssignment, finish: AttemptReporter) {
        let end =
            AttemptEnd::Failed { class: ErrorClass::NonRetryable, code: None, message: "no".into(), retry_at: None };
        finish.report(AttemptReport::new(end, Cost::default()));
    }

    fn stop_attempt(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: ActiveRun<'_>, _: Publication, published: PublicationReporter) {
        published.report(None);
    }

    fn reap_orphans(&mut self, _: &[RunId]) {}

    fn forget_run(&mut self, _: &RunId) {}
}

/// A workflow with two attempts.
fn plan(delay: u64) -> Plan {
    let retry = Some(RetryDefinition::fixed(2).with_initial_ms(delay));
    let definition = WorkflowDefinition { retry, ..WorkflowDefinition::new("again", "Fails.") };
    let step = define_step(StepDefinition::new("one", ToolStep::tool("t")));
    let committed = define_workflow(definition).step(step).commit().unwrap();
    committed.definition.bind(json!({})).unwrap()
}

fn id(run: &str) -> RunId {
    RunId::new(run).unwrap()
}

/// The notifications that matter here.
#[derive(Debug, PartialEq)]
enum Heard {
    Decided(String),
    Retries(String, String),
    Closed(String),
}

struct Trial {
    host: Host,
    store: Arc<MemoryStore>,
    heard: mpsc::Receiver<Heard>,
}

impl Trial {
    fn new(store: MemoryStore) -> Trial {
        let (tell, heard) = mpsc::channel();
        let watcher = Box::new(move |told: HostEvent<'_>| {
            let note = match told {
                HostEvent::Row { running, batch } => {
                    let decided = |event: &Event| matches!(event, Event::RunDecided { .. });
                    if !batch.records.iter().any(|record| decided(&record.event)) {
                        return;
                    }
                    Heard::Decided(running.run.to_string())
                }
                HostEvent::Retries { run, by } => Heard::Retries(run.to_string(), by.to_string()),
                HostEvent::Closed { run } => Heard::Closed(run.to_string()),
                _ => return,
            };
            let _ = tell.send(note);
        });
        let store = Arc::new(store);
        let kept: Arc<dyn Store> = store.clone();
        Trial { host: Host::new(kept, Box::new(Unlucky), WorkerCapacity { workers: 4 }, watcher), store, heard }
    }

    fn begin(&self, run: &str, plan: &Plan) {
        let start = RunStart::new(id(run));
        self.host.launch_runs(vec![RunLaunch::new(plan.clone(), start, RunSettings::default())]).unwrap();
    }

    fn until(&self, wanted: &Heard) -> Vec<Heard> {
        let mut all = Vec::new();
        while all.last() != Some(wanted) {
            all.push(self.heard.recv_timeout(LONG).expect("it is told"));
        }
        all
    }

    /// Returns the run's state from its journal, and the number of its starts.
    fn recalled(&self, run: &str, plan: &Plan) -> (RunState, usize) {
        let (mut state, mut starts) = (RunState::new(), 0);
        self.store
            .read_journal(&id(run), 0, &mut |batch| {
                for record in &batch.records {
                    starts += usize::from(matches!(record.event, Event::RunStarted { .. }));
                    skein_core::engine::apply(plan, &mut state, record.at, &record.event);
                }
                true
            })
            .unwrap();
        (state, starts)
    }
}

fn is_second(state: &RunState) {
    let start = state.start.as_ref().expect("it was started");
    assert_eq!((start.retry_of.as_ref(), start.attempt), (Some(&id("r")), 2));
    assert_eq!((state.phase, state.status()), (RunPhase::Closed, RunStatus::Failed));
}

#[test]
fn a_run_that_failed_begins_again_as_another() {
    let (trial, plan) = (Trial::new(MemoryStore::new()), plan(20));
    trial.begin("r", &plan);
    let heard = trial.until(&Heard::Closed("r-2".into()));
    assert!(heard.contains(&Heard::Retries("r".into(), "r-2".into())), "{heard:?}");
    let at = |wanted: &Heard| heard.iter().position(|one| one == wanted);
    assert!(at(&Heard::Retries("r".into(), "r-2".into())) < at(&Heard::Decided("r-2".into())), "{heard:?}");
    let (state, starts) = trial.recalled("r-2", &plan);
    assert_eq!(starts, 1);
    is_second(&state);
    // Not before its time.
    let due = trial.recalled("r", &plan).0.end.and_then(|end| end.retry).unwrap();
    assert!(state.instances[0].started >= due);
    // The second was the last.
    assert!(trial.store.find_run(&id("r-3")).unwrap().is_none());
    // The first run's dead letters are settled by the retry; those of the second are for people.
    let dead = |which| trial.store.list_dead_letters(&which).unwrap();
    let open = dead(DeadLetterSelection::Open(9));
    assert_eq!(open.iter().map(|dead| dead.run.as_str()).collect::<Vec<_>>(), ["r-2"]);
    let first = dead(DeadLetterSelection::InRun(id("r")));
    assert_eq!(
        first.iter().map(|dead| dead.settled.clone()).collect::<Vec<_>>(),
        [Some(DeadLetterSettlement::RETRIED)]
    );
}

/// The process that created it died as soon as its start was recorded.
#[test]
fn a_run_that_was_made_before_a_crash_goes_on_after_it() {
    let (store, plan) = (MemoryStore::new(), plan(20));
    let dead = Arc::new(store.add_owner());
    let host = Host::new(dead.clone(), Box::new(Unlucky), WorkerCapacity { workers: 0 }, Box::new(|_| {}));
    let start = RunStart { retry_of: Some(id("r")), attempt: 2, ..RunStart::new(id("r-2")) };
    host.launch_runs(vec![RunLaunch::new(plan.clone(), start, RunSettings::default())]).unwrap();
    dead.kill();
    let trial = Trial::new(store);
    trial.begin("r", &plan);
    trial.until(&Heard::Closed("r-2".into()));
    let (state, starts) = trial.recalled("r-2", &plan);
    assert_eq!(starts, 1);
    is_second(&state);
}

/// The retry had ended when the original run was found to be still waiting for it.
#[test]
fn a_run_that_was_retried_is_not_retried_again() {
    let (store, plan) = (MemoryStore::new(), plan(20));
    let before = Trial::new(store.add_owner());
    before.begin("r-2", &plan);
    // Its own retry is the last one of this trial.
    before.until(&Heard::Closed("r-2-2".into()));
    let events = before.recalled("r-2", &plan).0.events;
    let trial = Trial::new(store);
    trial.begin("r", &plan);
    trial.until(&Heard::Closed("r".into()));
    assert_eq!(trial.recalled("r-2", &plan).0.events, events);
}

#[test]
fn whoever_cancels_a_run_that_waits_to_be_retried_calls_that_off() {
    let (trial, plan) = (Trial::new(MemoryStore::new()), plan(3_600_000));
    trial.begin("r", &plan);
    trial.until(&Heard::Decided("r".into()));
    let cancel = RunInput::Cancel { by: "ada".into(), reason: None };
    assert_eq!(trial.host.send_input(&id("r"), cancel), Some(Ok(())));
    trial.until(&Heard::Closed("r".into()));
    let (state, _) = trial.recalled("r", &plan);
    assert_eq!(state.status(), RunStatus::Failed);
    assert!(state.end.as_ref().and_then(|end| end.retry).is_some_and(|due| due > Timestamp(0)));
    assert!(trial.store.find_run(&id("r-2")).unwrap().is_none());
    // Nobody retries it, so it is listed.
    assert_eq!(trial.store.list_dead_letters(&DeadLetterSelection::Open(9)).unwrap().len(), 1);
}
