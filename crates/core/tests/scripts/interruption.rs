//! Interruption: the host crashed during an attempt.

use skein_core::ir::{ErrorClass, OnInterrupted, Step, StepRetry, SummarySpec, WorkerSpec};

use crate::support::*;

fn then(step: Step, policy: OnInterrupted) -> Step {
    step.with(|step| step.policy.on_interrupted = policy)
}

/// Rerun: a new attempt in mode `rerun`; no retry is used up.
#[test]
fn rerun_uses_up_no_try() {
    script!(graph(vec![retried(work("a"), 2)])).start().recover().fail("a", ErrorClass::Transient).due().ok("a").done();
}

/// Resume: a new attempt that continues the worker's own session.
#[test]
fn resume_tells_the_worker() {
    script!(graph(vec![then(work("a"), OnInterrupted::Resume)])).start().recover().ok("a").done();
}

/// Restore: a new attempt after the workspace was restored.
#[test]
fn restore_tells_the_host() {
    script!(graph(vec![then(work("a"), OnInterrupted::Restore)])).start().recover().ok("a").done();
}

/// Ask: only that step is held.
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

/// Fail: a failure of class interrupted, which is retried if that class is listed.
#[test]
fn fail_is_a_failure_of_its_own_class() {
    let a = then(work("a"), OnInterrupted::Fail)
        .with(|a| a.policy.retry = StepRetry::for_classes(&[ErrorClass::Interrupted], 2, seconds(1)));
    script!(graph(vec![a])).start().recover().due().recover().done();
}

/// The third interruption of one visit holds the step for a person.
#[test]
fn the_third_time_asks() {
    script!(graph(vec![work("a")])).start().recover().recover().recover().approve("a").ok("a").done();
}

/// An interrupted check is repeated; its work is not.
#[test]
fn an_interrupted_check_is_done_again() {
    let a = then(checked("a", 2), OnInterrupted::Fail);
    script!(graph(vec![a])).start().ok("a").recover().ok("a").done();
}

/// An attempt that was being stopped counts as stopped.
#[test]
fn what_was_being_stopped_has_stopped() {
    script!(graph(vec![work("a"), work("b")])).start().fail("a", ErrorClass::NonRetryable).recover().done();
}

/// Waiting steps are not interrupted: gates, delays and holds stay as they were.
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

/// Without attempts in flight, a recovery changes nothing, and neither does a second one.
#[test]
fn recovering_twice_interrupts_once() {
    script!(graph(vec![work("a")])).start().grant(0).recover().recover().capacity(1).ok("a").done();
}

/// An interrupted summary is repeated; the work it summarises is not.
#[test]
fn an_interrupted_summary_is_made_again() {
    let a = work("a").with(|a| {
        let worker = WorkerSpec::Tool { tool: "sum".into(), pinned: None };
        the_work(a).summary = Some(Box::new(SummarySpec { worker, timeout: None }));
    });
    script!(graph(vec![a])).start().ok("a").recover().gives("a", serde_json::json!("short")).done();
}
