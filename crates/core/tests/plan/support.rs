//! Small valid workflows, in which each test breaks one thing.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15},
    ids::{ArtifactName, BranchId, SignalName, StepId, WorkflowId},
    ir::*,
    plan::{CheckedWorkflow, PlanDefinition, PlanProblem, ProblemCode, Severity, check_workflow},
    time::Millis,
};

pub fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub fn artifact(text: &str) -> ArtifactName {
    ArtifactName::new(text).unwrap()
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

/// A command with a timeout, so that there is no diagnostic about it.
pub fn work(name: &str) -> Step {
    let worker = WorkerSpec::Command { program: "true".into(), arguments: Vec::new() };
    let mut step = Step::new(id(name), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
    step.policy.timeout = Some(Millis::from_secs(1));
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
        step.inputs.push(InputBinding::new(name, value(reference)));
    })
}

pub fn the_work(step: &mut Step) -> &mut WorkSpec {
    match &mut step.kind {
        StepKindSpec::Work(work) => work,
        other => panic!("not work: {other:?}"),
    }
}

pub fn branch(name: &str, arms: &[(&str, &str)], default: &str) -> Step {
    let arms = arms.iter().map(|(when, next)| RouteArm { when: cond(when), next: to(next) }).collect();
    Step::new(id(name), StepKindSpec::Branch(Box::new(BranchSpec { arms, default: to(default) })))
}

pub fn the_gate() -> GateSpec {
    GateSpec {
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

pub fn gate(name: &str, change: impl FnOnce(&mut GateSpec)) -> Step {
    Step::new(id(name), StepKindSpec::Gate(Box::new(the_gate().with(change))))
}

pub fn wait(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    Step::new(
        id(name),
        StepKindSpec::Wait(Box::new(WaitSpec { on, timeout: None, on_timeout: WaitTimeout::Expire })),
    )
}

pub fn parallel(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    let lane = |(name, steps)| LaneSpec { id: BranchId::new(name).unwrap(), scope: Arc::new(route(steps)) };
    Step::new(
        id(name),
        StepKindSpec::Parallel(Box::new(ParallelSpec { lanes: lanes.into_iter().map(lane).collect() })),
    )
}

pub fn each(name: &str, over: &str, steps: Vec<Step>) -> Step {
    let (over, scope) = (value(over), Arc::new(route(steps)));
    Step::new(
        id(name),
        StepKindSpec::Each(Box::new(EachSpec {
            over,
            parallelism: Some(4),
            errors: EachErrorPolicy::FailFast,
            scope,
        })),
    )
}

pub fn repeat(name: &str, condition: &str, max: u32, steps: Vec<Step>) -> Step {
    let (condition, scope) = (cond(condition), Arc::new(route(steps)));
    Step::new(
        id(name),
        StepKindSpec::Loop(Box::new(LoopSpec { condition, test: LoopTest::First, max, scope })),
    )
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
    Workflow::new(WorkflowId::new(name).unwrap(), StepScope { timeout: Some(Millis::from_mins(10)), ..scope })
}

pub fn graph(steps: Vec<Step>) -> Workflow {
    workflow("main", StepScope::new(ScopeShape::Graph, steps))
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

pub fn checked(workflow: Workflow) -> CheckedWorkflow {
    check_workflow(Arc::new(workflow), &())
}

/// Returns the diagnostics without the notes.
pub fn said(checked: CheckedWorkflow) -> Vec<String> {
    let problems = checked.problems.iter().filter(|problem| problem.severity > Severity::Note);
    let errors = checked.problems.iter().any(PlanProblem::is_error);
    assert_eq!(checked.definition.is_none(), errors, "a definition if and only if nothing is wrong");
    problems.map(ToString::to_string).collect()
}

#[track_caller]
pub fn says(workflow: Workflow, expected: &[&str]) {
    assert_eq!(said(checked(workflow)), expected);
}

#[track_caller]
pub fn fine(workflow: Workflow) -> Arc<PlanDefinition> {
    fine_but(workflow, &[])
}

/// Asserts that there are no diagnostics but notes and these.
#[track_caller]
pub fn fine_but(workflow: Workflow, but: &[ProblemCode]) -> Arc<PlanDefinition> {
    let checked = checked(workflow);
    let other = |problem: &&PlanProblem| problem.severity > Severity::Note && !but.contains(&problem.code);
    let problems: Vec<_> = checked.problems.iter().filter(other).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    checked.definition.unwrap()
}

/// True if there is a diagnostic with this code.
pub fn has(workflow: Workflow, code: ProblemCode) -> bool {
    checked(workflow).problems.iter().any(|problem| problem.code == code)
}
