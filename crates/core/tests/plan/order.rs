//! Dependencies, routes, cycles and unreachable steps.

use skein_core::{
    ir::{ScopeShape, Workflow},
    plan::{ProblemCode, ScopeIx},
};

use super::support::*;

#[test]
fn unknown_dependency() {
    says(
        graph(vec![work("build"), after("test", &["build", "biuld"])]),
        &["error[unknown-dependency] test: after[1]: there is no step `biuld` (did you mean `build`?)"],
    );
}

#[test]
fn a_dependency_on_a_step_inside_another_says_where_it_is() {
    let workflow = graph(vec![each("all", "$input.list", vec![work("inner")]), after("b", &["inner"])]);
    let problems = checked(workflow).problems;
    assert_eq!(problems[0].code, ProblemCode::UnknownDependency);
    assert_eq!(problems[0].message, "`inner` is not in the same list of steps");
    assert_eq!(problems[0].related[0].0.step, Some(id("inner")));
}

#[test]
fn unknown_target() {
    says(routed(vec![next("a", "c"), work("b")]), &["error[unknown-target] a: next: there is no step `c`"]);
    let workflow = routed(vec![branch("route", &[("true", "here")], "there"), work("left")]);
    says(
        workflow,
        &[
            "error[unknown-target] route: arms[0].next: there is no step `here`",
            "error[unknown-target] route: default: there is no step `there`",
        ],
    );
}

#[test]
fn unknown_start() {
    let workflow = routed(vec![work("first"), work("second")])
        .with(|workflow| workflow.scope.shape = ScopeShape::Routed { start: Some(id("frist")), cycles: false });
    says(workflow, &["error[unknown-start] start: there is no step `frist` (did you mean `first`?)"]);
}

#[test]
fn self_dependency() {
    says(graph(vec![after("a", &["a"])]), &["error[self-dependency] a: after[0]: `a` waits for itself"]);
}

#[test]
fn cycle_in_a_graph() {
    let hint = "(each waits for the one before: a step cannot start after itself)";
    says(
        graph(vec![after("a", &["c"]), after("b", &["a"]), after("c", &["b"]), after("d", &["c"])]),
        &[&format!("error[cycle] a: after[0]: dependency cycle: a -> b -> c -> a {hint}")],
    );
}

#[test]
fn cycle_of_two() {
    let problems = checked(graph(vec![after("a", &["b"]), after("b", &["a"])])).problems;
    assert!(problems.iter().any(|problem| problem.message == "dependency cycle: a -> b -> a"), "{problems:?}");
}

#[test]
fn cycle_through_routes_branches_and_decisions() {
    let hint = "(use a loop step for repetition, or allow cycles)";
    says(
        routed(vec![work("a"), next("b", "a")]),
        &[&format!("error[cycle] b: next: dependency cycle: a -> b -> a {hint}")],
    );
    says(routed(vec![next("a", "a")]), &[&format!("error[cycle] a: next: dependency cycle: a -> a {hint}")]);
    let arm = routed(vec![work("a"), branch("b", &[("true", "a")], "$end")]);
    says(arm, &[&format!("error[cycle] b: arms[0].next: dependency cycle: a -> b -> a {hint}")]);
    let rejected = routed(vec![work("a"), gate("g", |gate| gate.on_reject = Some(to("a")))]);
    says(rejected, &[&format!("error[cycle] g: on_reject: dependency cycle: a -> g -> a {hint}")]);
}

fn allowing_cycles(workflow: Workflow) -> Workflow {
    workflow.with(|workflow| workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true })
}

#[test]
fn cycles_that_are_allowed_are_fine_and_a_step_may_read_what_came_before_in_one() {
    let back = gate("review", |gate| gate.on_reject = Some(to("draft")));
    let draft = reading(work("draft"), "$steps.review.reason");
    let workflow = allowing_cycles(routed(vec![draft, back, work("send")]));
    // The target of the arm is not entered from the step before it, and the first step is still the start.
    let definition = fine(workflow.with(|workflow| workflow.scope.max_steps = Some(10)));
    assert_eq!(definition.step_batches(ScopeIx(0)), [vec![0], vec![1], vec![2]]);
}

#[test]
fn unreachable() {
    says(
        routed(vec![next("a", "$end"), work("b")]),
        &["error[unreachable] b: `b` can never be reached from `a` (route to it, or remove it)"],
    );
    fine(routed(vec![work("a"), work("b")]));
}

#[test]
fn a_step_that_only_a_branch_leads_to_is_reached() {
    let workflow =
        routed(vec![branch("route", &[("$input.paid == true", "paid")], "free"), next("free", "$end"), work("paid")]);
    let definition = fine(workflow);
    assert_eq!(definition.step_batches(ScopeIx(0)), [vec![0], vec![1, 2]]);
}
