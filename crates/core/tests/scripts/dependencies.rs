//! Graphs: conditions for the arrival of a step.

use serde_json::json;
use skein_core::ir::{ErrorClass, OutcomeEffect};

use crate::support::*;

/// A step arrives when the last of its dependencies has succeeded.
#[test]
fn a_step_waits_for_all_it_depends_on() {
    let steps = vec![work("a"), work("b"), after("c", &["a", "b"])];
    script!(graph(steps)).start().ok("b").ok("a").ok("c").done();
}

/// There are no batches: a step does not wait for steps that it does not depend on.
#[test]
fn a_step_starts_as_soon_as_its_own_dependencies_allow() {
    let steps = vec![work("slow"), work("quick"), after("next", &["quick"])];
    script!(graph(steps)).start().ok("quick").ok("next").ok("slow").done();
}

/// The dependents of a skipped step are skipped too, transitively, and that is not a failure.
#[test]
fn what_was_skipped_satisfies_nobody_by_itself() {
    let first = work("a").with(|a| a.when = Some(cond("$input.go")));
    let steps = vec![first, after("b", &["a"]), after("c", &["b"]), work("d")];
    script!(graph(steps)).start().ok("d").done();
}

/// A failure whose effect satisfies lets dependents run; the run succeeds as degraded.
#[test]
fn a_failure_that_satisfies_lets_dependents_run() {
    let steps = vec![on_failure(work("a"), OutcomeEffect::CONTINUE), reads(after("b", &["a"]), "of", "$steps.a.x")];
    script!(graph(steps)).start().fail("a", ErrorClass::NonRetryable).ok("b").done();
}

/// The output of one step is the input of the next.
#[test]
fn a_step_is_given_what_it_reads() {
    let steps = vec![work("a"), reads(after("b", &["a"]), "path", "$steps.a.path")];
    script!(graph(steps)).start().gives("a", serde_json::json!({"path": "x.txt"})).ok("b").done();
}

/// Two steps that end together make their common dependent ready once.
#[test]
fn two_that_end_together_start_what_waits_for_both_once() {
    let c = after("c", &["v", "w"]);
    script!(graph(vec![wait("v", &["paid"]), wait("w", &["paid"]), c])).start().signal("paid", json!(1)).ok("c").done();
}

/// They skip it once if its condition is false.
#[test]
fn two_that_end_together_skip_what_waits_for_both_once() {
    let c = after("c", &["v", "w"]).with(|step| step.when = Some(cond("false")));
    script!(graph(vec![wait("v", &["paid"]), wait("w", &["paid"]), c])).start().signal("paid", json!(1)).done();
}
