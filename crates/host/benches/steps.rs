//! Durable steps: what the host adds to the syncs of the journal. Work is done by nobody, at once.
//!
//! Each figure stands beside what the disk itself can do in the same run: a commit of one row with nothing around it.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{Assignment, AttemptEnd, AttemptId, Cost, Publication, Report, Start},
    ids::{RunId, StepId, WorkflowId},
    ir::{Kind, Scope, Shape, Step, Work, Worker, Workflow},
    plan::{Plan, check},
};
use skein_host::{
    hands::{Finish, Hands, Published, Running},
    host::{Begin, Capacity, Host, Told},
    store::{Sqlite, Store},
};

/// Does nothing, and is done with it at once.
#[derive(Debug)]
struct Nobody;

impl Hands for Nobody {
    fn start(&mut self, _: Running<'_>, _: AttemptId, _: &Assignment, finish: Finish) {
        let end = AttemptEnd::Succeeded { output: Arc::new(Value::Null) };
        finish.tell(Report { end, cost: Cost::default() });
    }

    fn stop(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: Running<'_>, _: Publication, published: Published) {
        published.tell(None);
    }

    fn clear(&mut self, _: &[RunId]) {}

    fn forget(&mut self, _: &RunId) {}
}

fn step(name: &str, after: Vec<String>) -> Step {
    let worker = Worker::Script { text: "true".to_owned(), capabilities: Vec::new() };
    let mut step = Step::new(StepId::new(name).expect("a name"), Kind::Work(Box::new(Work::new(worker))));
    step.after = after.iter().map(|name| StepId::new(name).expect("a name")).collect();
    step
}

fn plan(steps: Vec<Step>) -> Plan {
    let workflow = Workflow::new(WorkflowId::new("bench").expect("a name"), Scope::new(Shape::Graph, steps));
    let checked = check(Arc::new(workflow), &BTreeMap::new());
    checked.definition.expect("the plan is right").bind(json!({})).expect("no parameters")
}

fn chain(length: usize) -> Plan {
    let after = |i: usize| if i == 0 { Vec::new() } else { vec![format!("s{}", i - 1)] };
    plan((0..length).map(|i| step(&format!("s{i}"), after(i))).collect())
}

fn fan_out(width: usize) -> Plan {
    let mut steps = vec![step("first", Vec::new())];
    let names: Vec<String> = (0..width).map(|i| format!("s{i}")).collect();
    steps.extend(names.iter().map(|name| step(name, vec!["first".to_owned()])));
    steps.push(step("last", names));
    plan(steps)
}

/// How long so many runs of a plan take together, on a disk.
fn time(plan: &Plan, runs: usize) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder.path().join("state")).expect("a store"));
    let (tell, told) = channel();
    let watcher = Box::new(move |news: Told<'_>| {
        if let Told::Closed { .. } = news {
            let _ = tell.send(());
        }
    });
    let host = Host::new(store, Box::new(Nobody), Capacity { workers: 10_000 }, watcher);
    let begin = |n: usize| {
        let run = RunId::new(format!("r{n}")).expect("a name");
        let start = Start::new(run);
        Begin::new(plan.clone(), start, Value::Null)
    };
    let began = Instant::now();
    host.begin((0..runs).map(begin).collect()).expect("the runs begin");
    for _ in 0..runs {
        told.recv().expect("every run ends");
    }
    began.elapsed()
}

/// A commit of one small row, with nothing around it.
fn commit() -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let db = rusqlite::Connection::open(folder.path().join("db")).expect("a database");
    db.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (x BLOB);")
        .expect("a table");
    let row = vec![7_u8; 300];
    let mut times: Vec<Duration> = (0..500)
        .map(|_| {
            let began = Instant::now();
            db.execute("INSERT INTO t VALUES (?1)", [&row]).expect("a row");
            began.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let raw = commit();
    let (chain, fan_out, short) = (chain(100), fan_out(1_000), chain(10));
    let best = |plan: &Plan, runs: usize| (0..5).map(|_| time(plan, runs)).min().expect("five of them");
    let each = best(&chain, 1) / 100;
    println!("one commit of SQLite      {raw:>12.1?}");
    println!(
        "chain of 100              {each:>12.1?} a step, {:.2} commits",
        each.as_secs_f64() / raw.as_secs_f64()
    );
    println!("fan-out of 1,000 and join {:>12.1?}", best(&fan_out, 1));
    let all = best(&short, 1_000);
    println!("1,000 runs of 10 steps    {all:>12.1?}, {:.0} steps a second", 10_000.0 / all.as_secs_f64());
}
