//! A chain with a retry, a check, a skip and a gate.

use serde_json::json;
use skein_core::{
    engine::{AttemptEnd, AttemptRole, CheckFinding, Event, SkipReason, StepOutcome, Verdict, Waitpoint},
    ir::{ErrorClass, OutcomeEffect, RunStatus},
    plan::Plan,
    time::Timestamp,
};

use super::{History, Pen, at, attempt, error, find, judge, refused};
use crate::tests::*;

/// `a` fails once and is retried; `b` is incomplete once; `c` is skipped; `g` is approved.
fn history() -> (Plan, History) {
    let mut c = with_dependencies(work_step("c"), &["b"]);
    c.when = Some(parse_condition("$steps.b.n == 2"));
    let mut scope = graph_scope(vec![
        with_retry(work_step("a"), ErrorClass::External, 2),
        with_dependencies(checked_step("b", 3), &["a"]),
        c,
        with_dependencies(gate_step("g"), &["b"]),
    ]);
    scope.concurrency = Some(1);
    let mut pen = Pen::new(build_plan(scope));
    let (a, b, c, g) = (at(0, 0), at(0, 1), at(0, 2), at(0, 3));
    pen.put(Event::StepReady { at: a });
    pen.starts(attempt(a, 1, AttemptRole::Main, 1));
    pen.ends(attempt(a, 1, AttemptRole::Main, 1), failed_end(ErrorClass::External));
    pen.put(Event::RetryScheduled { at: a, due: Timestamp(1_100), error: error(ErrorClass::External) });
    pen.pass(100);
    pen.starts(attempt(a, 1, AttemptRole::Main, 2));
    pen.ends(attempt(a, 1, AttemptRole::Main, 2), succeeded_end(json!({"n": 1})));
    pen.ended(a, StepOutcome::Succeeded, json!({"n": 1}), OutcomeEffect::GO_ON, None);
    pen.put(Event::StepReady { at: b });
    for (iteration, finding) in [(1, CheckFinding::Incomplete), (2, CheckFinding::Complete)] {
        if iteration > 1 {
            pen.goes_on(b, AttemptRole::Main, iteration);
        }
        pen.starts(attempt(b, iteration, AttemptRole::Main, 1));
        pen.ends(attempt(b, iteration, AttemptRole::Main, 1), succeeded_end(json!({"n": 1})));
        pen.goes_on(b, AttemptRole::Check, iteration);
        pen.starts(attempt(b, iteration, AttemptRole::Check, 1));
        pen.ends(attempt(b, iteration, AttemptRole::Check, 1), checked_end(finding, &[]));
    }
    pen.ended(b, StepOutcome::Succeeded, json!({"n": 1}), OutcomeEffect::GO_ON, None);
    pen.ended(c, StepOutcome::Skipped(SkipReason::Condition), json!(null), OutcomeEffect::BLOCK, None);
    let opening = Waitpoint(0);
    pen.put(Event::Opened {
        at: g,
        opening,
        deadline: None,
        approvers: Vec::new(),
        quorum: 1,
        message: "go on?".into(),
        shows: Default::default(),
    });
    pen.put(Event::Decided { opening, decision: Verdict::Approve, by: "ann".into(), reason: None, grants: Vec::new() });
    let output = json!({"decision": "approve", "reason": null, "approver": "ann"});
    pen.ended(g, StepOutcome::Succeeded, output, OutcomeEffect::GO_ON, None);
    pen.decided(RunStatus::Succeeded, json!(null));
    pen.done()
}

fn is_start(event: &Event) -> bool {
    matches!(event, Event::AttemptStarted { .. })
}

fn is_step_end(event: &Event) -> bool {
    matches!(event, Event::StepEnded { .. })
}

#[test]
fn a_legal_history_is_accepted() {
    let (plan, history) = history();
    assert_eq!(judge(&plan, &history), Ok(()));
}

#[test]
fn every_history_that_lacks_an_event_is_refused_or_ends_early() {
    let (plan, whole) = history();
    for i in 0..whole.len() - 1 {
        let mut less = whole.clone();
        let (_, gone) = less.remove(i);
        // A step may start without a `StepReady` event.
        let optional = matches!(gone, Event::StepReady { .. });
        assert_eq!(judge(&plan, &less).is_ok(), optional, "without {gone:?}");
    }
}

#[test]
fn every_history_that_says_something_twice_is_refused() {
    let (plan, whole) = history();
    for i in 0..whole.len() {
        let mut more = whole.clone();
        more.insert(i, whole[i].clone());
        assert!(judge(&plan, &more).is_err(), "twice {:?}", whole[i].1);
    }
}

#[test]
fn an_attempt_before_its_dependencies_is_refused() {
    refused(&history(), "does not satisfy it", |history| {
        let ready = find(history, 1, |event| matches!(event, Event::StepReady { .. }));
        let event = history.remove(ready);
        history.insert(2, event);
    });
}

#[test]
fn an_attempt_with_a_wrong_number_is_refused() {
    refused(&history(), "the number is 2", |history| {
        let second = find(history, 1, is_start);
        let Event::AttemptStarted { attempt, .. } = &mut history[second].1 else { unreachable!() };
        attempt.attempt = 3;
    });
}

#[test]
fn an_attempt_in_a_wrong_iteration_is_refused() {
    refused(&history(), "the iteration is 1", |history| {
        let of_b = find(history, 2, is_start);
        let Event::AttemptStarted { attempt, .. } = &mut history[of_b].1 else { unreachable!() };
        attempt.iteration = 2;
    });
}

#[test]
fn a_retry_that_is_due_too_early_or_starts_too_early_is_refused() {
    let retry = |event: &Event| matches!(event, Event::RetryScheduled { .. });
    refused(&history(), "not between", |history| {
        let i = find(history, 0, retry);
        let Event::RetryScheduled { due, .. } = &mut history[i].1 else { unreachable!() };
        *due = Timestamp(1_050);
    });
    refused(&history(), "the step is not ready", |history| {
        let i = find(history, 1, is_start);
        history[i].0 = Timestamp(1_099);
    });
}

#[test]
fn a_retry_that_the_policy_does_not_have_is_refused() {
    refused(&history(), "the policy does not retry this", |history| {
        let end = find(history, 0, |event| matches!(event, Event::AttemptEnded { .. }));
        let Event::AttemptEnded { end, .. } = &mut history[end].1 else { unreachable!() };
        *end = failed_end(ErrorClass::Fatal);
    });
}

#[test]
fn an_effect_that_is_not_the_tables_is_refused() {
    refused(&history(), "the effect should be", |history| {
        let end = find(history, 0, is_step_end);
        let Event::StepEnded { effect, .. } = &mut history[end].1 else { unreachable!() };
        *effect = OutcomeEffect::CONTINUE;
    });
}

#[test]
fn an_end_that_does_not_follow_is_refused() {
    let outcome = |n: usize, to: StepOutcome| {
        move |history: &mut History| {
            let end = find(history, n, is_step_end);
            let Event::StepEnded { outcome, .. } = &mut history[end].1 else { unreachable!() };
            *outcome = to;
        }
    };
    refused(&history(), "it cannot end this way", outcome(0, StepOutcome::Exhausted));
    refused(&history(), "it cannot end this way", outcome(1, StepOutcome::Incomplete));
    refused(&history(), "no outer instance stopped", outcome(1, StepOutcome::Cancelled));
    refused(
        &history(),
        "the step that it depends on satisfies it",
        outcome(2, StepOutcome::Skipped(SkipReason::Upstream(1))),
    );
    refused(&history(), "its condition is false", outcome(2, StepOutcome::Succeeded));
    refused(&history(), "the decision makes it Succeeded", outcome(3, StepOutcome::Rejected));
}

#[test]
fn an_output_that_nobody_gave_is_refused() {
    refused(&history(), "its output is", |history| {
        let end = find(history, 0, is_step_end);
        let Event::StepEnded { output, .. } = &mut history[end].1 else { unreachable!() };
        *output = json!({"n": 5}).into();
    });
}

#[test]
fn a_finding_that_is_complete_ends_the_iterations() {
    refused(&history(), "the step may not do that next", |history| {
        let check = find(history, 3, |event| matches!(event, Event::AttemptEnded { .. }));
        let Event::AttemptEnded { end, .. } = &mut history[check].1 else { unreachable!() };
        *end = checked_end(CheckFinding::Complete, &[]);
    });
}

#[test]
fn only_a_check_has_a_finding() {
    refused(&history(), "only a check has a finding", |history| {
        let main = find(history, 0, |event| matches!(event, Event::AttemptEnded { .. }));
        let Event::AttemptEnded { end, .. } = &mut history[main].1 else { unreachable!() };
        *end = checked_end(CheckFinding::Complete, &[]);
    });
}

#[test]
fn an_interruption_is_not_a_failure() {
    refused(&history(), "the policy does not retry this", |history| {
        let main = find(history, 0, |event| matches!(event, Event::AttemptEnded { .. }));
        let Event::AttemptEnded { end, .. } = &mut history[main].1 else { unreachable!() };
        *end = AttemptEnd::Interrupted;
    });
}

#[test]
fn a_verdict_that_does_not_follow_and_anything_after_the_end_is_refused() {
    refused(&history(), "nothing failed it", |history| {
        let decided = history.len() - 2;
        let Event::RunDecided { status, .. } = &mut history[decided].1 else { unreachable!() };
        *status = RunStatus::Failed;
    });
    refused(&history(), "the run has been decided", |history| {
        history.push((Timestamp(9_999), Event::CancelAsked { by: "ann".into(), reason: None }));
    });
    refused(&history(), "is still", |history| {
        let gate = find(history, 3, is_step_end);
        history.remove(gate);
    });
}

#[test]
fn what_is_not_to_be_published_is_refused() {
    refused(&history(), "that publication is not pending", |history| {
        let item = skein_core::engine::Publication::Files;
        let closed = history.len() - 1;
        history.insert(closed, (Timestamp(2_000), Event::PublicationEnded { item, failed: None }));
    });
}
