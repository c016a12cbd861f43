//! Time limits: of an attempt, a step, a check, a workflow.

use skein_core::{
    engine::AttemptEnd,
    ir::{ErrorClass, OutcomeEffect, StepRetry, TimeoutScope},
    time::Millis,
};

use crate::support::*;

fn limited(step: skein_core::ir::Step, per: TimeoutScope) -> skein_core::ir::Step {
    step.with(|step| (step.policy.timeout, step.policy.timeout_per) = (Some(Millis::from_secs(10)), per))
}

/// The host measures the time limit of an attempt; each attempt has the full limit.
#[test]
fn an_attempt_limit_is_told_to_the_host() {
    let step = limited(work("a"), TimeoutScope::Attempt).with(|a| {
        a.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 2, seconds(1));
    });
    script!(graph(vec![step])).start().pass(10).times_out("a").due().ok("a").done();
}

/// The timeout of a step covers all attempts and delays; when it expires, running attempts are stopped and nothing is
/// retried.
#[test]
fn a_step_limit_covers_everything() {
    let step = limited(retried(work("a"), 9), TimeoutScope::Step);
    script!(graph(vec![step])).start().pass(5).fail("a", ErrorClass::Transient).due().due().stops("a").done();
}

/// The timeout of a step ends a retry delay at once.
#[test]
fn a_step_limit_ends_a_delay() {
    let step = limited(retried(work("a"), 9), TimeoutScope::Step).with(|a| a.policy.retry.backoff = seconds(60));
    script!(graph(vec![step])).start().fail("a", ErrorClass::Transient).due().done();
}

/// A success that arrives while the step is being stopped for its timeout is too late.
#[test]
fn a_success_after_the_step_limit_is_too_late() {
    script!(graph(vec![limited(work("a"), TimeoutScope::Step)])).start().due().ok("a").done();
}

/// The check has its own timeout; a check that times out is a failure of the step.
#[test]
fn a_check_has_its_own_limit() {
    let step = checked("a", 3).with(|a| {
        the_check(a).timeout = Some(Millis::from_secs(5));
        a.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 2, seconds(1));
    });
    script!(graph(vec![step])).start().ok("a").times_out("a").due().ok("a").ok("a").done();
}

/// When the workflow times out, running steps are stopped, waiting ones are skipped, and the run ends as timed out.
#[test]
fn a_workflow_that_takes_too_long_times_out() {
    let workflow = graph(vec![work("a"), after("b", &["a"])])
        .with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(30)));
    script!(workflow).start().due().stops("a").done();
}

/// The timeout takes precedence over a failure that comes after it.
#[test]
fn a_failure_after_the_timeout_does_not_count() {
    let workflow =
        graph(vec![work("a"), work("b")]).with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(30)));
    script!(workflow).start().due().fail("a", ErrorClass::Fatal).stops("b").done();
}

/// Time spent waiting for a person counts against the timeout of the workflow.
#[test]
fn waiting_counts_against_the_workflow() {
    let workflow = routed(vec![gate("g", |_| {}), work("a")])
        .with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(30)));
    script!(workflow).start().due().done();
}

/// The timeout of a composite stops everything inside and fails the composite.
#[test]
fn a_composite_has_a_limit_for_all_inside() {
    let both = parallel("both", vec![("l", vec![work("x")]), ("r", vec![work("y"), work("z")])]);
    let both = both.with(|both| both.policy.timeout = Some(Millis::from_secs(10)));
    script!(routed(vec![both])).start().due().stops("both/l/x").stops("both/r/y").done();
}

/// A workflow that is being undone has no deadline: its timeout covers forward work only.
#[test]
fn the_workflow_limit_does_not_touch_an_undo() {
    let workflow = saga(vec![undoable(work("a")), work("b")])
        .with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(30)));
    script!(workflow).start().ok("a").fail("b", ErrorClass::Fatal).pass(60).wake().ok("a").done();
}

/// The undo has the timeout that it declares.
#[test]
fn an_undo_has_its_own_limit() {
    let step = undoable(work("a")).with(|a| a.undo.as_mut().unwrap().timeout = Some(Millis::from_secs(7)));
    script!(saga(vec![step, work("b")])).start().ok("a").fail("b", ErrorClass::Fatal).times_out("a").done();
}

/// If a timeout undoes, completed steps are undone when nothing is running any more.
#[test]
fn a_timeout_can_undo() {
    let workflow = saga(vec![undoable(work("a")), work("b")])
        .with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(30)));
    script!(workflow).start().ok("a").due().stops("b").ok("a").done();
}

/// A composite's timeout per attempt starts again with each try; one per step does not.
#[test]
fn a_composite_has_its_time_again_when_it_is_tried_again() {
    let both = |name: &str, per| {
        let (l, r) = (format!("{name}-l"), format!("{name}-r"));
        let lanes = vec![("l", vec![work(&l)]), ("r", vec![work(&r)])];
        retried(parallel(name, lanes), 2).with(|step| {
            step.policy.timeout = Some(Millis::from_secs(60));
            step.policy.timeout_per = per;
        })
    };
    script!(graph(vec![both("each-try", TimeoutScope::Attempt), both("all", TimeoutScope::Step)]))
        .start()
        .fail("each-try/l/each-try-l", ErrorClass::Transient)
        .stops("each-try/r/each-try-r")
        .fail("all/l/all-l", ErrorClass::Transient)
        .stops("all/r/all-r")
        .pass(30)
        .wake()
        .pass(30)
        .wake()
        .stops("all/l/all-l")
        .stops("all/r/all-r")
        .pass(30)
        .wake()
        .done();
}

/// A composite whose try timed out is retried, if its policy retries timeouts.
#[test]
fn a_composite_that_took_too_long_is_tried_again() {
    let lanes = vec![("l", vec![work("x")]), ("r", vec![work("y")])];
    let both = limited(parallel("both", lanes), TimeoutScope::Attempt)
        .with(|step| step.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 2, seconds(1)));
    script!(graph(vec![both]))
        .start()
        .pass(10)
        .wake()
        .stops("both/l/x")
        .stops("both/r/y")
        .pass(1)
        .wake()
        .ok("both/l/x")
        .ok("both/r/y")
        .done();
}

/// The effect of a timeout is a row of its own in the effect table.
#[test]
fn a_timeout_can_mean_something_else_than_a_failure() {
    let lenient = |name: &str| work(name).with(|step| step.policy.effects.timed_out = OutcomeEffect::CONTINUE);
    script!(graph(vec![lenient("late"), after("b", &["late"])]))
        .start()
        .end("late", "takes too long", AttemptEnd::TimedOut)
        .ok("b")
        .done();
}

/// An ordinary failure does not have the effect of a timeout.
#[test]
fn a_failure_can_mean_something_else_than_a_timeout() {
    let strict = work("a").with(|step| step.policy.effects.failed = OutcomeEffect::CONTINUE);
    script!(graph(vec![strict, after("b", &["a"])])).start().fail("a", ErrorClass::NonRetryable).ok("b").done();
}

/// The undo of a composite has its own timeout, not that of the composite.
#[test]
fn the_undo_of_a_call_has_its_own_limit() {
    let child =
        undoable(call("child", "other")).with(|step| step.undo.as_mut().unwrap().timeout = Some(Millis::from_secs(7)));
    script!(saga(vec![child, undoing(work("b"))]), library(vec![("other", graph(vec![work("x")]))]))
        .start()
        .ok("child/x")
        .fail("b", ErrorClass::NonRetryable)
        .ok("child")
        .done();
}

/// A step whose whole timeout expired is not retried, whatever its policy says about timeouts.
#[test]
fn a_step_whose_time_is_up_is_not_tried_again() {
    let slow = limited(work("a"), TimeoutScope::Step)
        .with(|step| step.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 3, seconds(1)));
    script!(graph(vec![slow])).start().due().stops("a").done();
}

/// While a step is being stopped, its timeout has no effect.
#[test]
fn a_timeout_while_a_step_is_being_stopped_changes_nothing() {
    script!(graph(vec![limited(work("a"), TimeoutScope::Step)])).start().cancel().due().stops("a").done();
}

/// A composite whose whole timeout expired is not retried either.
#[test]
fn a_composite_whose_time_is_up_is_not_tried_again() {
    let lanes = vec![("l", vec![work("x")]), ("r", vec![work("y")])];
    let both = limited(parallel("both", lanes), TimeoutScope::Step).with(|step| {
        step.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout, ErrorClass::Transient], 3, seconds(1))
    });
    script!(graph(vec![both])).start().due().fail("both/l/x", ErrorClass::Transient).stops("both/r/y").done();
}
