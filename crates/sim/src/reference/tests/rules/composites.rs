//! Parallel, each, loop and call.

use serde_json::json;
use skein_core::ir::{
    Call, EachErrors, ErrorClass, Kind, LoopTest, RunStatus, Schema, Scope, Step, StepStatus as S,
};

use super::{run, statuses, well, with};
use crate::{
    kit::*,
    reference::{ANYTHING, Race, evaluate},
};

fn giving(step: &str) -> Scope {
    let mut scope = graph(vec![work(step)]);
    scope.result = Some(value(json!(format!("$steps.{step}.n"))));
    scope
}

#[test]
fn lanes_give_an_object() {
    let scope = || routed(vec![parallel("p", vec![("l", giving("x")), ("r", giving("y"))])]);
    let expected = run(scope(), &well());
    assert_eq!(expected.output, json!({"l": 1, "r": 1}));
    assert_eq!(statuses(&expected), [("p", S::Succeeded), ("p/l/x", S::Succeeded), ("p/r/y", S::Succeeded)]);
    assert_eq!(evaluate(&plan(scope()), &World::failing(&["x"])), Err(Race("a lane fails")));
}

fn items(errors: EachErrors) -> Scope {
    let mut inner = graph(vec![work("x")]);
    inner.result = Some(value(json!("$item")));
    routed(vec![each("e", json!([5, 6, 7]), errors, inner)])
}

fn second_fails() -> World {
    World::new(|who| (who.path == "/e[1]").then(|| bad(ErrorClass::External)))
}

#[test]
fn items_give_a_list_in_order() {
    let expected = run(items(EachErrors::FailFast), &well());
    assert_eq!(expected.output, json!([5, 6, 7]));
    assert!(expected.steps.contains_key("e[2]/x"));
}

#[test]
fn an_item_that_fails_stops_the_others_or_lets_them_end_or_is_collected() {
    let fast = run(items(EachErrors::FailFast), &second_fails());
    assert_eq!((fast.status, fast.steps.contains_key("e[2]/x")), (RunStatus::Failed, false));
    let finish = run(items(EachErrors::Finish), &second_fails());
    assert_eq!((finish.status, finish.steps["e[2]/x"].status), (RunStatus::Failed, S::Succeeded));
    let collect = run(items(EachErrors::Collect), &second_fails());
    assert_eq!(
        collect.output,
        json!({"results": [{"index": 0, "status": "succeeded", "value": 5},
            {"index": 1, "status": "failed", "error": ANYTHING},
            {"index": 2, "status": "succeeded", "value": 7}], "succeeded": 2, "failed": 1})
    );
}

#[test]
fn no_items_are_an_empty_list_and_what_is_no_list_fails() {
    let of = |over| run(routed(vec![each("e", over, EachErrors::FailFast, giving("x"))]), &well());
    assert_eq!(of(json!([])).output, json!([]));
    assert_eq!(of(json!(7)).status, RunStatus::Failed);
}

#[test]
fn a_loop_that_tests_first_may_do_nothing_and_its_own_steps_count_as_true_before_the_first_pass() {
    let never = run(routed(vec![repeat("l", "1 == 2", LoopTest::First, 3, giving("x"))]), &well());
    assert_eq!((never.status, never.output), (RunStatus::Succeeded, json!(null)));
    let once = run(routed(vec![repeat("l", "$steps.x.n == 2", LoopTest::First, 3, giving("x"))]), &well());
    assert_eq!((once.output.clone(), once.steps.len()), (json!(1), 2));
}

#[test]
fn a_loop_that_would_go_on_after_its_last_pass_fails() {
    let world = || World::new(|who| (who.path == "/l#2").then(|| good(json!({"n": 9}))));
    let of =
        |max| run(routed(vec![repeat("l", "$steps.x.n == 1", LoopTest::After, max, giving("x"))]), &world());
    assert_eq!((of(2).status, of(2).output), (RunStatus::Succeeded, json!(9)));
    assert_eq!((of(1).status, of(1).steps["l"].status), (RunStatus::Failed, S::Failed));
}

#[test]
fn a_composite_is_tried_again_with_new_instances_after_undoing_the_last() {
    let inner = graph(vec![undoable("x"), after(work("y"), &["x"])]);
    let each = retried(each("e", json!([1]), EachErrors::FailFast, inner), ErrorClass::External, 2);
    let first_fails =
        World::new(|who| (who.step == "y" && who.path == "/e[0]").then(|| bad(ErrorClass::External)));
    let expected = run(routed(vec![each]), &first_fails);
    assert_eq!((expected.status, expected.steps["e"].attempts), (RunStatus::Succeeded, 2));
    assert_eq!(expected.undone, ["e[0]/x"]);
    assert_eq!(expected.steps["e[0]/x"].status, S::Succeeded);
}

fn call() -> Step {
    Step::new(id("c"), Kind::Call(Box::new(Call { workflow: "other".into(), exports: Vec::new() })))
}

#[test]
fn a_call_gives_what_the_workflow_gives_and_checks_its_inputs() {
    let mut other = workflow("other", giving("x"));
    let root = workflow("w", routed(vec![call()]));
    let expected = evaluate(&plan_of(root.clone(), &[other.clone()], json!({})), &well()).unwrap();
    assert_eq!((expected.output.clone(), expected.steps["c/x"].status), (json!(1), S::Succeeded));
    let binding = skein_core::ir::Binding::new("n", value(json!("$input.odd")));
    other.inputs = Schema::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    let wrong = workflow("w", routed(vec![with(call(), |c| c.inputs.push(binding))]));
    let expected = evaluate(&plan_of(wrong, &[other], json!({"odd": "x"})), &well()).unwrap();
    assert_eq!((expected.status, expected.steps.len()), (RunStatus::Failed, 1));
}

#[test]
fn an_item_waits_and_those_after_it_do_not_begin() {
    let scope = routed(vec![each("e", json!([1, 2]), EachErrors::FailFast, graph(vec![gate("g")]))]);
    let expected = run(scope, &World { answers: vec![None], ..well() });
    assert_eq!(expected.status, RunStatus::Waiting);
    assert_eq!(statuses(&expected), [("e", S::Waiting), ("e[0]/g", S::Waiting)]);
}
