//! Undo: the undone steps, their order, and failing undos.

use serde_json::json;
use skein_core::{
    engine::Publication,
    expr::{Expr, ReferenceRoot, StepProperty},
    ir::{
        EachErrorPolicy, ErrorClass, HoldReason, HookAction, HookTiming, InputBinding, LoopTest, StepRetry,
        TimeoutScope, UndoFailurePolicy, WorkflowHook,
    },
    limits,
    time::Millis,
};

use crate::support::*;

/// The last completed step is undone first, one after another, each given the output of its step.
#[test]
fn the_last_completed_is_undone_first() {
    let steps = vec![undoable(work("a")), undoable(work("b")), work("c")];
    script!(saga(steps))
        .start()
        .gives("a", json!(1))
        .gives("b", json!(2))
        .fail("c", ErrorClass::NonRetryable)
        .ok("b")
        .ok("a")
        .done();
}

/// Parallel steps are undone by the order of completion, not of declaration.
#[test]
fn parallel_steps_are_undone_by_completion() {
    let steps = vec![undoable(work("a")), undoable(work("b")), undoing(after("c", &["a", "b"]))];
    script!(graph(steps)).start().ok("b").ok("a").fail("c", ErrorClass::NonRetryable).ok("a").ok("b").done();
}

/// A step without an undo is skipped by the walk.
#[test]
fn a_step_without_an_undo_is_left_alone() {
    let steps = vec![undoable(work("a")), work("b"), work("c")];
    script!(saga(steps)).start().ok("a").ok("b").fail("c", ErrorClass::NonRetryable).ok("a").done();
}

/// Without anything to undo, the run simply fails.
#[test]
fn nothing_to_undo_is_a_plain_failure() {
    script!(saga(vec![undoable(work("a"))])).start().fail("a", ErrorClass::NonRetryable).done();
}

/// Undo starts only when nothing is running; steps that succeeded meanwhile are undone too, stopped ones are listed.
#[test]
fn undo_waits_until_nothing_runs() {
    let steps = vec![undoing(work("a")), undoable(work("b")), undoable(work("c"))];
    script!(graph(steps)).start().fail("a", ErrorClass::NonRetryable).ok("b").stops("c").ok("b").done();
}

/// The completed steps of every lane are undone by the workflow around them.
#[test]
fn lanes_are_undone_by_their_workflow() {
    let both = parallel("both", vec![("l", vec![undoable(work("x"))]), ("r", vec![undoable(work("y"))])]);
    script!(saga(vec![both, work("z")]))
        .start()
        .ok("both/r/y")
        .ok("both/l/x")
        .fail("z", ErrorClass::NonRetryable)
        .ok("both/l/x")
        .ok("both/r/y")
        .done();
}

/// A failing lane stops the others and fails the step, and the workflow undoes the completed steps of both.
#[test]
fn a_failing_lane_has_the_others_undone() {
    let lanes = vec![("l", vec![undoable(work("x")), work("x2")]), ("r", vec![undoable(work("y")), work("y2")])];
    script!(saga(vec![parallel("both", lanes)]))
        .start()
        .ok("both/l/x")
        .ok("both/r/y")
        .fail("both/l/x2", ErrorClass::NonRetryable)
        .stops("both/r/y2")
        .ok("both/r/y")
        .ok("both/l/x")
        .done();
}

/// Each completed item is undone, last first.
#[test]
fn items_are_undone_latest_first() {
    let every = each("every", "$input.list", EachErrorPolicy::FailFast, vec![undoable(work("x"))]);
    script!(saga(vec![every, work("z")]))
        .with(json!({"list": [1, 2]}))
        .start()
        .gives("every[0]/x", json!("a"))
        .gives("every[1]/x", json!("b"))
        .fail("z", ErrorClass::NonRetryable)
        .ok("every[1]/x")
        .ok("every[0]/x")
        .done();
}

/// Each pass of a loop is undone, last first.
#[test]
fn passes_are_undone_latest_first() {
    let again = repeat("again", "$steps.x.more == true", LoopTest::After, 5, vec![undoable(work("x"))]);
    script!(saga(vec![again, work("z")]))
        .start()
        .gives("again#1/x", json!({"more": true}))
        .gives("again#2/x", json!({"more": false}))
        .fail("z", ErrorClass::NonRetryable)
        .ok("again#2/x")
        .ok("again#1/x")
        .done();
}

/// A call that fails undoes itself; the workflow around it undoes only its own steps.
#[test]
fn a_failing_call_undoes_itself() {
    let others = library(vec![("sub", saga(vec![undoable(work("x")), work("y")]))]);
    script!(saga(vec![undoable(work("a")), call("c", "sub")]), others)
        .start()
        .ok("a")
        .ok("c/x")
        .fail("c/y", ErrorClass::NonRetryable)
        .ok("c/x")
        .ok("a")
        .done();
}

/// A completed call with its own undo is undone by that undo, never by the undos of the steps inside it.
#[test]
fn a_completed_call_is_undone_as_one_step() {
    let others = library(vec![("sub", saga(vec![undoable(work("x"))]))]);
    script!(saga(vec![undoable(call("c", "sub")), work("z")]), others)
        .start()
        .gives("c/x", json!({"n": 1}))
        .fail("z", ErrorClass::NonRetryable)
        .ok("c")
        .done();
}

/// Before a composite is retried, the completed steps of its failed try are undone.
#[test]
fn a_retried_composite_is_undone_first() {
    let lanes = vec![("l", vec![undoable(work("x"))]), ("r", vec![work("y")])];
    let both = retried(parallel("both", lanes), 2);
    script!(routed(vec![both]))
        .start()
        .ok("both/l/x")
        .fail("both/r/y", ErrorClass::Transient)
        .ok("both/l/x")
        .due()
        .ok("both/l/x")
        .ok("both/r/y")
        .done();
}

/// A call that is retried has undone itself and starts again.
#[test]
fn a_retried_call_begins_anew() {
    let others = library(vec![("sub", saga(vec![undoable(work("x")), work("y")]))]);
    script!(routed(vec![retried(call("c", "sub"), 2)]), others)
        .start()
        .ok("c/x")
        .fail("c/y", ErrorClass::Transient)
        .ok("c/x")
        .due()
        .ok("c/x")
        .ok("c/y")
        .done();
}

/// An undo is retried by its own policy.
#[test]
fn an_undo_is_retried_as_it_says() {
    let a = undoable(work("a"))
        .with(|a| a.undo.as_mut().unwrap().retry = StepRetry::for_classes(&[ErrorClass::Transient], 2, seconds(5)));
    script!(saga(vec![a, work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// Undos that failed can be retried on request; nothing is undone twice.
#[test]
fn what_could_not_be_undone_can_be_tried_again() {
    let steps = vec![undoable(work("a")), undoable(work("b")), work("c")];
    script!(saga(steps))
        .start()
        .ok("a")
        .ok("b")
        .fail("c", ErrorClass::NonRetryable)
        .ok("b")
        .fail("a", ErrorClass::NonRetryable)
        .retry_undo()
        .ok("a")
        .retry_undo()
        .done();
}

/// After a walk that stopped, a request undoes the remaining steps.
#[test]
fn a_stopped_walk_is_taken_up_where_it_stopped() {
    let steps = vec![undoable(work("a")), undoable(work("b")), work("c")];
    let workflow = saga(steps).with(|workflow| workflow.scope.undo.if_one_fails = UndoFailurePolicy::Stop);
    script!(workflow)
        .start()
        .ok("a")
        .ok("b")
        .fail("c", ErrorClass::NonRetryable)
        .fail("b", ErrorClass::NonRetryable)
        .retry_undo()
        .ok("b")
        .ok("a")
        .done();
}

/// Every visit of a step is undone, last first, each given the output of that visit.
#[test]
fn each_visit_is_undone() {
    let steps = vec![undoable(work("a")), branch("more", &[("$steps.a.more == true", "a")], "z"), work("z")];
    let workflow = saga(steps).with(|workflow| {
        workflow.scope.shape = skein_core::ir::ScopeShape::Routed { start: None, cycles: true };
        workflow.scope.max_steps = Some(10);
    });
    script!(workflow)
        .start()
        .gives("a", json!({"more": true}))
        .gives("a", json!({"more": false}))
        .fail("z", ErrorClass::NonRetryable)
        .ok("a")
        .ok("a")
        .done();
}

/// An undo that was interrupted by a crash of the host is repeated in mode `rerun`.
#[test]
fn an_interrupted_undo_is_done_again() {
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .recover()
        .ok("a")
        .done();
}

/// After the third interruption the undo has failed.
#[test]
fn an_undo_is_interrupted_three_times_at_most() {
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .recover()
        .recover()
        .recover()
        .done();
}

/// A call that is stopped by a cancel undoes itself before the workflow around it is undone.
#[test]
fn a_cancelled_call_undoes_itself_first() {
    let others = library(vec![("sub", saga(vec![undoable(work("x")), work("y")]))]);
    script!(saga(vec![undoable(work("a")), call("c", "sub")]), others)
        .start()
        .ok("a")
        .ok("c/x")
        .cancel()
        .stops("c/y")
        .ok("c/x")
        .ok("a")
        .done();
}

/// An undo that fails before a retry of a composite makes the run undo_failed. Only that undo can be retried: the
/// workflow itself is not undone.
#[test]
fn a_composite_that_cannot_be_undone_before_another_try() {
    let lanes = vec![("l", vec![undoable(work("x"))]), ("r", vec![work("y")])];
    script!(routed(vec![undoable(work("a")), retried(parallel("both", lanes), 2)]))
        .start()
        .ok("a")
        .ok("both/l/x")
        .fail("both/r/y", ErrorClass::Transient)
        .fail("both/l/x", ErrorClass::NonRetryable)
        .retry_undo()
        .ok("both/l/x")
        .done();
}

/// An undo is given the output of its step and can also read the status of that step.
#[test]
fn an_undo_reads_the_status_of_its_own_step() {
    let a = undoable(work("a")).with(|step| {
        let undo = step.undo.as_mut().unwrap();
        let value =
            Expr::reference(ReferenceRoot::Step { id: "a".into(), part: StepProperty::Status }, [] as [&str; 0]);
        undo.inputs.push(InputBinding::new("ended", value));
    });
    script!(saga(vec![a, undoing(work("b"))]))
        .start()
        .gives("a", json!({"x": 1}))
        .fail("b", ErrorClass::NonRetryable)
        .ok("a")
        .done();
}

/// A step is not undone if one of its visits was not undone.
#[test]
fn a_step_is_undone_when_all_of_its_visits_are() {
    let steps = vec![
        undoable(work("a")),
        undoable(work("b")),
        branch("more", &[("$steps.b.more == true", "a")], "z"),
        work("z"),
    ];
    let workflow = saga(steps).with(|workflow| {
        workflow.scope.shape = skein_core::ir::ScopeShape::Routed { start: None, cycles: true };
        workflow.scope.max_steps = Some(10);
        workflow.scope.undo.if_one_fails = UndoFailurePolicy::Stop;
    });
    script!(workflow)
        .start()
        .ok("a")
        .gives("b", json!({"more": true}))
        .ok("a")
        .gives("b", json!({"more": false}))
        .fail("z", ErrorClass::NonRetryable)
        .ok("b")
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .done();
}

/// A step that was stopped by a timeout may have had an effect, and is listed.
#[test]
fn what_took_too_long_may_have_had_an_effect() {
    script!(saga(vec![undoable(work("a")), undoable(work("b"))])).start().ok("a").times_out("b").ok("a").done();
}

/// Undo needs workers like any other attempt: with one available, one of two undos starts.
#[test]
fn undo_waits_for_workers() {
    let sub = saga(vec![undoable(work("x")), wait("w", &["paid"])]);
    script!(graph(vec![call("c", "sub"), call("d", "sub")]), library(vec![("sub", sub)]))
        .start()
        .ok("c/x")
        .ok("d/x")
        .grant(1)
        .cancel()
        .grant(0)
        .ok("c/x")
        .capacity(1)
        .ok("d/x")
        .done();
}

/// A composite that is undone before a retry still has the rest of its own timeout.
#[test]
fn a_composite_with_time_left_is_tried_again_after_its_undo() {
    let lanes = vec![("l", vec![undoable(work("x"))]), ("r", vec![work("y")])];
    let both = retried(parallel("both", lanes), 2).with(|step| {
        (step.policy.timeout, step.policy.timeout_per) = (Some(Millis::from_mins(1)), TimeoutScope::Step);
    });
    script!(routed(vec![both])).start().ok("both/l/x").fail("both/r/y", ErrorClass::Transient).ok("both/l/x").done();
}

/// If that timeout expires meanwhile, the composite is not retried.
#[test]
fn a_composite_whose_time_is_up_while_it_is_undone_is_not_tried_again() {
    let lanes = vec![("l", vec![undoable(work("x"))]), ("r", vec![work("y")])];
    let both = retried(parallel("both", lanes), 2).with(|step| {
        (step.policy.timeout, step.policy.timeout_per) = (Some(Millis::from_mins(1)), TimeoutScope::Step);
    });
    script!(routed(vec![both]))
        .start()
        .ok("both/l/x")
        .fail("both/r/y", ErrorClass::Transient)
        .due()
        .ok("both/l/x")
        .done();
}

/// A blocked undo has failed: nobody would know that they have to release it.
#[test]
fn a_blocked_undo_has_failed() {
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .blocks("a", HoldReason::Quota, None)
        .done();
}

/// Failed undos can be retried only when everything else in the run has ended.
#[test]
fn undo_is_tried_again_only_after_everything_else() {
    let workflow = saga(vec![undoable(work("a")), work("b")]).with(|workflow| {
        let action = HookAction::Notify { channel: "c".into(), message: None };
        workflow.hooks = vec![WorkflowHook { when: HookTiming::Failure, action }];
    });
    script!(workflow)
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .fail("a", ErrorClass::NonRetryable)
        .retry_undo()
        .published(Publication::Hook(0))
        .retry_undo()
        .ok("a")
        .retry_undo()
        .done();
}

/// The output of an undo is kept only if it is not too large; the undo succeeds in any case.
#[test]
fn an_undo_that_says_too_much_is_done_all_the_same() {
    let much = json!("x".repeat(limits::VALUE_BYTES));
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .gives("a", much)
        .done();
}
