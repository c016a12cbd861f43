//! Forks: a new run begins with what another came to, and does a step and all that comes after it again.

use serde_json::json;
use skein_core::{
    engine::AttemptEnd,
    ir::{EachErrorPolicy, ErrorClass, LoopTest, OutcomeEffect, RunImpact, ScopeShape},
};

use crate::support::*;

/// What comes before the step is reused with what it gave, and so is what stands beside it.
#[test]
fn what_does_not_come_after_the_step_is_reused() {
    let steps =
        vec![work("a"), after("b", &["a"]), reads(after("c", &["b"]), "n", "$steps.b.n"), work("beside")];
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

/// A step that made the run fail is done again though nobody named it, and so is what comes after it.
#[test]
fn what_made_the_run_fail_is_done_again() {
    let steps = vec![
        on_failure(work("a"), OutcomeEffect::SKIP_DEPENDENTS),
        after("x", &["a"]),
        work("b"),
        after("c", &["b"]),
    ];
    script!(graph(steps))
        .start()
        .fail("a", ErrorClass::Fatal)
        .ok("b")
        .ok("c")
        .fork("c")
        .ok("a")
        .ok("c")
        .ok("x")
        .done();
}

/// A failure that the run went on after is a result like any other: it degrades the fork too.
#[test]
fn a_failure_that_was_gone_on_after_is_reused() {
    let steps = vec![on_failure(work("a"), OutcomeEffect::CONTINUE), after("b", &["a"])];
    script!(graph(steps)).start().fail("a", ErrorClass::Fatal).ok("b").fork("b").ok("b").done();
}

/// What was skipped stays skipped, by its condition or because of what it depends on.
#[test]
fn what_was_skipped_is_reused() {
    let never = work("never").with(|step| step.when = Some(cond("false")));
    let steps = vec![
        never,
        on_failure(
            work("a"),
            OutcomeEffect { verdict: RunImpact::Degraded, ..OutcomeEffect::SKIP_DEPENDENTS },
        ),
        after("b", &["a"]),
        work("c"),
        after("last", &["c"]),
    ];
    script!(graph(steps))
        .start()
        .fail("a", ErrorClass::Fatal)
        .ok("c")
        .ok("last")
        .fork("last")
        .ok("last")
        .done();
}

/// Of a routed scope, what was visited before the first visit of the step.
#[test]
fn a_cursor_goes_on_from_the_first_visit() {
    let steps = vec![work("a"), work("b"), branch("again", &[("$steps.b.more", "a")], "last"), work("last")];
    let workflow = routed(steps)
        .with(|workflow| workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true });
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

/// A cursor that never came to the step has nothing that comes before it.
#[test]
fn a_step_that_was_never_visited_has_no_fork() {
    let steps = vec![branch("choose", &[("$input.n > 3", "a")], "b"), work("a"), work("b")];
    script!(routed(steps)).with(json!({"n": 1})).start().ok("b").fork("a").done();
}

/// What is inside of a composite is reused with it, so that it can be read and undone.
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

/// Nothing can be begun in the middle of a composite.
#[test]
fn a_step_inside_of_a_composite_has_no_fork() {
    let lanes = vec![("l", vec![work("x")]), ("r", vec![work("y")])];
    script!(routed(vec![parallel("both", lanes)]))
        .start()
        .ok("both/l/x")
        .ok("both/r/y")
        .fork("both/l/x")
        .done();
}

/// What was undone is done again.
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

/// What is reused is undone like what the run did itself.
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

/// A decision is taken over, with who made it; an answer to it comes too late.
#[test]
fn a_decision_is_reused() {
    let steps = vec![gate("ask", |_| {}), work("a")];
    script!(routed(steps)).start().approve("ask").fail("a", ErrorClass::Fatal).fork("a").ok("a").done();
}

/// Only a run that is over can be forked.
#[test]
fn a_run_that_goes_on_has_no_fork() {
    script!(graph(vec![work("a"), after("b", &["a"])])).start().ok("a").fork("b").done();
}
