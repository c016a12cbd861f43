//! Tests the lowering of IOA workflows, where a snapshot would not show it.

use skein_core::ir::{OutcomeAction, OutcomeEffect, RunStatus, Step, StepStatus, Workflow};
use skein_dialects::{Code, SourceFile, SourceReport, check_source};

fn report(spec: &str) -> SourceReport {
    let head = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: x}\nspec:\n  description: x\n  \
                domainsInvolved: [d]\n";
    check_source(SourceFile::new("a.yaml", format!("{head}{spec}")), &())
}

fn workflow(spec: &str) -> Workflow {
    let report = report(spec);
    assert!(report.is_valid(), "{:?}", report.diagnostics);
    (*report.workflow.expect("what is valid has been lowered")).clone()
}

fn step<'a>(workflow: &'a Workflow, id: &str) -> &'a Step {
    workflow.scope.steps.iter().find(|step| step.id.as_str() == id).expect("the step is there")
}

#[test]
fn a_step_says_what_its_failure_does_before_the_workflow_does() {
    let own = [("abort", OutcomeEffect::ABORT), ("skip", OutcomeEffect::SKIP), ("compensate", OutcomeEffect::UNDO)];
    let policies =
        [("abort", OutcomeEffect::ABORT), ("retry", OutcomeEffect::ABORT), ("compensate", OutcomeEffect::UNDO)];
    for (policy, by_policy) in policies {
        let steps = "  steps:\n    - {name: none, agent: a, action: b}\n";
        let mut spec = format!("  failurePolicy: {policy}\n{steps}");
        for (word, _) in own {
            spec += &format!("    - {{name: {word}, agent: a, action: b, onFailure: {word}}}\n");
        }
        let workflow = workflow(&spec);
        for (id, effect) in own.into_iter().chain([("none", by_policy)]) {
            let effects = &step(&workflow, id).policy.effects;
            assert_eq!((effects.failed, effects.timed_out, effects.rejected), (effect, effect, effect));
        }
        assert_eq!(workflow.scope.retry.is_some(), policy == "retry");
        assert_eq!(workflow.scope.undo.on_timeout, policy == "compensate");
        assert_eq!(workflow.scope.undo.on_cancel, policy == "compensate");
    }
}

#[test]
fn only_an_approval_opens_a_gate() {
    for policy in ["abort", "retry", "compensate"] {
        for own in ["", ", onFailure: abort", ", onFailure: skip", ", onFailure: compensate"] {
            let gate = format!("{{name: g, agent: a, action: 'GATE: x', timeout: 1h{own}}}");
            let workflow = workflow(&format!("  failurePolicy: {policy}\n  steps:\n    - {gate}\n"));
            let effects = &step(&workflow, "g").policy.effects;
            for effect in [effects.failed, effects.rejected, effects.timed_out] {
                assert!(!effect.satisfies, "{policy}{own}");
            }
            let late = if policy == "compensate" { OutcomeAction::Undo } else { OutcomeAction::Abort };
            assert_eq!(effects.timed_out.then, late, "{policy}{own}");
        }
    }
}

#[test]
fn every_status_has_a_word() {
    let words = workflow("  steps:\n    - {name: a, agent: a, action: b}\n").words;
    assert_eq!(words.run_word(RunStatus::Waiting), "blocked");
    assert_eq!(words.run_word(RunStatus::Undone), "completed");
    assert_eq!(words.run_word(RunStatus::UndoFailed), "failed");
    assert_eq!(words.step_word(StepStatus::Skipped, false), "pending");
    assert_eq!(words.step_word(StepStatus::Skipped, true), "skipped");
    assert_eq!(words.step_word(StepStatus::Waiting, false), "running");
    assert_eq!((words.run.len(), words.step.len()), (RunStatus::ALL.len(), StepStatus::ALL.len()));
}

#[test]
fn triggers_are_kept_and_noted() {
    let steps = "  steps:\n    - {name: a, agent: a, action: b}\n";
    let notes = |trigger: &str| {
        let report = report(&format!("  trigger: {trigger}\n{steps}"));
        let notes = report.notes.iter().filter(|note| note.code == Code::TriggerNotServed).count();
        (report.workflow.expect("it has been lowered").triggers.len(), notes)
    };
    assert_eq!(notes("{}"), (0, 0));
    assert_eq!(notes("{event: a.b}"), (1, 1));
    assert_eq!(notes("{event: a.b, condition: riskScore >= 0.7, schedule: '@daily'}"), (2, 2));
    assert_eq!(notes("{schedule: 90m}"), (1, 1));
    assert_eq!(notes("{schedule: sometimes}"), (0, 1));
}
