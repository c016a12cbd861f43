//! Undo.

use serde_json::json;
use skein_core::{
    engine::AttemptRole,
    ir::{
        CallSpec, EachErrorPolicy, ErrorClass, GateTimeout, OutcomeEffect, RunStatus, Step, StepKindSpec,
        StepStatus as S, UndoFailurePolicy,
    },
    time::Millis,
};

use super::{run, statuses, well, with};
use crate::{
    reference::{TimingRace, evaluate_plan},
    tests::*,
};

fn undoing(name: &str) -> Step {
    with(undoable_step(name), |step| step.policy.effects.failed = OutcomeEffect::UNDO)
}

#[test]
fn a_failure_undoes_what_was_completed_last_first() {
    let scope = graph_scope(vec![
        undoing("a"),
        with_dependencies(undoing("b"), &["a"]),
        with_dependencies(undoing("c"), &["b"]),
    ]);
    let expected = run(scope, &ScriptedWorld::with_failures(&["c"]));
    assert_eq!((expected.status, expected.undone.as_slice()), (RunStatus::Undone, &["b".into(), "a".into()][..]));
    assert_eq!(statuses(&expected), [("a", S::Undone), ("b", S::Undone), ("c", S::Failed)]);
}

#[test]
fn the_failed_step_comes_first_where_the_policy_says_so() {
    let mut scope = graph_scope(vec![undoing("a"), with_dependencies(undoing("b"), &["a"])]);
    scope.undo.failed_step = true;
    assert_eq!(run(scope, &ScriptedWorld::with_failures(&["b"])).undone, ["b", "a"]);
}

#[test]
fn nothing_to_undo_is_a_plain_failure() {
    let expected = run(graph_scope(vec![undoing("a")]), &ScriptedWorld::with_failures(&["a"]));
    assert_eq!((expected.status, expected.undone.len()), (RunStatus::Failed, 0));
}

#[test]
fn an_undo_that_fails_goes_on_or_stops() {
    let of = |if_one_fails| {
        let mut scope = graph_scope(vec![
            undoing("a"),
            with_dependencies(undoing("b"), &["a"]),
            with_dependencies(undoing("c"), &["b"]),
        ]);
        scope.undo.if_one_fails = if_one_fails;
        let world = ScriptedWorld::new(|who| match (who.step, who.role) {
            ("c", AttemptRole::Main) | ("b", AttemptRole::Undo) => Some(failed_end(ErrorClass::External)),
            _ => None,
        });
        run(scope, &world)
    };
    let goes_on = of(UndoFailurePolicy::GoOn);
    assert_eq!((goes_on.status, goes_on.undone.as_slice()), (RunStatus::UndoFailed, &["a".to_owned()][..]));
    assert_eq!(goes_on.steps["b"].status, S::Succeeded);
    assert!(of(UndoFailurePolicy::Stop).undone.is_empty());
}

#[test]
fn an_undo_is_retried_as_it_says() {
    let a = with(undoing("a"), |a| {
        a.undo.as_mut().unwrap().retry = with_retry(work_step("x"), ErrorClass::External, 3).policy.retry.clone();
    });
    let world = ScriptedWorld::new(|who| match (who.step, who.role) {
        ("b", AttemptRole::Main) => Some(failed_end(ErrorClass::External)),
        ("a", AttemptRole::Undo) if who.attempt < 3 => Some(failed_end(ErrorClass::External)),
        _ => None,
    });
    assert_eq!(run(graph_scope(vec![a, with_dependencies(undoing("b"), &["a"])]), &world).status, RunStatus::Undone);
}

#[test]
fn items_passes_and_calls_that_succeeded_are_undone_too() {
    let other = build_workflow("other", graph_scope(vec![undoing("x")]));
    let call = Step::new(
        step_id("c"),
        StepKindSpec::Call(Box::new(CallSpec { workflow: "other".into(), exports: Vec::new() })),
    );
    let inner = graph_scope(vec![undoable_step("i")]);
    let e = each_step("e", json!([1, 2]), EachErrorPolicy::FailFast, inner);
    let root = build_workflow("w", routed_scope(vec![e, call, undoing("z")]));
    let expected = evaluate_plan(&bind_plan(root, &[other], json!({})), &ScriptedWorld::with_failures(&["z"])).unwrap();
    assert_eq!(expected.undone, ["c/x", "e[1]/i", "e[0]/i"]);
    assert_eq!(expected.steps["c/x"].status, S::Undone);
}

#[test]
fn a_called_workflow_that_fails_undoes_itself_and_fails_its_call() {
    let other = build_workflow("other", graph_scope(vec![undoing("x"), with_dependencies(undoing("y"), &["x"])]));
    let call = Step::new(
        step_id("c"),
        StepKindSpec::Call(Box::new(CallSpec { workflow: "other".into(), exports: Vec::new() })),
    );
    let root = build_workflow("w", routed_scope(vec![call]));
    let expected = evaluate_plan(&bind_plan(root, &[other], json!({})), &ScriptedWorld::with_failures(&["y"])).unwrap();
    assert_eq!((expected.status, expected.undone.as_slice()), (RunStatus::Failed, &["c/x".to_owned()][..]));
}

#[test]
fn a_cancelled_workflow_stays_cancelled_after_its_undo() {
    let of = |on_cancel| {
        let g = with(gate_step("g"), |g| {
            gate_mut(g).timeout = Some(Millis::from_mins(5));
            gate_mut(g).on_timeout = GateTimeout::Cancel;
        });
        let mut scope = graph_scope(vec![
            undoable_step("a"),
            with_dependencies(g, &["a"]),
            with_dependencies(work_step("z"), &["g"]),
        ]);
        scope.undo.on_cancel = on_cancel;
        run(scope, &ScriptedWorld { answers: vec![None], ..well() })
    };
    assert_eq!((of(true).status, of(true).undone.len()), (RunStatus::Cancelled, 1));
    assert_eq!((of(false).status, of(false).undone.len()), (RunStatus::Cancelled, 0));
    assert_eq!(statuses(&of(true)), [("a", S::Undone), ("g", S::Cancelled), ("z", S::Skipped)]);
}

#[test]
fn what_was_completed_at_the_same_time_has_no_order() {
    let scope = graph_scope(vec![undoing("a"), undoing("b"), with_dependencies(undoing("c"), &["a", "b"])]);
    let race = evaluate_plan(&build_plan(scope), &ScriptedWorld::with_failures(&["c"]));
    assert_eq!(race, Err(TimingRace("steps that completed concurrently are to be undone")));
}
