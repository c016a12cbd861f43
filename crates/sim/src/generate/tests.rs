//! Generated workflows are valid, small, and varied.

use std::collections::BTreeSet;

use skein_core::{
    ir::{
        Backoff, BudgetMode, EachErrorPolicy, OutcomeEffect, ScopeShape, SiblingPolicy, Step, StepKindSpec, StepScope,
        TimeoutScope, UndoFailurePolicy, WorkerSpec,
    },
    plan,
};

use super::*;

const SEEDS: u64 = 2_000;

#[test]
fn the_same_seed_gives_the_same_workflow() {
    let of = |seed| format!("{:?}", generate_workflow(seed, WorkflowSize::small()));
    assert_eq!(of(9), of(9));
    assert_ne!(of(9), of(10));
}

#[test]
fn every_workflow_is_valid() {
    for seed in 0..SEEDS {
        let size = if seed % 10 == 0 { WorkflowSize::large() } else { WorkflowSize::small() };
        let made = generate_workflow(seed, size);
        let checked = plan::check_workflow(made.workflow.clone(), &made.library);
        let errors: Vec<_> = checked.problems.iter().filter(|p| p.is_error()).collect();
        assert!(errors.is_empty(), "seed {seed}: {errors:#?}\n{:#?}", made.workflow);
        let definition = checked.definition.unwrap();
        assert!(definition.bind(made.parameters.clone()).is_ok(), "seed {seed}: {}", made.parameters);
    }
}

#[test]
fn workflows_are_small_on_average() {
    let total: usize =
        (0..SEEDS).map(|seed| steps(&generate_workflow(seed, WorkflowSize::small()).workflow.scope).len()).sum();
    let mean = total as f64 / SEEDS as f64;
    assert!((4.0..6.5).contains(&mean), "{mean}");
}

#[test]
fn every_form_occurs() {
    let mut words = BTreeSet::new();
    for seed in 0..SEEDS {
        let made = generate_workflow(seed, WorkflowSize::small());
        for one in made.library.values().chain([&made.workflow]) {
            note_workflow(one, &mut words);
        }
    }
    let missing: Vec<_> = WANTED.split_whitespace().filter(|word| !words.contains(*word)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

const WANTED: &str = "work gate wait branch parallel each loop call graph routed cycles max_steps concurrency \
    scope_timeout drain cancel_siblings result run_retry env hooks files context workflow_budget outputs_schema \
    on_timeout_undo on_cancel_undo failed_step_undo stop_undo go_on_undo undo undo_retry \
    retry never fresh constant linear exponential jitter per_step per_attempt holds approval budget_warn budget_pause \
    budget_stop rerun resume restore ask fail keeps_slot by_class when inputs required_input input_schema \
    output_schema check convergence fail_on_max incomplete_end summary agent tool action command script \
    effect_go_on effect_abort effect_undo effect_continue effect_skip effect_skip_dependents effect_block \
    gate_expire gate_reject gate_approve gate_cancel gate_go gate_escalate gate_forever approvers on_approve on_reject \
    wait_expire wait_cancel wait_continue wait_go wait_forever fail_fast finish collect parallelism_1 parallelism_2 \
    parallelism_3 parallelism_none first after nested_3";

fn note_workflow(workflow: &Workflow, words: &mut BTreeSet<&'static str>) {
    let notes = [
        (!workflow.env.is_empty(), "env"),
        (!workflow.hooks.is_empty(), "hooks"),
        (!workflow.files_out.is_empty(), "files"),
        (workflow.context.directory.is_some(), "context"),
        (workflow.budget.is_some(), "workflow_budget"),
        (workflow.scope.retry.is_some(), "run_retry"),
        (workflow.scope.undo.on_timeout, "on_timeout_undo"),
        (workflow.scope.undo.on_cancel, "on_cancel_undo"),
        (workflow.scope.undo.failed_step, "failed_step_undo"),
        (workflow.scope.undo.if_one_fails == UndoFailurePolicy::Stop, "stop_undo"),
        (workflow.scope.undo.if_one_fails == UndoFailurePolicy::GoOn, "go_on_undo"),
        (depth(&workflow.scope) >= 3, "nested_3"),
    ];
    words.extend(notes.iter().filter(|(is, _)| *is).map(|(_, word)| *word));
    note_scope(&workflow.scope, words);
    for step in steps(&workflow.scope) {
        note_step(&step, words);
        step.kind.inner_scopes().iter().for_each(|scope| note_scope(scope, words));
    }
}

fn note_scope(scope: &StepScope, words: &mut BTreeSet<&'static str>) {
    words.insert(if matches!(scope.shape, ScopeShape::Graph) { "graph" } else { "routed" });
    let notes = [
        (matches!(scope.shape, ScopeShape::Routed { cycles: true, .. }), "cycles"),
        (scope.max_steps.is_some(), "max_steps"),
        (scope.concurrency.is_some(), "concurrency"),
        (scope.timeout.is_some(), "scope_timeout"),
        (scope.siblings == SiblingPolicy::Drain, "drain"),
        (scope.siblings == SiblingPolicy::Cancel, "cancel_siblings"),
        (scope.result.is_some(), "result"),
        (!scope.outputs.is_empty(), "outputs_schema"),
    ];
    words.extend(notes.iter().filter(|(is, _)| *is).map(|(_, word)| *word));
}

fn note_step(step: &Step, words: &mut BTreeSet<&'static str>) {
    let policy = &step.policy;
    let undo = step.undo.as_deref();
    let notes = [
        (undo.is_some(), "undo"),
        (undo.is_some_and(|undo| !undo.retry.attempts.is_empty()), "undo_retry"),
        (!policy.retry.attempts.is_empty(), "retry"),
        (!policy.retry.never.is_empty(), "never"),
        (policy.retry.fresh_per_iteration, "fresh"),
        (policy.timeout.is_some() && policy.timeout_per == TimeoutScope::Step, "per_step"),
        (policy.timeout.is_some() && policy.timeout_per == TimeoutScope::Attempt, "per_attempt"),
        (!policy.holds.is_empty(), "holds"),
        (policy.approval.is_some(), "approval"),
        (policy.keeps_slot, "keeps_slot"),
        (!policy.effects.failed_by_class.is_empty(), "by_class"),
        (step.when.is_some(), "when"),
        (!step.inputs.is_empty(), "inputs"),
        (step.inputs.iter().any(|input| input.required), "required_input"),
        (step.inputs.iter().any(|input| !input.schema.is_empty()), "input_schema"),
        (!step.outputs.is_empty(), "output_schema"),
    ];
    words.extend(notes.iter().filter(|(is, _)| *is).map(|(_, word)| *word));
    let budget = policy.budget.as_ref().map(|budget| budget.mode);
    words.extend(budget.map(|mode| match mode {
        BudgetMode::Warn => "budget_warn",
        BudgetMode::Pause => "budget_pause",
        BudgetMode::Stop => "budget_stop",
    }));
    note_backoff(&policy.retry.backoff, words);
    note_policy_words(step, words);
    note_kind(&step.kind, words);
}

fn note_backoff(backoff: &Backoff, words: &mut BTreeSet<&'static str>) {
    words.insert(match backoff.growth {
        skein_core::ir::BackoffGrowth::Constant => "constant",
        skein_core::ir::BackoffGrowth::Linear => "linear",
        skein_core::ir::BackoffGrowth::Exponential(_) => "exponential",
    });
    words.extend(backoff.jitter.then_some("jitter"));
}

fn note_policy_words(step: &Step, words: &mut BTreeSet<&'static str>) {
    use skein_core::ir::OnInterrupted as On;
    words.insert(match step.policy.on_interrupted {
        On::Rerun => "rerun",
        On::Resume => "resume",
        On::Restore => "restore",
        On::Ask => "ask",
        On::Fail => "fail",
    });
    let effects = &step.policy.effects;
    for effect in [effects.failed, effects.rejected, effects.incomplete, effects.skipped_by_condition] {
        words.extend(
            [
                (OutcomeEffect::GO_ON, "effect_go_on"),
                (OutcomeEffect::ABORT, "effect_abort"),
                (OutcomeEffect::UNDO, "effect_undo"),
                (OutcomeEffect::CONTINUE, "effect_continue"),
                (OutcomeEffect::SKIP, "effect_skip"),
                (OutcomeEffect::SKIP_DEPENDENTS, "effect_skip_dependents"),
                (OutcomeEffect::BLOCK, "effect_block"),
            ]
            .iter()
            .filter(|(of, _)| *of == effect)
            .map(|(_, word)| *word),
        );
    }
}

fn note_kind(kind: &StepKindSpec, words: &mut BTreeSet<&'static str>) {
    use skein_core::ir::{GateTimeout as Gt, LoopTest, WaitTimeout as Wt};
    match kind {
        StepKindSpec::Work(work) => {
            words.insert("work");
            words.insert(match work.worker {
                WorkerSpec::Agent { .. } => "agent",
                WorkerSpec::Tool { .. } => "tool",
                WorkerSpec::Action { .. } => "action",
                WorkerSpec::Command { .. } => "command",
                WorkerSpec::Script { .. } => "script",
            });
            words.extend(work.summary.as_ref().map(|_| "summary"));
            if let Some(check) = &work.check {
                words.insert("check");
                words.extend(check.incomplete_is_an_end.then_some("incomplete_end"));
                words.extend(check.convergence.as_ref().map(|_| "convergence"));
                words.extend(check.convergence.as_ref().filter(|c| c.fail_on_max_stage).map(|_| "fail_on_max"));
            }
        }
        StepKindSpec::Gate(gate) => {
            words.extend(["gate", if gate.timeout.is_none() { "gate_forever" } else { "gate" }]);
            words.extend((!gate.approvers.is_empty()).then_some("approvers"));
            words.extend(gate.on_approve.as_ref().map(|_| "on_approve"));
            words.extend(gate.on_reject.as_ref().map(|_| "on_reject"));
            words.insert(match gate.on_timeout {
                Gt::Expire => "gate_expire",
                Gt::Reject => "gate_reject",
                Gt::Approve => "gate_approve",
                Gt::Cancel => "gate_cancel",
                Gt::Go(_) => "gate_go",
                Gt::Escalate { .. } => "gate_escalate",
            });
        }
        StepKindSpec::Wait(wait) => {
            words.extend(["wait", if wait.timeout.is_none() { "wait_forever" } else { "wait" }]);
            words.insert(match wait.on_timeout {
                Wt::Expire => "wait_expire",
                Wt::Cancel => "wait_cancel",
                Wt::Continue => "wait_continue",
                Wt::Go(_) => "wait_go",
            });
        }
        StepKindSpec::Branch(_) => _ = words.insert("branch"),
        StepKindSpec::Parallel(_) => _ = words.insert("parallel"),
        StepKindSpec::Each(each) => {
            words.insert("each");
            words.insert(match each.errors {
                EachErrorPolicy::FailFast => "fail_fast",
                EachErrorPolicy::Finish => "finish",
                EachErrorPolicy::Collect => "collect",
            });
            words.insert(match each.parallelism {
                Some(1) => "parallelism_1",
                Some(2) => "parallelism_2",
                Some(3) => "parallelism_3",
                _ => "parallelism_none",
            });
        }
        StepKindSpec::Loop(of) => {
            words.extend(["loop", if of.test == LoopTest::First { "first" } else { "after" }]);
        }
        StepKindSpec::Call(_) => _ = words.insert("call"),
    }
}

/// All steps, nested ones included.
fn steps(scope: &StepScope) -> Vec<Arc<Step>> {
    let mut all = scope.steps.clone();
    let inner: Vec<_> =
        scope.steps.iter().flat_map(|step| step.kind.inner_scopes().into_iter().flat_map(|s| steps(s))).collect();
    all.extend(inner);
    all
}

fn depth(scope: &StepScope) -> usize {
    1 + scope.steps.iter().flat_map(|step| step.kind.inner_scopes()).map(|s| depth(s)).max().unwrap_or(0)
}
