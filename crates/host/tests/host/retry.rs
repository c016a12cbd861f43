//! Runs that are retried as a whole: once, whatever happens in between.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::{Value, json};
use skein_core::{
    builder::{RetryPolicy, StepDefinition, ToolStep, WorkflowDefinition, define_step, define_workflow},
    engine::{
        Assignment, AttemptEnd, AttemptId, Cost, Event, Input, Publication, Report, RunPhase, RunState, Start,
    },
    ids::RunId,
    ir::{ErrorClass, RunStatus},
    plan::Plan,
    time::Time,
};
use skein_host::{
    hands::{Finish, Hands, Published, Running},
    host::{Begin, Capacity, Host, Told},
    store::{Memory, Settled, Store, WhichDead},
};

/// A test that waits so long has failed.
const LONG: Duration = Duration::from_secs(60);

/// Fails whatever it is asked to do.
#[derive(Debug)]
struct Unlucky;

impl Hands for Unlucky {
    fn start(&mut self, _: Running<'_>, _: AttemptId, _: &Assignment, finish: Finish) {
        let end = AttemptEnd::Failed {
            class: ErrorClass::NonRetryable,
            code: None,
            message: "no".into(),
            retry_at: None,
        };
        finish.tell(Report::new(end, Cost::default()));
    }

    fn stop(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: Running<'_>, _: Publication, published: Published) {
        published.tell(None);
    }

    fn clear(&mut self, _: &[RunId]) {}

    fn forget(&mut self, _: &RunId) {}
}

/// A workflow that is tried twice.
fn plan(delay: u64) -> Plan {
    let retry = Some(RetryPolicy::fixed(2).initial_ms(delay));
    let definition = WorkflowDefinition { retry, ..WorkflowDefinition::new("again", "Fails.") };
    let step = define_step(StepDefinition::new("one", ToolStep::tool("t")));
    let committed = define_workflow(definition).step(step).commit().unwrap();
    committed.definition.bind(json!({})).unwrap()
}

fn id(run: &str) -> RunId {
    RunId::new(run).unwrap()
}

/// What a watcher heard that matters here.
#[derive(Debug, PartialEq)]
enum Heard {
    Decided(String),
    Retries(String, String),
    Closed(String),
}

struct Trial {
    host: Host,
    store: Arc<Memory>,
    heard: mpsc::Receiver<Heard>,
}

impl Trial {
    fn new(store: Memory) -> Trial {
        let (tell, heard) = mpsc::channel();
        let watcher = Box::new(move |told: Told<'_>| {
            let note = match told {
                Told::Row { running, batch } => {
                    let decided = |event: &Event| matches!(event, Event::RunDecided { .. });
                    if !batch.records.iter().any(|record| decided(&record.event)) {
                        return;
                    }
                    Heard::Decided(running.run.to_string())
                }
                Told::Retries { run, by } => Heard::Retries(run.to_string(), by.to_string()),
                Told::Closed { run } => Heard::Closed(run.to_string()),
                _ => return,
            };
            let _ = tell.send(note);
        });
        let store = Arc::new(store);
        let kept: Arc<dyn Store> = store.clone();
        Trial { host: Host::new(kept, Box::new(Unlucky), Capacity { workers: 4 }, watcher), store, heard }
    }

    fn begin(&self, run: &str, plan: &Plan) {
        let start = Start::new(id(run));
        self.host.begin(vec![Begin::new(plan.clone(), start, Value::Null)]).unwrap();
    }

    fn until(&self, wanted: &Heard) -> Vec<Heard> {
        let mut all = Vec::new();
        while all.last() != Some(wanted) {
            all.push(self.heard.recv_timeout(LONG).expect("it is told"));
        }
        all
    }

    /// The run as its journal tells it, and how often it was started.
    fn recalled(&self, run: &str, plan: &Plan) -> (RunState, usize) {
        let (mut state, mut starts) = (RunState::new(), 0);
        self.store
            .read(&id(run), 0, &mut |batch| {
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
    let (trial, plan) = (Trial::new(Memory::new()), plan(20));
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
    assert!(trial.store.run(&id("r-3")).unwrap().is_none());
    // What the first failed by was left to it, and what it failed by itself is for people.
    let dead = |which| trial.store.dead(&which).unwrap();
    let open = dead(WhichDead::Open(9));
    assert_eq!(open.iter().map(|dead| dead.run.as_str()).collect::<Vec<_>>(), ["r-2"]);
    let first = dead(WhichDead::Of(id("r")));
    assert_eq!(first.iter().map(|dead| dead.settled.clone()).collect::<Vec<_>>(), [Some(Settled::RETRIED)]);
}

/// Whoever made it died as soon as its beginning was recorded.
#[test]
fn a_run_that_was_made_before_a_crash_goes_on_after_it() {
    let (store, plan) = (Memory::new(), plan(20));
    let dead = Arc::new(store.another());
    let host = Host::new(dead.clone(), Box::new(Unlucky), Capacity { workers: 0 }, Box::new(|_| {}));
    let start = Start { retry_of: Some(id("r")), attempt: 2, ..Start::new(id("r-2")) };
    host.begin(vec![Begin::new(plan.clone(), start, Value::Null)]).unwrap();
    dead.kill();
    let trial = Trial::new(store);
    trial.begin("r", &plan);
    trial.until(&Heard::Closed("r-2".into()));
    let (state, starts) = trial.recalled("r-2", &plan);
    assert_eq!(starts, 1);
    is_second(&state);
}

/// The run had ended when the one it retries was found to be still waiting for it.
#[test]
fn a_run_that_was_retried_is_not_retried_again() {
    let (store, plan) = (Memory::new(), plan(20));
    let before = Trial::new(store.another());
    before.begin("r-2", &plan);
    // Its own retry is the last of this trial.
    before.until(&Heard::Closed("r-2-2".into()));
    let events = before.recalled("r-2", &plan).0.events;
    let trial = Trial::new(store);
    trial.begin("r", &plan);
    trial.until(&Heard::Closed("r".into()));
    assert_eq!(trial.recalled("r-2", &plan).0.events, events);
}

#[test]
fn whoever_cancels_a_run_that_waits_to_be_retried_calls_that_off() {
    let (trial, plan) = (Trial::new(Memory::new()), plan(3_600_000));
    trial.begin("r", &plan);
    trial.until(&Heard::Decided("r".into()));
    let cancel = Input::Cancel { by: "ada".into(), reason: None };
    assert_eq!(trial.host.say(&id("r"), cancel), Some(Ok(())));
    trial.until(&Heard::Closed("r".into()));
    let (state, _) = trial.recalled("r", &plan);
    assert_eq!(state.status(), RunStatus::Failed);
    assert!(state.end.as_ref().and_then(|end| end.retry).is_some_and(|due| due > Time(0)));
    assert!(trial.store.run(&id("r-2")).unwrap().is_none());
    // Nobody tries it again, so it is listed.
    assert_eq!(trial.store.dead(&WhichDead::Open(9)).unwrap().len(), 1);
}
