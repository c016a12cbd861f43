//! Small workflows with nothing wrong, to break one thing at a time.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15},
    ids::{ArtifactName, BranchId, SignalName, StepId, WorkflowId},
    ir::*,
    plan::{Checked, Definition, Problem, ProblemCode, Severity, check},
    time::Millis,
};

pub fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub fn artifact(text: &str) -> ArtifactName {
    ArtifactName::new(text).unwrap()
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

/// A command with a timeout, so that nothing is said about it.
pub fn work(name: &str) -> Step {
    let worker = Worker::Command { program: "true".into(), arguments: Vec::new() };
    let mut step = Step::new(id(name), Kind::Work(Box::new(Work::new(worker))));
    step.policy.timeout = Some(Millis::seconds(1));
    step
}

pub fn after(name: &str, dependencies: &[&str]) -> Step {
    Step { after: dependencies.iter().map(|name| id(name)).collect(), ..work(name) }
}

pub fn next(name: &str, target: &str) -> Step {
    Step { next: Some(to(target)), ..work(name) }
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

pub fn reading(step: Step, reference: &str) -> Step {
    step.with(|step| {
        let name = format!("in{}", step.inputs.len());
        step.inputs.push(Binding::new(name, value(reference)));
    })
}

pub fn the_work(step: &mut Step) -> &mut Work {
    match &mut step.kind {
        Kind::Work(work) => work,
        other => panic!("not work: {other:?}"),
    }
}

pub fn branch(name: &str, arms: &[(&str, &str)], default: &str) -> Step {
    let arms = arms.iter().map(|(when, next)| Arm { when: cond(when), next: to(next) }).collect();
    Step::new(id(name), Kind::Branch(Box::new(Branch { arms, default: to(default) })))
}

pub fn the_gate() -> Gate {
    Gate {
        message: value("Go on?"),
        shows: Vec::new(),
        approvers: vec![Approver::Role("lead".into())],
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    }
}

pub fn gate(name: &str, change: impl FnOnce(&mut Gate)) -> Step {
    Step::new(id(name), Kind::Gate(Box::new(the_gate().with(change))))
}

pub fn wait(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    Step::new(id(name), Kind::Wait(Box::new(Wait { on, timeout: None, on_timeout: WaitTimeout::Expire })))
}

pub fn parallel(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    let lane = |(name, steps)| Lane { id: BranchId::new(name).unwrap(), scope: Arc::new(route(steps)) };
    Step::new(id(name), Kind::Parallel(Box::new(Parallel { lanes: lanes.into_iter().map(lane).collect() })))
}

pub fn each(name: &str, over: &str, steps: Vec<Step>) -> Step {
    let (over, scope) = (value(over), Arc::new(route(steps)));
    Step::new(
        id(name),
        Kind::Each(Box::new(Each { over, parallelism: Some(4), errors: EachErrors::FailFast, scope })),
    )
}

pub fn repeat(name: &str, condition: &str, max: u32, steps: Vec<Step>) -> Step {
    let (condition, scope) = (cond(condition), Arc::new(route(steps)));
    Step::new(id(name), Kind::Loop(Box::new(Loop { condition, test: LoopTest::First, max, scope })))
}

pub fn call(name: &str, workflow: &str) -> Step {
    Step::new(id(name), Kind::Call(Box::new(Call { workflow: workflow.into(), exports: Vec::new() })))
}

pub fn route(steps: Vec<Step>) -> Scope {
    Scope::new(Shape::Routed { start: None, cycles: false }, steps)
}

fn workflow(name: &str, scope: Scope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), Scope { timeout: Some(Millis::minutes(10)), ..scope })
}

pub fn graph(steps: Vec<Step>) -> Workflow {
    workflow("main", Scope::new(Shape::Graph, steps))
}

pub fn routed(steps: Vec<Step>) -> Workflow {
    workflow("main", route(steps))
}

pub fn inputs(schema: Value, workflow: Workflow) -> Workflow {
    Workflow { inputs: Schema::new(schema), ..workflow }
}

pub type Others = BTreeMap<String, Arc<Workflow>>;

pub fn library(workflows: Vec<(&str, Workflow)>) -> Others {
    workflows.into_iter().map(|(name, workflow)| (name.to_owned(), Arc::new(workflow))).collect()
}

pub fn checked(workflow: Workflow) -> Checked {
    check(Arc::new(workflow), &())
}

/// What is said, without the notes.
pub fn said(checked: Checked) -> Vec<String> {
    let problems = checked.problems.iter().filter(|problem| problem.severity > Severity::Note);
    let errors = checked.problems.iter().any(Problem::is_error);
    assert_eq!(checked.definition.is_none(), errors, "a definition if and only if nothing is wrong");
    problems.map(ToString::to_string).collect()
}

#[track_caller]
pub fn says(workflow: Workflow, expected: &[&str]) {
    assert_eq!(said(checked(workflow)), expected);
}

#[track_caller]
pub fn fine(workflow: Workflow) -> Arc<Definition> {
    fine_but(workflow, &[])
}

/// Nothing is said but notes and these.
#[track_caller]
pub fn fine_but(workflow: Workflow, but: &[ProblemCode]) -> Arc<Definition> {
    let checked = checked(workflow);
    let other = |problem: &&Problem| problem.severity > Severity::Note && !but.contains(&problem.code);
    let problems: Vec<_> = checked.problems.iter().filter(other).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    checked.definition.unwrap()
}

/// Whether something with this code is said.
pub fn has(workflow: Workflow, code: ProblemCode) -> bool {
    checked(workflow).problems.iter().any(|problem| problem.code == code)
}
