//! A workflow with all eight kinds of steps, and the result of each.

use std::sync::Arc;

use skein_core::{
    builder::*,
    ir::{
        BackoffGrowth, ErrorClass, GateTimeout, OutcomeEffect, RunStatus, ScopeShape, Step, StepKindName, StepKindSpec,
        WaitTimeout,
    },
    plan::{ProblemCode, ScopeIx, Severity},
    time::Millis,
};

use super::support::{Others, graph, library, to, work};

fn tool(id: &str) -> StepDefinition {
    StepDefinition::new(id, ToolStep::tool("t"))
}

fn others() -> Others {
    library(vec![("deploy-to-prod", graph(vec![work("push")]))])
}

fn all_kinds() -> WorkflowHandle {
    let route = BranchStep::with_default("$end").with_arm("$steps.parse.outputs.tier == \"paid\"", "enrich");
    let enrich = ParallelStep::new()
        .with_lane("stripe", [define_step(tool("charges"))])
        .with_lane("hubspot", [define_step(tool("contacts").with_input("for", "$steps.parse.id"))]);
    let pay = SuspendStep::new(["paid", "void"]).with_timeout(60_000, TimeoutRule::Continue);
    let lines = MapStep::new("$steps.parse.lines", [define_step(tool("line").with_input("line", "$item"))]);
    let refine = LoopStep::repeat_while("$steps.judge.score < 0.8", 5, [define_step(tool("judge"))]);
    let review = ApprovalStep::new("Ship it?")
        .with_artifact("$steps.charges.outputs.id")
        .with_role("legal")
        .with_on_timeout(TimeoutRule::Escalate)
        .with_on_reject("$end");
    define_workflow(WorkflowDefinition::new("everything", "All eight kinds.").with_result("$steps.ship.url"))
        .step(define_step(
            tool("parse").with_input("url", "$workflow.inputs.url").with_retry(RetryDefinition::exponential(3)),
        ))
        .branch(define_step(StepDefinition::new("route", route)))
        .parallel(define_step(StepDefinition::new("enrich", enrich).with_next("pay")))
        .suspend(define_step(StepDefinition::new("pay", pay)))
        .step(define_step(StepDefinition::new("lines", lines)))
        .step(define_step(StepDefinition::new("refine", refine)))
        .approval(define_step(StepDefinition::new("review", review).with_timeout_ms(120_000)))
        .step(define_step(
            StepDefinition::new("ship", SubworkflowStep::new("deploy-to-prod")).with_input("branch", "main"),
        ))
}

fn committed() -> CommittedWorkflow {
    all_kinds().commit_with_library(&others()).unwrap()
}

fn step(committed: &CommittedWorkflow, name: &str) -> Arc<Step> {
    let (scope, i) = committed.definition.root().names[name];
    committed.definition.scope(scope).scope.steps[i as usize].clone()
}

#[test]
fn all_eight_kinds_commit_without_a_warning() {
    let committed = committed();
    assert!(committed.problems.iter().all(|problem| problem.severity == Severity::Note), "{:#?}", committed.problems);
    let mut kinds: Vec<StepKindName> = committed.workflow.scope.steps.iter().map(|step| step.kind.name()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, StepKindName::ALL);
    assert_eq!(committed.definition.step_batches(ScopeIx(0)).len(), 8);
}

#[test]
fn the_workflow_has_the_defaults_of_its_format() {
    let workflow = committed().workflow;
    assert_eq!(workflow.origin.dialect, "aip15");
    assert_eq!(workflow.scope.timeout, Some(Millis(600_000)));
    assert_eq!(workflow.scope.max_steps, Some(100));
    assert_eq!(workflow.scope.shape, ScopeShape::Routed { start: None, cycles: false });
    assert!(workflow.scope.undo.on_timeout && workflow.scope.undo.on_cancel && !workflow.scope.undo.failed_step);
    assert_eq!(workflow.words.run_word(RunStatus::Undoing), "compensating");
    assert_eq!(workflow.words.run_word(RunStatus::Waiting), "suspended");
}

#[test]
fn a_tool_step_has_half_a_minute_and_undoes_on_any_failure() {
    let committed = committed();
    let parse = step(&committed, "parse");
    assert_eq!(parse.policy.timeout, Some(Millis(30_000)));
    assert_eq!(parse.policy.effects.failed, OutcomeEffect::UNDO);
    assert_eq!(parse.policy.effects.rejected, OutcomeEffect::UNDO);
    assert_eq!(parse.policy.retry.attempts.get(&ErrorClass::Timeout), Some(&3));
    assert_eq!(parse.policy.retry.attempts.get(&ErrorClass::Validation), None);
    assert_eq!(parse.policy.retry.backoff.growth, BackoffGrowth::Exponential(2_000));
    assert_eq!(parse.policy.retry.backoff.initial, Millis(1_000));
    assert!(step(&committed, "route").policy.timeout.is_none());
}

#[test]
fn each_kind_is_lowered() {
    let committed = committed();
    let StepKindSpec::Each(lines) = &step(&committed, "lines").kind else { panic!() };
    assert_eq!(lines.parallelism, Some(4));
    let StepKindSpec::Loop(refine) = &step(&committed, "refine").kind else { panic!() };
    assert_eq!(refine.max, 5);
    let StepKindSpec::Wait(pay) = &step(&committed, "pay").kind else { panic!() };
    assert_eq!((pay.timeout, &pay.on_timeout), (Some(Millis(60_000)), &WaitTimeout::Continue));
    let StepKindSpec::Gate(review) = &step(&committed, "review").kind else { panic!() };
    assert_eq!(review.timeout, Some(Millis(120_000)));
    assert_eq!(review.on_timeout, GateTimeout::Escalate { to: vec![] });
    assert_eq!(review.on_reject, Some(to("$end")));
    assert!(step(&committed, "review").policy.timeout.is_none(), "a gate's time is its own");
}

#[test]
fn a_wrong_kind_is_said_at_the_commit() {
    let problems = define_workflow(WorkflowDefinition::new("wrong", "x"))
        .parallel(define_step(tool("first")))
        .commit()
        .unwrap_err();
    assert_eq!(problems[0].code, ProblemCode::WrongKind);
    assert_eq!(problems[0].message, "`first` was added with `parallel`, but is a step of kind tool");
}
