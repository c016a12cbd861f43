//! What cannot be merged, and the step that settles it.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    engine::AttemptEnd,
    ir::{ErrorClass, OutcomeEffect, Step},
};

use crate::{script::Script, support::*};

/// Work in a tree of its own, whose conflicts `settle` settles.
fn apart(step: Step) -> Step {
    step.with(|step| {
        the_work(step).isolation.worktree = true;
        step.policy.settled_by = Some(id("settle"));
    })
}

/// It is done, and does not fit.
fn conflict(script: Script, path: &str) -> Script {
    let end = AttemptEnd::Unmerged { output: Arc::new(json!({"x": 1})), message: "`f` does not fit".into() };
    script.end(path, "does not fit", end)
}

fn two(settle: Step) -> Vec<Step> {
    let last = reads(after("last", &["a", "b", "settle"]), "of", "$steps.b.x");
    vec![apart(work("a")), apart(work("b")), settle, last]
}

fn settle() -> Step {
    after("settle", &["a", "b"])
}

/// It runs once all who name it have ended. Then what waits goes on as if all had succeeded, with what they gave.
#[test]
fn a_conflict_that_is_settled_is_no_failure() {
    let script = script!(graph(two(settle()))).start();
    conflict(script, "b").ok("a").ok("settle").ok("last").done();
}

/// Without a conflict it is skipped, and nobody who waits for it minds.
#[test]
fn without_a_conflict_nothing_is_settled() {
    script!(graph(two(settle()))).start().ok("b").ok("a").ok("last").done();
}

/// One settles all there is, once.
#[test]
fn two_conflicts_are_settled_together() {
    let script = script!(graph(two(settle()))).start();
    conflict(conflict(script, "a"), "b").ok("settle").ok("last").done();
}

/// Then the run fails as it would have without it, and both are named.
#[test]
fn who_cannot_settle_it_fails_for_both() {
    let lenient = on_failure(settle(), OutcomeEffect::CONTINUE);
    let script = script!(graph(two(lenient))).start().ok("a");
    conflict(script, "b").fail("settle", ErrorClass::NonRetryable).done();
}

/// Any other failure goes the usual way, a code that only looks the same included. What settles does not wait for a success.
#[test]
fn other_failures_are_not_settled() {
    let mut steps = two(settle());
    steps[0] = on_failure(steps[0].clone(), OutcomeEffect::SKIP_DEPENDENTS);
    let script = script!(graph(steps)).start();
    script.fails("a", ErrorClass::NonRetryable, Some("merge_conflict"), None).ok("b").done();
}

/// A condition of its own that is false leaves the conflict as it is.
#[test]
fn a_conflict_that_nobody_looks_at_is_a_failure() {
    let shy = settle().with(|step| step.when = Some(cond("false")));
    conflict(script!(graph(two(shy))).start().ok("a"), "b").done();
}

/// Where the cursor is, it comes right after.
#[test]
fn a_cursor_goes_by_who_settles() {
    let steps = || vec![apart(work("a")), work("settle"), work("last")];
    conflict(script!(routed(steps())).start(), "a").ok("settle").ok("last").done();
}

/// What was done and could not be merged is undone like what succeeded.
#[test]
fn what_was_settled_is_undone_too() {
    let steps = vec![undoable(apart(work("a"))), undoable(work("settle")), undoing(work("last"))];
    let script = conflict(script!(saga(steps)).start(), "a").ok("settle");
    script.fail("last", ErrorClass::NonRetryable).ok("settle").ok("a").done();
}
