//! Calls: another workflow as one step.

use serde_json::json;
use skein_core::{
    ir::{Budget, BudgetMode, ErrorClass, OutcomeEffect, WaitTimeout},
    time::Millis,
};

use crate::support::*;

fn sub(steps: Vec<skein_core::ir::Step>) -> Others {
    library(vec![("sub", routed(steps))])
}

/// The called workflow is given the inputs of the step, and its output is that of the step.
#[test]
fn a_call_gives_what_the_workflow_gives() {
    let others = sub(vec![reads(work("x"), "n", "$input.n")]);
    script!(routed(vec![reads(call("c", "sub"), "n", "$input.m"), work("z")]), others)
        .with(json!({"m": 3}))
        .start()
        .gives("c/x", json!({"sum": 6}))
        .ok("z")
        .done();
}

/// Missing inputs take the defaults of the called workflow.
#[test]
fn defaults_of_the_called_workflow_are_filled_in() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 7}}});
    let others = library(vec![("sub", inputs(schema, routed(vec![reads(work("x"), "n", "$input.n")])))]);
    script!(routed(vec![reads(call("c", "sub"), "n", "$input.m")]), others).start().ok("c/x").done();
}

/// Inputs that the called workflow does not accept fail the step before anything starts.
#[test]
fn inputs_that_do_not_fit_fail_the_call() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let others = library(vec![("sub", inputs(schema, routed(vec![work("x")])))]);
    script!(routed(vec![reads(call("c", "sub"), "n", "$input.m")]), others).with(json!({"m": "x"})).start().done();
}

/// A call fails with the error of the called workflow, and names the step that caused it.
#[test]
fn a_call_fails_with_the_error_inside() {
    script!(routed(vec![call("c", "sub")]), sub(vec![work("x")])).start().fail("c/x", ErrorClass::External).done();
}

/// The class of the error inside determines if the call is retried.
#[test]
fn a_call_is_retried_by_the_class_inside() {
    script!(routed(vec![retried(call("c", "sub"), 2)]), sub(vec![work("x")]))
        .start()
        .fail("c/x", ErrorClass::Transient)
        .due()
        .ok("c/x")
        .done();
}

/// A called workflow that times out fails the call with class timeout.
#[test]
fn a_called_workflow_that_times_out_fails_the_call() {
    let timed = routed(vec![work("x")]).with(|sub| sub.scope.timeout = Some(Millis::from_secs(5)));
    script!(routed(vec![call("c", "sub")]), library(vec![("sub", timed)])).start().due().stops("c/x").done();
}

/// A called workflow that is cancelled from within fails the call, and is not retried.
#[test]
fn a_called_workflow_that_is_cancelled_fails_the_call() {
    let others = sub(vec![wait_until("w", WaitTimeout::Cancel), work("x")]);
    script!(routed(vec![retried(call("c", "sub"), 3)]), others).start().due().done();
}

/// Cancelling the run cancels the called workflow.
#[test]
fn cancelling_the_run_cancels_the_call() {
    script!(routed(vec![call("c", "sub")]), sub(vec![work("x"), work("y")])).start().cancel().stops("c/x").done();
}

/// A wait inside makes the whole run wait.
#[test]
fn a_wait_inside_makes_the_run_wait() {
    let others = sub(vec![wait("w", &["paid"]), work("x")]);
    script!(routed(vec![call("c", "sub")]), others).start().signal("paid", json!(5)).ok("c/x").done();
}

/// A step inside that ends incomplete, where the policy accepts that, makes the call succeed.
#[test]
fn an_incomplete_step_inside_is_a_success_of_the_call() {
    let x = checked("x", 2).with(|x| {
        the_check(x).incomplete_is_an_end = true;
        x.policy.effects.incomplete = OutcomeEffect::GO_ON;
    });
    script!(routed(vec![call("c", "sub")]), library(vec![("sub", graph(vec![x]))]))
        .start()
        .ok("c/x")
        .incomplete("c/x")
        .ok("c/x")
        .incomplete("c/x")
        .done();
}

/// A degraded called workflow makes the workflow around it degraded.
#[test]
fn a_degraded_call_degrades_the_run() {
    let x = on_failure(work("x"), OutcomeEffect::CONTINUE);
    script!(routed(vec![call("c", "sub")]), library(vec![("sub", graph(vec![x]))]))
        .start()
        .fail("c/x", ErrorClass::NonRetryable)
        .done();
}

/// Each called workflow counts its own executions.
#[test]
fn a_called_workflow_has_its_own_max_steps() {
    let limited = routed(vec![work("x"), work("y")]).with(|sub| sub.scope.max_steps = Some(1));
    let around = routed(vec![call("c", "sub")]).with(|workflow| workflow.scope.max_steps = Some(1));
    script!(around, library(vec![("sub", limited)])).start().ok("c/x").done();
}

/// The undo of a stopped called workflow depends on the reason: here it is undone only after a timeout, not after a
/// cancellation.
#[test]
fn a_call_that_is_cancelled_is_undone_only_if_it_says_so() {
    let only_late = saga(vec![undoable(work("x")), work("y")])
        .with(|workflow| (workflow.scope.undo.on_timeout, workflow.scope.undo.on_cancel) = (true, false));
    let late = call("c", "sub").with(|step| step.policy.timeout = Some(Millis::from_secs(10)));
    script!(routed(vec![late]), library(vec![("sub", only_late)])).start().ok("c/x").cancel().stops("c/y").done();
}

/// The same workflow is undone after a timeout.
#[test]
fn a_call_that_took_too_long_is_undone_if_it_says_so() {
    let only_late = saga(vec![undoable(work("x")), work("y")])
        .with(|workflow| (workflow.scope.undo.on_timeout, workflow.scope.undo.on_cancel) = (true, false));
    let late = call("c", "sub").with(|step| step.policy.timeout = Some(Millis::from_secs(10)));
    script!(routed(vec![late]), library(vec![("sub", only_late)]))
        .start()
        .ok("c/x")
        .due()
        .stops("c/y")
        .ok("c/x")
        .done();
}

fn stops(tokens: u64) -> Option<Budget> {
    Some(Budget { micro_usd: None, tokens: Some(tokens), mode: BudgetMode::Stop })
}

/// The budget of a called workflow counts only the costs of that workflow.
#[test]
fn a_called_workflow_has_a_budget_of_its_own() {
    let sub = routed(vec![work("x"), work("y")]).with(|sub| sub.budget = stops(10));
    script!(routed(vec![work("a"), call("c", "sub")]), library(vec![("sub", sub)]))
        .start()
        .spending(100)
        .ok("a")
        .spending(10)
        .ok("c/x")
        .done();
}

/// The budget of a call step counts the costs of everything inside it, at any depth.
#[test]
fn the_budget_of_a_call_is_for_all_inside() {
    let others = library(vec![
        ("sub", routed(vec![work("x"), call("d", "deep"), work("y")])),
        ("deep", routed(vec![work("u"), work("v")])),
    ]);
    let c = call("c", "sub").with(|c| c.policy.budget = stops(30));
    script!(routed(vec![c]), others)
        .start()
        .spending(10)
        .ok("c/x")
        .spending(15)
        .ok("c/d/u")
        .spending(15)
        .ok("c/d/v")
        .done();
}

/// Costs inside a call count for the run.
#[test]
fn a_run_pays_for_what_it_calls() {
    let main = routed(vec![call("c", "sub"), work("z")]).with(|main| main.budget = stops(10));
    script!(main, sub(vec![work("x")])).start().spending(10).ok("c/x").done();
}
