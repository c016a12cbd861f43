//! Tests of the JSON contract of a run, the order of steps, timeline lines, and the graph.

mod explain;
mod support;

use serde_json::json;

use self::support::{
    ViewTestRun, dependent_step, gate_step, graph_scope, parallel_step, routed_scope, step_id, work_step,
};
use super::{
    GraphNodeKind, RunViewOptions, TimelineLevel, build_graph as draw, describe_record, view_run_with_options,
};
use crate::{engine::StepPaths, expr::aip15, ir::*, plan::check_workflow, time::Millis};
use std::sync::Arc;

fn each(name: &str, steps: Vec<Step>) -> Step {
    let over = aip15::parse_value(&json!([1, 2])).unwrap();
    let scope = Arc::new(routed_scope(steps));
    Step::new(
        step_id(name),
        StepKindSpec::Each(Box::new(EachSpec { over, parallelism: None, errors: EachErrorPolicy::Finish, scope })),
    )
}

fn again(name: &str, steps: Vec<Step>) -> Step {
    let condition = aip15::parse_condition("$steps.x.by != 'nobody'").unwrap();
    let scope = Arc::new(routed_scope(steps));
    Step::new(step_id(name), StepKindSpec::Loop(Box::new(LoopSpec { condition, test: LoopTest::After, max: 9, scope })))
}

#[test]
fn paths_have_the_forms_of_the_contract_and_stand_in_document_order() {
    let both = parallel_step("both", vec![("left", vec![work_step("l")]), ("right", vec![work_step("r")])]);
    let trial = ViewTestRun::new(graph_scope(vec![
        each("every", vec![work_step("i")]),
        both,
        again("more", vec![work_step("x")]),
    ]));
    let trial = trial.start_run().succeed_step("more#1/x");
    let paths: Vec<String> = trial.view().steps.into_iter().map(|step| step.path).collect();
    let expected =
        ["every", "every[0]/i", "every[1]/i", "both", "both/left/l", "both/right/r", "more", "more#1/x", "more#2/x"];
    assert_eq!(paths, expected);
    assert_eq!(trial.step_view("more").iterations, 2);
}

#[test]
fn the_object_has_the_fields_of_the_contract() {
    let trial = ViewTestRun::new(graph_scope(vec![work_step("a")])).start_run().succeed_step("a");
    let view = serde_json::to_value(trial.view()).unwrap();
    for field in [
        "run_id",
        "workflow",
        "status",
        "native_status",
        "degraded",
        "started_at",
        "finished_at",
        "duration_ms",
        "outputs",
        "error",
        "cost",
        "steps",
    ] {
        assert!(view.get(field).is_some(), "{field}");
    }
    assert_eq!(view["workflow"]["id"], "main");
    assert_eq!((&view["status"], &view["duration_ms"]), (&json!("succeeded"), &json!(1_000)));
    assert_eq!(view["cost"], json!({"tokens": 0, "usd": null}));
    let step = json!({
        "path": "a", "id": "a", "at": [0, 0], "kind": "work", "status": "succeeded",
        "native_status": "succeeded", "attempts": 1, "total_attempts": 1, "iterations": 1, "stage": 1,
        "visits": 1, "started_at": "1970-01-01T00:00:00Z", "finished_at": "1970-01-01T00:00:01Z",
        "duration_ms": 1_000, "outputs": {"by": "a"}, "error": null, "cost": {"tokens": 0, "usd": null},
    });
    assert_eq!(view["steps"], json!([step]));
}

#[test]
fn a_run_that_has_not_been_started_is_queued() {
    let trial = ViewTestRun::new(graph_scope(vec![work_step("a")]));
    let view = trial.view();
    assert_eq!((view.status, view.run_id, view.steps.len()), (RunStatus::Queued, None, 0));
}

#[test]
fn an_open_gate_says_all_that_a_decision_needs() {
    let trial = ViewTestRun::new(graph_scope(vec![gate_step("g")])).start_run();
    let open = serde_json::to_value(&trial.view().waiting_for).unwrap();
    let expected = json!([{
        "number": 0, "step": "g", "at": [0, 0], "kind": "gate", "message": "Go on?",
        "approvers": ["the role lead", "ann"], "since": "1970-01-01T00:00:00Z",
        "until": "1970-01-01T00:01:00Z",
    }]);
    assert_eq!(open, expected);
    assert_eq!(trial.view().status, RunStatus::Waiting);
}

#[test]
fn earlier_tries_are_shown_when_asked_for() {
    let mut both = parallel_step("both", vec![("left", vec![work_step("a")]), ("right", vec![work_step("b")])]);
    both.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 2, Backoff::default());
    let trial = ViewTestRun::new(routed_scope(vec![both]))
        .start_run()
        .succeed_step("both/left/a")
        .fail_step("both/right/b")
        .wake_at(60);
    assert_eq!(trial.view().steps.len(), 3);
    let all = view_run_with_options(&trial.plan, &trial.state, RunViewOptions { all_instances: true });
    let shown: Vec<(&str, bool)> = all.steps.iter().map(|step| (step.path.as_str(), step.superseded)).collect();
    let old = [("both/left/a", true), ("both/right/b", true)];
    let new = [("both/left/a", false), ("both/right/b", false)];
    assert_eq!(shown, [&[("both", false)][..], &old, &new].concat());
}

#[test]
fn the_timeline_tells_what_happened_in_lines() {
    let mut a = work_step("a");
    a.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 2, Backoff::default());
    let trial = ViewTestRun::new(graph_scope(vec![a, dependent_step("b", &["a"])]))
        .start_run()
        .fail_step("a")
        .wake_at(9)
        .succeed_step("a")
        .cancel_run();
    let names = StepPaths::from_state(&trial.plan.definition, &trial.state);
    let numbered = (0..).zip(&trial.records);
    let lines: Vec<String> = numbered
        .filter_map(|(seq, record)| describe_record(&names, seq, record))
        .map(|entry| format!("{} {:?} {} {}", entry.seq, entry.level, entry.path, entry.text))
        .collect();
    let expected = [
        "0 Info  run started",
        "2 Info a started",
        "3 Warning a attempt 1 failed: boom",
        "4 Warning a retry at 1970-01-01T00:00:02Z: boom",
        "6 Info a attempt 2 started",
        "8 Info a succeeded",
        "10 Info b started",
        "11 Warning  cancelled by ann",
        "12 Warning  stops: cancelled by ann",
        "13 Info b stop requested: the enclosing scope stopped",
    ];
    assert_eq!(lines, expected);
    assert!(TimelineLevel::Detail < TimelineLevel::Error);
}

#[test]
fn a_graph_is_drawn_by_its_dependencies() {
    let trial =
        ViewTestRun::new(graph_scope(vec![work_step("a"), dependent_step("b", &["a"])])).start_run().succeed_step("a");
    let drawn = draw(&trial.plan.definition, Some(&trial.state));
    let edges: Vec<_> = drawn.edges.iter().map(|edge| (edge.from.as_str(), edge.to.as_str())).collect();
    assert_eq!(edges, [("a", "b")]);
    let statuses: Vec<_> = drawn.nodes.iter().map(|node| node.status).collect();
    assert_eq!(statuses, [Some(StepStatus::Succeeded), Some(StepStatus::Running)]);
    assert_eq!(draw(&trial.plan.definition, None).nodes[0].status, None);
}

#[test]
fn routes_are_drawn_with_their_labels_and_composites_as_groups() {
    let arm = RouteArm { when: aip15::parse_condition("$input.go").unwrap(), next: RouteTarget::Step(step_id("ask")) };
    let choose = Step::new(
        step_id("choose"),
        StepKindSpec::Branch(Box::new(BranchSpec { arms: vec![arm], default: RouteTarget::End })),
    );
    let mut ask = gate_step("ask");
    if let StepKindSpec::Gate(gate) = &mut ask.kind {
        gate.on_reject = Some(RouteTarget::End);
        gate.on_timeout = GateTimeout::Go(RouteTarget::Step(step_id("every")));
    }
    let every = each("every", vec![work_step("one"), work_step("two")]);
    let trial = ViewTestRun::new(routed_scope(vec![choose, ask, every]));
    let drawn = draw(&trial.plan.definition, None);
    let edge =
        |edge: &super::GraphEdge| format!("{} -> {} {}", edge.from, edge.to, edge.label.as_deref().unwrap_or(""));
    let edges: Vec<String> = drawn.edges.iter().map(edge).collect();
    let expected = [
        "choose -> ask $input.go",
        "choose -> $end else",
        "ask -> $end rejected",
        "ask -> every timeout",
        "ask -> $end ",
        "every -> $end ",
        "every[]/one -> every[]/two ",
    ];
    assert_eq!(edges, expected);
    assert_eq!(drawn.groups[1].inside.as_deref(), Some("every"));
    assert_eq!(drawn.nodes[0].kind, GraphNodeKind::Step(StepKindName::Branch));
}

#[test]
fn items_of_one_step_are_one_node_with_counts() {
    let trial = ViewTestRun::new(routed_scope(vec![each("every", vec![work_step("one")])]))
        .start_run()
        .succeed_step("every[0]/one");
    let drawn = draw(&trial.plan.definition, Some(&trial.state));
    let one = drawn.nodes.iter().find(|node| node.id == "every[]/one").unwrap();
    assert_eq!(one.status, Some(StepStatus::Running));
    assert_eq!(one.counts, [(StepStatus::Running, 1), (StepStatus::Succeeded, 1)].into());
}

#[test]
fn a_large_graph_is_drawn_and_shown_in_reasonable_time() {
    let names: Vec<String> = (0..2_000).map(|i| format!("s{i}")).collect();
    let steps = names.iter().map(|name| work_step(name)).collect();
    let mut trial = ViewTestRun::new(StepScope { timeout: Some(Millis::from_hours(1)), ..graph_scope(steps) });
    trial.grant = 2_000;
    let trial = trial.start_run();
    assert_eq!(draw(&trial.plan.definition, Some(&trial.state)).nodes.len(), 2_000);
    assert_eq!(trial.view().steps.len(), 2_000);
}

#[test]
fn called_workflows_are_groups_of_their_own() {
    let called = Workflow::new(crate::ids::WorkflowId::new("sub").unwrap(), graph_scope(vec![work_step("x")]));
    let library = std::collections::BTreeMap::from([("sub".to_owned(), Arc::new(called))]);
    let call = |name: &str| {
        Step::new(step_id(name), StepKindSpec::Call(Box::new(CallSpec { workflow: "sub".into(), exports: Vec::new() })))
    };
    let trial = ViewTestRun::with_library(graph_scope(vec![call("one"), call("two")]), &library)
        .start_run()
        .succeed_step("one/x");
    let drawn = draw(&trial.plan.definition, Some(&trial.state));
    let ids: Vec<&str> = drawn.nodes.iter().map(|node| node.id.as_str()).collect();
    assert_eq!(ids, ["one", "two", "sub//x"]);
    assert_eq!((drawn.nodes[0].calls, drawn.nodes[1].calls), (Some(1), Some(1)));
    assert!(check_workflow(trial.plan.definition.root().workflow.clone(), &library).definition.is_some());
}
