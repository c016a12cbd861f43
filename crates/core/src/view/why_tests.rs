//! One test for each thing that a step can say about itself.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use super::testing::{Trial, after, gate, graph, id, parallel, route, undoable, wait, work};
use crate::{
    engine::{AttemptEnd, Decision, Finding, Input},
    expr::aip15,
    ids::WorkflowId,
    ir::*,
    time::{Millis, Time},
};

fn with(mut step: Step, change: impl FnOnce(&mut Step)) -> Step {
    change(&mut step);
    step
}

fn undoing(step: Step) -> Step {
    with(step, |step| step.policy.effects.failed = Effect::UNDO)
}

#[test]
fn at_work_and_succeeded_need_no_words() {
    let trial = Trial::new(graph(vec![work("a"), work("b")])).start().ok("a");
    assert_eq!((trial.step("a").why, trial.step("b").why), (None, None));
}

#[test]
fn dependencies_that_have_not_ended() {
    let trial = Trial::new(graph(vec![work("a"), work("b"), work("c"), after("d", &["a", "b", "c"])]));
    let trial = trial.start().ok("b");
    assert_eq!(trial.why("d"), "dependencies: waits for `a` and `c`");
}

#[test]
fn a_route_that_has_not_come_yet_and_one_that_never_came() {
    let arm = Arm { when: aip15::condition("$steps.a.by == 'b'").unwrap(), next: Target::Step(id("b")) };
    let choose = Step::new(id("c"), Kind::Branch(Box::new(Branch { arms: vec![arm], default: Target::End })));
    let trial = Trial::new(route(vec![work("a"), choose, work("b")])).start();
    assert_eq!(trial.why("b"), "route: no route has led here yet");
    assert_eq!(trial.ok("a").why("b"), "not_routed: skipped: no route led here");
}

#[test]
fn a_slot_and_who_holds_it() {
    let scope = Scope { concurrency: Some(2), ..graph(vec![work("a"), work("b"), work("c")]) };
    let trial = Trial::new(scope).start();
    assert_eq!(trial.why("c"), "slot: waits for a slot (`concurrency` 2, held by `a` and `b`)");
}

#[test]
fn a_worker() {
    let mut trial = Trial::new(graph(vec![work("a")]));
    trial.grant = 0;
    assert_eq!(trial.start().why("a"), "worker: waits for a worker");
}

#[test]
fn a_worker_for_the_check() {
    let checked = with(work("a"), |a| {
        let Kind::Work(work) = &mut a.kind else { return };
        let worker = work.worker.clone();
        work.check = Some(Box::new(Check {
            worker,
            timeout: None,
            max_iterations: 2,
            incomplete_is_an_end: false,
            decision_file: None,
            convergence: None,
        }));
    });
    let mut trial = Trial::new(graph(vec![checked])).start();
    trial.grant = 0;
    let mut trial = trial.ok("a");
    assert_eq!(trial.why("a"), "worker: its check waits for a worker");
    trial.grant = 1;
    let trial = trial.say(Input::Capacity);
    let blocked = AttemptEnd::Checked {
        finding: Finding::Blocked,
        reasons: vec!["no key".into()],
        fingerprints: Vec::new(),
        output: None,
    };
    let trial = trial.end("a", blocked);
    assert_eq!(
        trial.why("a"),
        "held_as_blocked: held for a person, because its check found it blocked: its check says that it \
         cannot go on: no key; anyone may release it"
    );
    assert_eq!((trial.step("a").iterations, trial.step("a").attempts), (1, 0));
    let trial = trial.decide(0, Decision::Approve).ok("a");
    let incomplete = AttemptEnd::Checked {
        finding: Finding::Incomplete,
        reasons: Vec::new(),
        fingerprints: Vec::new(),
        output: None,
    };
    assert_eq!(trial.end("a", incomplete).why("a"), "exhausted: failed: incomplete after 2 iterations");
}

#[test]
fn a_retry_and_when() {
    let retried = with(work("a"), |a| {
        a.policy.retry = Retry::of(&[ErrorClass::Transient], 3, Backoff::default());
    });
    let trial = Trial::new(graph(vec![retried])).start().fail("a");
    assert_eq!(trial.why("a"), "retry: retry 1 of 2 due at 1970-01-01T00:00:02Z: boom");
    let trial = trial.wake_at(2).fail("a").wake_at(9).fail("a");
    assert_eq!(trial.why("a"), "failed: failed after 3 attempts: boom");
}

#[test]
fn a_decision_and_who_may_give_it() {
    let trial = Trial::new(graph(vec![gate("g")])).start();
    let text = "decision: waits for a decision by the role lead or ann, until 1970-01-01T00:01:00Z";
    assert_eq!(trial.why("g"), text);
    assert_eq!(trial.decide(0, Decision::Reject).why("g"), "rejected: rejected by ann: no time");
}

#[test]
fn a_decision_that_did_not_come() {
    let trial = Trial::new(graph(vec![gate("g")])).start().wake_at(60);
    assert_eq!(trial.why("g"), "timed_out: timed out: nobody decided in time");
}

#[test]
fn a_signal() {
    let trial = Trial::new(graph(vec![wait("w", &["paid", "refused"])])).start();
    assert_eq!(trial.why("w"), "signal: waits for signal `paid` or `refused`");
}

#[test]
fn a_hold_for_approval_and_who_may_release_it() {
    let approved = with(work("a"), |a| {
        a.policy.approval = Some(ApprovalHold::by(vec![Approver::User("ann".into())]));
    });
    let trial = Trial::new(graph(vec![approved])).start();
    let text = "held_for_approval: held for approval: it may start only when a person says so; \
                ann may release it";
    assert_eq!(trial.why("a"), text);
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
        let until = Some(Time(60_000));
        let blocked = AttemptEnd::Blocked { reason, until, message: "later".into() };
        let trial = Trial::new(graph(vec![work("a")])).start().end("a", blocked);
        // No time releases what governance holds.
        let until = if reason == HoldReason::Governance { "" } else { ", until 1970-01-01T00:01:00Z" };
        assert_eq!(trial.why("a"), format!("{text}{until}: later; anyone may release it"));
    }
}

#[test]
fn a_condition_that_is_false() {
    let conditional = with(work("a"), |a| a.when = Some(aip15::condition("$input.go == true").unwrap()));
    let trial = Trial::new(graph(vec![conditional, after("b", &["a"]), after("c", &["b"])])).start();
    assert_eq!(trial.why("a"), "condition: skipped: its condition `$input.go == true` is false");
    assert_eq!(trial.why("b"), "upstream: skipped: it depends on `a`, which was skipped");
    assert_eq!(trial.why("c"), "upstream: skipped: it depends on `b`, which was skipped");
}

#[test]
fn a_failure_that_aborts_the_others() {
    let trial = Trial::new(graph(vec![work("a"), work("b"), after("c", &["b"])])).start().fail("a");
    assert_eq!(trial.why("a"), "failed: failed: boom");
    assert_eq!(trial.why("b"), "stopping: stopping: `a` failed and the workflow stops");
    assert_eq!(trial.why("c"), "step_failed: skipped: `a` failed and the workflow stops");
    let trial = trial.end("b", AttemptEnd::Stopped);
    assert_eq!(trial.why("b"), "step_failed: cancelled: `a` failed and the workflow stops");
}

#[test]
fn a_failure_that_counts_as_skipped() {
    let skipped = with(work("a"), |a| a.policy.effects.failed = Effect::SKIP);
    let trial = Trial::new(graph(vec![skipped])).start().fail("a");
    assert_eq!(trial.why("a"), "failed: skipped, because it failed: boom");
}

#[test]
fn a_lane_beside_it_that_failed() {
    let both = parallel("both", vec![("left", vec![work("a")]), ("right", vec![work("b"), work("c")])]);
    let trial = Trial::new(route(vec![both])).start().fail("both/left/a");
    assert_eq!(trial.why("both/right/b"), "stopping: stopping: `both/left` beside it failed");
    assert_eq!(trial.why("both/right/c"), "sibling_failed: skipped: `both/left` beside it failed");
}

#[test]
fn the_run_was_cancelled() {
    let both = parallel("both", vec![("left", vec![gate("a")]), ("right", vec![gate("b"), work("c")])]);
    let trial = Trial::new(route(vec![both, work("d")])).start().cancel();
    assert_eq!(trial.why("both/left/a"), "cancelled: cancelled: the run was cancelled by ann");
    assert_eq!(trial.why("both/right/c"), "cancelled: skipped: the run was cancelled by ann");
    assert_eq!(trial.why("d"), "cancelled: skipped: the run was cancelled by ann");
    assert_eq!(trial.why("both"), "cancelled: cancelled: the run was cancelled by ann");
}

#[test]
fn the_workflow_ran_out_of_time() {
    let scope = Scope { timeout: Some(Millis::seconds(5)), ..graph(vec![work("a"), after("b", &["a"])]) };
    let trial = Trial::new(scope).start().wake_at(5);
    assert_eq!(trial.why("a"), "stopping: stopping: the workflow's time was up");
    assert_eq!(trial.why("b"), "timed_out: skipped: the workflow's time was up");
}

#[test]
fn the_step_ran_out_of_time() {
    let limited = with(work("a"), |a| {
        (a.policy.timeout, a.policy.timeout_per) = (Some(Millis::seconds(5)), Per::Step);
    });
    let trial = Trial::new(graph(vec![limited])).start().wake_at(5);
    assert_eq!(trial.why("a"), "stopping: stopping: its own time is up");
    let trial = trial.end("a", AttemptEnd::Stopped);
    assert_eq!(trial.why("a"), "timed_out: timed out after 5s (step `timeout`)");
}

#[test]
fn the_composite_around_it_ran_out_of_time() {
    let both = parallel("both", vec![("left", vec![work("a")]), ("right", vec![work("b"), work("c")])]);
    let both = with(both, |both| both.policy.timeout = Some(Millis::seconds(5)));
    let trial = Trial::new(route(vec![both])).start().wake_at(5);
    assert_eq!(trial.why("both/left/a"), "stopping: stopping: the time of `both` was up");
    assert_eq!(trial.why("both/right/c"), "timed_out: skipped: the time of `both` was up");
}

#[test]
fn a_limit_was_reached() {
    let scope = Scope { max_steps: Some(1), ..graph(vec![work("a"), after("b", &["a"])]) };
    let trial = Trial::new(scope).start().ok("a");
    let text = "limit: skipped: max_steps is 1, and one more was to be executed";
    assert_eq!(trial.why("b"), text);
}

#[test]
fn undo_as_it_goes_on() {
    let steps = vec![undoable("a"), with(undoable("b"), |b| b.after = vec![id("a")])];
    let last = undoing(with(work("c"), |c| c.after = vec![id("b")]));
    let trial = Trial::new(graph(steps.into_iter().chain([last]).collect())).start();
    let trial = trial.ok("a").ok("b").fail("c");
    assert_eq!(trial.why("b"), "undoing: is being undone: `c` failed and the workflow is undone");
    assert_eq!(trial.why("a"), "undoing: will be undone when its turn comes");
    let trial = trial.ok("b");
    assert_eq!(trial.why("b"), "undone: undone: `c` failed and the workflow is undone");
    let trial = trial.fail("a");
    assert_eq!(trial.why("a"), "not_undone: could not be undone: its undo failed");
    let undo = trial.view().undo.unwrap();
    assert_eq!((undo.undone, undo.not_undone), (vec!["b".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn undo_that_stopped() {
    let steps = vec![undoable("a"), with(undoable("b"), |b| b.after = vec![id("a")])];
    let last = undoing(with(work("c"), |c| c.after = vec![id("b")]));
    let undo = UndoPolicy { if_one_fails: UndoFailure::Stop, ..UndoPolicy::default() };
    let scope = Scope { undo, ..graph(steps.into_iter().chain([last]).collect()) };
    let trial = Trial::new(scope).start().ok("a").ok("b").fail("c").fail("b");
    assert_eq!(trial.why("a"), "not_undone: was not undone: another undo failed before its turn");
    assert_eq!(trial.view().undo.unwrap().not_undone, ["a", "b"]);
}

#[test]
fn a_try_that_is_undone_before_the_next() {
    let both = parallel("both", vec![("left", vec![undoable("a")]), ("right", vec![work("b")])]);
    let both = with(both, |both| {
        both.policy.retry = Retry::of(&[ErrorClass::Transient], 2, Backoff::default());
    });
    let trial = Trial::new(route(vec![both])).start().ok("both/left/a").fail("both/right/b");
    assert_eq!(trial.why("both"), "unwinding: what its failed try completed is undone before the next");
    let trial = trial.ok("both/left/a");
    assert_eq!(trial.why("both/left/a"), "undone: undone: what is around it failed and is tried again");
    let trial = trial.wake_at(60);
    assert_eq!(trial.step("both/left/a").status, StepStatus::Running);
    assert_eq!(trial.step("both").attempts, 2);
}

#[test]
fn a_run_that_was_set_aside() {
    let trial = Trial::new(graph(vec![work("a"), after("b", &["a"])])).start();
    let trial = trial.say(Input::Break { message: "nonsense".into() });
    assert_eq!(trial.why("b"), "quarantined: the run was set aside: nonsense");
}

#[test]
fn a_called_workflow_that_failed_says_where() {
    let called = Workflow::new(WorkflowId::new("sub").unwrap(), graph(vec![work("x")]));
    let library = BTreeMap::from([("sub".to_owned(), Arc::new(called))]);
    let call = Kind::Call(Box::new(Call { workflow: "sub".into(), exports: Vec::new() }));
    let trial = Trial::calling(route(vec![Step::new(id("c"), call)]), &library).start().fail("c/x");
    let step = trial.step("c");
    assert_eq!(step.error.unwrap().step.as_deref(), Some("c/x"));
    assert_eq!(step.why.unwrap().steps, ["c/x"]);
    assert_eq!(trial.view().outputs, json!(null));
}
