//! Interruption: the host died under an attempt.

use skein_core::ir::{ErrorClass, OnInterrupted, Step, StepRetry, SummarySpec, WorkerSpec};

use crate::support::*;

fn then(step: Step, policy: OnInterrupted) -> Step {
    step.with(|step| step.policy.on_interrupted = policy)
}

/// Rerun: a new attempt that is told so; no try is used up.
#[test]
fn rerun_uses_up_no_try() {
    script!(graph(vec![retried(work("a"), 2)]))
        .start()
        .recover()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// Resume: a new attempt that goes on with the worker's own session.
#[test]
fn resume_tells_the_worker() {
    script!(graph(vec![then(work("a"), OnInterrupted::Resume)])).start().recover().ok("a").done();
}

/// Restore: a new attempt after the workspace was put back.
#[test]
fn restore_tells_the_host() {
    script!(graph(vec![then(work("a"), OnInterrupted::Restore)])).start().recover().ok("a").done();
}

/// Ask: the step is held, alone.
#[test]
fn ask_holds_only_that_step() {
    script!(graph(vec![then(work("a"), OnInterrupted::Ask), work("b")]))
        .start()
        .recover()
        .ok("b")
        .approve("a")
        .ok("a")
        .done();
}

/// Fail: a failure of class interrupted, retried where that is listed.
#[test]
fn fail_is_a_failure_of_its_own_class() {
    let a = then(work("a"), OnInterrupted::Fail)
        .with(|a| a.policy.retry = StepRetry::for_classes(&[ErrorClass::Interrupted], 2, seconds(1)));
    script!(graph(vec![a])).start().recover().due().recover().done();
}

/// The third interruption of one visit asks a person.
#[test]
fn the_third_time_asks() {
    script!(graph(vec![work("a")])).start().recover().recover().recover().approve("a").ok("a").done();
}

/// A check that was interrupted is done again; its work is not.
#[test]
fn an_interrupted_check_is_done_again() {
    let a = then(checked("a", 2), OnInterrupted::Fail);
    script!(graph(vec![a])).start().ok("a").recover().ok("a").done();
}

/// What was being stopped counts as stopped.
#[test]
fn what_was_being_stopped_has_stopped() {
    script!(graph(vec![work("a"), work("b")])).start().fail("a", ErrorClass::NonRetryable).recover().done();
}

/// What waits is not interrupted: gates, delays and holds are as they were.
#[test]
fn what_waits_is_not_interrupted() {
    script!(graph(vec![gate("g", |_| {}), retried(work("a"), 2)]))
        .start()
        .fail("a", ErrorClass::Transient)
        .recover()
        .due()
        .ok("a")
        .approve("g")
        .done();
}

/// With nothing in flight a recovery changes nothing, and a second one neither.
#[test]
fn recovering_twice_interrupts_once() {
    script!(graph(vec![work("a")])).start().grant(0).recover().recover().capacity(1).ok("a").done();
}

/// A summary that was interrupted is made again; the work it sums up is not done again.
#[test]
fn an_interrupted_summary_is_made_again() {
    let a = work("a").with(|a| {
        let worker = WorkerSpec::Tool { tool: "sum".into(), pinned: None };
        the_work(a).summary = Some(Box::new(SummarySpec { worker, timeout: None }));
    });
    script!(graph(vec![a])).start().ok("a").recover().gives("a", serde_json::json!("short")).done();
}
