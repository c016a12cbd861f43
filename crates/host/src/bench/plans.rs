//! Plans whose shape is all there is to them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    expr::Expr,
    ids::{StepId, WorkflowId},
    ir::{
        Binding, Check, Each, EachErrors, Effect, Gate, GateTimeout, Kind, Schema, Scope, Shape, Step, Work,
        Worker, Workflow,
    },
    limits,
    plan::{Plan, check},
};

/// Steps one after the other.
pub fn chain(length: usize) -> Plan {
    let after = |i: usize| if i == 0 { Vec::new() } else { vec![format!("s{}", i - 1)] };
    plan((0..length).map(|i| step(&format!("s{i}"), after(i))).collect(), None)
}

/// The tool of the steps of [`functions`].
pub(super) const TOOL: &str = "json.merge";

/// Steps one after the other, each of which a function of Skein does: two small objects are put together.
pub fn functions(length: usize) -> Plan {
    let values =
        Expr::literal(json!([{"a": 1, "b": "two"}, {"b": "three"}])).expect("values are an expression");
    let step = |i: usize| {
        let worker = Worker::Tool { tool: TOOL.to_owned(), pinned: None };
        let mut step = Step::new(name(&format!("s{i}")), Kind::Work(Box::new(Work::new(worker))));
        step.after = i.checked_sub(1).map(|before| name(&format!("s{before}"))).into_iter().collect();
        let (name, schema) = ("values".to_owned(), Schema::default());
        step.inputs = vec![Binding { name: name.into(), value: values.clone(), schema, required: true }];
        step
    };
    plan((0..length).map(step).collect(), None)
}

/// What each of them gives.
pub(super) fn merged() -> Value {
    json!({"value": {"a": 1, "b": "three"}})
}

/// A step, so many beside each other after it, and one after all of them.
pub fn fan_out(width: usize) -> Plan {
    let mut steps = vec![step("first", Vec::new())];
    let names: Vec<String> = (0..width).map(|i| format!("s{i}")).collect();
    steps.extend(names.iter().map(|name| step(name, vec!["first".to_owned()])));
    steps.push(step("last", names));
    plan(steps, None)
}

/// Steps that wait for nothing, so many of them at once.
pub fn side_by_side(count: usize, at_once: u32) -> Plan {
    plan((0..count).map(|i| step(&format!("s{i}"), Vec::new())).collect(), Some(at_once))
}

/// Two steps for each of so many items, four items at once.
pub fn items(count: usize) -> Plan {
    let over = Expr::literal(vec![7; count]).expect("numbers are an expression");
    let inner = Scope::new(Shape::Graph, vec![step("one", Vec::new()), step("two", vec!["one".to_owned()])]);
    let (parallelism, errors) = (Some(4), EachErrors::default());
    let each = Each { over, parallelism, errors, scope: Arc::new(inner) };
    plan(vec![Step::new(name("all"), Kind::Each(Box::new(each)))], None)
}

/// Steps beside each other, each done again and again because its check is never content.
pub fn checked(count: usize) -> Plan {
    let again = |n: usize| {
        let mut step = step(&format!("s{n}"), Vec::new());
        step.policy.effects.incomplete = Effect::CONTINUE;
        if let Kind::Work(work) = &mut step.kind {
            work.check = Some(Box::new(Check {
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
    plan((0..count).map(again).collect(), None)
}

/// A step, and a gate after it that nobody opens.
pub fn gated() -> Plan {
    let gate = Gate {
        message: Expr::literal("May it go on?").expect("a text is an expression"),
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    let mut gate = Step::new(name("gate"), Kind::Gate(Box::new(gate)));
    gate.after = vec![name("first")];
    plan(vec![step("first", Vec::new()), gate], None)
}

fn name(text: &str) -> StepId {
    StepId::new(text).expect("letters and digits are a name")
}

fn step(text: &str, after: Vec<String>) -> Step {
    let worker = Worker::Command { program: "true".to_owned(), arguments: Vec::new() };
    let mut step = Step::new(name(text), Kind::Work(Box::new(Work::new(worker))));
    step.after = after.iter().map(|text| name(text)).collect();
    step
}

fn plan(steps: Vec<Step>, concurrency: Option<u32>) -> Plan {
    let mut scope = Scope::new(Shape::Graph, steps);
    scope.concurrency = concurrency;
    let workflow = Workflow::new(WorkflowId::new("bench").expect("letters are a name"), scope);
    let checked = check(Arc::new(workflow), &BTreeMap::new());
    checked.definition.expect("the plan is right").bind(json!({})).expect("there are no parameters")
}
