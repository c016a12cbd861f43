//! A handwritten workflow for phases that random workflows hardly ever reach.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    ids::{BranchId, StepId, WorkflowId},
    ir::{
        Backoff, BackoffGrowth, ErrorClass, LaneSpec, ParallelSpec, ScopeShape, Step, StepKindSpec, StepRetry,
        StepScope, UndoSpec, WorkSpec, WorkerSpec, Workflow,
    },
    plan::{Plan, check_workflow},
    time::Millis,
};

/// The id of the workflow.
pub const NAME: &str = "scenario";

/// Builds composites that wait for their slot, fail after a step inside completed, and are undone and retried.
pub fn build_plan() -> Plan {
    let composite = |n: u32| {
        let steps = vec![undoable_step(&format!("first-{n}")), work_step(&format!("second-{n}"))];
        let lane = |name: &str, steps| LaneSpec {
            id: BranchId::new(name).expect("it is a name"),
            scope: Arc::new(StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)),
        };
        let lanes = vec![lane("left", steps), lane("right", vec![work_step(&format!("third-{n}"))])];
        with_retry(Step::new(step_id(&format!("both-{n}")), StepKindSpec::Parallel(Box::new(ParallelSpec { lanes }))))
    };
    let mut scope = StepScope::new(ScopeShape::Graph, vec![composite(1), composite(2), composite(3)]);
    scope.concurrency = Some(1);
    let workflow = Workflow::new(WorkflowId::new(NAME).expect("it is a name"), scope);
    let definition = check_workflow(Arc::new(workflow), &()).definition.expect("it is valid");
    definition.bind(json!({})).expect("it takes nothing")
}

fn step_id(name: &str) -> StepId {
    StepId::new(name).expect("it is a name")
}

fn tool_work() -> WorkSpec {
    WorkSpec::new(WorkerSpec::Tool { tool: "tool".into(), pinned: None })
}

fn work_step(name: &str) -> Step {
    Step::new(step_id(name), StepKindSpec::Work(Box::new(tool_work())))
}

fn undoable_step(name: &str) -> Step {
    let undo = UndoSpec {
        id: step_id(&format!("undo-{name}")),
        work: tool_work(),
        inputs: Vec::new(),
        timeout: None,
        retry: StepRetry::default(),
    };
    Step { undo: Some(Box::new(undo)), ..work_step(name) }
}

fn with_retry(mut step: Step) -> Step {
    let backoff = Backoff { initial: Millis(100), growth: BackoffGrowth::Constant, max: Millis(1_000), jitter: false };
    step.policy.retry = StepRetry::for_classes(&ErrorClass::ALL, 4, backoff);
    step
}
