//! Undo.

use serde_json::json;
use skein_core::{
    engine::Role,
    ir::{
        Call, EachErrors, Effect, ErrorClass, GateTimeout, Kind, RunStatus, Step, StepStatus as S,
        UndoFailure,
    },
    time::Millis,
};

use super::{run, statuses, well, with};
use crate::{
    kit::*,
    reference::{Race, evaluate},
};

fn undoing(name: &str) -> Step {
    with(undoable(name), |step| step.policy.effects.failed = Effect::UNDO)
}

#[test]
fn a_failure_undoes_what_was_completed_last_first() {
    let scope = graph(vec![undoing("a"), after(undoing("b"), &["a"]), after(undoing("c"), &["b"])]);
    let expected = run(scope, &World::failing(&["c"]));
    assert_eq!(
        (expected.status, expected.undone.as_slice()),
        (RunStatus::Undone, &["b".into(), "a".into()][..])
    );
    assert_eq!(statuses(&expected), [("a", S::Undone), ("b", S::Undone), ("c", S::Failed)]);
}

#[test]
fn the_failed_step_comes_first_where_the_policy_says_so() {
    let mut scope = graph(vec![undoing("a"), after(undoing("b"), &["a"])]);
    scope.undo.failed_step = true;
    assert_eq!(run(scope, &World::failing(&["b"])).undone, ["b", "a"]);
}

#[test]
fn nothing_to_undo_is_a_plain_failure() {
    let expected = run(graph(vec![undoing("a")]), &World::failing(&["a"]));
    assert_eq!((expected.status, expected.undone.len()), (RunStatus::Failed, 0));
}

#[test]
fn an_undo_that_fails_goes_on_or_stops() {
    let of = |if_one_fails| {
        let mut scope = graph(vec![undoing("a"), after(undoing("b"), &["a"]), after(undoing("c"), &["b"])]);
        scope.undo.if_one_fails = if_one_fails;
        let world = World::new(|who| match (who.step, who.role) {
            ("c", Role::Main) | ("b", Role::Undo) => Some(bad(ErrorClass::External)),
            _ => None,
        });
        run(scope, &world)
    };
    let goes_on = of(UndoFailure::GoOn);
    assert_eq!((goes_on.status, goes_on.undone.as_slice()), (RunStatus::UndoFailed, &["a".to_owned()][..]));
    assert_eq!(goes_on.steps["b"].status, S::Succeeded);
    assert!(of(UndoFailure::Stop).undone.is_empty());
}

#[test]
fn an_undo_is_retried_as_it_says() {
    let a = with(undoing("a"), |a| {
        a.undo.as_mut().unwrap().retry = retried(work("x"), ErrorClass::External, 3).policy.retry.clone();
    });
    let world = World::new(|who| match (who.step, who.role) {
        ("b", Role::Main) => Some(bad(ErrorClass::External)),
        ("a", Role::Undo) if who.attempt < 3 => Some(bad(ErrorClass::External)),
        _ => None,
    });
    assert_eq!(run(graph(vec![a, after(undoing("b"), &["a"])]), &world).status, RunStatus::Undone);
}

#[test]
fn items_passes_and_calls_that_succeeded_are_undone_too() {
    let other = workflow("other", graph(vec![undoing("x")]));
    let call =
        Step::new(id("c"), Kind::Call(Box::new(Call { workflow: "other".into(), exports: Vec::new() })));
    let inner = graph(vec![undoable("i")]);
    let e = each("e", json!([1, 2]), EachErrors::FailFast, inner);
    let root = workflow("w", routed(vec![e, call, undoing("z")]));
    let expected = evaluate(&plan_of(root, &[other], json!({})), &World::failing(&["z"])).unwrap();
    assert_eq!(expected.undone, ["c/x", "e[1]/i", "e[0]/i"]);
    assert_eq!(expected.steps["c/x"].status, S::Undone);
}

#[test]
fn a_called_workflow_that_fails_undoes_itself_and_fails_its_call() {
    let other = workflow("other", graph(vec![undoing("x"), after(undoing("y"), &["x"])]));
    let call =
        Step::new(id("c"), Kind::Call(Box::new(Call { workflow: "other".into(), exports: Vec::new() })));
    let root = workflow("w", routed(vec![call]));
    let expected = evaluate(&plan_of(root, &[other], json!({})), &World::failing(&["y"])).unwrap();
    assert_eq!((expected.status, expected.undone.as_slice()), (RunStatus::Failed, &["c/x".to_owned()][..]));
}

#[test]
fn a_cancelled_workflow_stays_cancelled_after_its_undo() {
    let of = |on_cancel| {
        let g = with(gate("g"), |g| {
            gate_of(g).timeout = Some(Millis::minutes(5));
            gate_of(g).on_timeout = GateTimeout::Cancel;
        });
        let mut scope = graph(vec![undoable("a"), after(g, &["a"]), after(work("z"), &["g"])]);
        scope.undo.on_cancel = on_cancel;
        run(scope, &World { answers: vec![None], ..well() })
    };
    assert_eq!((of(true).status, of(true).undone.len()), (RunStatus::Cancelled, 1));
    assert_eq!((of(false).status, of(false).undone.len()), (RunStatus::Cancelled, 0));
    assert_eq!(statuses(&of(true)), [("a", S::Undone), ("g", S::Cancelled), ("z", S::Skipped)]);
}

#[test]
fn what_was_completed_at_the_same_time_has_no_order() {
    let scope = graph(vec![undoing("a"), undoing("b"), after(undoing("c"), &["a", "b"])]);
    let race = evaluate(&plan(scope), &World::failing(&["c"]));
    assert_eq!(race, Err(Race("what was completed at the same time is to be undone")));
}
