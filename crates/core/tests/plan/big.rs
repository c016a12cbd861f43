//! Workflows at and beyond the limits. The time limits apply to planning alone and are generous, because tests are not
//! optimised.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;
use skein_core::{
    ir::{Step, StepKindSpec, Workflow},
    limits,
    plan::{ProblemCode, ScopeIx, check_workflow},
};

use super::support::*;

fn chain(n: usize) -> Vec<Step> {
    let name = |i: usize| format!("s{i}");
    (0..n).map(|i| if i == 0 { work("s0") } else { after(&name(i), &[&name(i - 1)]) }).collect()
}

#[test]
fn too_many_steps() {
    let n = limits::STEPS;
    assert!(!has(graph(chain(n - 1)), ProblemCode::TooManySteps));
    assert!(!has(graph(chain(n)), ProblemCode::TooManySteps));
    assert!(has(graph(chain(n + 1)), ProblemCode::TooManySteps));
    assert!(!has(graph(chain(limits::STEPS_WARN)), ProblemCode::ManySteps));
    assert!(has(graph(chain(limits::STEPS_WARN + 1)), ProblemCode::ManySteps));
}

#[test]
fn steps_of_called_workflows_count() {
    let others = library(vec![("child", graph(chain(limits::STEPS / 2)))]);
    let main = graph(chain(limits::STEPS / 2).with(|steps| steps.push(call("c", "child"))));
    let problems = check_workflow(main.into(), &others).problems;
    assert_eq!(problems[0].code, ProblemCode::TooManySteps);
}

/// Steps with as many dependencies on earlier steps as `edges` allows.
fn dense(edges: usize) -> Workflow {
    let n = 500;
    let mut left = edges;
    let mut steps: Vec<Step> = Vec::new();
    for i in 0..n {
        let take = left.min(i);
        left -= take;
        let names: Vec<String> = (0..take).map(|j| format!("s{j}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        steps.push(after(&format!("s{i}"), &names));
    }
    assert_eq!(left, 0);
    graph(steps)
}

#[test]
fn too_many_edges() {
    let n = limits::EDGES;
    assert!(!has(dense(n - 1), ProblemCode::TooManyEdges));
    assert!(!has(dense(n), ProblemCode::TooManyEdges));
    assert!(has(dense(n + 1), ProblemCode::TooManyEdges));
    assert!(!has(dense(limits::EDGES_WARN), ProblemCode::ManyEdges));
    assert!(has(dense(limits::EDGES_WARN + 1), ProblemCode::ManyEdges));
}

#[test]
fn a_graph_of_two_thousand_steps_with_every_edge_is_refused_and_not_walked() {
    let names: Vec<String> = (0..2_000).map(|i| format!("s{i}")).collect();
    let steps = names.iter().enumerate().map(|(i, name)| {
        let before: Vec<&str> = names[..i].iter().map(String::as_str).collect();
        after(name, &before)
    });
    assert!(has(graph(steps.collect()), ProblemCode::TooManyEdges));
}

fn nested(depth: usize) -> Workflow {
    let mut step = work("inside");
    for i in 0..depth {
        step = each(&format!("e{i}"), "$input.list", vec![step]);
    }
    routed(vec![step])
}

#[test]
fn too_deep() {
    let n = limits::NESTING;
    fine(nested(n - 1));
    fine(nested(n));
    assert!(has(nested(n + 1), ProblemCode::TooDeep));
}

#[test]
fn what_could_not_be_read_back_is_too_deep() {
    let mut value = serde_json::json!(1);
    (0..120).for_each(|_| value = serde_json::json!([value]));
    let labelled = |value| {
        graph(vec![work("a")]).with(|workflow| workflow.extensions.labels = BTreeMap::from([("x".into(), value)]))
    };
    assert!(!has(labelled(value.clone()), ProblemCode::TooDeep));
    (0..10).for_each(|_| value = serde_json::json!([value]));
    assert!(has(labelled(value), ProblemCode::TooDeep));
    let step_label = |depth: usize| {
        let value = (1..depth).fold(serde_json::json!([]), |value, _| serde_json::json!([value]));
        graph(vec![work("a").with(|step| drop(step.extensions.labels.insert("x".into(), value)))])
    };
    let calling = |depth| {
        let others = library(vec![("child", step_label(depth))]);
        check_workflow(graph(vec![call("c", "child")]).into(), &others).definition
    };
    let deepest = (1..130).rev().find(|depth| calling(*depth).is_some()).unwrap();
    let definition = calling(deepest).unwrap();
    let json = serde_json::to_string(&definition.to_frozen()).unwrap();
    assert!(skein_core::plan::PlanDefinition::from_frozen_json(&json).definition.is_some(), "at {deepest}");
}

#[test]
#[allow(clippy::disallowed_types, reason = "a thread whose stack is small")]
fn a_chain_of_ten_thousand_steps_does_not_touch_the_stack() {
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let run = || {
        let mut steps = chain(limits::STEPS);
        let last = steps.pop().unwrap();
        steps.push(reading(last, "$steps.s0.x"));
        let definition = checked(graph(steps)).definition.unwrap();
        assert_eq!(definition.step_batches(ScopeIx(0)).len(), limits::STEPS);
        assert_eq!(definition.critical_path(ScopeIx(0)).steps.len(), limits::STEPS);
        let routes = (0..limits::STEPS).map(|i| work(&format!("s{i}"))).collect();
        assert!(checked(routed(routes)).definition.is_some());
    };
    small.spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_cycle_of_a_thousand_is_found_and_shown_with_its_middle_left_out() {
    let steps = chain(1_000).with(|steps| steps[0].after = vec![id("s999")]);
    let problems = checked(graph(steps)).problems;
    let cycle = problems.iter().find(|problem| problem.code == ProblemCode::Cycle).unwrap();
    assert!(cycle.message.starts_with("dependency cycle: s0 -> s1 -> s2 -> "), "{}", cycle.message);
    assert!(cycle.message.ends_with("-> s998 -> s999 -> s0"), "{}", cycle.message);
    assert!(cycle.message.contains(" -> … 961 more … -> "), "{}", cycle.message);
}

#[test]
fn ten_thousand_mistakes_are_not_ten_thousand_lines() {
    let steps = (0..limits::STEPS).map(|i| after(&format!("s{i}"), &["nowhere-at-all"])).collect();
    let problems = checked(graph(steps)).problems;
    assert!(problems.len() < 100, "{}", problems.len());
    assert!(problems.iter().any(|problem| problem.message == "9950 more of these are not shown"));
}

#[test]
fn a_workflow_called_from_everywhere_is_walked_once() {
    // Eight workflows that each call the next one a thousand times: 10^24 paths, if each were followed.
    let caller = |next: &str| graph((0..1_000).map(|i| call(&format!("c{i}"), next)).collect());
    let names: Vec<String> = (1..=8).map(|i| format!("w{i}")).collect();
    let others = names.iter().enumerate().map(|(i, name)| {
        let workflow = names.get(i + 1).map_or_else(|| graph(vec![work("a")]), |next| caller(next));
        (name.clone(), Arc::new(workflow))
    });
    let others: Others = others.collect();
    let definition = check_workflow(caller("w1").into(), &others).definition.unwrap();
    assert_eq!(definition.critical_path(ScopeIx(0)).total, Some(skein_core::time::Millis::from_secs(1)));
}

#[test]
fn many_empty_lanes_are_only_many_problems() {
    let lanes = Vec::from_iter((0..20_000).map(|i| (format!("l{i}"), Vec::new())));
    let lanes = lanes.iter().map(|(name, steps)| (name.as_str(), steps.clone())).collect();
    let step = parallel("p", lanes);
    assert!(matches!(&step.kind, StepKindSpec::Parallel(parallel) if parallel.lanes.len() == 20_000));
    assert!(has(routed(vec![step]), ProblemCode::EmptyScope));
}

/// Each step depends on ten earlier steps and reads their outputs, over a thousand levels.
#[test]
fn ten_thousand_steps_and_a_hundred_thousand_edges_are_checked() {
    let steps = (0..limits::STEPS).map(|i| {
        let before: Vec<String> = (i.saturating_sub(10)..i).map(|j| format!("s{j}")).collect();
        let names: Vec<&str> = before.iter().map(String::as_str).collect();
        let step = after(&format!("s{i}"), &names);
        before.iter().fold(step, |step, name| reading(step, &format!("$steps.{name}.x")))
    });
    let definition = fine_but(graph(steps.collect()), &[ProblemCode::ManySteps, ProblemCode::ManyEdges]);
    assert_eq!(definition.step_batches(ScopeIx(0)).len(), limits::STEPS);
    assert!(definition.bind(serde_json::json!({})).is_ok());
}

/// The type of a schema is computed once, not for each expression that refers to it.
#[test]
fn twenty_thousand_parameters_are_read_by_five_thousand_inputs() {
    let names: Vec<String> = (0..20_000).map(|i| format!("p{i}")).collect();
    let properties = names.iter().map(|name| (name.clone(), json!({"type": "string"})));
    let properties: serde_json::Map<String, serde_json::Value> = properties.collect();
    let schema = json!({"type": "object", "properties": properties, "required": names});
    let step = (0..5_000).fold(work("a"), |step, i| reading(step, &format!("$input.p{i}")));
    let definition = fine(inputs(schema, graph(vec![reading(step, "$input")])));
    assert_eq!(definition.root().workflow.scope.steps[0].inputs.len(), 5_001);
}

/// Many steps that declare the same outputs share one compiled schema.
#[test]
fn ten_thousand_steps_declare_the_same() {
    let properties = (0..100).map(|i| (format!("p{i}"), json!({"type": "string"})));
    let properties: serde_json::Map<String, serde_json::Value> = properties.collect();
    let schema = json!({"type": "object", "properties": properties});
    let steps = chain(limits::STEPS).into_iter().map(|step| {
        let outputs = skein_core::ir::Schema::new(schema.clone());
        step.with(|step| step.outputs = outputs)
    });
    fine_but(graph(steps.collect()), &[ProblemCode::ManySteps, ProblemCode::ManyEdges]);
}
