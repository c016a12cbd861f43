//! Calls: unknown, recursive, too deep, and their outputs.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    ids::WorkflowId,
    ir::Workflow,
    limits,
    plan::{ProblemCode, check_workflow},
};

use super::support::*;

fn named(name: &str, workflow: Workflow) -> Workflow {
    workflow.with(|workflow| workflow.id = WorkflowId::new(name).unwrap())
}

#[test]
fn unknown_workflow() {
    let others = library(vec![("deploy", graph(vec![work("a")]))]);
    assert_eq!(
        said(check_workflow(graph(vec![call("ship", "deply")]).into(), &others)),
        ["error[unknown-workflow] ship: workflow: there is no workflow `deply` to call (did you mean `deploy`?)"]
    );
    assert!(said(check_workflow(graph(vec![call("ship", "deploy")]).into(), &others)).is_empty());
}

#[test]
fn recursion_of_itself_also_when_the_library_does_not_have_it() {
    let line =
        "error[recursion] again: workflow: the workflow calls itself: main -> main (use a loop step for repetition)";
    let main = || graph(vec![call("again", "main")]);
    assert_eq!(said(checked(main())), [line]);
    assert_eq!(said(check_workflow(main().into(), &library(vec![("main", main())]))), [line]);
}

#[test]
fn recursion_through_others_is_printed_as_a_path() {
    let main = || named("main", graph(vec![call("to-a", "a")]));
    let others = library(vec![
        ("a", named("a", graph(vec![call("to-b", "b")]))),
        ("b", named("b", graph(vec![call("back", "main")]))),
        ("main", main()),
    ]);
    assert_eq!(
        said(check_workflow(main().into(), &others)),
        ["error[recursion] to-a: workflow: the workflow calls itself: main -> a -> b -> main \
          (use a loop step for repetition)"]
    );
    let others = library(vec![("a", graph(vec![call("to-b", "b")])), ("b", graph(vec![call("to-a", "a")]))]);
    let problems = check_workflow(main().into(), &others).problems;
    assert_eq!(problems[0].message, "the workflow calls itself: a -> b -> a");
    assert_eq!(problems[0].at.workflow.as_deref(), Some("a"));
}

#[test]
fn call_depth() {
    let chain = |depth: usize| {
        let workflow = |i: usize| {
            if i < depth { graph(vec![call("c", &format!("w{}", i + 1))]) } else { graph(vec![work("a")]) }
        };
        let names: Vec<String> = (1..=depth).map(|i| format!("w{i}")).collect();
        let others = library(names.iter().zip(1..).map(|(name, i)| (name.as_str(), workflow(i))).collect());
        let problems = check_workflow(workflow(0).into(), &others).problems;
        let has = |code| problems.iter().any(|problem| problem.code == code);
        (has(ProblemCode::CallDepth), has(ProblemCode::DeepCalls))
    };
    let (warn, hard) = (limits::CALL_DEPTH_WARN, limits::CALL_DEPTH);
    assert_eq!(chain(warn), (false, false));
    assert_eq!(chain(warn + 1), (false, true));
    assert_eq!(chain(hard - 1), (false, true));
    assert_eq!(chain(hard), (false, true));
    assert_eq!(chain(hard + 1), (true, false));
}

#[test]
fn problems_of_a_called_workflow_name_it() {
    let others = library(vec![("child", graph(vec![after("a", &["x"])]))]);
    assert_eq!(
        said(check_workflow(graph(vec![call("c", "child")]).into(), &others)),
        ["error[unknown-dependency] child: a: after[0]: there is no step `x`"]
    );
}

#[test]
fn a_workflow_that_is_called_twice_is_there_once() {
    let others = library(vec![("child", graph(vec![work("a")]))]);
    let main = graph(vec![call("c", "child"), call("d", "child")]);
    let definition = check_workflow(Arc::new(main), &others).definition.unwrap();
    assert_eq!(definition.workflows.len(), 2);
    assert_eq!(definition.scopes.len(), 2);
    let root = definition.scope(definition.root().root);
    assert_eq!(root.inner_scope(0, 0), root.inner_scope(1, 0));
}

#[test]
fn a_call_gives_what_the_called_workflow_needs() {
    let schema = json!({
        "properties": {"url": {}, "depth": {"default": 1}},
        "required": ["url", "depth"],
        "additionalProperties": false,
    });
    let others = library(vec![("child", inputs(schema, graph(vec![work("a")])))]);
    let giving = |name: &str| {
        let step = reading(call("c", "child"), "x").with(|step| step.inputs[0].name = name.into());
        said(check_workflow(graph(vec![step]).into(), &others))
    };
    assert!(giving("url").is_empty());
    assert_eq!(
        giving("urls"),
        [
            "error[missing-parameter] c: inputs.url: `child` needs the parameter `url`",
            "error[unknown-parameter] c: inputs.urls: `child` has no parameter `urls` (did you mean `url`?)",
        ]
    );
}
