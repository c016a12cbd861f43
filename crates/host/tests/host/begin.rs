//! Runs that are taken over: what there is of them decides what can be gone on with.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::channel},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{Assignment, AttemptEnd, AttemptId, Cost, Publication, Report, Start},
    ids::{RunId, StepId, WorkflowId},
    ir::{Capability, Kind, RunStatus, Scope, Shape, Step, Work, Worker, Workflow},
    plan::{Plan, check},
};
use skein_host::{
    hands::{Finish, Hands, Published, Running},
    host::{Begin, Capacity, Host, Recall, ResumeError, Told},
    store::{Head, Memory, NewRun, Store},
};

/// Everything that is begun succeeds at once.
#[derive(Debug)]
struct Quick;

impl Hands for Quick {
    fn start(&mut self, _: Running<'_>, _: AttemptId, _: &Assignment, finish: Finish) {
        let end = AttemptEnd::Succeeded { output: Arc::new(Value::Null) };
        finish.tell(Report::new(end, Cost::default()));
    }

    fn stop(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: Running<'_>, _: Publication, published: Published) {
        published.tell(None);
    }

    fn clear(&mut self, _: &[RunId]) {}

    fn forget(&mut self, _: &RunId) {}
}

fn plan() -> Plan {
    let worker = Worker::Script { text: "true".into(), capabilities: vec![Capability::Read] };
    let step = Step::new(StepId::new("one").unwrap(), Kind::Work(Box::new(Work::new(worker))));
    let workflow = Workflow::new(WorkflowId::new("flow").unwrap(), Scope::new(Shape::Graph, vec![step]));
    let checked = check(Arc::new(workflow), &BTreeMap::new());
    let definition = checked.definition.unwrap_or_else(|| panic!("{:#?}", checked.problems));
    definition.bind(json!({"who": "ada"})).unwrap()
}

fn run() -> RunId {
    RunId::new("one").unwrap()
}

/// Runs come to be with their first row. One without it has no parameters, and cannot be gone on with.
#[test]
fn a_run_of_which_nothing_was_recorded_is_set_aside() {
    let (store, plan) = (Arc::new(Memory::new()), plan());
    let definition = &plan.definition;
    let head = Head {
        workflow: "flow".into(),
        version: None,
        dialect: String::new(),
        status: RunStatus::Queued,
        native_status: "queued".into(),
        started_at: None,
        finished_at: None,
        closed: false,
        forked_from: None,
        cost: Cost::default(),
    };
    let frozen = serde_json::to_vec(&definition.frozen()).unwrap().into();
    let new = NewRun {
        run: run(),
        definition: definition.hash(),
        frozen,
        about: Value::Null,
        head,
        open: Vec::new(),
        first: None,
        audit: Vec::new(),
        settles: Vec::new(),
    };
    let claim = store.create(&[new]).unwrap().remove(0);
    store.release(&[claim]).unwrap();
    let host = Host::new(store.clone(), Box::new(Quick), Capacity { workers: 1 }, Box::new(|_| {}));
    let taken = host.resume(vec![run()]).remove(0);
    assert!(matches!(&taken, Err(ResumeError::SetAside(why)) if why.contains("is empty")), "{taken:?}");
    assert!(store.run(&run()).unwrap().unwrap().quarantined.is_some());
}

/// With no workers a run is begun and durable, and nothing of it is at work.
#[test]
fn a_run_that_was_begun_without_workers_goes_on_with_some() {
    let store = Arc::new(Memory::new());
    let (to, rows) = channel();
    let told = to.clone();
    let watcher = move |from: Told<'_>| {
        let _ = told.send(match from {
            Told::Row { running, .. } => Some(running.state.in_flight().len()),
            _ => None,
        });
    };
    let host = Host::new(store.clone(), Box::new(Quick), Capacity { workers: 0 }, Box::new(watcher));
    let start = Start::new(run());
    let plan = plan();
    host.begin(vec![Begin::new(plan.clone(), start, Value::Null)]).unwrap();
    assert_eq!(rows.recv().unwrap(), Some(0), "nothing is started");
    host.leave(&[run()]);
    drop(host);
    let kept = Recall::new(&*store).plan(&store.run(&run()).unwrap().unwrap()).unwrap();
    assert_eq!((kept.hash, &kept.parameters), (plan.hash, &plan.parameters), "the plan it was begun with");
    let watcher = move |from: Told<'_>| {
        if let Told::Closed { .. } = from {
            let _ = to.send(None);
        }
    };
    let host = Host::new(store.clone(), Box::new(Quick), Capacity { workers: 1 }, Box::new(watcher));
    host.resume(vec![run()]).remove(0).unwrap();
    assert_eq!(rows.recv().unwrap(), None);
    assert_eq!(store.run(&run()).unwrap().unwrap().head.status, RunStatus::Succeeded);
}
