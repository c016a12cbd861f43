//! Parameters of a run, and stored definitions.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    limits,
    plan::{ContentHash, Plan, PlanDefinition, PlanProblem, ProblemCode, check_workflow},
};

use super::support::*;

fn definition(schema: Value) -> Arc<PlanDefinition> {
    fine(inputs(schema, graph(vec![work("a")])))
}

fn lines(bound: Result<Plan, Vec<PlanProblem>>) -> Vec<String> {
    bound.unwrap_err().iter().map(ToString::to_string).collect()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 3}, "url": {}},
        "required": ["name", "count", "url"],
    })
}

#[test]
fn defaults_are_filled_in() {
    let plan = definition(schema()).bind(json!({"name": "x", "url": null})).unwrap();
    assert_eq!(*plan.parameters, json!({"name": "x", "url": null, "count": 3}));
    assert_eq!(*definition(json!({})).bind(Value::Null).unwrap().parameters, json!({}));
}

#[test]
fn missing_parameter() {
    assert_eq!(
        lines(definition(schema()).bind(json!({}))),
        [
            "error[missing-parameter] parameters.name: the parameter `name` is missing",
            "error[missing-parameter] parameters.url: the parameter `url` is missing",
        ]
    );
}

#[test]
fn unknown_parameter_of_a_run() {
    assert_eq!(
        lines(definition(schema()).bind(json!({"name": "x", "url": 1, "cuont": 4}))),
        ["error[unknown-parameter] parameters.cuont: there is no parameter `cuont` (did you mean `count`?)"]
    );
    let host = json!({"name": "x", "url": 1, "_root": "/tmp"});
    assert!(definition(schema()).bind(host).is_ok(), "names that start with _ are the host's");
    assert!(definition(json!({})).bind(json!({"anything": 1})).is_ok());
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    assert_eq!(
        lines(definition(schema()).bind(json!({"name": 5, "cuont": 4, "count": "x"}))),
        [
            "error[missing-parameter] parameters.url: the parameter `url` is missing",
            "error[unknown-parameter] parameters.cuont: there is no parameter `cuont` (did you mean `count`?)",
            "error[bad-parameter] parameters.name: expected a string, found 5",
            "error[bad-parameter] parameters.count: expected an integer, found \"x\"",
        ]
    );
}

#[test]
fn bad_parameter() {
    assert_eq!(
        lines(definition(schema()).bind(json!({"name": 5, "url": 1}))),
        ["error[bad-parameter] parameters.name: expected a string, found 5"]
    );
    assert_eq!(
        lines(definition(schema()).bind(json!([1]))),
        ["error[bad-parameter] parameters: parameters must be an object of names and values"]
    );
}

#[test]
fn parameters_have_a_size() {
    let around = json!({"x": ""}).to_string().len();
    let of = |bytes: usize| definition(json!({})).bind(json!({"x": "y".repeat(bytes - around)}));
    assert!(of(limits::VALUE_BYTES - 1).is_ok());
    assert!(of(limits::VALUE_BYTES).is_ok());
    assert_eq!(of(limits::VALUE_BYTES + 1).unwrap_err()[0].code, ProblemCode::BadParameter);
}

#[test]
fn parameters_have_a_depth() {
    let most = skein_core::limits::VALUE_DEPTH;
    let of = |depth: usize| {
        let value = (1..depth).fold(json!([]), |value, _| json!([value]));
        definition(json!({})).bind(json!({"x": value})).is_ok()
    };
    assert!(of(most - 1));
    assert!(!of(most + 1));
}

#[test]
fn the_hash_is_of_workflow_and_parameters() {
    let of = |value: Value| definition(json!({})).bind(value).unwrap().hash;
    assert_eq!(of(json!({"a": 1, "b": 2})), of(json!({"b": 2, "a": 1})));
    assert_ne!(of(json!({"a": 1})), of(json!({"a": 2})));
    let other = fine(graph(vec![work("b")])).bind(json!({"a": 1})).unwrap().hash;
    assert_ne!(of(json!({"a": 1})), other);
}

#[test]
fn marks_of_a_composer_do_not_count_in_the_hash() {
    let marked = |marks: &[&str]| {
        let mark = |labels: &mut BTreeMap<String, Value>, name: &str| {
            labels.extend(marks.iter().map(|mark| (name.to_owned(), json!({"at": mark}))));
        };
        let step = work("a").with(|step| mark(&mut step.extensions.labels, "ui"));
        fine(graph(vec![step]).with(|workflow| mark(&mut workflow.extensions.labels, "ui")))
    };
    let (plain, marked) = (marked(&[]), marked(&["here"]));
    assert_eq!(plain.hash(), marked.hash());
    assert!(plain.is_same_step((plain.root().root, 0), &marked, (marked.root().root, 0)));
    // A definition that an earlier version stored keeps its hash, and no other one.
    let frozen = marked.to_frozen();
    let earlier = ContentHash::hash_json(&(frozen.version, &frozen.workflow, &frozen.calls));
    let load = |stored: ContentHash| {
        let loaded = PlanDefinition::from_frozen(frozen.clone()).definition.unwrap();
        loaded.keep_stored_hash(stored);
        loaded.hash()
    };
    assert_ne!(earlier, marked.hash());
    assert_eq!((load(earlier), load(ContentHash::ZERO)), (earlier, marked.hash()));
}

fn with_calls() -> Arc<PlanDefinition> {
    let others = library(vec![
        ("child", graph(vec![call("c", "grandchild"), reading(after("b", &["c"]), "$steps.c.x")])),
        ("grandchild", routed(vec![each("all", "$input.list", vec![reading(work("a"), "$item.x")])])),
    ]);
    check_workflow(graph(vec![call("sub", "child"), gate("g", |_| {})]).into(), &others).definition.unwrap()
}

#[test]
fn a_frozen_definition_comes_back_with_the_same_hash() {
    let definition = with_calls();
    let json = serde_json::to_string(&definition.to_frozen()).unwrap();
    let back = PlanDefinition::from_frozen_json(&json).definition.unwrap();
    assert_eq!(back.hash(), definition.hash());
    assert_eq!(serde_json::to_string(&back.to_frozen()).unwrap(), json, "stable text");
    assert_eq!(back.workflows.len(), 3);
}

#[test]
fn bad_frozen() {
    let code = |json: &str| PlanDefinition::from_frozen_json(json).problems[0].code;
    let deep = "[".repeat(100_000);
    for json in ["", "null", "{}", "[1]", r#"{"version":1}"#, r#"{"version":1,"workflow":{},"calls":7}"#, &deep] {
        assert_eq!(code(json), ProblemCode::BadFrozen, "{}", &json[..json.len().min(40)]);
    }
    let newer = serde_json::to_string(&with_calls().to_frozen()).unwrap().replace("\"version\":1", "\"version\":2");
    assert_eq!(code(&newer), ProblemCode::BadFrozen);
}

#[test]
fn what_is_frozen_is_not_trusted() {
    let mut frozen = with_calls().to_frozen();
    frozen.calls.remove("grandchild");
    let checked = PlanDefinition::from_frozen(frozen);
    assert!(checked.definition.is_none());
    assert_eq!(checked.problems[0].code, ProblemCode::UnknownWorkflow);
}
