//! Holds: steps that are kept from starting or continuing.

use skein_core::{
    engine::Verdict,
    ir::{ApprovalHold, Approver, Budget, BudgetMode, ErrorClass, EscalationLevel, HoldReason},
    time::Millis,
};

use crate::support::*;

fn budget(tokens: u64, mode: BudgetMode) -> Option<Budget> {
    Some(Budget { micro_usd: None, tokens: Some(tokens), mode })
}

/// Work with an approval is held before its first attempt, and only its approvers can release it.
#[test]
fn approval_before_the_first_attempt() {
    let a = retried(work("a"), 2).with(|a| {
        a.policy.approval = Some(ApprovalHold::with_approvers(vec![Approver::User("bob".into())]));
    });
    script!(graph(vec![a]))
        .start()
        .approve("a")
        .decide("a", Verdict::Approve, "bob", &[])
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// A rejected step ends as rejected, without an attempt.
#[test]
fn approval_rejected_ends_the_step() {
    let a = work("a").with(|a| a.policy.approval = Some(ApprovalHold::default()));
    script!(graph(vec![a, after("b", &["a"])])).start().reject("a").done();
}

/// A spent budget of the run holds the next step until a person releases it and thereby grants the same amount again.
#[test]
fn a_spent_run_budget_pauses() {
    let workflow = graph(vec![work("a"), retried(after("b", &["a"]), 2)])
        .with(|workflow| workflow.budget = budget(100, BudgetMode::Pause));
    script!(workflow)
        .start()
        .spending(100)
        .ok("a")
        .approve("b")
        .spending(50)
        .fail("b", ErrorClass::Transient)
        .due()
        .ok("b")
        .done();
}

/// An approval renews the budget from the cost so far: the same amount must be spent before the next hold.
#[test]
fn an_approved_budget_asks_again_when_as_much_is_spent_again() {
    let a = retried(work("a"), 5).with(|a| a.policy.budget = budget(10, BudgetMode::Pause));
    script!(graph(vec![a]))
        .start()
        .spending(35)
        .fail("a", ErrorClass::Transient)
        .due()
        .approve("a")
        .spending(9)
        .fail("a", ErrorClass::Transient)
        .due()
        .spending(1)
        .fail("a", ErrorClass::Transient)
        .due()
        .approve("a")
        .ok("a")
        .done();
}

/// An approval of the run's budget applies to all of its steps: the next one is not held.
#[test]
fn an_approved_budget_of_the_run_is_for_all_steps() {
    let workflow = graph(vec![work("a"), after("b", &["a"]), after("c", &["b"]), after("d", &["c"])])
        .with(|workflow| workflow.budget = budget(100, BudgetMode::Pause));
    script!(workflow)
        .start()
        .spending(150)
        .ok("a")
        .approve("b")
        .spending(99)
        .ok("b")
        .spending(1)
        .ok("c")
        .reject("d")
        .done();
}

/// A worker that stops because its budget is spent is held with the same message.
#[test]
fn a_worker_that_stops_at_its_budget_is_held_with_the_question() {
    let a = work("a").with(|a| a.policy.budget = budget(10, BudgetMode::Pause));
    script!(graph(vec![a])).start().spending(12).blocks("a", HoldReason::Budget, None).approve("a").ok("a").done();
}

/// A spent budget of the step holds its retry.
#[test]
fn a_spent_step_budget_pauses() {
    let a = retried(work("a"), 3).with(|a| a.policy.budget = budget(10, BudgetMode::Pause));
    script!(graph(vec![a])).start().spending(10).fail("a", ErrorClass::Transient).due().approve("a").ok("a").done();
}

/// Mode stop: the step fails instead of being held.
#[test]
fn a_spent_budget_can_stop() {
    let workflow =
        graph(vec![work("a"), after("b", &["a"])]).with(|workflow| workflow.budget = budget(100, BudgetMode::Stop));
    script!(workflow).start().spending(120).ok("a").done();
}

/// Releasing the run's budget does not lift the budget of the step: that one still stops.
#[test]
fn a_released_pause_does_not_lift_a_limit_that_stops() {
    let b = retried(after("b", &["a"]), 2).with(|b| b.policy.budget = budget(50, BudgetMode::Stop));
    let workflow = graph(vec![work("a"), b]).with(|workflow| workflow.budget = budget(100, BudgetMode::Pause));
    script!(workflow)
        .start()
        .spending(100)
        .ok("a")
        .approve("b")
        .spending(50)
        .fail("b", ErrorClass::Transient)
        .due()
        .done();
}

/// Mode warn: the budget has no effect.
#[test]
fn a_spent_budget_can_only_warn() {
    let workflow =
        graph(vec![work("a"), after("b", &["a"])]).with(|workflow| workflow.budget = budget(100, BudgetMode::Warn));
    script!(workflow).start().spending(120).ok("a").ok("b").done();
}

/// A check ignores the budget: work that was paid for is checked.
#[test]
fn a_spent_budget_does_not_hold_a_check() {
    let workflow = graph(vec![checked("a", 2)]).with(|workflow| workflow.budget = budget(10, BudgetMode::Pause));
    script!(workflow).start().spending(10).ok("a").ok("a").done();
}

/// A worker that reports being blocked is held with its reason until the given time, and then continues.
#[test]
fn quota_until_a_time() {
    script!(graph(vec![work("a")])).start().blocks("a", HoldReason::Quota, Some(60)).due().ok("a").done();
}

/// A missing secret holds the step until a person releases it; being blocked does not count as a try.
#[test]
fn a_secret_until_someone_releases() {
    script!(graph(vec![work("a")]))
        .start()
        .blocks("a", HoldReason::Secret, None)
        .approve("a")
        .blocks("a", HoldReason::Secret, None)
        .approve("a")
        .ok("a")
        .done();
}

/// A rate limit that the policy holds waits until the time in the report, instead of failing.
#[test]
fn a_class_can_hold_instead_of_fail() {
    let a = work("a").with(|a| a.policy.holds = [(ErrorClass::RateLimit, HoldReason::Quota)].into());
    script!(graph(vec![a])).start().fails("a", ErrorClass::RateLimit, None, Some(300)).due().ok("a").done();
}

/// A hold can be released before its time.
#[test]
fn a_timed_hold_can_be_released_early() {
    script!(graph(vec![work("a")]))
        .start()
        .blocks("a", HoldReason::Quota, Some(60))
        .pass(5)
        .approve("a")
        .pass(60)
        .wake()
        .ok("a")
        .done();
}

/// The host can hold a ready step, and no other.
#[test]
fn the_host_can_hold_a_ready_step() {
    script!(graph(vec![work("a"), after("b", &["a"])]))
        .grant(0)
        .start()
        .hold("a", HoldReason::Secret, Some(30))
        .hold("b", HoldReason::Secret, None)
        .grant(5)
        .due()
        .hold("a", HoldReason::Secret, None)
        .ok("a")
        .done();
}

/// A blocked check is held, and the check is repeated, not the work.
#[test]
fn a_blocked_check_goes_on_with_the_check() {
    script!(graph(vec![checked("a", 2)])).start().ok("a").blocks("a", HoldReason::Quota, Some(60)).due().ok("a").done();
}

/// The timeout of a step keeps running while it is held.
#[test]
fn a_step_limit_runs_on_while_held() {
    let a = work("a").with(|a| {
        a.policy.timeout = Some(skein_core::time::Millis::from_secs(10));
        a.policy.timeout_per = skein_core::ir::TimeoutScope::Step;
    });
    script!(graph(vec![a])).start().blocks("a", HoldReason::Quota, Some(60)).due().done();
}

/// A release for another reason does not waive the budget.
#[test]
fn an_approval_does_not_waive_the_budget() {
    let a = retried(work("a"), 3).with(|a| {
        a.policy.approval = Some(ApprovalHold::default());
        a.policy.budget = budget(10, BudgetMode::Pause);
    });
    script!(graph(vec![a]))
        .start()
        .approve("a")
        .spending(20)
        .fail("a", ErrorClass::Transient)
        .due()
        .approve("a")
        .ok("a")
        .done();
}

/// A run in which only a gate, a wait and a hold are open is waiting.
#[test]
fn a_run_with_everything_open_waits() {
    let held = work("held").with(|step| step.policy.approval = Some(ApprovalHold::default()));
    script!(graph(vec![gate("g", |_| {}), wait("w", &["paid"]), held]))
        .start()
        .approve("held")
        .ok("held")
        .approve("g")
        .done();
}

/// The approvers of the start are not those of a later hold: anyone may release a quota hold.
#[test]
fn approvers_are_for_the_approval_alone() {
    let a = work("a").with(|a| {
        a.policy.approval = Some(ApprovalHold::with_approvers(vec![Approver::User("bob".into())]));
    });
    script!(graph(vec![a]))
        .start()
        .decide("a", Verdict::Approve, "bob", &[])
        .blocks("a", HoldReason::Quota, None)
        .approve("a")
        .ok("a")
        .done();
}

/// A quorum applies before the first attempt as it does at a gate.
#[test]
fn approval_by_two() {
    let approval = ApprovalHold { quorum: 2, message: "the policy says so".into(), ..ApprovalHold::default() };
    let a = work("a").with(|a| a.policy.approval = Some(approval));
    script!(graph(vec![a]))
        .start()
        .decide("a", Verdict::Approve, "ada", &[])
        .decide("a", Verdict::Approve, "ada", &[])
        .decide("a", Verdict::Approve, "bob", &[])
        .ok("a")
        .done();
}

fn level(role: &str, minutes: Option<u64>) -> EscalationLevel {
    EscalationLevel { approvers: vec![Approver::Role(role.into())], timeout: minutes.map(Millis::from_mins) }
}

/// A step that policy denies fails before its first attempt, and is not retried.
#[test]
fn denied_fails_with_class_governance() {
    let a = retried(work("a"), 3).with(|a| a.policy.denied = Some("the policy `p` says no".into()));
    script!(graph(vec![a, after("b", &["a"])])).start().done();
}

/// If the step holds governance errors, the approvers of its level can let it start.
#[test]
fn denied_and_held_for_those_who_may_overrule() {
    let a = work("a").with(|a| {
        a.policy.denied = Some("the policy `p` says no".into());
        a.policy.holds.insert(ErrorClass::Governance, HoldReason::Governance);
        a.policy.escalation = vec![level("lead", None)];
    });
    script!(graph(vec![a]))
        .start()
        .decide("a", Verdict::Approve, "ann", &["clerk"])
        .decide("a", Verdict::Approve, "ann", &["lead"])
        .ok("a")
        .done();
}

/// A governance hold is never released by time: it escalates, and in the end the step fails.
#[test]
fn governance_climbs_and_fails() {
    let a = retried(work("a"), 3).with(|a| {
        a.policy.holds.insert(ErrorClass::Governance, HoldReason::Governance);
        a.policy.escalation = vec![level("lead", Some(15)), level("boss", Some(30))];
    });
    script!(graph(vec![a]))
        .start()
        .fails("a", ErrorClass::Governance, None, Some(60))
        .due()
        .decide("a", Verdict::Approve, "ann", &["lead"])
        .due()
        .done();
}

/// An escalation before the first attempt asks the approvers of the level, and a level without a timeout waits.
#[test]
fn an_escalation_before_the_first_attempt() {
    let a = work("a").with(|a| {
        a.policy.approval = Some(ApprovalHold { escalates: true, ..ApprovalHold::default() });
        a.policy.escalation = vec![level("lead", Some(15)), level("boss", None)];
    });
    script!(graph(vec![a])).start().due().decide("a", Verdict::Approve, "ann", &["boss"]).ok("a").done();
}
