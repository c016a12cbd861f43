//! Cancel: at every point of a run.

use skein_core::ir::{ErrorClass, HoldReason, SiblingPolicy};

use crate::support::*;

/// Running steps are stopped, unstarted steps are skipped, and the run is cancelled when all have ended.
#[test]
fn cancel_stops_what_runs() {
    script!(graph(vec![work("a"), after("b", &["a"])])).start().cancel().stops("a").done();
}

/// An open gate, a wait, a hold and a retry delay end at once.
#[test]
fn cancel_ends_what_waits() {
    let steps = vec![gate("g", |_| {}), wait("w", &["paid"]), work("h"), retried(work("d"), 2), after("n", &["g"])];
    script!(graph(steps))
        .start()
        .blocks("h", HoldReason::Quota, Some(60))
        .fail("d", ErrorClass::Transient)
        .cancel()
        .done();
}

/// A ready step without a worker is reset, as if it had not arrived.
#[test]
fn cancel_forgets_what_was_only_ready() {
    script!(graph(vec![work("a")])).grant(0).start().cancel().done();
}

/// A running check is stopped; it is unknown if the work is complete, and the step is cancelled.
#[test]
fn cancel_during_a_check() {
    script!(graph(vec![checked("a", 2)])).start().ok("a").cancel().stops("a").done();
}

/// A check that was told to stop and still reports complete completes the step.
#[test]
fn cancel_during_a_check_that_completes() {
    script!(graph(vec![checked("a", 2)])).start().ok("a").cancel().ok("a").done();
}

/// Everything inside composites is stopped, at every depth.
#[test]
fn cancel_reaches_into_composites() {
    let inner = parallel("inner", vec![("a", vec![work("x")]), ("b", vec![gate("g", |_| {})])]);
    let outer = parallel("outer", vec![("l", vec![inner]), ("r", vec![work("y")])]);
    script!(routed(vec![outer])).start().cancel().stops("outer/l/inner/a/x").stops("outer/r/y").done();
}

/// A second cancel is accepted and changes nothing.
#[test]
fn cancel_twice_is_once() {
    script!(graph(vec![work("a")])).start().cancel().cancel().stops("a").done();
}

/// A cancel after the end is refused.
#[test]
fn cancel_after_the_end_is_refused() {
    script!(graph(vec![work("a")])).start().ok("a").cancel().done();
}

/// If a cancel undoes, completed steps are undone, and the run stays cancelled.
#[test]
fn cancel_can_undo() {
    script!(saga(vec![undoable(work("a")), undoable(work("b"))])).start().ok("a").cancel().stops("b").ok("a").done();
}

/// A cancel during an undo is recorded and does not affect the undo.
#[test]
fn cancel_during_undo_is_recorded() {
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .cancel()
        .ok("a")
        .done();
}

/// A cancel stops steps that are draining.
#[test]
fn cancel_stops_what_drains() {
    let workflow = graph(vec![work("a"), work("b")]).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).cancel().stops("b").done();
}

/// A cancel before the start is refused.
#[test]
fn cancel_before_the_start_is_refused() {
    script!(graph(vec![work("a")])).cancel().start().done();
}

/// A run that is being cancelled when the host crashes is still cancelled after recovery.
#[test]
fn cancel_survives_a_crash() {
    script!(graph(vec![work("a")])).start().cancel().recover().done();
}
