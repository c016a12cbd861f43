//! Names, fields and kinds that are invalid.

use skein_core::{
    ir::{Backoff, GateTimeout, RunRetry, StepKindSpec, WaitTimeout},
    plan::ProblemCode,
};

use super::support::*;

#[test]
fn empty_workflow() {
    says(graph(vec![]), &["error[empty-workflow] steps: the workflow has no steps"]);
}

#[test]
fn empty_scope() {
    says(
        routed(vec![each("all", "$input.list", vec![])]),
        &["error[empty-scope] all: scope.steps: there are no steps inside"],
    );
    says(
        routed(vec![parallel("both", vec![("a", vec![work("x")]), ("b", vec![])])]),
        &["error[empty-scope] both: lanes[1].steps: there are no steps inside"],
    );
}

#[test]
fn duplicate_step() {
    let line = "two steps are called `a` (names are unique in a workflow, steps inside other steps included)";
    says(graph(vec![work("a"), work("a")]), &[&format!("error[duplicate-step] a: id: {line}")]);
    let nested = routed(vec![work("a"), each("all", "$input.list", vec![work("a")])]);
    says(nested, &[&format!("error[duplicate-step] a: id: {line}")]);
}

#[test]
fn duplicate_lane() {
    let step = parallel("both", vec![("a", vec![work("x")]), ("a", vec![work("y")])]);
    says(routed(vec![step]), &["error[duplicate-lane] both: lanes[1].id: two lanes are called `a`"]);
}

#[test]
fn duplicate_input() {
    let step = reading(reading(work("a"), "1"), "2").with(|step| step.inputs[1].name = "in0".into());
    says(graph(vec![step]), &["error[duplicate-input] a: inputs.in0: the input `in0` is given twice"]);
}

#[test]
fn misplaced_next_in_a_graph() {
    let hint = "(let the other step wait for this one, with a condition)";
    says(
        graph(vec![next("a", "b"), work("b")]),
        &[&format!("error[misplaced] a: next: `a` routes to a step, but in a graph steps wait for each other {hint}")],
    );
}

#[test]
fn misplaced_decisions_branches_and_timeouts_in_a_graph() {
    let misplaced = |step| has(graph(vec![step, work("b")]), ProblemCode::Misplaced);
    assert!(misplaced(gate("a", |gate| gate.on_approve = Some(to("b")))));
    assert!(misplaced(gate("a", |gate| gate.on_reject = Some(to("b")))));
    assert!(misplaced(gate("a", |gate| gate.on_timeout = GateTimeout::Go(to("b")))));
    assert!(misplaced(branch("a", &[("true", "b")], "$end")));
    assert!(misplaced(wait("a", &["s"]).with(|step| {
        if let StepKindSpec::Wait(wait) = &mut step.kind {
            wait.on_timeout = WaitTimeout::Go(to("b"));
        }
    })));
    assert!(!misplaced(gate("a", |_| {})));
}

#[test]
fn misplaced_after_in_a_routed_scope() {
    says(
        routed(vec![work("a"), after("b", &["a"])]),
        &["error[misplaced] b: after: `b` waits for steps, but its scope is routed (route to it with `next`)"],
    );
}

#[test]
fn misplaced_retry_of_a_run_inside_a_step() {
    let step = each("all", "$input.list", vec![work("a")]).with(|step| {
        let StepKindSpec::Each(each) = &mut step.kind else { panic!() };
        let retry = RunRetry { attempts: 2, backoff: Backoff::default(), on_timeout: false };
        each.scope = std::sync::Arc::new((*each.scope).clone().with(|scope| scope.retry = Some(retry)));
    });
    assert!(has(routed(vec![step]), ProblemCode::Misplaced));
}

#[test]
fn no_arms() {
    says(routed(vec![branch("a", &[], "$end")]), &["error[no-arms] a: arms: a branch has at least one arm"]);
}

#[test]
fn too_few_lanes() {
    says(
        routed(vec![parallel("p", vec![("only", vec![work("a")])])]),
        &["error[too-few-lanes] p: lanes: a parallel step has at least two lanes, this has 1"],
    );
    fine(routed(vec![parallel("p", vec![("a", vec![work("x")]), ("b", vec![work("y")])])]));
}

#[test]
fn no_signals() {
    says(
        routed(vec![wait("w", &[])]),
        &["error[no-signals] w: on: no signal can end this wait (name at least one signal)"],
    );
    fine(routed(vec![wait("w", &["go"])]));
}
