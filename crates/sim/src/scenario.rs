//! A workflow made by hand, for phases that random ones hardly ever reach.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    ids::{BranchId, StepId, WorkflowId},
    ir::{
        Backoff, ErrorClass, Growth, Kind, Lane, Parallel, Retry, Scope, Shape, Step, Undo, Work, Worker,
        Workflow,
    },
    plan::{Plan, check},
    time::Millis,
};

/// Its name.
pub const NAME: &str = "scenario";

/// Composites that wait for their slot, fail after something inside was completed, and are undone and tried again.
pub fn plan() -> Plan {
    let composite = |n: u32| {
        let steps = vec![undoable(&format!("first-{n}")), work(&format!("second-{n}"))];
        let lane = |name: &str, steps| Lane {
            id: BranchId::new(name).expect("it is a name"),
            scope: Arc::new(Scope::new(Shape::Routed { start: None, cycles: false }, steps)),
        };
        let lanes = vec![lane("left", steps), lane("right", vec![work(&format!("third-{n}"))])];
        retried(Step::new(id(&format!("both-{n}")), Kind::Parallel(Box::new(Parallel { lanes }))))
    };
    let mut scope = Scope::new(Shape::Graph, vec![composite(1), composite(2), composite(3)]);
    scope.concurrency = Some(1);
    let workflow = Workflow::new(WorkflowId::new(NAME).expect("it is a name"), scope);
    let definition = check(Arc::new(workflow), &()).definition.expect("it is valid");
    definition.bind(json!({})).expect("it takes nothing")
}

fn id(name: &str) -> StepId {
    StepId::new(name).expect("it is a name")
}

fn task() -> Work {
    Work::new(Worker::Tool { tool: "tool".into(), pinned: None })
}

fn work(name: &str) -> Step {
    Step::new(id(name), Kind::Work(Box::new(task())))
}

fn undoable(name: &str) -> Step {
    let undo = Undo {
        id: id(&format!("undo-{name}")),
        work: task(),
        inputs: Vec::new(),
        timeout: None,
        retry: Retry::default(),
    };
    Step { undo: Some(Box::new(undo)), ..work(name) }
}

fn retried(mut step: Step) -> Step {
    let backoff =
        Backoff { initial: Millis(100), growth: Growth::Constant, max: Millis(1_000), jitter: false };
    step.policy.retry = Retry::of(&ErrorClass::ALL, 4, backoff);
    step
}
