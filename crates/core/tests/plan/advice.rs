//! Advice: notes and warnings about constructs that may be intended.

use serde_json::json;
use skein_core::{
    expr::Expr,
    ir::{
        Backoff, CompletionCheck, ErrorClass, GateTimeout, OutcomeEffect, RunRetry, ScopeShape, Step, StepKindSpec,
        StepRetry, UndoSpec, WorkSpec, WorkerSpec,
    },
    plan::{CheckedWorkflow, ProblemCode},
    time::Millis,
};

use super::support::*;

#[test]
fn no_timeout() {
    let step = work("a").with(|step| step.policy.timeout = None);
    // The timeout of the workflow ends it.
    says(graph(vec![step.clone()]), &[]);
    says(
        graph(vec![step]).with(|workflow| workflow.scope.timeout = None),
        &[
            "warning[no-timeout] timeout: the run has no timeout and may never end (give the workflow a timeout)",
            "warning[no-timeout] a: policy.timeout: `a` has no timeout: if it hangs, so does the run \
             (give it a timeout)",
        ],
    );
}

#[test]
fn wait_outlives_run() {
    let step = gate("g", |gate| gate.timeout = Some(Millis::from_hours(24)));
    says(
        graph(vec![step]),
        &["warning[wait-outlives-run] g: timeout: `g` may wait 24h, but the run ends after 10m \
           (time spent waiting counts)"],
    );
}

#[test]
fn skipped_gate() {
    let step = |effect| {
        gate("g", |_| {}).with(|step| {
            step.when = Some(cond("$input.risky == true"));
            step.policy.effects.skipped_by_condition = effect;
        })
    };
    says(
        graph(vec![step(OutcomeEffect::GO_ON)]),
        &["warning[skipped-gate] g: when: if its condition is false, steps that wait for `g` start without a decision"],
    );
    fine(graph(vec![step(OutcomeEffect::BLOCK)]));
}

#[test]
fn gate_opens_itself() {
    says(
        graph(vec![gate("g", |gate| gate.on_timeout = GateTimeout::Approve)]),
        &["warning[gate-opens-itself] g: on_timeout: `g` opens by itself when nobody decides in time \
           (the host must allow it, too)"],
    );
}

#[test]
fn anyone_may_approve() {
    says(
        graph(vec![gate("g", |gate| gate.approvers.clear())]),
        &["warning[anyone-may-approve] g: approvers: anyone may decide `g` (name a role or a user)"],
    );
}

#[test]
fn input_may_be_missing() {
    let first = |effect| work("a").with(|step| step.policy.effects.failed = effect);
    let second = || reading(after("b", &["a"]), "$steps.a.x").with(|step| step.inputs[0].required = true);
    says(
        graph(vec![first(OutcomeEffect::CONTINUE), second()]),
        &["warning[input-may-be-missing] b: inputs.in0: `b` starts even if `a` fails, and then fails because \
           this required input is missing (make the input optional, or let the failure stop the run)"],
    );
    fine(graph(vec![first(OutcomeEffect::ABORT), second()]));
}

#[test]
fn unbounded_each() {
    let step = each("all", "$input.list", vec![work("a")]).with(|step| {
        let StepKindSpec::Each(each) = &mut step.kind else { panic!() };
        each.parallelism = None;
    });
    says(routed(vec![step]), &["warning[unbounded-each] all: parallelism: all items of `all` may run at once"]);
}

fn notes(checked: CheckedWorkflow, code: ProblemCode) -> Vec<String> {
    let notes = checked.problems.into_iter().filter(|problem| problem.code == code);
    notes.map(|problem| problem.message).collect()
}

#[test]
fn nothing_to_undo() {
    let undoable = |name: &str| {
        work(name).with(|step| {
            step.policy.effects.failed = OutcomeEffect::UNDO;
            step.undo = Some(Box::new(UndoSpec {
                id: id("u"),
                work: WorkSpec::new(WorkerSpec::Tool { tool: "undo".into(), pinned: None }),
                inputs: Vec::new(),
                timeout: None,
                retry: StepRetry::default(),
            }));
        })
    };
    let of = |steps| notes(checked(routed(steps)), ProblemCode::NothingToUndo);
    assert_eq!(of(vec![undoable("a")]), [""; 0]);
    assert_eq!(of(vec![work("a")]), [""; 0]);
    let mut steps = vec![undoable("a")];
    steps.extend(["b", "c", "d", "e", "f", "g", "h"].map(work));
    assert_eq!(of(steps), ["when the run is undone, there is no undo for b, c, d, e, f and 2 more"]);
}

fn retried(step: Step, attempts: u32) -> Step {
    step.with(|step| step.policy.retry = StepRetry::for_classes(&[ErrorClass::Network], attempts, Backoff::default()))
}

fn checked_work(name: &str, max_iterations: u32) -> Step {
    work(name).with(|step| {
        the_work(step).check = Some(Box::new(CompletionCheck {
            worker: WorkerSpec::Command { program: "true".into(), arguments: Vec::new() },
            timeout: None,
            max_iterations,
            incomplete_is_an_end: false,
            decision_file: None,
            convergence: None,
        }));
    })
}

#[test]
fn worker_starts() {
    let of = |workflow| notes(checked(workflow), ProblemCode::WorkerStarts);
    assert_eq!(of(graph(vec![work("a")])), ["up to 1 worker start"]);
    assert_eq!(of(graph(vec![gate("g", |_| {})])), [""; 0]);
    assert_eq!(of(graph(vec![retried(work("a"), 3), work("b")])), ["up to 4 worker starts"]);
    // Five iterations with one check each, and two more attempts.
    assert_eq!(of(graph(vec![retried(checked_work("a", 5), 3)])), ["up to 12 worker starts"]);
    let fresh = retried(checked_work("a", 5), 3).with(|step| step.policy.retry.fresh_per_iteration = true);
    assert_eq!(of(graph(vec![fresh])), ["up to 20 worker starts"]);
    let passes = repeat("l", "$input.x == 1", 40, vec![retried(work("a"), 10), retried(work("b"), 10)]);
    assert_eq!(of(routed(vec![passes])).concat(), "up to 800 worker starts");
    // Only one of the arms runs.
    let arms = routed(vec![branch("r", &[("true", "a")], "b"), next("a", "$end"), retried(next("b", "$end"), 7)]);
    assert_eq!(of(arms), ["up to 7 worker starts"]);
    let again = graph(vec![work("a")]).with(|workflow| {
        workflow.scope.retry = Some(RunRetry { attempts: 5, backoff: Backoff::default(), on_timeout: false });
    });
    assert_eq!(of(again), ["up to 5 worker starts"]);
}

#[test]
fn worker_starts_of_lists_and_cycles() {
    let of = |workflow| notes(checked(workflow), ProblemCode::WorkerStarts);
    let list = each("all", "$input.list", vec![retried(work("a"), 3)]);
    assert_eq!(of(routed(vec![work("b"), list.clone()])), ["up to 1 worker start, and 3 for each item of `all`"]);
    let known = list.with(|step| {
        let StepKindSpec::Each(each) = &mut step.kind else { panic!() };
        each.over = Expr::literal(json!([1, 2])).unwrap();
    });
    assert_eq!(of(routed(vec![known])), ["up to 6 worker starts"]);
    let back = |max_steps| {
        let steps = vec![retried(work("a"), 2), gate("g", |gate| gate.on_reject = Some(to("a")))];
        routed(steps).with(|workflow| {
            workflow.scope.shape = ScopeShape::Routed { start: None, cycles: true };
            workflow.scope.max_steps = max_steps;
        })
    };
    assert_eq!(of(back(Some(100))), ["up to 200 worker starts"]);
    assert!(of(back(None))[0].starts_with("no upper bound"));
}
