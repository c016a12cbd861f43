//! The interface to the host: capacity, results, publication, linked runs, quarantine.

use skein_core::{
    engine::{AttemptEnd, Publication},
    ir::{ErrorClass, HookAction, HookTiming, RunRetry, Workflow, WorkflowContext, WorkflowHook},
    time::Millis,
};

use crate::support::*;

fn hook(when: HookTiming) -> WorkflowHook {
    WorkflowHook { when, action: HookAction::Notify { channel: "c".into(), message: None } }
}

fn again(attempts: u32) -> impl FnOnce(&mut Workflow) {
    move |workflow| {
        let backoff = seconds(60);
        workflow.scope.retry = Some(RunRetry { attempts, backoff, on_timeout: false });
    }
}

/// No more attempts start than workers were granted; the rest wait in order.
#[test]
fn capacity_no_more_start_than_were_granted() {
    script!(graph(vec![work("a"), work("b"), work("c")])).grant(1).start().capacity(1).ok("b").done();
}

/// A grant of zero starts nothing, and ready steps stay ready.
#[test]
fn capacity_nothing_granted_starts_nothing() {
    script!(graph(vec![work("a")])).grant(0).start().capacity(0).capacity(1).done();
}

/// An undo needs a worker like any other attempt, and comes before forward work.
#[test]
fn capacity_an_undo_needs_a_worker() {
    script!(saga(vec![undoable(work("a")), work("b")]))
        .start()
        .ok("a")
        .grant(0)
        .fail("b", ErrorClass::NonRetryable)
        .capacity(1)
        .ok("a")
        .done();
}

/// A report for an attempt that has ended is refused.
#[test]
fn results_a_duplicate_is_refused() {
    script!(graph(vec![retried(work("a"), 2), after("b", &["a"])]))
        .start()
        .fail("a", ErrorClass::Transient)
        .late("0.0.1.1.main.1")
        .due()
        .late("0.0.1.1.main.1")
        .ok("a")
        .late("0.0.1.1.main.2")
        .done();
}

/// A report for an unknown attempt is refused.
#[test]
fn results_of_an_unknown_attempt_are_refused() {
    script!(graph(vec![work("a")]))
        .start()
        .late("0.0.1.1.main.2")
        .late("0.0.1.2.main.1")
        .late("0.5.1.1.main.1")
        .late("7.0.1.1.main.1")
        .late("0.0.1.1.check.1")
        .done();
}

/// A report after the run was cancelled and closed is refused.
#[test]
fn results_after_the_end_are_refused() {
    script!(graph(vec![work("a")])).start().cancel().stops("a").late("0.0.1.1.main.1").done();
}

/// An attempt that was reported as interrupted has ended: the worker's own report afterwards is late.
#[test]
fn results_of_an_interrupted_attempt_are_late() {
    script!(graph(vec![work("a")])).start().recover().late("0.0.1.1.main.1").ok("a").done();
}

/// A report must match the role: an undo cannot be reported for a step that was not undone.
#[test]
fn results_of_an_undo_that_never_was_are_refused() {
    script!(graph(vec![undoable(work("a"))])).start().report("0.0.1.1.undo.1", AttemptEnd::Stopped).done();
}

/// Start hooks are wanted from the start, and end hooks after the end; the run closes when all are published.
#[test]
fn publication_hooks_and_files_then_closed() {
    let workflow = graph(vec![work("a")]).with(|workflow| {
        workflow.hooks = vec![hook(HookTiming::Start), hook(HookTiming::Success), hook(HookTiming::Failure)];
        workflow.context = WorkflowContext { directory: Some("ctx".into()), ..WorkflowContext::default() };
    });
    script!(workflow)
        .start()
        .published(Publication::Hook(0))
        .ok("a")
        .published(Publication::Hook(1))
        .published(Publication::Hook(1))
        .published(Publication::Context)
        .done();
}

/// A failing hook never changes the outcome of the run.
#[test]
fn publication_a_failing_hook_changes_nothing() {
    let workflow = graph(vec![work("a")]).with(|workflow| workflow.hooks = vec![hook(HookTiming::Failure)]);
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).not_published(Publication::Hook(0)).done();
}

/// A start hook that is still wanted at the end keeps the run from closing.
#[test]
fn publication_a_slow_start_hook_is_waited_for() {
    let workflow = graph(vec![work("a")]).with(|workflow| workflow.hooks = vec![hook(HookTiming::Start)]);
    script!(workflow).start().ok("a").published(Publication::Hook(0)).done();
}

/// A cancelled run calls neither success hooks nor failure hooks.
#[test]
fn publication_a_cancelled_run_calls_no_hooks() {
    let workflow = graph(vec![work("a")])
        .with(|workflow| workflow.hooks = vec![hook(HookTiming::Success), hook(HookTiming::Failure)]);
    script!(workflow).start().cancel().stops("a").done();
}

/// A failed run with tries left requests a linked run, after its delay.
#[test]
fn run_retry_asks_for_a_linked_run() {
    script!(graph(vec![work("a")]).with(again(2)))
        .start()
        .fail("a", ErrorClass::NonRetryable)
        .published(Publication::Retry)
        .done();
}

/// The last try requests no linked run.
#[test]
fn run_retry_the_last_try_asks_for_none() {
    script!(graph(vec![work("a")]).with(again(2))).start_as(Some("r0"), 2).fail("a", ErrorClass::NonRetryable).done();
}

/// The retry comes after the undo: an undone run is retried, one whose undo failed is not.
#[test]
fn run_retry_comes_after_the_undo() {
    script!(saga(vec![undoable(work("a")), work("b")]).with(again(3)))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .ok("a")
        .done();
}

/// A run whose undo failed is not retried.
#[test]
fn run_retry_not_when_undo_failed() {
    script!(saga(vec![undoable(work("a")), work("b")]).with(again(3)))
        .start()
        .ok("a")
        .fail("b", ErrorClass::NonRetryable)
        .fail("a", ErrorClass::NonRetryable)
        .done();
}

/// A timeout requests a linked run only if the policy says so; a success and a cancel never do.
#[test]
fn run_retry_not_after_a_timeout() {
    let workflow =
        graph(vec![work("a")]).with(again(3)).with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(5)));
    script!(workflow).start().due().stops("a").done();
}

/// A run with an inconsistent state is quarantined: it wants nothing and refuses everything.
#[test]
fn quarantine_wants_nothing_and_refuses_everything() {
    script!(graph(vec![work("a"), gate("g", |_| {})]))
        .start()
        .break_off()
        .late("0.0.1.1.main.1")
        .approve("g")
        .cancel()
        .wake()
        .done();
}

/// A second start is refused.
#[test]
fn start_twice_is_refused() {
    script!(graph(vec![work("a")])).start().start().done();
}

/// The values of `env` are evaluated once, when the run starts.
#[test]
fn start_works_out_env_once() {
    let workflow = graph(vec![work("a")]).with(|workflow| {
        workflow.env = [("TARGET".to_owned(), value("$input.target"))].into();
    });
    script!(workflow).with(serde_json::json!({"target": "prod"})).start().done();
}

/// A run that timed out is retried only if the policy says so.
#[test]
fn a_run_that_took_too_long_is_retried_if_that_is_said() {
    script!(late(true)).start().due().stops("a").done();
}

/// Otherwise it is not.
#[test]
fn a_run_that_took_too_long_is_not_retried_otherwise() {
    script!(late(false)).start().due().stops("a").done();
}

/// A workflow with a timeout of one minute and two tries.
fn late(on_timeout: bool) -> Workflow {
    graph(vec![work("a")]).with(again(2)).with(|workflow| {
        workflow.scope.timeout = Some(Millis::from_mins(1));
        workflow.scope.retry.as_mut().unwrap().on_timeout = on_timeout;
    })
}

/// Attempts that never existed are distinguished from those that have ended.
#[test]
fn a_report_for_an_attempt_that_never_was() {
    let twice = checked("a", 3);
    let mut script = script!(graph(vec![twice])).start().ok("a").incomplete("a");
    for never in [
        "0.0.1.1.main.0",
        "0.0.0.1.main.1",
        "0.0.1.0.main.1",
        "0.0.1.1.undo.1",
        "0.0.1.1.undo.0",
        "0.0.2.1.main.1",
        "0.0.1.3.main.1",
    ] {
        script = script.late(never);
    }
    script
        .late("0.0.1.1.main.1")
        .late("0.0.1.1.check.1")
        .ok("a")
        .ok("a")
        .late("0.0.1.1.undo.1")
        .late("0.0.1.1.main.0")
        .done();
}
