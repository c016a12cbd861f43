//! Small workflows, and the policy tables of each format.

use skein_core::{
    ids::{SignalName, WorkflowId},
    ir::*,
    time::Millis,
};
pub(crate) use skein_testkit::workflow::*;

pub(crate) fn reads(step: Step, name: &str, reference: &str) -> Step {
    step.with(|step| step.inputs.push(input(name, value(reference))))
}

/// Allows the same number of attempts for every retryable class, one second apart.
pub(crate) fn retried(step: Step, attempts: u32) -> Step {
    let classes = [ErrorClass::Transient, ErrorClass::RateLimit, ErrorClass::Network, ErrorClass::Service];
    step.with(|step| step.policy.retry = StepRetry::for_classes(&classes, attempts, seconds(1)))
}

/// The same delay before each retry.
pub(crate) fn seconds(n: u64) -> Backoff {
    constant_backoff(Millis::from_secs(n))
}

/// A step with an undo, which is given the output of the step.
pub(crate) fn undoable(step: Step) -> Step {
    let name = step.id.to_string();
    let inputs = vec![input("was", value(&format!("$steps.{name}")))];
    step.with(|step| step.undo = Some(Box::new(UndoSpec { inputs, ..undo_by(&name, tool("undo")) })))
}

/// Gives every failure of the step this effect.
pub(crate) fn on_failure(step: Step, effect: OutcomeEffect) -> Step {
    step.with(|step| {
        let effects = &mut step.policy.effects;
        (effects.failed, effects.timed_out, effects.rejected) = (effect, effect, effect);
        (effects.exhausted, effects.incomplete) = (effect, effect);
    })
}

/// As in AIP-15: any failure undoes completed steps.
pub(crate) fn undoing(step: Step) -> Step {
    on_failure(step, OutcomeEffect::UNDO)
}

/// A gate with a timeout of one minute and this action on timeout.
pub(crate) fn gate_until(name: &str, on_timeout: GateTimeout) -> Step {
    gate(name, |gate| (gate.timeout, gate.on_timeout) = (Some(Millis::from_mins(1)), on_timeout))
}

pub(crate) fn wait_until(name: &str, on_timeout: WaitTimeout) -> Step {
    let on = vec![SignalName::new("paid").unwrap()];
    Step::new(id(name), StepKindSpec::Wait(Box::new(WaitSpec { on, timeout: Some(Millis::from_mins(1)), on_timeout })))
}

/// An each with a parallelism of two.
pub(crate) fn each(name: &str, over: &str, errors: EachErrorPolicy, steps: Vec<Step>) -> Step {
    each_scope(name, value(over), 2, route(steps)).with(|step| match &mut step.kind {
        StepKindSpec::Each(each) => each.errors = errors,
        other => panic!("not an each: {other:?}"),
    })
}

pub(crate) fn repeat(name: &str, condition: &str, test: LoopTest, max: u32, steps: Vec<Step>) -> Step {
    loop_scope(name, condition, test, max, route(steps))
}

fn workflow(name: &str, scope: StepScope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub(crate) fn graph(steps: Vec<Step>) -> Workflow {
    workflow("main", graph_scope(steps))
}

pub(crate) fn routed(steps: Vec<Step>) -> Workflow {
    workflow("main", route(steps))
}

/// A routed workflow whose failures, timeouts and cancellations undo, as in AIP-15.
pub(crate) fn saga(steps: Vec<Step>) -> Workflow {
    let steps = steps.into_iter().map(undoing).collect();
    routed(steps).with(|workflow| {
        (workflow.scope.undo.on_timeout, workflow.scope.undo.on_cancel) = (true, true);
    })
}
