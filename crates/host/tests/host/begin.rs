//! Resumed runs: the stored data determines whether a run can be continued.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::channel},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, Cost, Publication, RunStart},
    ids::{RunId, StepId, WorkflowId},
    ir::{RunStatus, ScopeShape, Step, StepKindSpec, StepScope, WorkSpec, WorkerCapability, WorkerSpec, Workflow},
    plan::{Plan, check_workflow},
};
use skein_host::{
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter},
    host::{Host, HostEvent, ResumeError, RunLaunch, RunLoader, WorkerCapacity},
    run_settings::RunSettings,
    store::{NewRun, RunHead, Store},
};
use skein_testkit::store::MemoryStore;

/// An executor whose attempts succeed at once.
#[derive(Debug)]
struct Quick;

impl Executor for Quick {
    fn start_attempt(&mut self, _: ActiveRun<'_>, _: AttemptId, _: &AttemptAssignment, finish: AttemptReporter) {
        let end = AttemptEnd::Succeeded { output: Arc::new(Value::Null) };
        finish.report(AttemptReport::new(end, Cost::default()));
    }

    fn stop_attempt(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: ActiveRun<'_>, _: Publication, published: PublicationReporter) {
        published.report(None);
    }

    fn reap_orphans(&mut self, _: &[RunId]) {}

    fn forget_run(&mut self, _: &RunId) {}
}

fn plan() -> Plan {
    let worker = WorkerSpec::Script { text: "true".into(), capabilities: vec![WorkerCapability::Read] };
    let step = Step::new(StepId::new("one").unwrap(), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
    let workflow = Workflow::new(WorkflowId::new("flow").unwrap(), StepScope::new(ScopeShape::Graph, vec![step]));
    let checked = check_workflow(Arc::new(workflow), &BTreeMap::new());
    let definition = checked.definition.unwrap_or_else(|| panic!("{:#?}", checked.problems));
    definition.bind(json!({"who": "ada"})).unwrap()
}

fn run() -> RunId {
    RunId::new("one").unwrap()
}

/// Runs are created with their first row. One without it has no parameters, and cannot be resumed.
#[test]
fn a_run_of_which_nothing_was_recorded_is_set_aside() {
    let (store, plan) = (Arc::new(MemoryStore::new()), plan());
    let definition = &plan.definition;
    let head = RunHead {
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
    let frozen = serde_json::to_vec(&definition.to_frozen()).unwrap().into();
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
    let claim = store.create_runs(&[new]).unwrap().remove(0);
    store.release_runs(&[claim]).unwrap();
    let host = Host::new(store.clone(), Box::new(Quick), WorkerCapacity { workers: 1 }, Box::new(|_| {}));
    let taken = host.resume_runs(vec![run()]).remove(0);
    assert!(matches!(&taken, Err(ResumeError::SetAside(why)) if why.contains("is empty")), "{taken:?}");
    assert!(store.find_run(&run()).unwrap().unwrap().quarantined.is_some());
}

/// Without workers a run is started and durable, and none of its attempts is active.
#[test]
fn a_run_that_was_begun_without_workers_goes_on_with_some() {
    let store = Arc::new(MemoryStore::new());
    let (to, rows) = channel();
    let told = to.clone();
    let watcher = move |from: HostEvent<'_>| {
        let _ = told.send(match from {
            HostEvent::Row { running, .. } => Some(running.state.in_flight().len()),
            _ => None,
        });
    };
    let host = Host::new(store.clone(), Box::new(Quick), WorkerCapacity { workers: 0 }, Box::new(watcher));
    let start = RunStart::new(run());
    let plan = plan();
    host.launch_runs(vec![RunLaunch::new(plan.clone(), start, RunSettings::default())]).unwrap();
    assert_eq!(rows.recv().unwrap(), Some(0), "nothing is started");
    host.leave_runs(&[run()]);
    drop(host);
    let kept = RunLoader::new(&*store).load_plan(&store.find_run(&run()).unwrap().unwrap()).unwrap();
    assert_eq!((kept.hash, &kept.parameters), (plan.hash, &plan.parameters), "the plan it was begun with");
    let watcher = move |from: HostEvent<'_>| {
        if let HostEvent::Closed { .. } = from {
            let _ = to.send(None);
        }
    };
    let host = Host::new(store.clone(), Box::new(Quick), WorkerCapacity { workers: 1 }, Box::new(watcher));
    host.resume_runs(vec![run()]).remove(0).unwrap();
    assert_eq!(rows.recv().unwrap(), None);
    assert_eq!(store.find_run(&run()).unwrap().unwrap().head.status, RunStatus::Succeeded);
}
