//! Small workflows, and the policy tables of each format.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15},
    ids::{BranchId, SignalName, StepId, WorkflowId},
    ir::*,
    time::Millis,
};

pub fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub fn to(text: &str) -> RouteTarget {
    if text == "$end" { RouteTarget::End } else { RouteTarget::Step(id(text)) }
}

pub fn value(text: &str) -> Expr {
    aip15::parse_value(&json!(text)).unwrap()
}

pub fn cond(text: &str) -> Expr {
    aip15::parse_condition(text).unwrap()
}

pub trait With: Sized {
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl<T> With for T {
    fn with(mut self, change: impl FnOnce(&mut T)) -> T {
        change(&mut self);
        self
    }
}

fn tool(name: &str) -> WorkerSpec {
    WorkerSpec::Tool { tool: name.into(), pinned: None }
}

pub fn work(name: &str) -> Step {
    Step::new(id(name), StepKindSpec::Work(Box::new(WorkSpec::new(tool("t")))))
}

/// Work in a graph with these dependencies.
pub fn after(name: &str, dependencies: &[&str]) -> Step {
    Step { after: dependencies.iter().map(|name| id(name)).collect(), ..work(name) }
}

pub fn reads(step: Step, name: &str, reference: &str) -> Step {
    step.with(|step| {
        step.inputs.push(InputBinding {
            name: name.into(),
            value: value(reference),
            schema: Schema::default(),
            required: false,
        });
    })
}

pub fn the_work(step: &mut Step) -> &mut WorkSpec {
    match &mut step.kind {
        StepKindSpec::Work(work) => work,
        other => panic!("not work: {other:?}"),
    }
}

/// Work with a completion check.
pub fn checked(name: &str, iterations: u32) -> Step {
    work(name).with(|step| {
        the_work(step).check = Some(Box::new(CompletionCheck {
            worker: tool("check"),
            timeout: None,
            max_iterations: iterations,
            incomplete_is_an_end: false,
            decision_file: None,
            convergence: None,
        }));
    })
}

pub fn the_check(step: &mut Step) -> &mut CompletionCheck {
    the_work(step).check.as_mut().unwrap()
}

/// Allows the same number of attempts for every retryable class, one second apart.
pub fn retried(step: Step, attempts: u32) -> Step {
    let classes = [ErrorClass::Transient, ErrorClass::RateLimit, ErrorClass::Network, ErrorClass::Service];
    step.with(|step| step.policy.retry = StepRetry::for_classes(&classes, attempts, seconds(1)))
}

/// The same delay before each retry.
pub fn seconds(n: u64) -> Backoff {
    let length = Millis::from_secs(n);
    Backoff { initial: length, growth: BackoffGrowth::Constant, max: length, jitter: false }
}

/// A step with an undo, which is given the output of the step.
pub fn undoable(step: Step) -> Step {
    let name = step.id.to_string();
    step.with(|step| {
        step.undo = Some(Box::new(UndoSpec {
            id: id(&format!("un-{name}")),
            work: WorkSpec::new(tool("undo")),
            inputs: vec![InputBinding {
                name: "was".into(),
                value: value(&format!("$steps.{name}")),
                schema: Schema::default(),
                required: false,
            }],
            timeout: None,
            retry: StepRetry::default(),
        }));
    })
}

/// Gives every failure of the step this effect.
pub fn on_failure(step: Step, effect: OutcomeEffect) -> Step {
    step.with(|step| {
        let effects = &mut step.policy.effects;
        (effects.failed, effects.timed_out, effects.rejected) = (effect, effect, effect);
        (effects.exhausted, effects.incomplete) = (effect, effect);
    })
}

/// As in AIP-15: any failure undoes completed steps.
pub fn undoing(step: Step) -> Step {
    on_failure(step, OutcomeEffect::UNDO)
}

pub fn branch(name: &str, arms: &[(&str, &str)], default: &str) -> Step {
    let arms = arms.iter().map(|(when, next)| RouteArm { when: cond(when), next: to(next) }).collect();
    Step::new(id(name), StepKindSpec::Branch(Box::new(BranchSpec { arms, default: to(default) })))
}

/// A gate that anyone may decide.
pub fn gate(name: &str, change: impl FnOnce(&mut GateSpec)) -> Step {
    let gate = GateSpec {
        message: value("Go on?"),
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    Step::new(id(name), StepKindSpec::Gate(Box::new(gate.with(change))))
}

/// A gate with a timeout of one minute and this action on timeout.
pub fn gate_until(name: &str, on_timeout: GateTimeout) -> Step {
    gate(name, |gate| (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), on_timeout))
}

pub fn wait(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    Step::new(
        id(name),
        StepKindSpec::Wait(Box::new(WaitSpec { on, timeout: None, on_timeout: WaitTimeout::Expire })),
    )
}

pub fn wait_until(name: &str, on_timeout: WaitTimeout) -> Step {
    let on = vec![SignalName::new("paid").unwrap()];
    Step::new(
        id(name),
        StepKindSpec::Wait(Box::new(WaitSpec { on, timeout: Some(Millis::from_mins(1)), on_timeout })),
    )
}

pub fn parallel(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    let lane = |(name, steps)| LaneSpec { id: BranchId::new(name).unwrap(), scope: Arc::new(route(steps)) };
    Step::new(
        id(name),
        StepKindSpec::Parallel(Box::new(ParallelSpec { lanes: lanes.into_iter().map(lane).collect() })),
    )
}

/// An each with a parallelism of two.
pub fn each(name: &str, over: &str, errors: EachErrorPolicy, steps: Vec<Step>) -> Step {
    let (over, scope) = (value(over), Arc::new(route(steps)));
    Step::new(id(name), StepKindSpec::Each(Box::new(EachSpec { over, parallelism: Some(2), errors, scope })))
}

pub fn repeat(name: &str, condition: &str, test: LoopTest, max: u32, steps: Vec<Step>) -> Step {
    let (condition, scope) = (cond(condition), Arc::new(route(steps)));
    Step::new(id(name), StepKindSpec::Loop(Box::new(LoopSpec { condition, test, max, scope })))
}

pub fn call(name: &str, workflow: &str) -> Step {
    Step::new(
        id(name),
        StepKindSpec::Call(Box::new(CallSpec { workflow: workflow.into(), exports: Vec::new() })),
    )
}

pub fn route(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)
}

fn workflow(name: &str, scope: StepScope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub fn graph(steps: Vec<Step>) -> Workflow {
    workflow("main", StepScope::new(ScopeShape::Graph, steps))
}

pub fn routed(steps: Vec<Step>) -> Workflow {
    workflow("main", route(steps))
}

/// A routed workflow whose failures, timeouts and cancellations undo, as in AIP-15.
pub fn saga(steps: Vec<Step>) -> Workflow {
    let steps = steps.into_iter().map(undoing).collect();
    routed(steps).with(|workflow| {
        (workflow.scope.undo.on_timeout, workflow.scope.undo.on_cancel) = (true, true);
    })
}

pub fn inputs(schema: Value, workflow: Workflow) -> Workflow {
    Workflow { inputs: Schema::new(schema), ..workflow }
}

pub type Others = BTreeMap<String, Arc<Workflow>>;

pub fn library(workflows: Vec<(&str, Workflow)>) -> Others {
    workflows.into_iter().map(|(name, workflow)| (name.to_owned(), Arc::new(workflow))).collect()
}
