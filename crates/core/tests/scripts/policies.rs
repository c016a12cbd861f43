//! Effects of failures on other steps: the effect tables of the four formats.

use serde_json::json;
use skein_core::{
    ir::{
        ApprovalHold, ErrorClass, HoldReason, OutcomeAction, OutcomeEffect, RunImpact, RunStatus, SiblingPolicy, Step,
        StepRetry, StepStatus, UndoFailurePolicy, Workflow,
    },
    time::Millis,
};

use crate::support::*;

/// AgentCore `abort`: the first failure stops everything; running steps are cancelled, unstarted ones are skipped.
#[test]
fn agentcore_abort_cancels_what_runs_and_skips_the_rest() {
    let steps = vec![work("a"), work("b"), after("c", &["b"])];
    script!(graph(steps)).start().fail("a", ErrorClass::NonRetryable).stops("b").done();
}

/// AgentCore `continue`: the step fails, its dependents run, and the run succeeds as degraded.
#[test]
fn agentcore_continue_goes_on_and_degrades() {
    let steps = vec![on_failure(work("a"), OutcomeEffect::CONTINUE), after("b", &["a"])];
    script!(graph(steps)).start().fail("a", ErrorClass::NonRetryable).ok("b").done();
}

/// AgentCore `retry`: exhausted retries have the effect of `abort`.
#[test]
fn agentcore_exhausted_retries_abort() {
    let steps = vec![retried(work("a"), 2), work("b")];
    script!(graph(steps))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .fail("a", ErrorClass::Transient)
        .stops("b")
        .done();
}

/// AgentCore: a non-retryable failure under `retry` aborts at once.
#[test]
fn agentcore_non_retryable_is_not_retried() {
    script!(graph(vec![retried(work("a"), 5)])).start().fail("a", ErrorClass::NonRetryable).done();
}

/// AgentCore: a fatal failure aborts, regardless of the policy for failures.
#[test]
fn agentcore_fatal_aborts_under_any_policy() {
    let a = on_failure(work("a"), OutcomeEffect::CONTINUE)
        .with(|a| a.policy.effects.failed_by_class = [(ErrorClass::Fatal, OutcomeEffect::ABORT)].into());
    script!(graph(vec![a, after("b", &["a"])])).start().fail("a", ErrorClass::Fatal).done();
}

/// AgentCore: the status words of a run that succeeded although a step failed.
#[test]
fn agentcore_words_are_shown_beside_the_canonical_ones() {
    let workflow = graph(vec![on_failure(work("a"), OutcomeEffect::CONTINUE)]).with(|workflow: &mut Workflow| {
        workflow.words.run = [(RunStatus::Succeeded, "SUCCEEDED".into())].into();
        workflow.words.step = [(StepStatus::Failed, "FAILED".into())].into();
    });
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).done();
}

/// IOA: steps that an abort leaves unstarted are pending in its own words; a step skipped by its own failure is
/// skipped.
#[test]
fn ioa_own_failure_and_abort_have_different_words() {
    let workflow = graph(vec![on_failure(work("a"), OutcomeEffect::SKIP), after("b", &["a"]), after("c", &["b"])])
        .with(|workflow: &mut Workflow| {
            workflow.words.step = [(StepStatus::Skipped, "pending".into())].into();
            workflow.words.skipped_by_own_failure = Some("skipped".into());
        });
    script!(workflow).start().fail("a", ErrorClass::AgentError).fail("b", ErrorClass::AgentError).done();
}

/// IOA `skip`: a failed step counts as skipped, and satisfies its dependents.
#[test]
fn ioa_skip_satisfies_dependents() {
    let steps = vec![on_failure(work("a"), OutcomeEffect::SKIP), after("b", &["a"])];
    script!(graph(steps)).start().fail("a", ErrorClass::Validation).ok("b").done();
}

/// IOA `compensate`: completed steps are undone, last first; the failed step is not.
#[test]
fn ioa_compensate_undoes_completed_steps_only() {
    let steps = vec![undoable(work("a")), undoable(after("b", &["a"])), undoing(undoable(after("c", &["b"])))];
    script!(graph(steps)).start().ok("a").ok("b").fail("c", ErrorClass::AgentError).ok("b").ok("a").done();
}

/// IOA: the failed step is undone first, if the workflow asks for it.
#[test]
fn ioa_compensate_can_include_the_failed_step() {
    let steps = vec![undoable(work("a")), undoing(undoable(after("b", &["a"])))];
    let workflow = graph(steps).with(|workflow| workflow.scope.undo.failed_step = true);
    script!(workflow).start().ok("a").fail("b", ErrorClass::AgentError).ok("b").ok("a").done();
}

/// IOA: an undo that fails after its retries stops the walk; the run names the remaining steps.
#[test]
fn ioa_an_undo_that_fails_stops_the_walk() {
    let b = undoable(after("b", &["a"]))
        .with(|b| b.undo.as_mut().unwrap().retry = StepRetry::for_classes(&[ErrorClass::Transient], 2, seconds(1)));
    let steps = vec![undoable(work("a")), b, undoing(after("c", &["b"]))];
    let workflow = graph(steps).with(|workflow| workflow.scope.undo.if_one_fails = UndoFailurePolicy::Stop);
    script!(workflow)
        .start()
        .ok("a")
        .ok("b")
        .fail("c", ErrorClass::AgentError)
        .fail("b", ErrorClass::Transient)
        .due()
        .fail("b", ErrorClass::Transient)
        .done();
}

/// IOA: a governance error holds the step until a person releases it; a rejection fails it by its policy.
#[test]
fn ioa_governance_blocks_and_asks() {
    let a = work("a").with(|a| a.policy.holds = [(ErrorClass::Governance, HoldReason::Governance)].into());
    script!(graph(vec![a]))
        .start()
        .fail("a", ErrorClass::Governance)
        .approve("a")
        .fail("a", ErrorClass::Governance)
        .reject("a")
        .done();
}

/// SWDL `halt`: the run fails and nothing more starts.
#[test]
fn swdl_halt_stops_the_run() {
    let steps = vec![work("a"), after("b", &["a"]), work("c")];
    script!(graph(steps)).start().fail("a", ErrorClass::AgentError).stops("c").done();
}

/// SWDL `continue` of a stage: dependents run with null inputs; one that requires the input fails instead.
#[test]
fn swdl_continue_gives_null_and_a_required_input_fails() {
    let go_on = |step: Step| on_failure(step, OutcomeEffect::CONTINUE);
    let steps = vec![
        go_on(work("a")),
        reads(after("b", &["a"]), "of", "$steps.a.x"),
        go_on(reads(after("c", &["a"]), "of", "$steps.a.x").with(|c| c.inputs[0].required = true)),
    ];
    script!(graph(steps)).start().fail("a", ErrorClass::AgentError).ok("b").done();
}

/// SWDL `skip_dependents`: only dependents are skipped, other steps continue, and the run fails at the end.
#[test]
fn swdl_skip_dependents_lets_the_others_finish() {
    let steps =
        vec![on_failure(work("a"), OutcomeEffect::SKIP_DEPENDENTS), after("b", &["a"]), work("c"), after("d", &["c"])];
    script!(graph(steps)).start().fail("a", ErrorClass::AgentError).ok("c").ok("d").done();
}

/// SWDL with only a global `continue`: independent steps continue, dependents are skipped, the run is degraded.
#[test]
fn swdl_global_continue_skips_dependents() {
    let effect =
        OutcomeEffect { then: OutcomeAction::GoOn, satisfies: false, verdict: RunImpact::Degraded, as_skipped: false };
    let steps = vec![on_failure(work("a"), effect), after("b", &["a"]), work("c")];
    script!(graph(steps)).start().fail("a", ErrorClass::AgentError).ok("c").done();
}

/// SWDL: a missing declared output fails the stage's contract and can be retried.
#[test]
fn swdl_a_missing_output_fails_the_contract() {
    let schema = json!({"type": "object", "required": ["verdict"], "properties": {"verdict": {"type": "string"}}});
    let a = work("a").with(|a| {
        a.outputs = skein_core::ir::Schema::new(schema);
        a.policy.retry = StepRetry::for_classes(&[ErrorClass::Validation], 2, seconds(30));
    });
    script!(graph(vec![a])).start().gives("a", json!({})).due().gives("a", json!({"verdict": "ok"})).done();
}

/// AIP-15: a failure undoes completed steps, and the run reports the original error.
#[test]
fn aip15_a_failure_undoes_and_keeps_its_error() {
    let steps = vec![undoable(work("charge")), undoable(work("ship")), work("mail")];
    script!(saga(steps))
        .start()
        .gives("charge", json!({"id": 7}))
        .ok("ship")
        .fail("mail", ErrorClass::NonRetryable)
        .ok("ship")
        .ok("charge")
        .done();
}

/// AIP-15: an undo that fails is reported, and the walk continues with the others.
#[test]
fn aip15_an_undo_that_fails_does_not_stop_the_walk() {
    let steps = vec![undoable(work("a")), undoable(work("b")), work("c")];
    script!(saga(steps))
        .start()
        .ok("a")
        .ok("b")
        .fail("c", ErrorClass::NonRetryable)
        .fail("b", ErrorClass::NonRetryable)
        .ok("a")
        .done();
}

/// If siblings drain, running steps finish, including their retries, and nothing new starts.
#[test]
fn draining_lets_what_is_at_work_end() {
    let steps = vec![work("a"), retried(work("b"), 2), after("c", &["b"])];
    let workflow = graph(steps).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).fail("b", ErrorClass::Transient).due().ok("b").done();
}

/// A step that was told to stop and still succeeded counts as succeeded.
#[test]
fn a_stopped_step_that_succeeded_has_succeeded() {
    script!(graph(vec![work("a"), work("b")]))
        .start()
        .fail("a", ErrorClass::NonRetryable)
        .gives("b", json!({"n": 1}))
        .done();
}

/// With a check still pending, it does not.
#[test]
fn a_stopped_step_with_a_check_to_come_is_cancelled() {
    script!(graph(vec![work("a"), checked("b", 2)])).start().fail("a", ErrorClass::NonRetryable).ok("b").done();
}

/// A second failure while the run stops changes neither its error nor its cause.
#[test]
fn the_first_failure_is_the_cause() {
    script!(graph(vec![work("a"), work("b")]))
        .start()
        .fail("a", ErrorClass::NonRetryable)
        .fail("b", ErrorClass::Fatal)
        .done();
}

/// Of two failures that each skip their dependents, the first is that of the run.
#[test]
fn the_first_of_two_failures_is_the_runs() {
    let lenient = |name: &str| on_failure(work(name), OutcomeEffect::SKIP_DEPENDENTS);
    script!(graph(vec![lenient("a"), lenient("b")]))
        .start()
        .fail("b", ErrorClass::NonRetryable)
        .fail("a", ErrorClass::NonRetryable)
        .done();
}

/// While siblings drain, another failure does not halt the instance again.
#[test]
fn a_second_failure_while_draining_changes_nothing() {
    let workflow =
        graph(vec![work("a"), work("b"), work("c")]).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).fail("b", ErrorClass::NonRetryable).ok("c").done();
}

/// Draining steps still have a deadline.
#[test]
fn what_drains_has_to_end_in_time() {
    let workflow = graph(vec![work("a"), work("b")]).with(|workflow| {
        workflow.scope.siblings = SiblingPolicy::Drain;
        workflow.scope.timeout = Some(Millis::from_secs(60));
    });
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).due().stops("b").done();
}

/// A workflow that is being stopped has no deadline any more.
#[test]
fn what_is_stopped_has_no_deadline_left() {
    let workflow =
        graph(vec![work("a"), work("b")]).with(|workflow| workflow.scope.timeout = Some(Millis::from_secs(60)));
    script!(workflow).start().fail("a", ErrorClass::NonRetryable).stops("b").done();
}

/// A step that was held before its first attempt has not started, so it is not drained.
#[test]
fn a_step_that_was_never_released_is_not_drained() {
    let held = work("held").with(|step| step.policy.approval = Some(ApprovalHold::default()));
    let tried = work("tried");
    let workflow = graph(vec![work("a"), held, tried]).with(|workflow| workflow.scope.siblings = SiblingPolicy::Drain);
    script!(workflow)
        .start()
        .blocks("tried", HoldReason::Quota, None)
        .fail("a", ErrorClass::NonRetryable)
        .approve("tried")
        .ok("tried")
        .done();
}
