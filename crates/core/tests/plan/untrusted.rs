//! Untrusted text that reaches a step with secrets, on every possible path.

use skein_core::{
    ir::{Schema, Step, WorkerSpec, Workflow, WorkflowTrigger},
    plan::{CheckedWorkflow, ProblemCode, check_workflow},
};

use super::support::*;

/// Returns the steps with a warning, and the sources of the text.
fn warned(checked: &CheckedWorkflow) -> Vec<String> {
    let of = checked.problems.iter().filter(|problem| problem.code == ProblemCode::UntrustedText);
    of.map(|problem| {
        let step = problem.at.step.as_ref().map_or_else(String::new, ToString::to_string);
        let from: Vec<String> =
            problem.related.iter().map(|(at, message)| format!("{}: {message}", at.field)).collect();
        format!("{step}; {}", from.join("; "))
    })
    .collect()
}

fn alone(workflow: Workflow) -> Vec<String> {
    warned(&checked(workflow))
}

fn agent(step: Step) -> Step {
    step.with(|step| {
        the_work(step).worker = WorkerSpec::Agent {
            name: Some("writer".into()),
            program: None,
            model: None,
            instructions: Some(value("Write.")),
            capabilities: Vec::new(),
            tools: Vec::new(),
            max_turns: None,
            command_timeout: None,
        };
    })
}

fn secret(step: Step) -> Step {
    step.with(|step| the_work(step).isolation.secrets = vec!["TOKEN".into()])
}

#[test]
fn what_an_agent_gives() {
    let reads = || secret(reading(after("b", &["a"]), "$steps.a.text"));
    assert_eq!(alone(graph(vec![agent(work("a")), reads()])), ["b; inputs.in0: an agent writes this in `a`"]);
    assert_eq!(alone(graph(vec![work("a"), reads()])), [""; 0], "a command is the author's");
    let declared = agent(work("a")).with(|step| {
        step.outputs = Schema::new(serde_json::json!({"properties": {"text": {"type": "boolean"}}}));
    });
    assert_eq!(alone(graph(vec![declared, reads()])), [""; 0], "a boolean holds no words");
}

#[test]
fn what_a_list_inside_gives() {
    let items = each("items", "$steps.a.list", vec![secret(reading(work("one"), "$item.name"))]);
    assert_eq!(alone(routed(vec![agent(work("a")), items])), ["one; inputs.in0: an agent writes this in `a`"]);
    let lanes = parallel("both", vec![("one", vec![agent(work("a"))]), ("two", vec![work("b")])]);
    assert_eq!(
        alone(routed(vec![lanes, secret(reading(work("c"), "$steps.both"))])),
        ["c; inputs.in0: an agent writes this in `a`"]
    );
}

#[test]
fn what_comes_with_a_signal_or_a_trigger() {
    let reads = || secret(reading(work("b"), "$steps.a.eventPayload"));
    assert_eq!(
        alone(routed(vec![wait("a", &["paid"]), reads()])),
        ["b; inputs.in0: the sender of the signal that `a` waits for writes this"]
    );
    let given = |trigger: Option<WorkflowTrigger>| {
        let workflow = graph(vec![secret(reading(work("a"), "$input.note"))]);
        alone(workflow.with(|workflow| workflow.triggers.extend(trigger)))
    };
    assert_eq!(given(None), [""; 0], "a person who starts a run writes the parameters");
    assert_eq!(given(Some(WorkflowTrigger::Cron { cron: "0 6 * * *".into(), timezone: None })), [""; 0]);
    assert_eq!(
        given(Some(WorkflowTrigger::Webhook { path: "/new".into() })),
        ["a; inputs.in0: the sender of the trigger writes this"]
    );
}

#[test]
fn what_goes_through_calls() {
    let child = || {
        let scope = graph(vec![secret(reading(work("inner"), "$input.in0"))]);
        library(vec![("child", scope)])
    };
    let main = |first: Step| {
        let calls = call("calls", "child").with(|step| step.after = vec![id("a")]);
        graph(vec![first, reading(calls, "$steps.a.text")])
    };
    assert_eq!(
        warned(&check_workflow(main(agent(work("a"))).into(), &child())),
        ["inner; inputs.in0: an agent writes this in `a`"]
    );
    assert_eq!(warned(&check_workflow(main(work("a")).into(), &child())), [""; 0]);
    let gives = || library(vec![("child", graph(vec![agent(work("inner"))]))]);
    let main = graph(vec![call("calls", "child"), secret(reading(after("b", &["calls"]), "$steps.calls.text"))]);
    assert_eq!(warned(&check_workflow(main.into(), &gives())), ["b; inputs.in0: an agent writes this in `inner`"]);
}
