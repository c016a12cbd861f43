//! References in expressions, and the order of steps that they require.

use serde_json::json;
use skein_core::{
    expr::{Expr, ReferenceRoot},
    ir::{HookAction, HookTiming, Schema, Step, StepKindSpec, UndoSpec, WorkSpec, WorkerSpec, WorkflowHook},
    plan::{ProblemCode, check_workflow},
    time::Millis,
};

use super::support::*;

fn declaring(step: Step, schema: serde_json::Value) -> Step {
    step.with(|step| step.outputs = Schema::new(schema))
}

#[test]
fn unknown_step() {
    says(
        graph(vec![work("build"), reading(after("b", &["build"]), "$steps.biuld.x")]),
        &["error[unknown-step] b: inputs.in0: there is no step `biuld` (did you mean `build`?)"],
    );
}

#[test]
fn self_reference() {
    says(
        graph(vec![reading(work("a"), "$steps.a.x")]),
        &["error[self-reference] a: inputs.in0: `a` reads itself before it has run"],
    );
    says(
        routed(vec![each("all", "$input.list", vec![reading(work("a"), "$steps.all.x")])]),
        &["error[self-reference] a: inputs.in0: `all` contains this and has not ended yet"],
    );
}

#[test]
fn an_undo_reads_the_step_it_undoes() {
    let undoing = |reference: &str| {
        work("a").with(|step| {
            step.undo = Some(Box::new(UndoSpec {
                id: id("unmake"),
                work: WorkSpec::new(WorkerSpec::Tool { tool: "undo".into(), pinned: None }),
                inputs: reading(work("x"), reference).inputs,
                timeout: Some(Millis(1)),
                retry: Default::default(),
            }));
        })
    };
    fine(graph(vec![undoing("$steps.a.id")]));
    says(
        graph(vec![undoing("$steps.b.id"), after("b", &["a"])]),
        &["error[not-before] a: undo.inputs.in0: this reads `b` but never runs after it (make `a` depend on it)"],
    );
}

#[test]
fn not_before_in_a_graph() {
    says(
        graph(vec![work("a"), reading(work("b"), "$steps.a.x")]),
        &["error[not-before] b: inputs.in0: this reads `a` but never runs after it (make `b` depend on it)"],
    );
    fine(graph(vec![work("a"), reading(after("b", &["a"]), "$steps.a.x")]));
}

#[test]
fn not_before_in_a_routed_scope() {
    says(
        routed(vec![reading(work("a"), "$steps.b.x"), work("b")]),
        &["error[not-before] a: inputs.in0: this reads `b` but never runs after it"],
    );
    // Two arms exclude each other; both can be read after they join.
    let arms = |reader: &str| {
        let step = |name: &str, step: Step| if name == reader { reading(step, "$steps.one.x") } else { step };
        routed(vec![
            branch("route", &[("$input.x == 1", "one")], "two"),
            step("one", next("one", "join")),
            step("two", next("two", "join")),
            step("join", work("join")),
        ])
    };
    assert!(has(arms("two"), ProblemCode::NotBefore));
    fine(arms("join"));
}

#[test]
fn before_the_start_nothing_has_run() {
    let env = graph(vec![work("a")]).with(|workflow| drop(workflow.env.insert("x".into(), value("$steps.a.y"))));
    says(env, &["error[not-before] env.x: this reads `a` but never runs after it"]);
    let hook = |when| {
        let action = HookAction::Notify { channel: "chat".into(), message: Some(value("$steps.a.y")) };
        graph(vec![work("a")]).with(|workflow| workflow.hooks.push(WorkflowHook { when, action }))
    };
    assert!(has(hook(HookTiming::Start), ProblemCode::NotBefore));
    fine(hook(HookTiming::Failure));
}

#[test]
fn sibling_lane() {
    let lanes = |read: &str| {
        let reader = reading(work("y"), read);
        parallel("p", vec![("a", vec![work("x")]), ("b", vec![work("w"), reader])])
    };
    says(
        routed(vec![lanes("$steps.x.v")]),
        &["error[sibling-lane] y: inputs.in0: `x` is in another lane that runs at the same time \
           (read it after the parallel step)"],
    );
    fine(routed(vec![lanes("$steps.w.v"), reading(work("after"), "$steps.x.v")]));
}

#[test]
fn inside_each() {
    says(
        routed(vec![each("all", "$input.list", vec![work("one")]), reading(work("b"), "$steps.one.x")]),
        &["error[inside-each] b: inputs.in0: `one` runs once for each item of `all`, so it has no single result here \
           (read `all`, which has every item's result)"],
    );
    let inside = each("all", "$input.list", vec![work("one"), reading(work("two"), "$steps.one.x")]);
    fine(routed(vec![work("before"), inside]));
    let outer = each("all", "$steps.before.list", vec![reading(work("two"), "$steps.before.x")]);
    fine(routed(vec![work("before"), outer]));
}

#[test]
fn a_loop_reads_its_own_steps_in_while_and_only_there() {
    let body = || vec![work("try"), work("judge")];
    fine(routed(vec![
        repeat("refine", "$steps.judge.score < 0.8", 5, body()),
        reading(work("b"), "$steps.judge.score"),
    ]));
    let early = reading(repeat("refine", "$input.more == true", 5, body()), "$steps.judge.score");
    assert!(has(routed(vec![early]), ProblemCode::NotBefore));
}

#[test]
fn a_result_reads_every_step_of_its_scope() {
    let result =
        |text: &str| graph(vec![work("a"), work("b")]).with(|workflow| workflow.scope.result = Some(value(text)));
    fine(result("$steps.b.x"));
    says(result("$steps.c.x"), &["error[unknown-step] result: there is no step `c`"]);
}

#[test]
fn no_item() {
    says(
        routed(vec![reading(work("a"), "$item.x")]),
        &["error[no-item] a: inputs.in0: there is no item here: only steps inside an each have one"],
    );
    assert!(has(routed(vec![each("all", "$item.list", vec![work("a")])]), ProblemCode::NoItem));
    let nested = parallel("p", vec![("a", vec![reading(work("x"), "$index")]), ("b", vec![work("y")])]);
    fine(routed(vec![each("all", "$input.list", vec![nested])]));
}

#[test]
fn a_called_workflow_has_no_item_of_its_caller() {
    let others = library(vec![("child", graph(vec![reading(work("a"), "$item")]))]);
    let main = routed(vec![each("all", "$input.list", vec![call("c", "child")])]);
    assert!(check_workflow(main.into(), &others).problems.iter().any(|problem| problem.code == ProblemCode::NoItem));
}

#[test]
fn unknown_parameter() {
    let with = |schema| inputs(schema, routed(vec![reading(work("a"), "$input.nmae")]));
    let line = "error[unknown-parameter] a: inputs.in0: there is no parameter `nmae` (did you mean `name`?)";
    says(with(json!({"properties": {"name": {}}})), &[line]);
    says(with(json!({"properties": {"name": {}}, "additionalProperties": false})), &[line]);
    fine(with(json!({"properties": {"name": {}}, "additionalProperties": true})));
    fine(with(json!({"properties": {"name": {}}, "additionalProperties": {"type": "string"}})));
    fine(with(json!({"type": "object"})));
}

#[test]
fn unknown_output() {
    let with = |schema| {
        graph(vec![declaring(work("fetch"), schema), reading(after("b", &["fetch"]), "$steps.fetch.outputs.htm")])
    };
    let line = "b: inputs.in0: `fetch` does not declare the output `htm` (did you mean `html`?)";
    let closed = json!({"properties": {"html": {}}, "additionalProperties": false});
    says(with(closed), &[&format!("error[unknown-output] {line}")]);
    says(with(json!({"properties": {"html": {}}})), &[&format!("warning[undeclared-output] {line}")]);
    fine(with(json!({"properties": {"html": {}}, "additionalProperties": true})));
}

#[test]
fn the_output_of_a_call_is_what_the_called_workflow_declares() {
    let child = graph(vec![work("a")]).with(|workflow| {
        workflow.scope.outputs = Schema::new(json!({"properties": {"url": {}}, "additionalProperties": false}));
    });
    let main = graph(vec![call("c", "child"), reading(after("b", &["c"]), "$steps.c.ulr")]);
    let problems = check_workflow(main.into(), &library(vec![("child", child)])).problems;
    assert!(problems.iter().any(|problem| problem.code == ProblemCode::UnknownOutput), "{problems:?}");
}

#[test]
fn type_clash() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let step = branch("b", &[("$steps.a.n < 'five'", "$end")], "$end");
    says(
        routed(vec![declaring(work("a"), schema.clone()), step]),
        &[
            "warning[type-clash] b: arms[0].when: `<` orders two numbers or two strings, not a whole number or null and \
           a string",
        ],
    );
    let wanting =
        reading(work("b"), "text").with(|step| step.inputs[0].schema = Schema::new(json!({"type": "integer"})));
    says(
        routed(vec![wanting]),
        &["warning[type-clash] b: inputs.in0: this is a string, but a whole number is expected"],
    );
    assert!(has(routed(vec![each("all", "text", vec![work("a")])]), ProblemCode::TypeClash));
}

#[test]
fn indirect_reference() {
    says(
        graph(vec![work("a"), after("b", &["a"]), reading(after("c", &["b"]), "$steps.a.x")]),
        &["warning[indirect-reference] c: inputs.in0: `a` is only an indirect dependency \
           (depend on it directly, so that later edits keep the order)"],
    );
    fine(routed(vec![work("a"), work("b"), reading(work("c"), "$steps.a.x")]));
}

#[test]
fn bad_schema() {
    let problems = checked(graph(vec![declaring(work("a"), json!({"type": "strin"}))])).problems;
    assert_eq!(problems[0].code, ProblemCode::BadSchema);
    assert_eq!((&problems[0].at.step, problems[0].at.field.to_string().as_str()), (&Some(id("a")), "outputs.type"));
    assert_eq!(
        problems[0].message,
        "invalid schema: \"strin\" is not a type; the types are string, number, integer, boolean, \
         object, array and null"
    );
    assert!(has(inputs(json!({"type": 3}), graph(vec![work("a")])), ProblemCode::BadSchema));
}

#[test]
fn every_expression_of_a_step_is_looked_at() {
    let wrong = || value("$steps.nowhere.x");
    let command = || WorkerSpec::Command { program: "x".into(), arguments: vec![value("a"), wrong()] };
    let fields = |step: Step| -> Vec<String> {
        let problems = checked(routed(vec![step])).problems;
        let wrong = problems.iter().filter(|problem| problem.code == ProblemCode::UnknownStep);
        wrong.map(|problem| problem.at.field.to_string()).collect()
    };
    assert_eq!(fields(work("a").with(|step| step.when = Some(wrong()))), ["when"]);
    assert_eq!(fields(work("a").with(|step| the_work(step).worker = command())), ["arguments[1]"]);
    assert_eq!(fields(gate("g", |gate| gate.message = wrong())), ["message"]);
    assert_eq!(fields(gate("g", |gate| gate.shows = vec![wrong()])), ["shows[0]"]);
    assert_eq!(fields(each("e", "$steps.nowhere.x", vec![work("a")])), ["over"]);
    assert_eq!(fields(repeat("l", "$steps.nowhere.x == 1", 2, vec![work("a")])), ["while"]);
    let mut agent = work("a");
    the_work(&mut agent).worker = WorkerSpec::Agent {
        name: None,
        program: None,
        model: None,
        instructions: Some(wrong()),
        capabilities: Vec::new(),
        tools: Vec::new(),
        max_turns: None,
        command_timeout: None,
    };
    assert_eq!(fields(agent), ["instructions"]);
}

#[test]
fn a_script_is_never_an_expression() {
    let script = work("a").with(|step| {
        the_work(step).worker = WorkerSpec::Script { text: "echo $steps.nowhere.x".into(), capabilities: Vec::new() };
    });
    fine(routed(vec![script]));
}

#[test]
fn a_place_inside_an_expression_is_named() {
    let object = skein_core::expr::aip15::parse_value(&json!({"deep": ["$input.x", "$steps.nowhere.x"]})).unwrap();
    let step = reading(work("a"), "x").with(|step| step.inputs[0].value = object);
    let problem = checked(routed(vec![step])).problems.remove(0);
    assert_eq!(problem.at.field.to_string(), "inputs.in0.deep.1");
    assert_eq!(problem.at.span.map(|span| (span.start, span.end)), Some((0, 16)));
    let made = reading(work("a"), "x").with(|step| step.inputs[0].value = Expr::reference(ReferenceRoot::Item, ["x"]));
    assert_eq!(checked(routed(vec![made])).problems[0].at.span, None);
}

#[test]
fn only_the_expression_of_each_kind_is_its_own() {
    let step = call("c", "child");
    assert!(matches!(step.kind, StepKindSpec::Call(_)));
    let others = library(vec![("child", graph(vec![work("a")]))]);
    let main = routed(vec![work("first"), reading(step, "$steps.first.x"), reading(work("z"), "$steps.a.x")]);
    assert_eq!(said(check_workflow(main.into(), &others)), ["error[unknown-step] z: inputs.in0: there is no step `a`"]);
}
