//! Small valid workflows, in which each test breaks one thing.

use std::sync::Arc;

use skein_core::{
    ids::{ArtifactName, WorkflowId},
    ir::*,
    plan::{CheckedWorkflow, PlanDefinition, PlanProblem, ProblemCode, Severity, check_workflow},
    time::Millis,
};
pub(crate) use skein_testkit::workflow::*;

pub(crate) fn artifact(text: &str) -> ArtifactName {
    ArtifactName::new(text).unwrap()
}

/// A command with a timeout, so that there is no diagnostic about it.
pub(crate) fn work(name: &str) -> Step {
    let worker = WorkerSpec::Command { program: "true".into(), arguments: Vec::new() };
    work_by(name, worker).with(|step| step.policy.timeout = Some(Millis::from_secs(1)))
}

pub(crate) fn after(name: &str, dependencies: &[&str]) -> Step {
    depending(work(name), dependencies)
}

pub(crate) fn next(name: &str, target: &str) -> Step {
    Step { next: Some(to(target)), ..work(name) }
}

pub(crate) fn reading(step: Step, reference: &str) -> Step {
    step.with(|step| {
        let name = format!("in{}", step.inputs.len());
        step.inputs.push(InputBinding::new(name, value(reference)));
    })
}

/// A gate that a lead decides.
pub(crate) fn gate(name: &str, change: impl FnOnce(&mut GateSpec)) -> Step {
    skein_testkit::workflow::gate(name, |gate| {
        gate.approvers = vec![Approver::Role("lead".into())];
        change(gate);
    })
}

pub(crate) fn each(name: &str, over: &str, steps: Vec<Step>) -> Step {
    each_scope(name, value(over), 4, route(steps))
}

pub(crate) fn repeat(name: &str, condition: &str, max: u32, steps: Vec<Step>) -> Step {
    loop_scope(name, condition, LoopTest::First, max, route(steps))
}

fn workflow(name: &str, scope: StepScope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), StepScope { timeout: Some(Millis::from_mins(10)), ..scope })
}

pub(crate) fn graph(steps: Vec<Step>) -> Workflow {
    workflow("main", graph_scope(steps))
}

pub(crate) fn routed(steps: Vec<Step>) -> Workflow {
    workflow("main", route(steps))
}

pub(crate) fn checked(workflow: Workflow) -> CheckedWorkflow {
    check_workflow(Arc::new(workflow), &())
}

/// Returns the diagnostics without the notes.
pub(crate) fn said(checked: CheckedWorkflow) -> Vec<String> {
    let problems = checked.problems.iter().filter(|problem| problem.severity > Severity::Note);
    let errors = checked.problems.iter().any(PlanProblem::is_error);
    assert_eq!(checked.definition.is_none(), errors, "a definition if and only if nothing is wrong");
    problems.map(ToString::to_string).collect()
}

#[track_caller]
pub(crate) fn says(workflow: Workflow, expected: &[&str]) {
    assert_eq!(said(checked(workflow)), expected);
}

#[track_caller]
pub(crate) fn fine(workflow: Workflow) -> Arc<PlanDefinition> {
    fine_but(workflow, &[])
}

/// Asserts that there are no diagnostics but notes and these.
#[track_caller]
pub(crate) fn fine_but(workflow: Workflow, but: &[ProblemCode]) -> Arc<PlanDefinition> {
    let checked = checked(workflow);
    let other = |problem: &&PlanProblem| problem.severity > Severity::Note && !but.contains(&problem.code);
    let problems: Vec<_> = checked.problems.iter().filter(other).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    checked.definition.unwrap()
}

/// True if there is a diagnostic with this code.
pub(crate) fn has(workflow: Workflow, code: ProblemCode) -> bool {
    checked(workflow).problems.iter().any(|problem| problem.code == code)
}
