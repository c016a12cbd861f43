//! Forks: a new run starts with results of another one and reruns a step and all steps after it.

use serde_json::json;
use skein_core::{
    engine::AttemptEnd,
    ir::{EachErrorPolicy, ErrorClass, LoopTest, OutcomeEffect, RunImpact, ScopeShape},
};

use crate::support::*;

/// Steps before the given step are reused with their outputs, and so are independent steps.
#[test]
fn what_does_not_come_after_the_step_is_reused() {
    let steps = vec![work("a"), after("b", &["a"]), reads(after("c", &["b"]), "n", "$steps.b.n"), work("beside")];
    script!(graph(steps))
        .start()
        .gives("a", json!({"n": 1}))
        .ok("beside")
        .gives("b", json!({"n": 2}))
        .fail("c", ErrorClass::Fatal)
        .fork("c")
        .ok("c")
        .done();
}

/// From the first step, nothing is reused.
#[test]
fn from_the_first_step_all_is_done_again() {
    let steps = vec![work("a"), after("b", &["a"])];
    script!(graph(steps)).start().ok("a").ok("b").fork("a").ok("a").ok("b").done();
}

/// A step that failed the run is rerun even if it was not named, and so are the steps after it.
#[test]
fn what_made_the_run_fail_is_done_again() {
    let steps =
        vec![on_failure(work("a"), OutcomeEffect::SKIP_DEPENDENTS), after("x", &["a"]), work("b"), after("c", &["b"])];
    script!(graph(steps)).start().fail("a", ErrorClass::Fatal).ok("b").ok("c").fork("c").ok("a").ok("c").ok("x").done();
}

/// A failure after which the run continued is reused: it degrades the fork too.
#[test]
fn a_failure_that_was_gone_on_after_is_reused() {
    let steps = vec![on_failure(work("a"), OutcomeEffect::CONTINUE), after("b", &["a"])];
    script!(graph(steps)).start().fail("a", ErrorClass::Fatal).ok("b").fork("b").ok("b").done();
}

/// Skipped steps stay skipped, by their condition or because of a dependency.
#[test]
fn what_was_skipped_is_reused() {
    let never = work("never").with(|step| step.when = Some(cond("false")));
    let steps = vec![
        never,
        on_failure(work("a"), OutcomeEffect { verdict: RunImpact::Degraded, ..OutcomeEffect::SKIP_DEPENDENTS }),
        after("b", &["a"]),
        work("c"),
        after("last", &["c"]),
    ];
    script!(graph(steps)).start().fail("a", ErrorClass::Fatal).ok("c").ok("last").fork("last").ok("last").done();
}

/// In a routed scope, the visits before the first visit of the step are reused.
#[test]
fn a_cursor_goes_on_from_the_first_visit() {
    let steps = vec![work("a"), work("b"), branch("again", &[("$steps.b.more", "a")], "last"), work("last")];
    let workflow =
        routed(steps).with(|workflow| workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true });
    script!(workflow)
        .start()
        .gives("a", json!(1))
        .gives("b", json!({"more": true}))
        .gives("a", json!(2))
        .gives("b", json!({"more": false}))
        .fail("last", ErrorClass::Fatal)
        .fork("last")
        .gives("last", json!(3))
        .fork("b")
        .gives("b", json!({"more": false}))
        .ok("last")
        .done();
}

/// If the cursor never reached the step, there is no fork.
#[test]
fn a_step_that_was_never_visited_has_no_fork() {
    let steps = vec![branch("choose", &[("$input.n > 3", "a")], "b"), work("a"), work("b")];
    script!(routed(steps)).with(json!({"n": 1})).start().ok("b").fork("a").done();
}

/// The steps inside a composite are reused with it, so that they can be read and undone.
#[test]
fn what_is_inside_of_a_composite_is_reused_with_it() {
    let lanes = vec![("l", vec![undoable(work("x"))]), ("r", vec![work("y")])];
    let every = each("every", "$input.list", EachErrorPolicy::Collect, vec![undoable(work("z"))]);
    let twice = repeat("twice", "$steps.w.more", LoopTest::After, 3, vec![work("w")]);
    let steps = vec![parallel("both", lanes), every, twice, reads(work("last"), "of", "$steps.both.l.n")];
    script!(saga(steps))
        .with(json!({"list": ["i", "j"]}))
        .start()
        .gives("both/l/x", json!({"n": 1}))
        .ok("both/r/y")
        .gives("every[0]/z", json!(0))
        .fail("every[1]/z", ErrorClass::Fatal)
        .gives("twice#1/w", json!({"more": true}))
        .gives("twice#2/w", json!({"more": false}))
        .ok("last")
        .fork("last")
        .fail("last", ErrorClass::Fatal)
        .ok("every[0]/z")
        .ok("both/l/x")
        .done();
}

/// A fork cannot start inside a composite.
#[test]
fn a_step_inside_of_a_composite_has_no_fork() {
    let lanes = vec![("l", vec![work("x")]), ("r", vec![work("y")])];
    script!(routed(vec![parallel("both", lanes)])).start().ok("both/l/x").ok("both/r/y").fork("both/l/x").done();
}

/// Undone steps are rerun.
#[test]
fn what_was_undone_is_done_again() {
    let steps = vec![work("a"), undoable(work("b")), work("c")];
    script!(saga(steps))
        .start()
        .ok("a")
        .ok("b")
        .fail("c", ErrorClass::Fatal)
        .end("b", "is undone", AttemptEnd::Succeeded { output: Default::default() })
        .fork("c")
        .ok("b")
        .ok("c")
        .done();
}

/// Reused steps are undone like those that the run executed itself.
#[test]
fn what_is_reused_can_be_undone() {
    let steps = vec![undoable(work("a")), work("b"), work("c")];
    script!(saga(steps))
        .start()
        .gives("a", json!(7))
        .ok("b")
        .ok("c")
        .fork("c")
        .fail("c", ErrorClass::Fatal)
        .ok("a")
        .done();
}

/// A decision is reused with the person who made it; another answer is refused.
#[test]
fn a_decision_is_reused() {
    let steps = vec![gate("ask", |_| {}), work("a")];
    script!(routed(steps)).start().approve("ask").fail("a", ErrorClass::Fatal).fork("a").ok("a").done();
}

/// Only a run that has ended can be forked.
#[test]
fn a_run_that_goes_on_has_no_fork() {
    script!(graph(vec![work("a"), after("b", &["a"])])).start().ok("a").fork("b").done();
}
