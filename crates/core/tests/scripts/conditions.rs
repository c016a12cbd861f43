//! `when`: skipped steps, and the effect on their dependents.

use serde_json::json;
use skein_core::{
    expr::{Expr, ReferenceRoot, swdl},
    ir::{InputBinding, OutcomeEffect, Schema, WorkerSpec},
};

use crate::support::*;

fn when(name: &str, condition: &str) -> skein_core::ir::Step {
    work(name).with(|step| step.when = Some(cond(condition)))
}

/// A true condition has the same effect as none.
#[test]
fn a_true_condition_lets_the_step_run() {
    script!(graph(vec![when("a", "$input.go == true")])).with(json!({"go": true})).start().ok("a").done();
}

/// A stage skipped by its condition satisfies its dependents, if the format says so; its output is null.
#[test]
fn a_skipped_agent_stage_can_satisfy() {
    let skipped = when("a", "$input.go == true").with(|a| a.policy.effects.skipped_by_condition = OutcomeEffect::GO_ON);
    let next = reads(after("b", &["a"]), "of", "$steps.a.x");
    script!(graph(vec![skipped, next])).start().ok("b").done();
}

/// A gate skipped by its condition has approved nothing: its dependents are skipped.
#[test]
fn a_skipped_gate_satisfies_nobody() {
    let skipped = gate("g", |_| {}).with(|g| g.when = Some(cond("$input.go == true")));
    script!(graph(vec![skipped, after("deploy", &["g"])])).start().done();
}

/// An error in a condition fails the step; it never counts as false.
#[test]
fn a_condition_that_cannot_be_evaluated_fails_the_step() {
    script!(graph(vec![when("a", "$input.n > 3"), after("b", &["a"])])).with(json!({"n": "x"})).start().done();
}

/// Null can be compared for equality, but not ordered.
#[test]
fn ordering_with_null_is_an_error() {
    script!(graph(vec![when("eq", "$input.n == 3"), when("lt", "$input.n < 3")])).start().done();
}

/// In a routed scope, a skipped step lets the cursor move on if it satisfies, and ends the scope otherwise.
#[test]
fn a_skipped_step_in_a_route_moves_on_if_it_satisfies() {
    let skipped = when("a", "$input.go").with(|a| a.policy.effects.skipped_by_condition = OutcomeEffect::GO_ON);
    script!(routed(vec![skipped, work("b"), when("c", "$input.go"), work("d")])).start().ok("b").done();
}

/// The condition is evaluated on arrival, when the steps it reads have ended.
#[test]
fn a_condition_reads_what_came_before() {
    let steps = vec![work("a"), after("b", &["a"]).with(|b| b.when = Some(cond("$steps.a.n > 3")))];
    script!(graph(steps)).start().gives("a", json!({"n": 4})).ok("b").done();
}

/// A step that was not routed to reads as null.
#[test]
fn a_step_that_was_not_routed_to_is_null() {
    let join = |name: &str| work(name).with(|step| step.next = Some(to("join")));
    let steps = vec![
        branch("choose", &[("$input.go", "yes")], "no"),
        join("yes"),
        join("no"),
        reads(work("join"), "of", "$steps.yes.x"),
    ];
    script!(routed(steps)).start().ok("no").ok("join").done();
}

/// In addition to its inputs and its steps, a workflow can read its own name, the run, and the status and summary of a
/// step, in the words of its format.
#[test]
fn a_workflow_can_read_about_itself_and_its_run() {
    let about = "${{ workflow.id }} ${{ workflow.version }} in ${{ run.id }} (${{ run.attempt }}, ${{ run.started_at }}): \
                 ${{ stages.a.status }} ${{ stages.a.summary }} ${{ context.n }}";
    let template = swdl::parse_template(about, swdl::SwdlExprScope::Stage).unwrap();
    let next = after("b", &["a"]).with(|b| {
        b.inputs.push(InputBinding::new("about", template));
    });
    script!(graph(vec![work("a"), next])).start().ok("a").done();
}

/// The instructions of an agent are evaluated when its first attempt starts.
#[test]
fn instructions_are_worked_out_at_the_start() {
    let told = work("a").with(|step| {
        the_work(step).worker =
            WorkerSpec::Command { program: "make".into(), arguments: vec![value("$input.target"), value("all")] };
    });
    script!(inputs(json!({"properties": {"target": {}}}), graph(vec![told])))
        .with(json!({"target": "docs"}))
        .start()
        .ok("a")
        .done();
}

/// The values of `env` are evaluated once, from the run and the workflow, before any step.
#[test]
fn the_environment_knows_the_run_and_the_workflow() {
    let root = |root: ReferenceRoot| Expr::reference(root, ["id"]);
    let step = work("a").with(|step| {
        for name in ["run", "workflow"] {
            let value = Expr::reference(ReferenceRoot::Env, [name]);
            step.inputs.push(InputBinding::new(name, value));
        }
    });
    let workflow = graph(vec![step]).with(|workflow| {
        workflow.env =
            [("run".to_owned(), root(ReferenceRoot::Run)), ("workflow".to_owned(), root(ReferenceRoot::Workflow))]
                .into();
    });
    script!(workflow).start().ok("a").done();
}

/// A step skipped by its condition has the declared defaults as output.
#[test]
fn a_skipped_step_gives_the_defaults_it_declares() {
    let a = when("a", "false").with(|step| {
        step.outputs = Schema::new(json!({"properties": {"n": {"default": 3}, "text": {"type": "string"}}}));
        step.policy.effects.skipped_by_condition = OutcomeEffect::GO_ON;
    });
    let b = reads(reads(after("b", &["a"]), "n", "$steps.a.n"), "text", "$steps.a.text");
    script!(graph(vec![a, b])).start().ok("b").done();
}
