//! Batches and critical paths.

use skein_core::{
    plan::{CriticalPath, ScopeIx, check_workflow},
    time::Millis,
};

use super::support::*;

const ROOT: ScopeIx = ScopeIx(0);

#[test]
fn batches_are_levels_in_the_order_of_the_source() {
    let definition =
        fine(graph(vec![after("d", &["b", "c"]), after("b", &["a"]), work("a"), after("c", &["a"]), work("e")]));
    assert_eq!(definition.step_batches(ROOT), [vec![2, 4], vec![1, 3], vec![0]]);
}

#[test]
fn batches_of_a_routed_scope_follow_the_cursor() {
    let definition = fine(routed(vec![
        branch("route", &[("$input.x == 1", "long")], "short"),
        next("short", "join"),
        next("long", "longer"),
        next("longer", "join"),
        work("join"),
    ]));
    assert_eq!(definition.step_batches(ROOT), [vec![0], vec![1, 2], vec![3], vec![4]]);
}

#[test]
fn the_critical_path_is_the_longest_by_timeouts() {
    let slow =
        |step: skein_core::ir::Step, seconds| step.with(|step| step.policy.timeout = Some(Millis::from_secs(seconds)));
    let steps = vec![work("a"), slow(after("b", &["a"]), 60), after("c", &["a"]), after("d", &["b", "c"])];
    let path = fine(graph(steps)).critical_path(ROOT);
    assert_eq!(path, CriticalPath { steps: vec![0, 1, 3], total: Some(Millis::from_secs(62)), unknown: vec![] });
}

#[test]
fn gates_count_as_nothing_and_what_has_no_timeout_is_named() {
    let endless = after("b", &["g"]).with(|step| step.policy.timeout = None);
    let definition = checked(graph(vec![gate("g", |_| {}), endless])).definition.unwrap();
    assert_eq!(definition.critical_path(ROOT), CriticalPath { steps: vec![0, 1], total: None, unknown: vec![1] });
}

#[test]
fn what_is_inside_counts_with_its_longest_lane() {
    let lanes = parallel("p", vec![("a", vec![work("x"), work("y")]), ("b", vec![work("z")])]);
    let child = library(vec![("child", graph(vec![work("a")]))]);
    let main = routed(vec![lanes, call("c", "child")]);
    let path = check_workflow(main.into(), &child).definition.unwrap().critical_path(ROOT);
    assert_eq!(path.total, Some(Millis::from_secs(3)));
}

#[test]
fn a_way_through_steps_that_take_no_time_is_still_a_way() {
    let definition = fine(routed(vec![gate("a", |_| {}), gate("b", |_| {}), gate("c", |_| {})]));
    assert_eq!(definition.critical_path(ROOT).steps.len(), 3);
}
