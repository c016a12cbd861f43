//! One test for each explanation of a step.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use super::support::{
    ViewTestRun, dependent_step, gate_step, graph_scope, parallel_step, routed_scope, step_id, undoable_step,
    wait_step, work_step,
};
use crate::{
    engine::{AttemptEnd, CheckFinding, RunInput, Verdict},
    expr::aip15,
    ids::WorkflowId,
    ir::*,
    time::{Millis, Timestamp},
};

fn with(mut step: Step, change: impl FnOnce(&mut Step)) -> Step {
    change(&mut step);
    step
}

fn undoing(step: Step) -> Step {
    with(step, |step| step.policy.effects.failed = OutcomeEffect::UNDO)
}

#[test]
fn at_work_and_succeeded_need_no_words() {
    let trial = ViewTestRun::new(graph_scope(vec![work_step("a"), work_step("b")])).start_run().succeed_step("a");
    assert_eq!((trial.step_view("a").why, trial.step_view("b").why), (None, None));
}

#[test]
fn dependencies_that_have_not_ended() {
    let trial = ViewTestRun::new(graph_scope(vec![
        work_step("a"),
        work_step("b"),
        work_step("c"),
        dependent_step("d", &["a", "b", "c"]),
    ]));
    let trial = trial.start_run().succeed_step("b");
    assert_eq!(trial.explain_step("d"), "dependencies: waits for `a` and `c`");
}

#[test]
fn a_route_that_has_not_come_yet_and_one_that_never_came() {
    let arm =
        RouteArm { when: aip15::parse_condition("$steps.a.by == 'b'").unwrap(), next: RouteTarget::Step(step_id("b")) };
    let choose = Step::new(
        step_id("c"),
        StepKindSpec::Branch(Box::new(BranchSpec { arms: vec![arm], default: RouteTarget::End })),
    );
    let trial = ViewTestRun::new(routed_scope(vec![work_step("a"), choose, work_step("b")])).start_run();
    assert_eq!(trial.explain_step("b"), "route: no route has led here yet");
    assert_eq!(trial.succeed_step("a").explain_step("b"), "not_routed: skipped: no route led here");
}

#[test]
fn a_slot_and_who_holds_it() {
    let scope = StepScope { concurrency: Some(2), ..graph_scope(vec![work_step("a"), work_step("b"), work_step("c")]) };
    let trial = ViewTestRun::new(scope).start_run();
    assert_eq!(trial.explain_step("c"), "slot: waits for a slot (`concurrency` 2, held by `a` and `b`)");
}

#[test]
fn a_worker() {
    let mut trial = ViewTestRun::new(graph_scope(vec![work_step("a")]));
    trial.grant = 0;
    assert_eq!(trial.start_run().explain_step("a"), "worker: waits for a worker");
}

#[test]
fn a_worker_for_the_check() {
    let checked = with(work_step("a"), |a| {
        let StepKindSpec::Work(work) = &mut a.kind else { return };
        let worker = work.worker.clone();
        work.check = Some(Box::new(CompletionCheck {
            worker,
            timeout: None,
            max_iterations: 2,
            incomplete_is_an_end: false,
            decision_file: None,
            convergence: None,
        }));
    });
    let mut trial = ViewTestRun::new(graph_scope(vec![checked])).start_run();
    trial.grant = 0;
    let mut trial = trial.succeed_step("a");
    assert_eq!(trial.explain_step("a"), "worker: its check waits for a worker");
    trial.grant = 1;
    let trial = trial.send_input(RunInput::Capacity);
    let blocked = AttemptEnd::Checked {
        finding: CheckFinding::Blocked,
        reasons: vec!["no key".into()],
        fingerprints: Vec::new(),
        output: None,
    };
    let trial = trial.end_attempt("a", blocked);
    assert_eq!(
        trial.explain_step("a"),
        "held_as_blocked: held for a person, because its check found it blocked: its check reports that \
         the work is blocked: no key; anyone may release it"
    );
    assert_eq!((trial.step_view("a").iterations, trial.step_view("a").attempts), (1, 0));
    let trial = trial.decide_waitpoint(0, Verdict::Approve).succeed_step("a");
    let incomplete = AttemptEnd::Checked {
        finding: CheckFinding::Incomplete,
        reasons: Vec::new(),
        fingerprints: Vec::new(),
        output: None,
    };
    assert_eq!(
        trial.end_attempt("a", incomplete).explain_step("a"),
        "exhausted: failed: incomplete after 2 iterations"
    );
}

#[test]
fn a_retry_and_when() {
    let retried = with(work_step("a"), |a| {
        a.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 3, Backoff::default());
    });
    let trial = ViewTestRun::new(graph_scope(vec![retried])).start_run().fail_step("a");
    assert_eq!(trial.explain_step("a"), "retry: retry 1 of 2 due at 1970-01-01T00:00:02Z: boom");
    let trial = trial.wake_at(2).fail_step("a").wake_at(9).fail_step("a");
    assert_eq!(trial.explain_step("a"), "failed: failed after 3 attempts: boom");
}

#[test]
fn a_decision_and_who_may_give_it() {
    let trial = ViewTestRun::new(graph_scope(vec![gate_step("g")])).start_run();
    let text = "decision: waits for a decision by the role lead or ann, until 1970-01-01T00:01:00Z";
    assert_eq!(trial.explain_step("g"), text);
    assert_eq!(trial.decide_waitpoint(0, Verdict::Reject).explain_step("g"), "rejected: rejected by ann: no time");
}

#[test]
fn a_decision_that_did_not_come() {
    let trial = ViewTestRun::new(graph_scope(vec![gate_step("g")])).start_run().wake_at(60);
    assert_eq!(trial.explain_step("g"), "timed_out: timed out: nobody decided in time");
}

#[test]
fn a_signal() {
    let trial = ViewTestRun::new(graph_scope(vec![wait_step("w", &["paid", "refused"])])).start_run();
    assert_eq!(trial.explain_step("w"), "signal: waits for signal `paid` or `refused`");
}

#[test]
fn a_hold_for_approval_and_who_may_release_it() {
    let approved = with(work_step("a"), |a| {
        a.policy.approval = Some(ApprovalHold::with_approvers(vec![Approver::User("ann".into())]));
    });
    let trial = ViewTestRun::new(graph_scope(vec![approved])).start_run();
    let text = "held_for_approval: held for approval: approval is required before it starts; \
                ann may release it";
    assert_eq!(trial.explain_step("a"), text);
}

#[test]
fn every_other_hold() {
    let words = [
        (HoldReason::Budget, "held_for_budget: held for budget"),
        (HoldReason::Governance, "held_for_governance: held for governance"),
        (HoldReason::Interruption, "held_after_interruption: held for a person, because it was interrupted"),
        (HoldReason::Quota, "held_for_quota: held for quota"),
        (HoldReason::Secret, "held_for_secret: held for a secret"),
    ];
    for (reason, text) in words {
        let until = Some(Timestamp(60_000));
        let blocked = AttemptEnd::Blocked { reason, until, message: "later".into() };
        let trial = ViewTestRun::new(graph_scope(vec![work_step("a")])).start_run().end_attempt("a", blocked);
        // A governance hold is never released by time.
        let until = if reason == HoldReason::Governance { "" } else { ", until 1970-01-01T00:01:00Z" };
        assert_eq!(trial.explain_step("a"), format!("{text}{until}: later; anyone may release it"));
    }
}

#[test]
fn a_condition_that_is_false() {
    let conditional = with(work_step("a"), |a| a.when = Some(aip15::parse_condition("$input.go == true").unwrap()));
    let trial =
        ViewTestRun::new(graph_scope(vec![conditional, dependent_step("b", &["a"]), dependent_step("c", &["b"])]))
            .start_run();
    assert_eq!(trial.explain_step("a"), "condition: skipped: its condition `$input.go == true` is false");
    assert_eq!(trial.explain_step("b"), "upstream: skipped: it depends on `a`, which was skipped");
    assert_eq!(trial.explain_step("c"), "upstream: skipped: it depends on `b`, which was skipped");
}

#[test]
fn a_failure_that_aborts_the_others() {
    let trial = ViewTestRun::new(graph_scope(vec![work_step("a"), work_step("b"), dependent_step("c", &["b"])]))
        .start_run()
        .fail_step("a");
    assert_eq!(trial.explain_step("a"), "failed: failed: boom");
    assert_eq!(trial.explain_step("b"), "stopping: stopping: `a` failed and the workflow stops");
    assert_eq!(trial.explain_step("c"), "step_failed: skipped: `a` failed and the workflow stops");
    let trial = trial.end_attempt("b", AttemptEnd::Stopped);
    assert_eq!(trial.explain_step("b"), "step_failed: cancelled: `a` failed and the workflow stops");
}

#[test]
fn a_failure_that_counts_as_skipped() {
    let skipped = with(work_step("a"), |a| a.policy.effects.failed = OutcomeEffect::SKIP);
    let trial = ViewTestRun::new(graph_scope(vec![skipped])).start_run().fail_step("a");
    assert_eq!(trial.explain_step("a"), "failed: skipped, because it failed: boom");
}

#[test]
fn a_lane_beside_it_that_failed() {
    let both =
        parallel_step("both", vec![("left", vec![work_step("a")]), ("right", vec![work_step("b"), work_step("c")])]);
    let trial = ViewTestRun::new(routed_scope(vec![both])).start_run().fail_step("both/left/a");
    assert_eq!(trial.explain_step("both/right/b"), "stopping: stopping: its sibling `both/left` failed");
    assert_eq!(trial.explain_step("both/right/c"), "sibling_failed: skipped: its sibling `both/left` failed");
}

#[test]
fn the_run_was_cancelled() {
    let both =
        parallel_step("both", vec![("left", vec![gate_step("a")]), ("right", vec![gate_step("b"), work_step("c")])]);
    let trial = ViewTestRun::new(routed_scope(vec![both, work_step("d")])).start_run().cancel_run();
    assert_eq!(trial.explain_step("both/left/a"), "cancelled: cancelled: the run was cancelled by ann");
    assert_eq!(trial.explain_step("both/right/c"), "cancelled: skipped: the run was cancelled by ann");
    assert_eq!(trial.explain_step("d"), "cancelled: skipped: the run was cancelled by ann");
    assert_eq!(trial.explain_step("both"), "cancelled: cancelled: the run was cancelled by ann");
}

#[test]
fn the_workflow_ran_out_of_time() {
    let scope = StepScope {
        timeout: Some(Millis::from_secs(5)),
        ..graph_scope(vec![work_step("a"), dependent_step("b", &["a"])])
    };
    let trial = ViewTestRun::new(scope).start_run().wake_at(5);
    assert_eq!(trial.explain_step("a"), "stopping: stopping: the workflow's time was up");
    assert_eq!(trial.explain_step("b"), "timed_out: skipped: the workflow's time was up");
}

#[test]
fn the_step_ran_out_of_time() {
    let limited = with(work_step("a"), |a| {
        (a.policy.timeout, a.policy.timeout_per) = (Some(Millis::from_secs(5)), TimeoutScope::Step);
    });
    let trial = ViewTestRun::new(graph_scope(vec![limited])).start_run().wake_at(5);
    assert_eq!(trial.explain_step("a"), "stopping: stopping: its timeout expired");
    let trial = trial.end_attempt("a", AttemptEnd::Stopped);
    assert_eq!(trial.explain_step("a"), "timed_out: timed out after 5s (step `timeout`)");
}

#[test]
fn the_composite_around_it_ran_out_of_time() {
    let both =
        parallel_step("both", vec![("left", vec![work_step("a")]), ("right", vec![work_step("b"), work_step("c")])]);
    let both = with(both, |both| both.policy.timeout = Some(Millis::from_secs(5)));
    let trial = ViewTestRun::new(routed_scope(vec![both])).start_run().wake_at(5);
    assert_eq!(trial.explain_step("both/left/a"), "stopping: stopping: the time of `both` was up");
    assert_eq!(trial.explain_step("both/right/c"), "timed_out: skipped: the time of `both` was up");
}

#[test]
fn a_limit_was_reached() {
    let scope = StepScope { max_steps: Some(1), ..graph_scope(vec![work_step("a"), dependent_step("b", &["a"])]) };
    let trial = ViewTestRun::new(scope).start_run().succeed_step("a");
    let text = "limit: skipped: max_steps is 1, and one more was to be executed";
    assert_eq!(trial.explain_step("b"), text);
}

#[test]
fn undo_as_it_goes_on() {
    let steps = vec![undoable_step("a"), with(undoable_step("b"), |b| b.after = vec![step_id("a")])];
    let last = undoing(with(work_step("c"), |c| c.after = vec![step_id("b")]));
    let trial = ViewTestRun::new(graph_scope(steps.into_iter().chain([last]).collect())).start_run();
    let trial = trial.succeed_step("a").succeed_step("b").fail_step("c");
    assert_eq!(trial.explain_step("b"), "undoing: is being undone: `c` failed and the workflow is undone");
    assert_eq!(trial.explain_step("a"), "undoing: will be undone when its turn comes");
    let trial = trial.succeed_step("b");
    assert_eq!(trial.explain_step("b"), "undone: undone: `c` failed and the workflow is undone");
    let trial = trial.fail_step("a");
    assert_eq!(trial.explain_step("a"), "not_undone: could not be undone: its undo failed");
    let undo = trial.view().undo.unwrap();
    assert_eq!((undo.undone, undo.not_undone), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn undo_that_stopped() {
    let steps = vec![undoable_step("a"), with(undoable_step("b"), |b| b.after = vec![step_id("a")])];
    let last = undoing(with(work_step("c"), |c| c.after = vec![step_id("b")]));
    let undo = UndoPolicy { if_one_fails: UndoFailurePolicy::Stop, ..UndoPolicy::default() };
    let scope = StepScope { undo, ..graph_scope(steps.into_iter().chain([last]).collect()) };
    let trial = ViewTestRun::new(scope).start_run().succeed_step("a").succeed_step("b").fail_step("c").fail_step("b");
    assert_eq!(trial.explain_step("a"), "not_undone: was not undone: another undo failed before its turn");
    assert_eq!(trial.view().undo.unwrap().not_undone, ["a", "b"]);
}

#[test]
fn a_try_that_is_undone_before_the_next() {
    let both = parallel_step("both", vec![("left", vec![undoable_step("a")]), ("right", vec![work_step("b")])]);
    let both = with(both, |both| {
        both.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 2, Backoff::default());
    });
    let trial =
        ViewTestRun::new(routed_scope(vec![both])).start_run().succeed_step("both/left/a").fail_step("both/right/b");
    assert_eq!(
        trial.explain_step("both"),
        "unwinding: the completed steps of its failed try are undone before the retry"
    );
    let trial = trial.succeed_step("both/left/a");
    assert_eq!(trial.explain_step("both/left/a"), "undone: undone: an enclosing step failed and is retried");
    let trial = trial.wake_at(60);
    assert_eq!(trial.step_view("both/left/a").status, StepStatus::Running);
    assert_eq!(trial.step_view("both").attempts, 2);
}

#[test]
fn a_run_that_was_set_aside() {
    let trial = ViewTestRun::new(graph_scope(vec![work_step("a"), dependent_step("b", &["a"])])).start_run();
    let trial = trial.send_input(RunInput::Break { message: "nonsense".into() });
    assert_eq!(trial.explain_step("b"), "quarantined: the run was set aside: nonsense");
}

#[test]
fn a_called_workflow_that_failed_says_where() {
    let called = Workflow::new(WorkflowId::new("sub").unwrap(), graph_scope(vec![work_step("x")]));
    let library = BTreeMap::from([("sub".to_owned(), Arc::new(called))]);
    let call = StepKindSpec::Call(Box::new(CallSpec { workflow: "sub".into(), exports: Vec::new() }));
    let trial = ViewTestRun::with_library(routed_scope(vec![Step::new(step_id("c"), call)]), &library)
        .start_run()
        .fail_step("c/x");
    let step = trial.step_view("c");
    assert_eq!(step.error.unwrap().step.as_deref(), Some("c/x"));
    assert_eq!(step.why.unwrap().steps, ["c/x"]);
    assert_eq!(trial.view().outputs, json!(null));
}
