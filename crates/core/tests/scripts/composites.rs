//! Branch, parallel, each and loop: the steps inside, and the output.

use serde_json::json;
use skein_core::ir::{EachErrorPolicy, ErrorClass, LoopTest, OutcomeEffect, Schema, ScopeShape, SiblingPolicy};

use crate::support::*;

/// The first arm that is true is taken; a branch has no output.
#[test]
fn branch_the_first_true_arm_wins() {
    let end = |name: &str| work(name).with(|step| step.next = Some(to("$end")));
    let arms = [("$input.n > 9", "big"), ("$input.n > 3", "middle"), ("$input.n > 1", "small")];
    let steps = vec![branch("choose", &arms, "$end"), end("big"), end("middle"), end("small")];
    script!(routed(steps)).with(json!({"n": 5})).start().gives("middle", json!("m")).done();
}

/// If no arm is true, the default is taken, here the end.
#[test]
fn branch_no_arm_means_the_default() {
    let steps = vec![work("a"), branch("choose", &[("$steps.a.go", "b")], "$end"), work("b")];
    script!(routed(steps)).start().gives("a", json!({"go": false})).done();
}

/// An error in an arm fails the branch.
#[test]
fn branch_an_error_in_an_arm_fails_it() {
    let steps = vec![branch("choose", &[("$input.n > 3", "b")], "$end"), work("b")];
    script!(routed(steps)).with(json!({"n": []})).start().done();
}

/// A missing `next` means the following step that no other step routes to.
#[test]
fn route_goes_to_the_next_step_that_is_no_target() {
    let steps = vec![work("a"), branch("choose", &[("$input.go", "special")], "last"), work("special"), work("last")];
    script!(routed(steps)).with(json!({"go": true})).start().ok("a").ok("special").done();
}

/// A cursor may return to a step if cycles are allowed; every execution counts against the maximum.
#[test]
fn route_cycles_are_bounded_by_max_steps() {
    let steps = vec![work("a"), branch("again", &[("$input.go", "a")], "$end")];
    let workflow = routed(steps).with(|workflow| {
        workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true };
        workflow.scope.max_steps = Some(3);
    });
    script!(workflow).with(json!({"go": true})).start().ok("a").ok("a").done();
}

/// Retries are not executions; items and passes are.
#[test]
fn route_max_steps_counts_items_and_not_retries() {
    let every = each("every", "$input.list", EachErrorPolicy::FailFast, vec![retried(work("x"), 3)]);
    let workflow = routed(vec![every]).with(|workflow| workflow.scope.max_steps = Some(3));
    script!(workflow)
        .with(json!({"list": [1, 2, 3]}))
        .start()
        .fail("every[0]/x", ErrorClass::Transient)
        .due()
        .ok("every[0]/x")
        .stops("every[1]/x")
        .done();
}

/// The output of a routed workflow is that of the last successful step that is not a branch.
#[test]
fn route_gives_what_its_last_step_gave() {
    let steps = vec![work("a"), work("b"), branch("end", &[("$input.go", "$end")], "$end")];
    script!(routed(steps)).start().gives("a", json!(1)).gives("b", json!(2)).done();
}

/// A result that does not match the declared outputs of the workflow fails the run.
#[test]
fn route_a_result_that_does_not_fit_fails_the_run() {
    let workflow = routed(vec![work("a")]).with(|workflow| {
        workflow.scope.result = Some(value("$steps.a.n"));
        workflow.scope.outputs = Schema::new(json!({"type": "integer"}));
    });
    script!(workflow).start().gives("a", json!({"n": "x"})).done();
}

/// If all lanes succeed, the output is an object by lane, each with the output of its last step.
#[test]
fn parallel_gives_an_object_by_lane() {
    let lanes = vec![("l", vec![work("x"), work("x2")]), ("r", vec![work("y")])];
    let steps = vec![parallel("both", lanes), reads(work("z"), "of", "$steps.both.l.n")];
    script!(routed(steps))
        .start()
        .ok("both/l/x")
        .gives("both/r/y", json!({"n": 2}))
        .gives("both/l/x2", json!({"n": 1}))
        .ok("z")
        .done();
}

/// The first failure stops the other lanes; the step fails with that error when all lanes have ended.
#[test]
fn parallel_the_first_failure_stops_the_others() {
    let lanes = vec![("l", vec![work("x")]), ("m", vec![work("y")]), ("r", vec![gate("g", |_| {})])];
    script!(routed(vec![parallel("both", lanes)]))
        .start()
        .fail("both/m/y", ErrorClass::External)
        .fail("both/l/x", ErrorClass::Fatal)
        .done();
}

/// The end of a lane's route ends that lane and not the run.
#[test]
fn parallel_the_end_inside_a_lane_ends_the_lane() {
    let lane = vec![work("x"), branch("stop", &[("$steps.x.stop", "$end")], "x2"), work("x2")];
    let steps = vec![parallel("both", vec![("l", lane), ("r", vec![work("y")])]), work("z")];
    script!(routed(steps)).start().gives("both/l/x", json!({"stop": true})).ok("both/r/y").ok("z").done();
}

/// A step inside a lane can be referenced after the join.
#[test]
fn parallel_inner_steps_are_visible_after_the_join() {
    let lanes = vec![("l", vec![work("x")]), ("r", vec![work("y")])];
    let steps = vec![parallel("both", lanes), reads(work("z"), "of", "$steps.x.n")];
    script!(routed(steps)).start().gives("both/l/x", json!({"n": 1})).ok("both/r/y").ok("z").done();
}

/// Items start in order, up to the parallelism; the output is a list in the order of the items.
#[test]
fn each_starts_in_order_and_gives_in_order() {
    let body = vec![reads(work("x"), "item", "$item").with(|x| {
        let index = reads(work("tmp"), "index", "$index").inputs.remove(0);
        x.inputs.push(index);
    })];
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::FailFast, body)]))
        .with(json!({"list": ["a", "b", "c"]}))
        .start()
        .gives("every[1]/x", json!("B"))
        .gives("every[0]/x", json!("A"))
        .gives("every[2]/x", json!("C"))
        .done();
}

/// Without items, the output is an empty list, at once.
#[test]
fn each_of_nothing_is_an_empty_list() {
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::FailFast, vec![work("x")])]))
        .with(json!({"list": []}))
        .start()
        .done();
}

/// A value that is not a list fails the step.
#[test]
fn each_needs_a_list() {
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::FailFast, vec![work("x")])]))
        .with(json!({"list": {"a": 1}}))
        .start()
        .done();
}

/// Fail fast: the first failure stops the other items, and no new one starts.
#[test]
fn each_fails_fast() {
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::FailFast, vec![work("x")])]))
        .with(json!({"list": [1, 2, 3]}))
        .start()
        .fail("every[1]/x", ErrorClass::NonRetryable)
        .stops("every[0]/x")
        .done();
}

/// Finish: every item ends, then the step fails with the first error.
#[test]
fn each_finishes_before_it_fails() {
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::Finish, vec![work("x")])]))
        .with(json!({"list": [1, 2, 3]}))
        .start()
        .fail("every[1]/x", ErrorClass::NonRetryable)
        .ok("every[0]/x")
        .fail("every[2]/x", ErrorClass::Fatal)
        .done();
}

/// Collect: the step succeeds, and its output has the result of each item.
#[test]
fn each_collects_how_every_item_went() {
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::Collect, vec![work("x")])]))
        .with(json!({"list": [1, 2, 3]}))
        .start()
        .fail("every[1]/x", ErrorClass::NonRetryable)
        .gives("every[0]/x", json!("A"))
        .gives("every[2]/x", json!("C"))
        .done();
}

/// An item has its own retries; it fails only when they are used up.
#[test]
fn each_item_has_its_own_retries() {
    script!(routed(vec![each("every", "$input.list", EachErrorPolicy::FailFast, vec![retried(work("x"), 2)])]))
        .with(json!({"list": [1, 2]}))
        .start()
        .fail("every[0]/x", ErrorClass::Transient)
        .fail("every[1]/x", ErrorClass::Transient)
        .due()
        .ok("every[0]/x")
        .ok("every[1]/x")
        .done();
}

/// A failed try that was degraded does not degrade the run when the next try is clean.
#[test]
fn only_the_last_try_degrades() {
    let lanes = vec![("l", vec![on_failure(work("x"), OutcomeEffect::CONTINUE)]), ("r", vec![work("y")])];
    script!(routed(vec![retried(parallel("both", lanes), 2)]))
        .start()
        .fail("both/l/x", ErrorClass::NonRetryable)
        .fail("both/r/y", ErrorClass::Transient)
        .due()
        .ok("both/l/x")
        .ok("both/r/y")
        .done();
}

/// A visit that was stopped before it started does not count.
#[test]
fn a_visit_that_never_began_is_not_counted() {
    let steps = vec![work("x"), branch("again", &[("$input.go", "x")], "$end")];
    let workflow =
        routed(steps).with(|workflow| workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true });
    script!(workflow).with(json!({"go": true})).start().ok("x").grant(0).ok("x").cancel().done();
}

/// A degraded visit still counts when the cursor returns and the step then succeeds: nothing was undone.
#[test]
fn every_visit_degrades() {
    let x = on_failure(work("x"), OutcomeEffect::CONTINUE);
    let steps = vec![x, branch("again", &[("$steps.x == null", "x")], "$end")];
    let workflow =
        routed(steps).with(|workflow| workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true });
    script!(workflow).start().fail("x", ErrorClass::NonRetryable).gives("x", json!("done")).done();
}

/// Test first: a condition that reads a step of a pass counts as true before the first pass.
#[test]
fn loop_a_condition_on_what_has_not_been_is_true_at_first() {
    let again = repeat("again", "$steps.x.score < 8", LoopTest::First, 5, vec![work("x")]);
    script!(routed(vec![again]))
        .start()
        .gives("again#1/x", json!({"score": 3}))
        .gives("again#2/x", json!({"score": 9}))
        .done();
}

/// Test first: if the condition is false, there is no pass, and the output is null.
#[test]
fn loop_test_first_can_mean_no_pass() {
    let again = repeat("again", "$input.go == true", LoopTest::First, 5, vec![work("x")]);
    script!(routed(vec![again])).start().done();
}

/// Test after: the first pass is unconditional.
#[test]
fn loop_test_after_makes_one_pass_at_least() {
    let again = repeat("again", "$input.go == true", LoopTest::After, 5, vec![work("x")]);
    script!(routed(vec![again])).start().gives("again#1/x", json!("once")).done();
}

/// A condition that is still true after the last pass is an error.
#[test]
fn loop_the_cap_is_an_error() {
    let again = repeat("again", "$input.go == true", LoopTest::First, 2, vec![work("x")]);
    script!(routed(vec![again])).with(json!({"go": true})).start().ok("again#1/x").ok("again#2/x").done();
}

/// A pass that fails ends the loop.
#[test]
fn loop_a_failing_pass_fails_the_loop() {
    let again = repeat("again", "$input.go == true", LoopTest::First, 9, vec![work("x")]);
    script!(routed(vec![again, work("z")]))
        .with(json!({"go": true}))
        .start()
        .ok("again#1/x")
        .fail("again#2/x", ErrorClass::NonRetryable)
        .done();
}

/// A condition that cannot be evaluated after a pass fails the loop.
#[test]
fn loop_an_error_in_the_condition_fails_it() {
    let again = repeat("again", "$steps.x.score < 8", LoopTest::First, 5, vec![work("x")]);
    script!(routed(vec![again])).start().gives("again#1/x", json!({"score": "high"})).done();
}

/// With fail fast, no other item starts after a failure.
#[test]
fn each_failing_fast_begins_no_other_item() {
    let every = each("every", "$input.list", EachErrorPolicy::FailFast, vec![work("x")]).with(one_at_a_time);
    script!(routed(vec![every]))
        .with(json!({"list": [1, 2, 3]}))
        .start()
        .ok("every[0]/x")
        .fail("every[1]/x", ErrorClass::NonRetryable)
        .done();
}

/// A condition that cannot be evaluated fails the loop, also before the first pass.
#[test]
fn loop_an_error_in_its_first_test_fails_it() {
    let again = repeat("again", "$input.n > 3", LoopTest::First, 3, vec![work("x")]);
    script!(routed(vec![again])).with(json!({"n": []})).start().done();
}

/// Items that never started because the run stopped make the step cancelled, even if the started ones succeeded.
#[test]
fn each_that_was_stopped_between_items_is_cancelled() {
    let every = each("every", "$input.list", EachErrorPolicy::FailFast, vec![work("x")]).with(one_at_a_time);
    script!(inputs(json!({"properties": {"list": {}}}), graph(vec![every, work("b")])))
        .with(json!({"list": [1, 2]}))
        .start()
        .fail("b", ErrorClass::NonRetryable)
        .ok("every[0]/x")
        .done();
}

/// Passes of a loop that never started have the same effect.
#[test]
fn loop_that_was_stopped_between_passes_is_cancelled() {
    let again = repeat("again", "$steps.x.more == true", LoopTest::First, 3, vec![work("x")]);
    script!(graph(vec![again, work("b")]))
        .start()
        .fail("b", ErrorClass::NonRetryable)
        .gives("again#1/x", json!({"more": true}))
        .done();
}

/// If siblings drain, the remaining items run.
#[test]
fn each_that_drains_does_the_rest() {
    let every = each("every", "$input.list", EachErrorPolicy::FailFast, vec![work("x")]).with(one_at_a_time);
    let workflow = graph(vec![every, work("b")]).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(inputs(json!({"properties": {"list": {}}}), workflow))
        .with(json!({"list": [1, 2]}))
        .start()
        .fail("b", ErrorClass::NonRetryable)
        .ok("every[0]/x")
        .ok("every[1]/x")
        .done();
}

fn one_at_a_time(step: &mut skein_core::ir::Step) {
    let skein_core::ir::StepKindSpec::Each(each) = &mut step.kind else { unreachable!() };
    each.parallelism = Some(1);
}

/// With collect, a cancel while a failed item drains still leaves the step unfinished.
#[test]
fn each_that_collects_is_cancelled_while_an_item_drains() {
    let body = vec![wait("w", &["paid"]), work("x")];
    let every = each("every", "$input.list", EachErrorPolicy::Collect, body).with(one_at_a_time).with(|step| {
        let skein_core::ir::StepKindSpec::Each(each) = &mut step.kind else { unreachable!() };
        let scope = std::sync::Arc::make_mut(&mut each.scope);
        (scope.shape, scope.siblings) = (ScopeShape::Graph, SiblingPolicy::Drain);
    });
    script!(routed(vec![every]))
        .with(json!({"list": [1, 2]}))
        .start()
        .fail("every[0]/x", ErrorClass::NonRetryable)
        .cancel()
        .done();
}
