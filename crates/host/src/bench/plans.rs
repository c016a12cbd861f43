//! Synthetic plans of a given shape.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::Expr,
    ids::{StepId, WorkflowId},
    ir::{
        CompletionCheck, EachErrorPolicy, EachSpec, GateSpec, GateTimeout, InputBinding, OutcomeEffect, Schema,
        ScopeShape, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow,
    },
    limits,
    plan::{Plan, check_workflow},
};

/// Returns a chain of steps.
pub fn chain_plan(length: usize) -> Plan {
    let after = |i: usize| if i == 0 { Vec::new() } else { vec![format!("s{}", i - 1)] };
    bind_plan((0..length).map(|i| command_step(&format!("s{i}"), after(i))).collect(), None)
}

/// The tool of the steps of [`function_plan`].
pub(super) const TOOL: &str = "json.merge";

/// Returns a chain of steps, each of which merges two small objects with a builtin function.
pub fn function_plan(length: usize) -> Plan {
    let values = Expr::literal(json!([{"a": 1, "b": "two"}, {"b": "three"}])).expect("values are an expression");
    let step = |i: usize| {
        let worker = WorkerSpec::Tool { tool: TOOL.to_owned(), pinned: None };
        let mut step = Step::new(step_id(&format!("s{i}")), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
        step.after = i.checked_sub(1).map(|before| step_id(&format!("s{before}"))).into_iter().collect();
        let (name, schema) = ("values".to_owned(), Schema::default());
        step.inputs = vec![InputBinding { name: name.into(), value: values.clone(), schema, required: true }];
        step
    };
    bind_plan((0..length).map(step).collect(), None)
}

/// Returns the output of each of these steps.
pub(super) fn merged_output() -> Value {
    json!({"value": {"a": 1, "b": "three"}})
}

/// Returns a step, `width` parallel steps after it, and one step after all of them.
pub fn fan_out_plan(width: usize) -> Plan {
    let mut steps = vec![command_step("first", Vec::new())];
    let names: Vec<String> = (0..width).map(|i| format!("s{i}")).collect();
    steps.extend(names.iter().map(|name| command_step(name, vec!["first".to_owned()])));
    steps.push(command_step("last", names));
    bind_plan(steps, None)
}

/// Returns independent steps, of which `at_once` run in parallel.
pub fn parallel_plan(count: usize, at_once: u32) -> Plan {
    bind_plan((0..count).map(|i| command_step(&format!("s{i}"), Vec::new())).collect(), Some(at_once))
}

/// Returns two steps for each of `count` items, four items in parallel.
pub fn items_plan(count: usize) -> Plan {
    let over = Expr::literal(vec![7; count]).expect("numbers are an expression");
    let inner = StepScope::new(
        ScopeShape::Graph,
        vec![command_step("one", Vec::new()), command_step("two", vec!["one".to_owned()])],
    );
    let (parallelism, errors) = (Some(4), EachErrorPolicy::default());
    let each = EachSpec { over, parallelism, errors, scope: Arc::new(inner) };
    bind_plan(vec![Step::new(step_id("all"), StepKindSpec::Each(Box::new(each)))], None)
}

/// Returns parallel steps, each of which is repeated because its check never passes.
pub fn checked_plan(count: usize) -> Plan {
    let again = |n: usize| {
        let mut step = command_step(&format!("s{n}"), Vec::new());
        step.policy.effects.incomplete = OutcomeEffect::CONTINUE;
        if let StepKindSpec::Work(work) = &mut step.kind {
            work.check = Some(Box::new(CompletionCheck {
                worker: work.worker.clone(),
                timeout: None,
                max_iterations: limits::ITERATIONS,
                incomplete_is_an_end: true,
                decision_file: None,
                convergence: None,
            }));
        }
        step
    };
    bind_plan((0..count).map(again).collect(), None)
}

/// Returns a step, followed by a gate that nobody opens.
pub fn gated_plan() -> Plan {
    let gate = GateSpec {
        message: Expr::literal("Continue?").expect("a text is an expression"),
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    let mut gate = Step::new(step_id("gate"), StepKindSpec::Gate(Box::new(gate)));
    gate.after = vec![step_id("first")];
    bind_plan(vec![command_step("first", Vec::new()), gate], None)
}

fn step_id(text: &str) -> StepId {
    StepId::new(text).expect("letters and digits are a name")
}

fn command_step(text: &str, after: Vec<String>) -> Step {
    let worker = WorkerSpec::Command { program: "true".to_owned(), arguments: Vec::new() };
    let mut step = Step::new(step_id(text), StepKindSpec::Work(Box::new(WorkSpec::new(worker))));
    step.after = after.iter().map(|text| step_id(text)).collect();
    step
}

fn bind_plan(steps: Vec<Step>, concurrency: Option<u32>) -> Plan {
    let mut scope = StepScope::new(ScopeShape::Graph, steps);
    scope.concurrency = concurrency;
    let workflow = Workflow::new(WorkflowId::new("bench").expect("letters are a name"), scope);
    let checked = check_workflow(Arc::new(workflow), &BTreeMap::new());
    checked.definition.expect("the plan is right").bind(json!({})).expect("there are no parameters")
}
