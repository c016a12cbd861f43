//! Builders of small workflows for tests of the host. Scripts do their work, or [`super::hands`] in this process.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::{Expr, aip15},
    ids::{SignalName, WorkflowId},
    ir::{Backoff, ErrorClass, InputBinding, LoopTest, OutcomeEffect, Step, StepRetry, StepScope, UndoSpec, Workflow},
    plan::{self, Plan},
    time::Millis,
};
use skein_testkit::workflow::{
    self, With, checked_by, constant_backoff, each_scope, input, loop_scope, undo_by, undoing, work_by,
};
pub(crate) use skein_testkit::workflow::{
    call, depending as after, graph_scope as graph, id, parallel_scopes as parallel, route as routed, script,
    the_check as check_of, the_work as work_of, to,
};

pub(crate) fn value(value: Value) -> Expr {
    aip15::parse_value(&value).unwrap()
}

/// A step that runs a script.
pub(crate) fn run(name: &str, text: &str) -> Step {
    work_by(name, script(text))
}

/// A step of which only the name matters.
pub(crate) fn work(name: &str) -> Step {
    run(name, ":")
}

/// A step that is repeated until a check passes.
pub(crate) fn checked(step: Step, check: &str, iterations: u32) -> Step {
    checked_by(step, script(check), iterations)
}

pub(crate) fn gate(name: &str) -> Step {
    workflow::gate(name, |gate| gate.message = value(json!("go on?")))
}

/// A step that waits for the signal `paid`.
pub(crate) fn wait(name: &str) -> Step {
    workflow::wait(name, &[signal().as_str()])
}

pub(crate) fn signal() -> SignalName {
    SignalName::new("paid").unwrap()
}

pub(crate) fn branch(name: &str, when: &str, then: &str, otherwise: &str) -> Step {
    workflow::branch(name, &[(when, then)], otherwise)
}

pub(crate) fn each(name: &str, over: Value, at_once: u32, scope: StepScope) -> Step {
    each_scope(name, value(over), at_once, scope)
}

pub(crate) fn repeat(name: &str, condition: &str, max: u32, scope: StepScope) -> Step {
    loop_scope(name, condition, LoopTest::After, max, scope)
}

pub(crate) fn given(mut step: Step, name: &str, from: Value) -> Step {
    let value = value(from);
    step.inputs.push(InputBinding { required: true, ..input(name, value) });
    step
}

/// A step with this number of attempts in total, with a short delay in between.
pub(crate) fn retried(mut step: Step, attempts: u32) -> Step {
    step.policy.retry = StepRetry::for_classes(&ErrorClass::CURABLE, attempts, soon());
    step
}

pub(crate) fn soon() -> Backoff {
    constant_backoff(Millis(20))
}

/// A step with a script that undoes it when the run fails.
pub(crate) fn undone_by(mut step: Step, text: &str) -> Step {
    let retry = StepRetry::for_classes(&ErrorClass::CURABLE, 3, soon());
    let id = id(&format!("undo-{}", step.id));
    step.undo = Some(Box::new(UndoSpec { id, retry, ..undo_by("step", script(text)) }));
    step
}

/// A step whose failure undoes the earlier steps.
pub(crate) fn undoes(step: Step) -> Step {
    undoing(step).with(|step| step.policy.effects.rejected = OutcomeEffect::UNDO)
}

pub(crate) fn workflow(name: &str, scope: StepScope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub(crate) fn plan(scope: StepScope) -> Plan {
    plan_of(workflow("flow", scope), &[])
}

pub(crate) fn plan_of(root: Workflow, called: &[Workflow]) -> Plan {
    let library: BTreeMap<String, Arc<Workflow>> =
        called.iter().map(|called| (called.id.to_string(), Arc::new(called.clone()))).collect();
    let checked = plan::check_workflow(Arc::new(root), &library);
    let errors: Vec<_> = checked.problems.iter().filter(|problem| problem.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    checked.definition.unwrap().bind(json!({})).unwrap()
}
