//! Builders of small workflows, as values of the IR. Tests add what differs by [`With::with`].

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15},
    ids::{BranchId, SignalName, StepId},
    ir::{
        Backoff, BackoffGrowth, BranchSpec, CallSpec, CompletionCheck, EachErrorPolicy, EachSpec, GateSpec,
        GateTimeout, InputBinding, LaneSpec, LoopSpec, LoopTest, OutcomeEffect, ParallelSpec, RouteArm, RouteTarget,
        Schema, ScopeShape, Step, StepKindSpec, StepRetry, StepScope, UndoSpec, WaitSpec, WaitTimeout, WorkSpec,
        WorkerSpec, Workflow,
    },
    time::Millis,
};

/// The workflows that others call, by name.
pub type Others = BTreeMap<String, Arc<Workflow>>;

/// Changes a value in the middle of an expression.
pub trait With: Sized {
    #[must_use]
    fn with(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl<T> With for T {
    fn with(mut self, change: impl FnOnce(&mut T)) -> T {
        change(&mut self);
        self
    }
}

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

pub fn tool(name: &str) -> WorkerSpec {
    WorkerSpec::Tool { tool: name.into(), pinned: None }
}

pub fn script(text: &str) -> WorkerSpec {
    WorkerSpec::Script { text: text.to_owned(), capabilities: Vec::new() }
}

pub fn work_by(name: &str, worker: WorkerSpec) -> Step {
    Step::new(id(name), StepKindSpec::Work(Box::new(WorkSpec::new(worker))))
}

/// Work of the tool `t`.
pub fn work(name: &str) -> Step {
    work_by(name, tool("t"))
}

/// Makes a step of a graph depend on others.
#[must_use]
pub fn depending(mut step: Step, dependencies: &[&str]) -> Step {
    step.after = dependencies.iter().map(|name| id(name)).collect();
    step
}

/// Work in a graph with these dependencies.
pub fn after(name: &str, dependencies: &[&str]) -> Step {
    depending(work(name), dependencies)
}

pub fn the_work(step: &mut Step) -> &mut WorkSpec {
    match &mut step.kind {
        StepKindSpec::Work(work) => work,
        other => panic!("not work: {other:?}"),
    }
}

/// Adds a completion check.
#[must_use]
pub fn checked_by(mut step: Step, worker: WorkerSpec, max_iterations: u32) -> Step {
    the_work(&mut step).check = Some(Box::new(CompletionCheck {
        worker,
        timeout: None,
        max_iterations,
        incomplete_is_an_end: false,
        decision_file: None,
        convergence: None,
    }));
    step
}

/// Work with a completion check by the tool `check`.
pub fn checked(name: &str, iterations: u32) -> Step {
    checked_by(work(name), tool("check"), iterations)
}

pub fn the_check(step: &mut Step) -> &mut CompletionCheck {
    the_work(step).check.as_mut().unwrap()
}

pub fn input(name: &str, value: Expr) -> InputBinding {
    InputBinding { name: name.into(), value, schema: Schema::default(), required: false }
}

/// The same delay before each retry.
pub fn constant_backoff(length: Millis) -> Backoff {
    Backoff { initial: length, growth: BackoffGrowth::Constant, max: length, jitter: false }
}

/// An undo step `un-NAME` without inputs.
pub fn undo_by(name: &str, worker: WorkerSpec) -> UndoSpec {
    UndoSpec {
        id: id(&format!("un-{name}")),
        work: WorkSpec::new(worker),
        inputs: Vec::new(),
        timeout: None,
        retry: StepRetry::default(),
    }
}

/// Gives failures and timeouts of the step the effect that undoes completed steps.
#[must_use]
pub fn undoing(mut step: Step) -> Step {
    (step.policy.effects.failed, step.policy.effects.timed_out) = (OutcomeEffect::UNDO, OutcomeEffect::UNDO);
    step
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

pub fn wait(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    let wait = WaitSpec { on, timeout: None, on_timeout: WaitTimeout::Expire };
    Step::new(id(name), StepKindSpec::Wait(Box::new(wait)))
}

pub fn parallel_scopes(name: &str, lanes: Vec<(&str, StepScope)>) -> Step {
    let lane = |(name, scope)| LaneSpec { id: BranchId::new(name).unwrap(), scope: Arc::new(scope) };
    let lanes = lanes.into_iter().map(lane).collect();
    Step::new(id(name), StepKindSpec::Parallel(Box::new(ParallelSpec { lanes })))
}

/// Lanes whose steps follow one another.
pub fn parallel(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    parallel_scopes(name, lanes.into_iter().map(|(name, steps)| (name, route(steps))).collect())
}

/// An each that stops at the first failure.
pub fn each_scope(name: &str, over: Expr, parallelism: u32, scope: StepScope) -> Step {
    let each =
        EachSpec { over, parallelism: Some(parallelism), errors: EachErrorPolicy::FailFast, scope: Arc::new(scope) };
    Step::new(id(name), StepKindSpec::Each(Box::new(each)))
}

pub fn loop_scope(name: &str, condition: &str, test: LoopTest, max: u32, scope: StepScope) -> Step {
    let (condition, scope) = (cond(condition), Arc::new(scope));
    Step::new(id(name), StepKindSpec::Loop(Box::new(LoopSpec { condition, test, max, scope })))
}

pub fn call(name: &str, workflow: &str) -> Step {
    let call = CallSpec { workflow: workflow.into(), exports: Vec::new() };
    Step::new(id(name), StepKindSpec::Call(Box::new(call)))
}

/// Steps that follow one another.
pub fn route(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)
}

pub fn graph_scope(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Graph, steps)
}

pub fn inputs(schema: Value, workflow: Workflow) -> Workflow {
    Workflow { inputs: Schema::new(schema), ..workflow }
}

pub fn library(workflows: Vec<(&str, Workflow)>) -> Others {
    workflows.into_iter().map(|(name, workflow)| (name.to_owned(), Arc::new(workflow))).collect()
}
