//! Parallel, each, loop and call.

use serde_json::json;
use skein_core::ir::{
    CallSpec, EachErrorPolicy, ErrorClass, LoopTest, RunStatus, Schema, Step, StepKindSpec, StepScope, StepStatus as S,
};

use super::{run, statuses, well, with};
use crate::{
    reference::{ANYTHING, TimingRace, evaluate_plan},
    tests::*,
};

fn giving(step: &str) -> StepScope {
    let mut scope = graph_scope(vec![work_step(step)]);
    scope.result = Some(parse_value(json!(format!("$steps.{step}.n"))));
    scope
}

#[test]
fn lanes_give_an_object() {
    let scope = || routed_scope(vec![parallel_step("p", vec![("l", giving("x")), ("r", giving("y"))])]);
    let expected = run(scope(), &well());
    assert_eq!(expected.output, json!({"l": 1, "r": 1}));
    assert_eq!(statuses(&expected), [("p", S::Succeeded), ("p/l/x", S::Succeeded), ("p/r/y", S::Succeeded)]);
    assert_eq!(
        evaluate_plan(&build_plan(scope()), &ScriptedWorld::with_failures(&["x"])),
        Err(TimingRace("a lane fails"))
    );
}

fn items(errors: EachErrorPolicy) -> StepScope {
    let mut inner = graph_scope(vec![work_step("x")]);
    inner.result = Some(parse_value(json!("$item")));
    routed_scope(vec![each_step("e", json!([5, 6, 7]), errors, inner)])
}

fn second_fails() -> ScriptedWorld {
    ScriptedWorld::new(|who| (who.path == "/e[1]").then(|| failed_end(ErrorClass::External)))
}

#[test]
fn items_give_a_list_in_order() {
    let expected = run(items(EachErrorPolicy::FailFast), &well());
    assert_eq!(expected.output, json!([5, 6, 7]));
    assert!(expected.steps.contains_key("e[2]/x"));
}

#[test]
fn an_item_that_fails_stops_the_others_or_lets_them_end_or_is_collected() {
    let fast = run(items(EachErrorPolicy::FailFast), &second_fails());
    assert_eq!((fast.status, fast.steps.contains_key("e[2]/x")), (RunStatus::Failed, false));
    let finish = run(items(EachErrorPolicy::Finish), &second_fails());
    assert_eq!((finish.status, finish.steps["e[2]/x"].status), (RunStatus::Failed, S::Succeeded));
    let collect = run(items(EachErrorPolicy::Collect), &second_fails());
    assert_eq!(
        collect.output,
        json!({"results": [{"index": 0, "status": "succeeded", "value": 5},
            {"index": 1, "status": "failed", "error": ANYTHING},
            {"index": 2, "status": "succeeded", "value": 7}], "succeeded": 2, "failed": 1})
    );
}

#[test]
fn no_items_are_an_empty_list_and_what_is_no_list_fails() {
    let of = |over| run(routed_scope(vec![each_step("e", over, EachErrorPolicy::FailFast, giving("x"))]), &well());
    assert_eq!(of(json!([])).output, json!([]));
    assert_eq!(of(json!(7)).status, RunStatus::Failed);
}

#[test]
fn a_loop_that_tests_first_may_do_nothing_and_its_own_steps_count_as_true_before_the_first_pass() {
    let never = run(routed_scope(vec![loop_step("l", "1 == 2", LoopTest::First, 3, giving("x"))]), &well());
    assert_eq!((never.status, never.output), (RunStatus::Succeeded, json!(null)));
    let once = run(routed_scope(vec![loop_step("l", "$steps.x.n == 2", LoopTest::First, 3, giving("x"))]), &well());
    assert_eq!((once.output.clone(), once.steps.len()), (json!(1), 2));
}

#[test]
fn a_loop_that_would_go_on_after_its_last_pass_fails() {
    let world = || ScriptedWorld::new(|who| (who.path == "/l#2").then(|| succeeded_end(json!({"n": 9}))));
    let of =
        |max| run(routed_scope(vec![loop_step("l", "$steps.x.n == 1", LoopTest::After, max, giving("x"))]), &world());
    assert_eq!((of(2).status, of(2).output), (RunStatus::Succeeded, json!(9)));
    assert_eq!((of(1).status, of(1).steps["l"].status), (RunStatus::Failed, S::Failed));
}

#[test]
fn a_composite_is_tried_again_with_new_instances_after_undoing_the_last() {
    let inner = graph_scope(vec![undoable_step("x"), with_dependencies(work_step("y"), &["x"])]);
    let each = with_retry(each_step("e", json!([1]), EachErrorPolicy::FailFast, inner), ErrorClass::External, 2);
    let first_fails =
        ScriptedWorld::new(|who| (who.step == "y" && who.path == "/e[0]").then(|| failed_end(ErrorClass::External)));
    let expected = run(routed_scope(vec![each]), &first_fails);
    assert_eq!((expected.status, expected.steps["e"].attempts), (RunStatus::Succeeded, 2));
    assert_eq!(expected.undone, ["e[0]/x"]);
    assert_eq!(expected.steps["e[0]/x"].status, S::Succeeded);
}

fn call() -> Step {
    Step::new(step_id("c"), StepKindSpec::Call(Box::new(CallSpec { workflow: "other".into(), exports: Vec::new() })))
}

#[test]
fn a_call_gives_what_the_workflow_gives_and_checks_its_inputs() {
    let mut other = build_workflow("other", giving("x"));
    let root = build_workflow("w", routed_scope(vec![call()]));
    let expected = evaluate_plan(&bind_plan(root.clone(), &[other.clone()], json!({})), &well()).unwrap();
    assert_eq!((expected.output.clone(), expected.steps["c/x"].status), (json!(1), S::Succeeded));
    let binding = skein_core::ir::InputBinding::new("n", parse_value(json!("$input.odd")));
    other.inputs = Schema::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    let wrong = build_workflow("w", routed_scope(vec![with(call(), |c| c.inputs.push(binding))]));
    let expected = evaluate_plan(&bind_plan(wrong, &[other], json!({"odd": "x"})), &well()).unwrap();
    assert_eq!((expected.status, expected.steps.len()), (RunStatus::Failed, 1));
}

#[test]
fn an_item_waits_and_those_after_it_do_not_begin() {
    let scope =
        routed_scope(vec![each_step("e", json!([1, 2]), EachErrorPolicy::FailFast, graph_scope(vec![gate_step("g")]))]);
    let expected = run(scope, &ScriptedWorld { answers: vec![None], ..well() });
    assert_eq!(expected.status, RunStatus::Waiting);
    assert_eq!(statuses(&expected), [("e", S::Waiting), ("e[0]/g", S::Waiting)]);
}
