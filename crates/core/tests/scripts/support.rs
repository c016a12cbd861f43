//! Small workflows, and the tables of policies that each format fills in.

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

pub fn to(text: &str) -> Target {
    if text == "$end" { Target::End } else { Target::Step(id(text)) }
}

pub fn value(text: &str) -> Expr {
    aip15::value(&json!(text)).unwrap()
}

pub fn cond(text: &str) -> Expr {
    aip15::condition(text).unwrap()
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

fn tool(name: &str) -> Worker {
    Worker::Tool { tool: name.into(), pinned: None }
}

pub fn work(name: &str) -> Step {
    Step::new(id(name), Kind::Work(Box::new(Work::new(tool("t")))))
}

/// Work in a graph that waits for these.
pub fn after(name: &str, dependencies: &[&str]) -> Step {
    Step { after: dependencies.iter().map(|name| id(name)).collect(), ..work(name) }
}

pub fn reads(step: Step, name: &str, reference: &str) -> Step {
    step.with(|step| {
        step.inputs.push(Binding {
            name: name.into(),
            value: value(reference),
            schema: Schema::default(),
            required: false,
        });
    })
}

pub fn the_work(step: &mut Step) -> &mut Work {
    match &mut step.kind {
        Kind::Work(work) => work,
        other => panic!("not work: {other:?}"),
    }
}

/// Work with a completion check.
pub fn checked(name: &str, iterations: u32) -> Step {
    work(name).with(|step| {
        the_work(step).check = Some(Box::new(Check {
            worker: tool("check"),
            timeout: None,
            max_iterations: iterations,
            incomplete_is_an_end: false,
            decision_file: None,
            convergence: None,
        }));
    })
}

pub fn the_check(step: &mut Step) -> &mut Check {
    the_work(step).check.as_mut().unwrap()
}

/// The same number of attempts for every class that is worth another, a second apart.
pub fn retried(step: Step, attempts: u32) -> Step {
    let classes = [ErrorClass::Transient, ErrorClass::RateLimit, ErrorClass::Network, ErrorClass::Service];
    step.with(|step| step.policy.retry = Retry::of(&classes, attempts, seconds(1)))
}

/// The same delay before each retry.
pub fn seconds(n: u64) -> Backoff {
    let length = Millis::seconds(n);
    Backoff { initial: length, growth: Growth::Constant, max: length, jitter: false }
}

/// A step that can be undone, its undo given what it gave.
pub fn undoable(step: Step) -> Step {
    let name = step.id.to_string();
    step.with(|step| {
        step.undo = Some(Box::new(Undo {
            id: id(&format!("un-{name}")),
            work: Work::new(tool("undo")),
            inputs: vec![Binding {
                name: "was".into(),
                value: value(&format!("$steps.{name}")),
                schema: Schema::default(),
                required: false,
            }],
            timeout: None,
            retry: Retry::default(),
        }));
    })
}

/// Every failure of the step has this effect.
pub fn on_failure(step: Step, effect: Effect) -> Step {
    step.with(|step| {
        let effects = &mut step.policy.effects;
        (effects.failed, effects.timed_out, effects.rejected) = (effect, effect, effect);
        (effects.exhausted, effects.incomplete) = (effect, effect);
    })
}

/// As AIP-15 has it: any failure undoes what was completed.
pub fn undoing(step: Step) -> Step {
    on_failure(step, Effect::UNDO)
}

pub fn branch(name: &str, arms: &[(&str, &str)], default: &str) -> Step {
    let arms = arms.iter().map(|(when, next)| Arm { when: cond(when), next: to(next) }).collect();
    Step::new(id(name), Kind::Branch(Box::new(Branch { arms, default: to(default) })))
}

/// A gate that anyone may decide.
pub fn gate(name: &str, change: impl FnOnce(&mut Gate)) -> Step {
    let gate = Gate {
        message: value("Go on?"),
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    Step::new(id(name), Kind::Gate(Box::new(gate.with(change))))
}

/// A gate with a minute and something to do after it.
pub fn gate_until(name: &str, on_timeout: GateTimeout) -> Step {
    gate(name, |gate| (gate.timeout, gate.on_timeout) = (Some(Millis::minutes(1)), on_timeout))
}

pub fn wait(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    Step::new(id(name), Kind::Wait(Box::new(Wait { on, timeout: None, on_timeout: WaitTimeout::Expire })))
}

pub fn wait_until(name: &str, on_timeout: WaitTimeout) -> Step {
    let on = vec![SignalName::new("paid").unwrap()];
    Step::new(id(name), Kind::Wait(Box::new(Wait { on, timeout: Some(Millis::minutes(1)), on_timeout })))
}

pub fn parallel(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    let lane = |(name, steps)| Lane { id: BranchId::new(name).unwrap(), scope: Arc::new(route(steps)) };
    Step::new(id(name), Kind::Parallel(Box::new(Parallel { lanes: lanes.into_iter().map(lane).collect() })))
}

/// Two at a time.
pub fn each(name: &str, over: &str, errors: EachErrors, steps: Vec<Step>) -> Step {
    let (over, scope) = (value(over), Arc::new(route(steps)));
    Step::new(id(name), Kind::Each(Box::new(Each { over, parallelism: Some(2), errors, scope })))
}

pub fn repeat(name: &str, condition: &str, test: LoopTest, max: u32, steps: Vec<Step>) -> Step {
    let (condition, scope) = (cond(condition), Arc::new(route(steps)));
    Step::new(id(name), Kind::Loop(Box::new(Loop { condition, test, max, scope })))
}

pub fn call(name: &str, workflow: &str) -> Step {
    Step::new(id(name), Kind::Call(Box::new(Call { workflow: workflow.into(), exports: Vec::new() })))
}

pub fn route(steps: Vec<Step>) -> Scope {
    Scope::new(Shape::Routed { start: None, cycles: false }, steps)
}

fn workflow(name: &str, scope: Scope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub fn graph(steps: Vec<Step>) -> Workflow {
    workflow("main", Scope::new(Shape::Graph, steps))
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
