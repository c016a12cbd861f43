//! Each rule on a workflow that is small enough to evaluate by hand.

mod composites;
mod undoing;

use serde_json::json;
use skein_core::{
    engine::{AttemptRole, CheckFinding, Verdict},
    ir::{
        ApprovalHold, BranchSpec, Budget, BudgetMode, ConvergencePolicy, ErrorClass, GateTimeout, HoldReason,
        OutcomeEffect, RouteArm, RouteTarget, RunStatus, Schema, ScopeShape, Step, StepKindSpec, StepStatus as S,
        WaitTimeout,
    },
    time::Millis,
};

use crate::{
    reference::{ExpectedRun, TimingRace, evaluate_plan},
    tests::*,
};

fn run(scope: skein_core::ir::StepScope, world: &ScriptedWorld) -> ExpectedRun {
    evaluate_plan(&build_plan(scope), world).unwrap()
}

fn well() -> ScriptedWorld {
    ScriptedWorld::new(|_| None)
}

fn statuses(expected: &ExpectedRun) -> Vec<(&str, S)> {
    expected.steps.iter().map(|(path, step)| (path.as_str(), step.status)).collect()
}

fn guarded(step: Step, when: &str) -> Step {
    Step { when: Some(parse_condition(when)), ..step }
}

fn with(mut step: Step, change: impl FnOnce(&mut Step)) -> Step {
    change(&mut step);
    step
}

#[test]
fn a_chain_succeeds_and_gives_its_result() {
    let mut scope = graph_scope(vec![work_step("a"), with_dependencies(work_step("b"), &["a"])]);
    scope.result = Some(parse_value(json!("$steps.b.n")));
    let expected = run(scope, &well());
    assert_eq!((expected.status, expected.output.clone()), (RunStatus::Succeeded, json!(1)));
    assert_eq!(statuses(&expected), [("a", S::Succeeded), ("b", S::Succeeded)]);
    assert_eq!(expected.steps["a"].attempts, 1);
}

#[test]
fn a_false_condition_skips_and_what_depends_is_skipped_by_upstream() {
    let scope =
        graph_scope(vec![guarded(work_step("a"), "1 == 2"), with_dependencies(work_step("b"), &["a"]), work_step("c")]);
    let expected = run(scope, &well());
    assert_eq!(expected.status, RunStatus::Succeeded);
    assert_eq!(statuses(&expected), [("a", S::Skipped), ("b", S::Skipped), ("c", S::Succeeded)]);
}

#[test]
fn a_skip_that_satisfies_lets_dependents_run() {
    let skipped =
        with(guarded(work_step("a"), "1 == 2"), |a| a.policy.effects.skipped_by_condition = OutcomeEffect::GO_ON);
    let expected = run(graph_scope(vec![skipped, with_dependencies(work_step("b"), &["a"])]), &well());
    assert_eq!(statuses(&expected), [("a", S::Skipped), ("b", S::Succeeded)]);
}

#[test]
fn a_condition_that_is_an_error_fails_the_step() {
    let expected = run(graph_scope(vec![guarded(work_step("a"), "null < 3")]), &well());
    assert_eq!((expected.status, expected.steps["a"].status), (RunStatus::Failed, S::Failed));
    assert_eq!(expected.steps["a"].attempts, 0);
}

#[test]
fn an_aborting_failure_leaves_the_rest_skipped() {
    let expected = run(
        graph_scope(vec![work_step("a"), with_dependencies(work_step("b"), &["a"])]),
        &ScriptedWorld::with_failures(&["a"]),
    );
    assert_eq!(expected.status, RunStatus::Failed);
    assert_eq!(statuses(&expected), [("a", S::Failed), ("b", S::Skipped)]);
}

#[test]
fn an_aborting_failure_beside_another_step_is_a_race() {
    let scope = || graph_scope(vec![work_step("a"), work_step("b")]);
    assert!(matches!(evaluate_plan(&build_plan(scope()), &ScriptedWorld::with_failures(&["a"])), Err(TimingRace(_))));
    let mut alone = scope();
    alone.concurrency = Some(1);
    let expected = run(alone, &ScriptedWorld::with_failures(&["a"]));
    assert_eq!(expected.steps["a"].status, S::Failed);
    assert!(expected.steps["b"].accepts_status(S::Skipped) && expected.steps["b"].accepts_status(S::Cancelled));
}

#[test]
fn a_failure_that_continues_degrades_and_one_that_is_skipped_shows_so() {
    let of = |effect| {
        let a = with(work_step("a"), |a| a.policy.effects.failed = effect);
        run(graph_scope(vec![a, with_dependencies(work_step("b"), &["a"])]), &ScriptedWorld::with_failures(&["a"]))
    };
    let continued = of(OutcomeEffect::CONTINUE);
    assert_eq!((continued.status, continued.degraded), (RunStatus::Succeeded, true));
    assert_eq!(statuses(&continued), [("a", S::Failed), ("b", S::Succeeded)]);
    assert_eq!(statuses(&of(OutcomeEffect::SKIP)), [("a", S::Skipped), ("b", S::Succeeded)]);
    let blocked = of(OutcomeEffect::SKIP_DEPENDENTS);
    assert_eq!((blocked.status, blocked.degraded), (RunStatus::Failed, false));
    assert_eq!(statuses(&blocked), [("a", S::Failed), ("b", S::Skipped)]);
}

#[test]
fn a_class_can_have_an_effect_of_its_own() {
    let a = with(work_step("a"), |a| {
        a.policy.effects.failed_by_class.insert(ErrorClass::External, OutcomeEffect::CONTINUE);
    });
    assert_eq!(run(graph_scope(vec![a]), &ScriptedWorld::with_failures(&["a"])).status, RunStatus::Succeeded);
}

#[test]
fn a_retry_happens_as_often_as_the_policy_says() {
    let third = |who: &crate::outcome::AttemptIdentity<'_>| (who.attempt < 3).then(|| failed_end(ErrorClass::Network));
    let enough = run(graph_scope(vec![with_retry(work_step("a"), ErrorClass::Network, 3)]), &ScriptedWorld::new(third));
    assert_eq!((enough.status, enough.steps["a"].attempts), (RunStatus::Succeeded, 3));
    let few = run(graph_scope(vec![with_retry(work_step("a"), ErrorClass::Network, 2)]), &ScriptedWorld::new(third));
    assert_eq!((few.status, few.steps["a"].attempts), (RunStatus::Failed, 2));
    let other = run(graph_scope(vec![with_retry(work_step("a"), ErrorClass::Service, 3)]), &ScriptedWorld::new(third));
    assert_eq!((other.status, other.steps["a"].attempts), (RunStatus::Failed, 1));
}

#[test]
fn an_output_that_does_not_fit_is_a_failure_and_defaults_are_filled_in() {
    let schema = json!({"properties": {"n": {"type": "integer"}, "m": {"default": 7}}});
    let a = || with(work_step("a"), |a| a.outputs = Schema::new(schema.clone()));
    let filled = run(graph_scope(vec![a()]), &well());
    assert_eq!(filled.steps["a"].output, json!({"n": 1, "m": 7}));
    let wrong = run(graph_scope(vec![a()]), &ScriptedWorld::new(|_| Some(succeeded_end(json!({"n": "x"})))));
    assert_eq!((wrong.status, wrong.steps["a"].attempts), (RunStatus::Failed, 1));
}

#[test]
fn a_required_input_that_is_null_fails_without_an_attempt() {
    let a = with(work_step("a"), |a| {
        let value = parse_value(json!(null));
        let (name, schema) = ("x".into(), Schema::default());
        a.inputs.push(skein_core::ir::InputBinding { name, value, schema, required: true });
    });
    let expected = run(graph_scope(vec![a]), &well());
    assert_eq!((expected.status, expected.steps["a"].attempts), (RunStatus::Failed, 0));
}

fn checks(ends: &'static [(CheckFinding, &'static [&'static str])]) -> ScriptedWorld {
    ScriptedWorld::new(move |who| {
        let (finding, reasons) = ends.get(who.iteration as usize - 1)?;
        (who.role == AttemptRole::Check).then(|| checked_end(*finding, reasons))
    })
}

#[test]
fn a_check_that_says_incomplete_asks_for_another_iteration() {
    let world = checks(&[(CheckFinding::Incomplete, &[]), (CheckFinding::Complete, &[])]);
    let expected = run(graph_scope(vec![checked_step("a", 5)]), &world);
    let a = &expected.steps["a"];
    assert_eq!((a.status, a.attempts, a.iterations), (S::Succeeded, 2, 2));
}

#[test]
fn after_the_last_iteration_a_step_is_exhausted_or_incomplete() {
    let world = checks(&[(CheckFinding::Incomplete, &[]), (CheckFinding::Incomplete, &[])]);
    assert_eq!(run(graph_scope(vec![checked_step("a", 2)]), &world).steps["a"].status, S::Failed);
    let an_end = with(checked_step("a", 2), |a| {
        check_mut(a).incomplete_is_an_end = true;
        a.policy.effects.incomplete = OutcomeEffect::GO_ON;
    });
    let expected = run(graph_scope(vec![an_end]), &world);
    assert_eq!((expected.status, expected.steps["a"].status), (RunStatus::Succeeded, S::Incomplete));
}

#[test]
fn the_second_undecided_check_in_a_row_fails() {
    let twice = checks(&[(CheckFinding::Undecided, &[]), (CheckFinding::Undecided, &[])]);
    let expected = run(graph_scope(vec![checked_step("a", 5)]), &twice);
    assert_eq!((expected.status, expected.steps["a"].iterations), (RunStatus::Failed, 2));
    let apart =
        checks(&[(CheckFinding::Undecided, &[]), (CheckFinding::Incomplete, &[]), (CheckFinding::Undecided, &[])]);
    assert_eq!(run(graph_scope(vec![checked_step("a", 5)]), &apart).steps["a"].iterations, 4);
}

#[test]
fn a_stall_raises_the_stage_and_the_highest_exhausts() {
    let a = with(checked_step("a", 9), |a| {
        check_mut(a).convergence = Some(ConvergencePolicy {
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
    // Two equal findings raise the stage to 2, two more raise it to 3, the maximum.
    let world = checks(&[(CheckFinding::Incomplete, &["x"] as &[&str]); 6]);
    let expected = run(graph_scope(vec![a]), &world);
    assert_eq!((expected.steps["a"].status, expected.steps["a"].iterations), (S::Failed, 4));
}

#[test]
fn a_blocked_check_holds_and_its_rejection_rejects() {
    let world = || checks(&[(CheckFinding::Blocked, &[]), (CheckFinding::Complete, &[])]);
    let approved = run(graph_scope(vec![checked_step("a", 3)]), &world());
    assert_eq!(approved.steps["a"].iterations, 2);
    let rejected = run(
        graph_scope(vec![checked_step("a", 3)]),
        &ScriptedWorld { answers: vec![Some(Verdict::Reject)], ..world() },
    );
    assert_eq!((rejected.status, rejected.steps["a"].status), (RunStatus::Failed, S::Failed));
    let nobody = run(graph_scope(vec![checked_step("a", 3)]), &ScriptedWorld { answers: vec![None], ..world() });
    assert_eq!((nobody.status, nobody.steps["a"].status), (RunStatus::Waiting, S::Waiting));
}

#[test]
fn an_approval_comes_before_the_first_attempt() {
    let a = || with(work_step("a"), |a| a.policy.approval = Some(ApprovalHold::default()));
    let world = ScriptedWorld { answers: vec![Some(Verdict::Reject)], ..well() };
    let expected = run(graph_scope(vec![a(), with_dependencies(work_step("b"), &["a"])]), &world);
    assert_eq!((expected.status, expected.steps["a"].attempts), (RunStatus::Failed, 0));
    assert_eq!(run(graph_scope(vec![a()]), &well()).status, RunStatus::Succeeded);
}

#[test]
fn a_class_that_holds_uses_up_no_try() {
    let a = with(work_step("a"), |a| {
        a.policy.holds.insert(ErrorClass::External, HoldReason::Governance);
    });
    let world = ScriptedWorld::new(|who| (who.attempt < 4).then(|| failed_end(ErrorClass::External)));
    let expected = run(graph_scope(vec![a]), &world);
    assert_eq!((expected.status, expected.steps["a"].attempts), (RunStatus::Succeeded, 4));
}

#[test]
fn a_spent_budget_stops_pauses_or_only_warns() {
    let of = |mode, answers| {
        let a = with(with_retry(work_step("a"), ErrorClass::External, 3), |a| {
            a.policy.budget = Some(Budget { micro_usd: None, tokens: Some(10), mode });
        });
        let fails_once = ScriptedWorld::new(|who| (who.attempt < 2).then(|| failed_end(ErrorClass::External)));
        let cost = skein_core::engine::Cost { tokens: 10, micro_usd: None };
        let expected = run(graph_scope(vec![a]), &ScriptedWorld { answers, cost, ..fails_once });
        (expected.status, expected.steps["a"].attempts)
    };
    assert_eq!(of(BudgetMode::Stop, vec![]), (RunStatus::Failed, 1));
    assert_eq!(of(BudgetMode::Warn, vec![]), (RunStatus::Succeeded, 2));
    assert_eq!(of(BudgetMode::Pause, vec![]), (RunStatus::Succeeded, 2));
    assert_eq!(of(BudgetMode::Pause, vec![None]), (RunStatus::Waiting, 1));
}

#[test]
fn a_summary_cannot_fail_a_step() {
    let a = with(work_step("a"), |a| {
        if let StepKindSpec::Work(work) = &mut a.kind {
            let worker = work.worker.clone();
            work.summary = Some(Box::new(skein_core::ir::SummarySpec { worker, timeout: None }));
        }
    });
    let world = ScriptedWorld::new(|who| (who.role == AttemptRole::Summary).then(|| failed_end(ErrorClass::Fatal)));
    assert_eq!(run(graph_scope(vec![a]), &world).status, RunStatus::Succeeded);
}

#[test]
fn a_gate_gives_the_decision_and_a_rejection_fails() {
    let approved = run(graph_scope(vec![gate_step("g")]), &well());
    assert_eq!(approved.steps["g"].output, json!({"decision": "approve", "reason": null, "approver": "ann"}));
    let no = ScriptedWorld { answers: vec![Some(Verdict::Reject)], ..well() };
    assert_eq!(run(graph_scope(vec![gate_step("g")]), &no).status, RunStatus::Failed);
    let caught = with(gate_step("g"), |g| gate_mut(g).on_reject = Some(step_target("b")));
    let scope = routed_scope(vec![caught, with(work_step("a"), |a| a.next = Some(RouteTarget::End)), work_step("b")]);
    let expected = run(scope, &no);
    assert_eq!(statuses(&expected), [("a", S::Skipped), ("b", S::Succeeded), ("g", S::Succeeded)]);
}

#[test]
fn a_gate_that_nobody_answers_does_what_its_timeout_says() {
    let of = |on_timeout| {
        let g = with(gate_step("g"), |g| {
            gate_mut(g).timeout = Some(Millis::from_mins(5));
            gate_mut(g).on_timeout = on_timeout;
        });
        let expected = run(graph_scope(vec![g]), &ScriptedWorld { answers: vec![None], ..well() });
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
    let taken = run(graph_scope(vec![wait_step("w")]), &well());
    assert_eq!(taken.steps["w"].output, json!({"eventName": "paid", "eventPayload": {"n": 2}}));
    let silent = || ScriptedWorld { signals: false, ..well() };
    assert_eq!(run(graph_scope(vec![wait_step("w")]), &silent()).status, RunStatus::Waiting);
    let goes_on = with(wait_step("w"), |w| {
        if let StepKindSpec::Wait(wait) = &mut w.kind {
            wait.timeout = Some(Millis::from_mins(5));
            wait.on_timeout = WaitTimeout::Continue;
        }
    });
    let expected = run(graph_scope(vec![goes_on]), &silent());
    assert_eq!(expected.steps["w"].output, json!({"eventName": null, "eventPayload": null}));
}

#[test]
fn what_waits_for_a_step_that_waits_is_pending() {
    let scope = graph_scope(vec![gate_step("g"), with_dependencies(work_step("a"), &["g"]), work_step("b")]);
    let expected = run(scope, &ScriptedWorld { answers: vec![None], ..well() });
    assert_eq!(expected.status, RunStatus::Waiting);
    assert_eq!(statuses(&expected), [("a", S::Pending), ("b", S::Succeeded), ("g", S::Waiting)]);
}

fn branch(name: &str, when: &str, next: &str, default: RouteTarget) -> Step {
    let arms = vec![RouteArm { when: parse_condition(when), next: step_target(next) }];
    Step::new(step_id(name), StepKindSpec::Branch(Box::new(BranchSpec { arms, default })))
}

#[test]
fn a_branch_takes_the_first_true_arm_and_the_last_output_counts() {
    let scope = routed_scope(vec![
        work_step("a"),
        branch("b", "$steps.a.n == 1", "d", step_target("c")),
        with(work_step("c"), |c| c.next = Some(RouteTarget::End)),
        work_step("d"),
    ]);
    let expected = run(scope, &well());
    assert_eq!(expected.output, json!({"n": 1}));
    let shown = [("a", S::Succeeded), ("b", S::Succeeded), ("c", S::Skipped), ("d", S::Succeeded)];
    assert_eq!(statuses(&expected), shown);
}

#[test]
fn a_cycle_ends_at_max_steps_and_its_visits_count() {
    let mut scope = routed_scope(vec![work_step("a"), with(work_step("b"), |b| b.next = Some(step_target("a")))]);
    scope.shape = ScopeShape::Routed { start: None, cycles: true };
    scope.max_steps = Some(5);
    let expected = run(scope, &well());
    assert_eq!(expected.status, RunStatus::Failed);
    assert_eq!((expected.steps["a"].visits, expected.steps["b"].visits), (3, 2));
    assert_eq!((expected.steps["a"].attempts, expected.steps["b"].attempts), (3, 2));
    assert_eq!(expected.steps["b"].status, S::Succeeded);
}
