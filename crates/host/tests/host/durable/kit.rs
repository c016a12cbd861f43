//! Builders of small workflows for tests of the host. Scripts do their work, or [`super::hands`] in this process.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15},
    ids::{BranchId, SignalName, StepId, WorkflowId},
    ir::{
        Backoff, BackoffGrowth, BranchSpec, CallSpec, CompletionCheck, EachErrorPolicy, EachSpec, ErrorClass,
        GateSpec, GateTimeout, InputBinding, LaneSpec, LoopSpec, LoopTest, OutcomeEffect, ParallelSpec,
        RouteArm, RouteTarget, ScopeShape, Step, StepKindSpec, StepRetry, StepScope, UndoSpec, WaitSpec,
        WaitTimeout, WorkSpec, WorkerSpec, Workflow,
    },
    plan::{self, Plan},
    time::Millis,
};

pub fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub fn value(value: Value) -> Expr {
    aip15::parse_value(&value).unwrap()
}

pub fn script(text: &str) -> WorkerSpec {
    WorkerSpec::Script { text: text.to_owned(), capabilities: Vec::new() }
}

/// A step that runs a script.
pub fn run(name: &str, text: &str) -> Step {
    Step::new(id(name), StepKindSpec::Work(Box::new(WorkSpec::new(script(text)))))
}

/// A step of which only the name matters.
pub fn work(name: &str) -> Step {
    run(name, ":")
}

pub fn work_of(step: &mut Step) -> &mut WorkSpec {
    match &mut step.kind {
        StepKindSpec::Work(work) => work,
        _ => panic!("not work"),
    }
}

/// A step that is repeated until a check passes.
pub fn checked(mut step: Step, check: &str, iterations: u32) -> Step {
    work_of(&mut step).check = Some(Box::new(CompletionCheck {
        worker: script(check),
        timeout: None,
        max_iterations: iterations,
        incomplete_is_an_end: false,
        decision_file: None,
        convergence: None,
    }));
    step
}

pub fn check_of(step: &mut Step) -> &mut CompletionCheck {
    work_of(step).check.as_mut().unwrap()
}

pub fn gate(name: &str) -> Step {
    let gate = GateSpec {
        message: value(json!("go on?")),
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    Step::new(id(name), StepKindSpec::Gate(Box::new(gate)))
}

/// A step that waits for the signal `paid`.
pub fn wait(name: &str) -> Step {
    let wait = WaitSpec { on: vec![signal()], timeout: None, on_timeout: WaitTimeout::Expire };
    Step::new(id(name), StepKindSpec::Wait(Box::new(wait)))
}

pub fn signal() -> SignalName {
    SignalName::new("paid").unwrap()
}

pub fn branch(name: &str, when: &str, then: &str, otherwise: &str) -> Step {
    let arms = vec![RouteArm { when: aip15::parse_condition(when).unwrap(), next: to(then) }];
    Step::new(id(name), StepKindSpec::Branch(Box::new(BranchSpec { arms, default: to(otherwise) })))
}

pub fn parallel(name: &str, lanes: Vec<(&str, StepScope)>) -> Step {
    let lane =
        |(id, scope): (&str, StepScope)| LaneSpec { id: BranchId::new(id).unwrap(), scope: Arc::new(scope) };
    Step::new(
        id(name),
        StepKindSpec::Parallel(Box::new(ParallelSpec { lanes: lanes.into_iter().map(lane).collect() })),
    )
}

pub fn each(name: &str, over: Value, at_once: u32, scope: StepScope) -> Step {
    let each = EachSpec {
        over: value(over),
        parallelism: Some(at_once),
        errors: EachErrorPolicy::default(),
        scope: Arc::new(scope),
    };
    Step::new(id(name), StepKindSpec::Each(Box::new(each)))
}

pub fn repeat(name: &str, condition: &str, max: u32, scope: StepScope) -> Step {
    let condition = aip15::parse_condition(condition).unwrap();
    Step::new(
        id(name),
        StepKindSpec::Loop(Box::new(LoopSpec {
            condition,
            test: LoopTest::After,
            max,
            scope: Arc::new(scope),
        })),
    )
}

pub fn call(name: &str, workflow: &str) -> Step {
    let call = CallSpec { workflow: workflow.to_owned(), exports: Vec::new() };
    Step::new(id(name), StepKindSpec::Call(Box::new(call)))
}

pub fn graph(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Graph, steps)
}

pub fn routed(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)
}

pub fn to(name: &str) -> RouteTarget {
    if name == "$end" { RouteTarget::End } else { RouteTarget::Step(id(name)) }
}

pub fn after(mut step: Step, on: &[&str]) -> Step {
    step.after = on.iter().map(|on| id(on)).collect();
    step
}

pub fn given(mut step: Step, name: &str, from: Value) -> Step {
    let value = value(from);
    step.inputs.push(InputBinding {
        name: name.into(),
        value,
        schema: skein_core::ir::Schema::default(),
        required: true,
    });
    step
}

/// A step with this number of attempts in total, with a short delay in between.
pub fn retried(mut step: Step, attempts: u32) -> Step {
    step.policy.retry = StepRetry::for_classes(&ErrorClass::CURABLE, attempts, soon());
    step
}

pub fn soon() -> Backoff {
    Backoff { initial: Millis(20), growth: BackoffGrowth::Constant, max: Millis(20), jitter: false }
}

/// A step with a script that undoes it when the run fails.
pub fn undone_by(mut step: Step, text: &str) -> Step {
    step.undo = Some(Box::new(UndoSpec {
        id: id(&format!("undo-{}", step.id)),
        work: WorkSpec::new(script(text)),
        inputs: Vec::new(),
        timeout: None,
        retry: StepRetry::for_classes(&ErrorClass::CURABLE, 3, soon()),
    }));
    step
}

/// A step whose failure undoes the earlier steps.
pub fn undoes(mut step: Step) -> Step {
    step.policy.effects.failed = OutcomeEffect::UNDO;
    step.policy.effects.timed_out = OutcomeEffect::UNDO;
    step.policy.effects.rejected = OutcomeEffect::UNDO;
    step
}

pub fn workflow(name: &str, scope: StepScope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub fn plan(scope: StepScope) -> Plan {
    plan_of(workflow("flow", scope), &[])
}

pub fn plan_of(root: Workflow, called: &[Workflow]) -> Plan {
    let library: BTreeMap<String, Arc<Workflow>> =
        called.iter().map(|called| (called.id.to_string(), Arc::new(called.clone()))).collect();
    let checked = plan::check_workflow(Arc::new(root), &library);
    let errors: Vec<_> = checked.problems.iter().filter(|problem| problem.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    checked.definition.unwrap().bind(json!({})).unwrap()
}
