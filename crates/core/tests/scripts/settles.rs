//! Merge conflicts, and the step that resolves them.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    engine::AttemptEnd,
    ir::{ErrorClass, OutcomeEffect, Step},
};

use crate::{script::Script, support::*};

/// Work in a worktree of its own, whose conflicts the step `settle` resolves.
fn apart(step: Step) -> Step {
    step.with(|step| {
        the_work(step).isolation.worktree = true;
        step.policy.settled_by = Some(id("settle"));
    })
}

/// Ends an attempt whose work is done but cannot be merged.
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

/// The resolver runs when all steps that name it have ended. Then dependents continue as if all had succeeded, with
/// their outputs.
#[test]
fn a_conflict_that_is_settled_is_no_failure() {
    let script = script!(graph(two(settle()))).start();
    conflict(script, "b").ok("a").ok("settle").ok("last").done();
}

/// Without a conflict the resolver is skipped, and its dependents run.
#[test]
fn without_a_conflict_nothing_is_settled() {
    script!(graph(two(settle()))).start().ok("b").ok("a").ok("last").done();
}

/// The resolver runs once for all conflicts.
#[test]
fn two_conflicts_are_settled_together() {
    let script = script!(graph(two(settle()))).start();
    conflict(conflict(script, "a"), "b").ok("settle").ok("last").done();
}

/// If the resolver fails, the run fails as it would have without it, and the error names both steps.
#[test]
fn who_cannot_settle_it_fails_for_both() {
    let lenient = on_failure(settle(), OutcomeEffect::CONTINUE);
    let script = script!(graph(two(lenient))).start().ok("a");
    conflict(script, "b").fail("settle", ErrorClass::NonRetryable).done();
}

/// Other failures are not resolved, including one that only reports the same code. The resolver does not require its
/// dependencies to succeed.
#[test]
fn other_failures_are_not_settled() {
    let mut steps = two(settle());
    steps[0] = on_failure(steps[0].clone(), OutcomeEffect::SKIP_DEPENDENTS);
    let script = script!(graph(steps)).start();
    script.fails("a", ErrorClass::NonRetryable, Some("merge_conflict"), None).ok("b").done();
}

/// If the condition of the resolver is false, the conflict remains.
#[test]
fn a_conflict_that_nobody_looks_at_is_a_failure() {
    let shy = settle().with(|step| step.when = Some(cond("false")));
    conflict(script!(graph(two(shy))).start().ok("a"), "b").done();
}

/// In a routed scope, the resolver is the next step of the cursor.
#[test]
fn a_cursor_goes_by_who_settles() {
    let steps = || vec![apart(work("a")), work("settle"), work("last")];
    conflict(script!(routed(steps())).start(), "a").ok("settle").ok("last").done();
}

/// A step whose conflict was resolved is undone like one that succeeded.
#[test]
fn what_was_settled_is_undone_too() {
    let steps = vec![undoable(apart(work("a"))), undoable(work("settle")), undoing(work("last"))];
    let script = conflict(script!(saga(steps)).start(), "a").ok("settle");
    script.fail("last", ErrorClass::NonRetryable).ok("settle").ok("a").done();
}
