//! Undo: what is taken back, in which order, and what happens when that fails.

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

/// The last completed is undone first, one after another, each given what its step gave.
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

/// With parallel steps the order is that of completion, not of declaration.
#[test]
fn parallel_steps_are_undone_by_completion() {
    let steps = vec![undoable(work("a")), undoable(work("b")), undoing(after("c", &["a", "b"]))];
    script!(graph(steps)).start().ok("b").ok("a").fail("c", ErrorClass::NonRetryable).ok("a").ok("b").done();
}

/// A step without an undo is passed over.
#[test]
fn a_step_without_an_undo_is_left_alone() {
    let steps = vec![undoable(work("a")), work("b"), work("c")];
    script!(saga(steps)).start().ok("a").ok("b").fail("c", ErrorClass::NonRetryable).ok("a").done();
}

/// With nothing to undo the run has simply failed.
#[test]
fn nothing_to_undo_is_a_plain_failure() {
    script!(saga(vec![undoable(work("a"))])).start().fail("a", ErrorClass::NonRetryable).done();
}

/// Undo begins only when nothing is at work; what succeeded meanwhile is undone too, what was cut off is listed.
#[test]
fn undo_waits_until_nothing_runs() {
    let steps = vec![undoing(work("a")), undoable(work("b")), undoable(work("c"))];
    script!(graph(steps)).start().fail("a", ErrorClass::NonRetryable).ok("b").stops("c").ok("b").done();
}

/// Every lane's completed steps are undone, by the workflow around them.
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

/// A lane that fails stops the others, fails the step, and the workflow undoes what both had completed.
#[test]
fn a_failing_lane_has_the_others_undone() {
    let lanes =
        vec![("l", vec![undoable(work("x")), work("x2")]), ("r", vec![undoable(work("y")), work("y2")])];
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

/// Each completed item is undone, the latest first.
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

/// Each pass of a loop is undone, the latest first.
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

/// A call that succeeded is undone by its own undo, never by what is inside it.
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

/// Before a composite is tried again, what its failed try completed is undone.
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

/// A call that is tried again has undone itself, and begins anew.
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

/// An undo is tried again as it says.
#[test]
fn an_undo_is_retried_as_it_says() {
    let a = undoable(work("a")).with(|a| {
        a.undo.as_mut().unwrap().retry = StepRetry::for_classes(&[ErrorClass::Transient], 2, seconds(5))
    });
    script!(saga(vec![a, work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// What a run could not undo can be tried again on request; nothing that was undone is undone twice.
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

/// After a walk that stopped, the request takes up the rest.
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

/// Every visit of a step that was visited again is undone, the last first, each given what it gave.
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

/// An undo that the host died under is done again, and told so.
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

/// After the third interruption it has failed.
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

/// A call that is cut off by a cancel undoes itself before the workflow around it is undone.
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

/// What could not be undone before a composite was to be tried again makes the run undo_failed, and can be tried again
/// alone: the workflow itself is not one that undoes.
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

/// An undo is given what its step gave, and may also ask how that step ended.
#[test]
fn an_undo_reads_the_status_of_its_own_step() {
    let a = undoable(work("a")).with(|step| {
        let undo = step.undo.as_mut().unwrap();
        let value = Expr::reference(
            ReferenceRoot::Step { id: "a".into(), part: StepProperty::Status },
            [] as [&str; 0],
        );
        undo.inputs.push(InputBinding::new("ended", value));
    });
    script!(saga(vec![a, undoing(work("b"))]))
        .start()
        .gives("a", json!({"x": 1}))
        .fail("b", ErrorClass::NonRetryable)
        .ok("a")
        .done();
}

/// A step of which one visit was undone and another was not has not been undone.
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

/// What was cut off by its time may have had an effect, and is named.
#[test]
fn what_took_too_long_may_have_had_an_effect() {
    script!(saga(vec![undoable(work("a")), undoable(work("b"))]))
        .start()
        .ok("a")
        .times_out("b")
        .ok("a")
        .done();
}

/// Undo needs workers like anything else: with one to be had, one of two begins.
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

/// A composite that is undone before another try still has the time that is left of its own.
#[test]
fn a_composite_with_time_left_is_tried_again_after_its_undo() {
    let lanes = vec![("l", vec![undoable(work("x"))]), ("r", vec![work("y")])];
    let both = retried(parallel("both", lanes), 2).with(|step| {
        (step.policy.timeout, step.policy.timeout_per) = (Some(Millis::from_mins(1)), TimeoutScope::Step);
    });
    script!(routed(vec![both]))
        .start()
        .ok("both/l/x")
        .fail("both/r/y", ErrorClass::Transient)
        .ok("both/l/x")
        .done();
}

/// If that time is up meanwhile, it is not.
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

/// An undo that is blocked has failed: nobody would know to release it.
#[test]
fn a_blocked_undo_has_failed() {
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .blocks("a", HoldReason::Quota, None)
        .done();
}

/// What could not be undone can be tried again only when everything else about the run is over.
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

/// What an undo says is kept only if it is not too large; that it was done counts.
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
