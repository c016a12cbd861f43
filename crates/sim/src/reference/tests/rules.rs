//! Each rule on a workflow that is small enough to work out by hand.

mod composites;
mod undoing;

use serde_json::json;
use skein_core::{
    engine::{Decision, Finding, Role},
    ir::{
        ApprovalHold, Arm, Branch, Budget, BudgetMode, Convergence, Effect, ErrorClass, GateTimeout,
        HoldReason, Kind, RunStatus, Schema, Shape, Step, StepStatus as S, Target, WaitTimeout,
    },
    time::Millis,
};

use crate::{
    kit::*,
    reference::{Expected, Race, evaluate},
};

fn run(scope: skein_core::ir::Scope, world: &World) -> Expected {
    evaluate(&plan(scope), world).unwrap()
}

fn well() -> World {
    World::new(|_| None)
}

fn statuses(expected: &Expected) -> Vec<(&str, S)> {
    expected.steps.iter().map(|(path, step)| (path.as_str(), step.status)).collect()
}

fn guarded(step: Step, when: &str) -> Step {
    Step { when: Some(cond(when)), ..step }
}

fn with(mut step: Step, change: impl FnOnce(&mut Step)) -> Step {
    change(&mut step);
    step
}

#[test]
fn a_chain_succeeds_and_gives_its_result() {
    let mut scope = graph(vec![work("a"), after(work("b"), &["a"])]);
    scope.result = Some(value(json!("$steps.b.n")));
    let expected = run(scope, &well());
    assert_eq!((expected.status, expected.output.clone()), (RunStatus::Succeeded, json!(1)));
    assert_eq!(statuses(&expected), [("a", S::Succeeded), ("b", S::Succeeded)]);
    assert_eq!(expected.steps["a"].attempts, 1);
}

#[test]
fn a_false_condition_skips_and_what_depends_is_skipped_by_upstream() {
    let scope = graph(vec![guarded(work("a"), "1 == 2"), after(work("b"), &["a"]), work("c")]);
    let expected = run(scope, &well());
    assert_eq!(expected.status, RunStatus::Succeeded);
    assert_eq!(statuses(&expected), [("a", S::Skipped), ("b", S::Skipped), ("c", S::Succeeded)]);
}

#[test]
fn a_skip_that_satisfies_lets_dependents_run() {
    let skipped =
        with(guarded(work("a"), "1 == 2"), |a| a.policy.effects.skipped_by_condition = Effect::GO_ON);
    let expected = run(graph(vec![skipped, after(work("b"), &["a"])]), &well());
    assert_eq!(statuses(&expected), [("a", S::Skipped), ("b", S::Succeeded)]);
}

#[test]
fn a_condition_that_is_an_error_fails_the_step() {
    let expected = run(graph(vec![guarded(work("a"), "null < 3")]), &well());
    assert_eq!((expected.status, expected.steps["a"].status), (RunStatus::Failed, S::Failed));
    assert_eq!(expected.steps["a"].attempts, 0);
}

#[test]
fn an_aborting_failure_leaves_the_rest_skipped() {
    let expected = run(graph(vec![work("a"), after(work("b"), &["a"])]), &World::failing(&["a"]));
    assert_eq!(expected.status, RunStatus::Failed);
    assert_eq!(statuses(&expected), [("a", S::Failed), ("b", S::Skipped)]);
}

#[test]
fn an_aborting_failure_beside_another_step_is_a_race() {
    let scope = || graph(vec![work("a"), work("b")]);
    assert!(matches!(evaluate(&plan(scope()), &World::failing(&["a"])), Err(Race(_))));
    let mut alone = scope();
    alone.concurrency = Some(1);
    let expected = run(alone, &World::failing(&["a"]));
    assert_eq!(expected.steps["a"].status, S::Failed);
    assert!(expected.steps["b"].accepts(S::Skipped) && expected.steps["b"].accepts(S::Cancelled));
}

#[test]
fn a_failure_that_continues_degrades_and_one_that_is_skipped_shows_so() {
    let of = |effect| {
        let a = with(work("a"), |a| a.policy.effects.failed = effect);
        run(graph(vec![a, after(work("b"), &["a"])]), &World::failing(&["a"]))
    };
    let continued = of(Effect::CONTINUE);
    assert_eq!((continued.status, continued.degraded), (RunStatus::Succeeded, true));
    assert_eq!(statuses(&continued), [("a", S::Failed), ("b", S::Succeeded)]);
    assert_eq!(statuses(&of(Effect::SKIP)), [("a", S::Skipped), ("b", S::Succeeded)]);
    let blocked = of(Effect::SKIP_DEPENDENTS);
    assert_eq!((blocked.status, blocked.degraded), (RunStatus::Failed, false));
    assert_eq!(statuses(&blocked), [("a", S::Failed), ("b", S::Skipped)]);
}

#[test]
fn a_class_can_have_an_effect_of_its_own() {
    let a = with(work("a"), |a| {
        a.policy.effects.failed_by_class.insert(ErrorClass::External, Effect::CONTINUE);
    });
    assert_eq!(run(graph(vec![a]), &World::failing(&["a"])).status, RunStatus::Succeeded);
}

#[test]
fn a_retry_happens_as_often_as_the_policy_says() {
    let third = |who: &crate::outcome::Who<'_>| (who.attempt < 3).then(|| bad(ErrorClass::Network));
    let enough = run(graph(vec![retried(work("a"), ErrorClass::Network, 3)]), &World::new(third));
    assert_eq!((enough.status, enough.steps["a"].attempts), (RunStatus::Succeeded, 3));
    let few = run(graph(vec![retried(work("a"), ErrorClass::Network, 2)]), &World::new(third));
    assert_eq!((few.status, few.steps["a"].attempts), (RunStatus::Failed, 2));
    let other = run(graph(vec![retried(work("a"), ErrorClass::Service, 3)]), &World::new(third));
    assert_eq!((other.status, other.steps["a"].attempts), (RunStatus::Failed, 1));
}

#[test]
fn an_output_that_does_not_fit_is_a_failure_and_defaults_are_filled_in() {
    let schema = json!({"properties": {"n": {"type": "integer"}, "m": {"default": 7}}});
    let a = || with(work("a"), |a| a.outputs = Schema::new(schema.clone()));
    let filled = run(graph(vec![a()]), &well());
    assert_eq!(filled.steps["a"].output, json!({"n": 1, "m": 7}));
    let wrong = run(graph(vec![a()]), &World::new(|_| Some(good(json!({"n": "x"})))));
    assert_eq!((wrong.status, wrong.steps["a"].attempts), (RunStatus::Failed, 1));
}

#[test]
fn a_required_input_that_is_null_fails_without_an_attempt() {
    let a = with(work("a"), |a| {
        let value = value(json!(null));
        let (name, schema) = ("x".into(), Schema::default());
        a.inputs.push(skein_core::ir::Binding { name, value, schema, required: true });
    });
    let expected = run(graph(vec![a]), &well());
    assert_eq!((expected.status, expected.steps["a"].attempts), (RunStatus::Failed, 0));
}

fn checks(ends: &'static [(Finding, &'static [&'static str])]) -> World {
    World::new(move |who| {
        let (finding, reasons) = ends.get(who.iteration as usize - 1)?;
        (who.role == Role::Check).then(|| finds(*finding, reasons))
    })
}

#[test]
fn a_check_that_says_incomplete_asks_for_another_iteration() {
    let world = checks(&[(Finding::Incomplete, &[]), (Finding::Complete, &[])]);
    let expected = run(graph(vec![checked("a", 5)]), &world);
    let a = &expected.steps["a"];
    assert_eq!((a.status, a.attempts, a.iterations), (S::Succeeded, 2, 2));
}

#[test]
fn after_the_last_iteration_a_step_is_exhausted_or_incomplete() {
    let world = checks(&[(Finding::Incomplete, &[]), (Finding::Incomplete, &[])]);
    assert_eq!(run(graph(vec![checked("a", 2)]), &world).steps["a"].status, S::Failed);
    let an_end = with(checked("a", 2), |a| {
        check_of(a).incomplete_is_an_end = true;
        a.policy.effects.incomplete = Effect::GO_ON;
    });
    let expected = run(graph(vec![an_end]), &world);
    assert_eq!((expected.status, expected.steps["a"].status), (RunStatus::Succeeded, S::Incomplete));
}

#[test]
fn the_second_undecided_check_in_a_row_fails() {
    let twice = checks(&[(Finding::Undecided, &[]), (Finding::Undecided, &[])]);
    let expected = run(graph(vec![checked("a", 5)]), &twice);
    assert_eq!((expected.status, expected.steps["a"].iterations), (RunStatus::Failed, 2));
    let apart = checks(&[(Finding::Undecided, &[]), (Finding::Incomplete, &[]), (Finding::Undecided, &[])]);
    assert_eq!(run(graph(vec![checked("a", 5)]), &apart).steps["a"].iterations, 4);
}

#[test]
fn a_stall_raises_the_stage_and_the_highest_exhausts() {
    let a = with(checked("a", 9), |a| {
        check_of(a).convergence = Some(Convergence {
            stall_threshold: 2,
            max_stage: 3,
            fail_on_max_stage: true,
            stages: Vec::new(),
            allowed_paths: Vec::new(),
            ignored_paths: Vec::new(),
            diff_base_ref: None,
            diff_base_ref_file: None,
            max_changed_files: None,
        });
    });
    // Two equal findings: stage 2; two more: stage 3, which is the highest.
    let world = checks(&[(Finding::Incomplete, &["x"] as &[&str]); 6]);
    let expected = run(graph(vec![a]), &world);
    assert_eq!((expected.steps["a"].status, expected.steps["a"].iterations), (S::Failed, 4));
}

#[test]
fn a_blocked_check_holds_and_its_rejection_rejects() {
    let world = || checks(&[(Finding::Blocked, &[]), (Finding::Complete, &[])]);
    let approved = run(graph(vec![checked("a", 3)]), &world());
    assert_eq!(approved.steps["a"].iterations, 2);
    let rejected =
        run(graph(vec![checked("a", 3)]), &World { answers: vec![Some(Decision::Reject)], ..world() });
    assert_eq!((rejected.status, rejected.steps["a"].status), (RunStatus::Failed, S::Failed));
    let nobody = run(graph(vec![checked("a", 3)]), &World { answers: vec![None], ..world() });
    assert_eq!((nobody.status, nobody.steps["a"].status), (RunStatus::Waiting, S::Waiting));
}

#[test]
fn an_approval_comes_before_the_first_attempt() {
    let a = || with(work("a"), |a| a.policy.approval = Some(ApprovalHold::default()));
    let world = World { answers: vec![Some(Decision::Reject)], ..well() };
    let expected = run(graph(vec![a(), after(work("b"), &["a"])]), &world);
    assert_eq!((expected.status, expected.steps["a"].attempts), (RunStatus::Failed, 0));
    assert_eq!(run(graph(vec![a()]), &well()).status, RunStatus::Succeeded);
}

#[test]
fn a_class_that_holds_uses_up_no_try() {
    let a = with(work("a"), |a| {
        a.policy.holds.insert(ErrorClass::External, HoldReason::Governance);
    });
    let world = World::new(|who| (who.attempt < 4).then(|| bad(ErrorClass::External)));
    let expected = run(graph(vec![a]), &world);
    assert_eq!((expected.status, expected.steps["a"].attempts), (RunStatus::Succeeded, 4));
}

#[test]
fn a_spent_budget_stops_pauses_or_only_warns() {
    let of = |mode, answers| {
        let a = with(retried(work("a"), ErrorClass::External, 3), |a| {
            a.policy.budget = Some(Budget { micro_usd: None, tokens: Some(10), mode });
        });
        let fails_once = World::new(|who| (who.attempt < 2).then(|| bad(ErrorClass::External)));
        let cost = skein_core::engine::Cost { tokens: 10, micro_usd: None };
        let expected = run(graph(vec![a]), &World { answers, cost, ..fails_once });
        (expected.status, expected.steps["a"].attempts)
    };
    assert_eq!(of(BudgetMode::Stop, vec![]), (RunStatus::Failed, 1));
    assert_eq!(of(BudgetMode::Warn, vec![]), (RunStatus::Succeeded, 2));
    assert_eq!(of(BudgetMode::Pause, vec![]), (RunStatus::Succeeded, 2));
    assert_eq!(of(BudgetMode::Pause, vec![None]), (RunStatus::Waiting, 1));
}

#[test]
fn a_summary_cannot_fail_a_step() {
    let a = with(work("a"), |a| {
        if let Kind::Work(work) = &mut a.kind {
            let worker = work.worker.clone();
            work.summary = Some(Box::new(skein_core::ir::Summary { worker, timeout: None }));
        }
    });
    let world = World::new(|who| (who.role == Role::Summary).then(|| bad(ErrorClass::Fatal)));
    assert_eq!(run(graph(vec![a]), &world).status, RunStatus::Succeeded);
}

#[test]
fn a_gate_gives_the_decision_and_a_rejection_fails() {
    let approved = run(graph(vec![gate("g")]), &well());
    assert_eq!(approved.steps["g"].output, json!({"decision": "approve", "reason": null, "approver": "ann"}));
    let no = World { answers: vec![Some(Decision::Reject)], ..well() };
    assert_eq!(run(graph(vec![gate("g")]), &no).status, RunStatus::Failed);
    let caught = with(gate("g"), |g| gate_of(g).on_reject = Some(to("b")));
    let scope = routed(vec![caught, with(work("a"), |a| a.next = Some(Target::End)), work("b")]);
    let expected = run(scope, &no);
    assert_eq!(statuses(&expected), [("a", S::Skipped), ("b", S::Succeeded), ("g", S::Succeeded)]);
}

#[test]
fn a_gate_that_nobody_answers_does_what_its_timeout_says() {
    let of = |on_timeout| {
        let g = with(gate("g"), |g| {
            gate_of(g).timeout = Some(Millis::minutes(5));
            gate_of(g).on_timeout = on_timeout;
        });
        let expected = run(graph(vec![g]), &World { answers: vec![None], ..well() });
        (expected.status, expected.steps["g"].status)
    };
    assert_eq!(of(GateTimeout::Expire), (RunStatus::Failed, S::TimedOut));
    assert_eq!(of(GateTimeout::Reject), (RunStatus::Failed, S::Failed));
    assert_eq!(of(GateTimeout::Approve), (RunStatus::Succeeded, S::Succeeded));
    assert_eq!(of(GateTimeout::Cancel), (RunStatus::Cancelled, S::Cancelled));
    assert_eq!(of(GateTimeout::Escalate { to: vec![] }), (RunStatus::Cancelled, S::Cancelled));
}

#[test]
fn a_wait_gives_the_signal_or_what_its_timeout_says() {
    let taken = run(graph(vec![wait("w")]), &well());
    assert_eq!(taken.steps["w"].output, json!({"eventName": "paid", "eventPayload": {"n": 2}}));
    let silent = || World { signals: false, ..well() };
    assert_eq!(run(graph(vec![wait("w")]), &silent()).status, RunStatus::Waiting);
    let goes_on = with(wait("w"), |w| {
        if let Kind::Wait(wait) = &mut w.kind {
            wait.timeout = Some(Millis::minutes(5));
            wait.on_timeout = WaitTimeout::Continue;
        }
    });
    let expected = run(graph(vec![goes_on]), &silent());
    assert_eq!(expected.steps["w"].output, json!({"eventName": null, "eventPayload": null}));
}

#[test]
fn what_waits_for_a_step_that_waits_is_pending() {
    let scope = graph(vec![gate("g"), after(work("a"), &["g"]), work("b")]);
    let expected = run(scope, &World { answers: vec![None], ..well() });
    assert_eq!(expected.status, RunStatus::Waiting);
    assert_eq!(statuses(&expected), [("a", S::Pending), ("b", S::Succeeded), ("g", S::Waiting)]);
}

fn branch(name: &str, when: &str, next: &str, default: Target) -> Step {
    let arms = vec![Arm { when: cond(when), next: to(next) }];
    Step::new(id(name), Kind::Branch(Box::new(Branch { arms, default })))
}

#[test]
fn a_branch_takes_the_first_true_arm_and_the_last_output_counts() {
    let scope = routed(vec![
        work("a"),
        branch("b", "$steps.a.n == 1", "d", to("c")),
        with(work("c"), |c| c.next = Some(Target::End)),
        work("d"),
    ]);
    let expected = run(scope, &well());
    assert_eq!(expected.output, json!({"n": 1}));
    let shown = [("a", S::Succeeded), ("b", S::Succeeded), ("c", S::Skipped), ("d", S::Succeeded)];
    assert_eq!(statuses(&expected), shown);
}

#[test]
fn a_cycle_ends_at_max_steps_and_its_visits_count() {
    let mut scope = routed(vec![work("a"), with(work("b"), |b| b.next = Some(to("a")))]);
    scope.shape = Shape::Routed { start: None, cycles: true };
    scope.max_steps = Some(5);
    let expected = run(scope, &well());
    assert_eq!(expected.status, RunStatus::Failed);
    assert_eq!((expected.steps["a"].visits, expected.steps["b"].visits), (3, 2));
    assert_eq!((expected.steps["a"].attempts, expected.steps["b"].attempts), (3, 2));
    assert_eq!(expected.steps["b"].status, S::Succeeded);
}
