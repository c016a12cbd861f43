//! A fork that reuses one step of a chain, and the positions in which reuse is forbidden.

use serde_json::json;
use skein_core::{
    engine::{Event, ForkOrigin, RunStart, StepOutcome, StepReused},
    ids::RunId,
    ir::{ErrorClass, OutcomeEffect, RunStatus},
    plan::Plan,
    time::Timestamp,
};

use super::{History, Pen, at, judge};
use crate::tests::*;

fn reused(outcome: StepOutcome, effect: OutcomeEffect) -> Event {
    Event::StepReused(Box::new(StepReused {
        at: at(0, 0),
        outcome,
        output: json!({"n": 1}).into(),
        error: None,
        effect,
        route: None,
        settler: None,
        attempt: None,
        attempts: 1,
        summary: None,
        items: None,
        decided_by: None,
        started: None,
        ended: Timestamp(1),
    }))
}

/// `a` is reused, and `b` runs after it.
fn history(forked: bool, event: Event) -> (Plan, History) {
    let run = |name| RunId::new(name).unwrap();
    let from = ForkOrigin { run: run("old"), step: "b".into() };
    let start = RunStart { forked_from: forked.then_some(from), ..RunStart::new(run("r")) };
    let mut pen =
        Pen::started(build_plan(graph_scope(vec![work_step("a"), with_dependencies(work_step("b"), &["a"])])), start);
    pen.put(event);
    pen.works(at(0, 1), None);
    pen.decided(RunStatus::Succeeded, json!(null));
    pen.done()
}

fn good_result() -> Event {
    reused(StepOutcome::Succeeded, OutcomeEffect::GO_ON)
}

#[test]
fn a_fork_that_begins_with_a_result_is_accepted() {
    let (plan, history) = history(true, good_result());
    assert_eq!(judge(&plan, &history), Ok(()));
}

#[test]
fn a_run_that_is_no_fork_reuses_nothing() {
    let (plan, history) = history(false, good_result());
    assert!(judge(&plan, &history).unwrap_err().to_string().contains("reuses results only before"));
}

#[test]
fn nothing_is_reused_later_or_twice() {
    let (plan, whole) = history(true, good_result());
    for i in 2..whole.len() {
        let mut more = whole.clone();
        more.insert(i, whole[1].clone());
        assert!(judge(&plan, &more).is_err(), "before {:?}", whole[i].1);
    }
}

#[test]
fn a_result_that_the_run_failed_by_is_not_reused() {
    for (outcome, effect) in [
        (StepOutcome::Failed(ErrorClass::Fatal), OutcomeEffect::ABORT),
        (StepOutcome::Cancelled, OutcomeEffect::BLOCK),
        // The outcome table defines another effect for it.
        (StepOutcome::Failed(ErrorClass::Fatal), OutcomeEffect::GO_ON),
    ] {
        let (plan, history) = history(true, reused(outcome, effect));
        assert!(judge(&plan, &history).is_err(), "{outcome:?}");
    }
}
