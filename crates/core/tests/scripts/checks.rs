//! Completion checks: they decide when work is complete.

use serde_json::json;
use skein_core::{
    engine::CheckFinding,
    ir::{ConvergencePolicy, ErrorClass, OutcomeEffect, Step, SummarySpec, WorkerSpec},
};

use crate::support::*;

fn converging(stall_threshold: u32, max_stage: u32, fail_on_max_stage: bool) -> Step {
    checked("a", 9).with(|a| {
        the_check(a).convergence = Some(ConvergencePolicy {
            stall_threshold,
            max_stage,
            fail_on_max_stage,
            stages: Vec::new(),
            allowed_paths: Vec::new(),
            ignored_paths: Vec::new(),
            diff_base_ref: None,
            diff_base_ref_file: None,
            max_changed_files: None,
        });
    })
}

/// Complete: the step succeeds with the output of its last attempt.
#[test]
fn complete_ends_the_step() {
    script!(graph(vec![checked("a", 3)]))
        .start()
        .gives("a", json!({"n": 1}))
        .finds("a", CheckFinding::Complete, &[])
        .done();
}

/// Incomplete: the work is repeated in another iteration.
#[test]
fn incomplete_means_another_iteration() {
    script!(graph(vec![checked("a", 3)])).start().ok("a").incomplete("a").gives("a", json!(2)).ok("a").done();
}

/// Incomplete after the last iteration is a failure that aborts, if the format says so.
#[test]
fn exhausted_iterations_can_fail_the_step() {
    let steps = vec![checked("a", 2), after("b", &["a"])];
    script!(graph(steps)).start().ok("a").incomplete("a").ok("a").incomplete("a").done();
}

/// Incomplete after the last iteration can also be an end of its own, which keeps the output and satisfies dependents.
#[test]
fn exhausted_iterations_can_be_an_end() {
    let a = checked("a", 2).with(|a| {
        the_check(a).incomplete_is_an_end = true;
        a.policy.effects.incomplete = OutcomeEffect::GO_ON;
    });
    script!(graph(vec![a, after("b", &["a"])]))
        .start()
        .ok("a")
        .incomplete("a")
        .gives("a", json!({"part": true}))
        .incomplete("a")
        .ok("b")
        .done();
}

/// Exhausted iterations have their own effect, regardless of the policy for failures.
#[test]
fn exhaustion_has_an_effect_of_its_own() {
    let a = checked("a", 2).with(|a| a.policy.effects.failed = OutcomeEffect::CONTINUE);
    script!(graph(vec![a, after("b", &["a"])])).start().ok("a").incomplete("a").ok("a").incomplete("a").done();
}

/// A check without a decision counts as incomplete once; two in a row fail the step.
#[test]
fn undecided_twice_in_a_row_fails() {
    script!(graph(vec![checked("a", 9)]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Undecided, &[])
        .ok("a")
        .finds("a", CheckFinding::Undecided, &[])
        .done();
}

/// A decision in between resets the count of undecided checks.
#[test]
fn a_decision_resets_the_undecided_count() {
    script!(graph(vec![checked("a", 9)]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Undecided, &[])
        .ok("a")
        .incomplete("a")
        .ok("a")
        .finds("a", CheckFinding::Undecided, &[])
        .ok("a")
        .ok("a")
        .done();
}

/// Blocked: the step is held for a person, and the next iteration follows its release.
#[test]
fn blocked_holds_until_the_next_iteration() {
    script!(graph(vec![checked("a", 3)]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Blocked, &["no key"])
        .approve("a")
        .ok("a")
        .ok("a")
        .done();
}

/// Blocked after the last iteration counts as incomplete: there is no iteration left after a release.
#[test]
fn blocked_at_the_last_iteration_is_incomplete() {
    script!(graph(vec![checked("a", 2)]))
        .start()
        .ok("a")
        .incomplete("a")
        .ok("a")
        .finds("a", CheckFinding::Blocked, &[])
        .done();
}

/// A failing check uses up a retry, and the iteration is repeated, including its work.
#[test]
fn a_failing_checker_consumes_a_retry_and_reruns_the_work() {
    script!(graph(vec![retried(checked("a", 3), 2)]))
        .start()
        .ok("a")
        .fail("a", ErrorClass::RateLimit)
        .due()
        .ok("a")
        .fail("a", ErrorClass::RateLimit)
        .done();
}

/// Each iteration starts with all of its retries, if the policy says so; attempts are those of the last iteration.
#[test]
fn retries_can_be_fresh_for_each_iteration() {
    let a = retried(checked("a", 3), 2).with(|a| a.policy.retry.fresh_per_iteration = true);
    script!(graph(vec![a]))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .incomplete("a")
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .ok("a")
        .done();
}

/// Otherwise all iterations share their retries.
#[test]
fn retries_can_be_shared_by_all_iterations() {
    script!(graph(vec![retried(checked("a", 3), 2)]))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .incomplete("a")
        .fail("a", ErrorClass::Transient)
        .done();
}

/// The same finding twice raises the stage; the worker is told the stage, and the count starts again.
#[test]
fn a_stall_raises_the_stage() {
    script!(graph(vec![converging(2, 3, true)]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x", "y"])
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["y", "x", "x"])
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x", "y"])
        .ok("a")
        .ok("a")
        .done();
}

/// A different finding in between is progress.
#[test]
fn another_finding_is_progress() {
    script!(graph(vec![converging(2, 2, true)]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x"])
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["y"])
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x"])
        .ok("a")
        .ok("a")
        .done();
}

/// Reaching the highest stage fails the step and aborts the run, regardless of the policy for failures.
#[test]
fn the_highest_stage_fails_the_step() {
    let a = converging(2, 2, true).with(|a| a.policy.effects.failed = OutcomeEffect::CONTINUE);
    script!(graph(vec![a]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x"])
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x"])
        .done();
}

/// If reaching it is not a failure, the stage stays at the highest and the iterations continue.
#[test]
fn the_highest_stage_can_be_where_it_stays() {
    script!(graph(vec![converging(1, 2, false)]))
        .start()
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x"])
        .ok("a")
        .finds("a", CheckFinding::Incomplete, &["x"])
        .ok("a")
        .ok("a")
        .done();
}

/// A finding without reasons or fingerprints cannot be compared, and does not count as a stall.
#[test]
fn a_finding_without_notes_counts_for_no_stall() {
    script!(graph(vec![converging(1, 2, true)])).start().ok("a").incomplete("a").ok("a").incomplete("a").done();
}

/// The summary comes last; its text is kept with the output, and if it fails, it is left out.
#[test]
fn a_summary_that_fails_is_left_out() {
    let summed = |name: &str| {
        work(name).with(|step| {
            let worker = WorkerSpec::Tool { tool: "sum".into(), pinned: None };
            the_work(step).summary = Some(Box::new(SummarySpec { worker, timeout: None }));
        })
    };
    script!(graph(vec![summed("a"), summed("b")]))
        .start()
        .gives("a", json!({"n": 1}))
        .gives("a", json!("one"))
        .gives("b", json!({"n": 2}))
        .fail("b", ErrorClass::Fatal)
        .done();
}

/// Only a check has a finding; a worker that reports one is refused.
#[test]
fn only_a_check_has_a_finding() {
    script!(graph(vec![checked("a", 2)])).start().finds("a", CheckFinding::Complete, &[]).ok("a").ok("a").done();
}

/// A check that was told to stop and still found the work complete completes the step.
#[test]
fn a_stopped_check_that_found_it_complete_has_completed_it() {
    script!(graph(vec![checked("a", 2), work("b")]))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .finds("a", CheckFinding::Complete, &[])
        .done();
}
