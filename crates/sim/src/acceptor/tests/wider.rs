//! Undo, items, routes, signals, concurrency and cancellation.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptRole, AttemptStopReason, CursorRoute, Event, HaltReason, InstanceEnd, InstanceIx,
        InstancePart, StepOutcome, UndoTarget, UndoWalk, Waitpoint,
    },
    ids::SignalName,
    ir::{
        BranchSpec, EachErrorPolicy, ErrorClass, OutcomeEffect, RouteArm, RunStatus, SiblingPolicy, Step, StepKindSpec,
    },
    plan::Plan,
};

use super::{History, Pen, at, attempt, find, judge, refused};
use crate::tests::*;

/// `a` and `b` succeed, `c` fails, and both are undone.
fn undone() -> (Plan, History) {
    let undoing = |name: &str| {
        let mut step = undoable_step(name);
        step.policy.effects.failed = OutcomeEffect::UNDO;
        step
    };
    let scope = graph_scope(vec![
        undoing("a"),
        with_dependencies(undoing("b"), &["a"]),
        with_dependencies(undoing("c"), &["b"]),
    ]);
    let mut pen = Pen::new(build_plan(scope));
    pen.works(at(0, 0), None);
    pen.works(at(0, 1), None);
    let c = attempt(at(0, 2), 1, AttemptRole::Main, 1);
    pen.starts(c);
    pen.ends(c, failed_end(ErrorClass::External));
    pen.ended(at(0, 2), StepOutcome::Failed(ErrorClass::External), Value::Null, OutcomeEffect::UNDO, None);
    pen.put(Event::InstanceHalted { instance: InstanceIx(0), why: HaltReason::Failed { step: 2 }, undo: true });
    let of = UndoWalk::Workflow(InstanceIx(0));
    let target = |step| UndoTarget { at: at(0, step), visit: 1 };
    pen.put(Event::UndoBegan { of, targets: vec![target(1), target(0)], uncertain: Vec::new() });
    for step in [1, 0] {
        let id = attempt(at(0, step), 1, AttemptRole::Undo, 1);
        pen.starts(id);
        pen.ends(id, succeeded_end(Value::Null));
        pen.put(Event::StepUndone { at: at(0, step), visit: 1 });
    }
    pen.put(Event::UndoEnded { of, clean: true });
    pen.decided(RunStatus::Undone, Value::Null);
    pen.done()
}

#[test]
fn an_undo_in_order_is_accepted_and_any_other_refused() {
    let of = undone();
    assert_eq!(judge(&of.0, &of.1), Ok(()));
    refused(&of, "the undo targets are", |history| {
        let began = find(history, 0, |event| matches!(event, Event::UndoBegan { .. }));
        let Event::UndoBegan { targets, .. } = &mut history[began].1 else { unreachable!() };
        targets.reverse();
    });
    refused(&of, "the undo targets are", |history| {
        let began = find(history, 0, |event| matches!(event, Event::UndoBegan { .. }));
        let Event::UndoBegan { targets, .. } = &mut history[began].1 else { unreachable!() };
        targets.push(UndoTarget { at: at(0, 2), visit: 1 });
    });
    refused(&of, "its undo has not succeeded", |history| {
        let ended = find(history, 4, |event| matches!(event, Event::AttemptEnded { .. }));
        let Event::AttemptEnded { end, .. } = &mut history[ended].1 else { unreachable!() };
        *end = AttemptEnd::TimedOut;
    });
}

#[test]
fn what_has_begun_to_undo_does_not_go_forward() {
    let of = undone();
    refused(&of, "the instance has begun to undo", |history| {
        let began = find(history, 0, |event| matches!(event, Event::UndoBegan { .. }));
        let mut forward = Pen::new(of.0.clone());
        forward.starts(attempt(at(0, 2), 1, AttemptRole::Main, 2));
        history.insert(began + 1, forward.done().1.remove(1));
    });
}

#[test]
fn a_status_that_hides_the_undo_is_refused() {
    refused(&undone(), "it cannot end as failed", |history| {
        let decided = history.len() - 2;
        let Event::RunDecided { status, .. } = &mut history[decided].1 else { unreachable!() };
        *status = RunStatus::Failed;
    });
}

fn begins(pen: &mut Pen, item: u32) {
    let (parent, part) = (at(0, 0), InstancePart::Item(item));
    pen.put(Event::InstanceStarted { parent, part, input: None, env: Arc::default(), deadline: None });
}

fn ends(pen: &mut Pen, instance: u32, output: Value) {
    let end = InstanceEnd { status: RunStatus::Succeeded, output: Arc::new(output), error: None, degraded: false };
    pen.put(Event::InstanceEnded { instance: InstanceIx(instance), end });
}

/// Two items, one at a time.
fn items() -> (Plan, History) {
    let mut inner = graph_scope(vec![work_step("x")]);
    inner.result = Some(parse_value(json!("$item")));
    let scope = routed_scope(vec![each_step("e", json!([5, 6]), EachErrorPolicy::FailFast, inner)]);
    let mut pen = Pen::new(build_plan(scope));
    pen.put(Event::StepReady { at: at(0, 0) });
    pen.put(Event::StepExpanded { at: at(0, 0), items: Arc::new(json!([5, 6])) });
    pen.put(Event::StepEntered { at: at(0, 0), deadline: None });
    for item in 0..2 {
        begins(&mut pen, item);
        pen.works(at(item + 1, 0), None);
        ends(&mut pen, item + 1, json!(5 + item));
    }
    pen.ended(at(0, 0), StepOutcome::Succeeded, json!([5, 6]), OutcomeEffect::GO_ON, Some(CursorRoute::End));
    pen.decided(RunStatus::Succeeded, json!([5, 6]));
    pen.done()
}

#[test]
fn items_begin_in_order_and_no_more_at_once_than_allowed() {
    let of = items();
    assert_eq!(judge(&of.0, &of.1), Ok(()));
    let begun = |event: &Event| matches!(event, Event::InstanceStarted { .. });
    refused(&of, "1 items are open", |history| {
        let second = find(history, 1, begun);
        let event = history.remove(second);
        history.insert(second - 1, event);
    });
    refused(&of, "items begin in order", |history| {
        let first = find(history, 0, begun);
        let Event::InstanceStarted { part, .. } = &mut history[first].1 else { unreachable!() };
        *part = InstancePart::Item(1);
    });
    refused(&of, "its items are", |history| {
        let Event::StepExpanded { items, .. } = &mut history[2].1 else { unreachable!() };
        *items = Arc::new(json!([5]));
    });
    refused(&of, "its output should be 5", |history| {
        let end = find(history, 0, |event| matches!(event, Event::InstanceEnded { .. }));
        let Event::InstanceEnded { end, .. } = &mut history[end].1 else { unreachable!() };
        end.output = Arc::new(json!(0));
    });
    refused(&of, "its output is", |history| {
        let end = history.len() - 3;
        let Event::StepEnded { output, .. } = &mut history[end].1 else { unreachable!() };
        *output = Arc::new(json!([6, 5]));
    });
}

/// A branch that goes to `c`, past `b`.
fn branched() -> (Plan, History) {
    let arms = vec![RouteArm { when: parse_condition("$steps.a.n == 1"), next: step_target("c") }];
    let branch =
        Step::new(step_id("d"), StepKindSpec::Branch(Box::new(BranchSpec { arms, default: step_target("b") })));
    let mut pen = Pen::new(build_plan(routed_scope(vec![work_step("a"), branch, work_step("b"), work_step("c")])));
    pen.works(at(0, 0), Some(CursorRoute::Step(1)));
    pen.ended(at(0, 1), StepOutcome::Succeeded, Value::Null, OutcomeEffect::GO_ON, Some(CursorRoute::Step(3)));
    pen.works(at(0, 3), Some(CursorRoute::End));
    pen.decided(RunStatus::Succeeded, json!({"n": 1}));
    pen.done()
}

#[test]
fn a_cursor_goes_where_the_branch_sends_it() {
    let of = branched();
    assert_eq!(judge(&of.0, &of.1), Ok(()));
    let ended = |event: &Event| matches!(event, Event::StepEnded { .. });
    refused(&of, "the cursor should go to Step(3)", |history| {
        let branch = find(history, 1, ended);
        let Event::StepEnded { route, .. } = &mut history[branch].1 else { unreachable!() };
        *route = Some(CursorRoute::Step(2));
    });
    refused(&of, "the cursor is at another step", |history| {
        let ready = find(history, 1, |event| matches!(event, Event::StepReady { .. }));
        history[ready].1 = Event::StepReady { at: at(0, 2) };
    });
    refused(&of, "the cursor is not at the end", |history| {
        history.drain(6..10);
    });
}

#[test]
fn no_more_steps_are_at_work_than_allowed() {
    let mut scope = graph_scope(vec![work_step("a"), work_step("b")]);
    scope.concurrency = Some(1);
    let mut pen = Pen::new(build_plan(scope));
    pen.starts(attempt(at(0, 0), 1, AttemptRole::Main, 1));
    pen.starts(attempt(at(0, 1), 1, AttemptRole::Main, 1));
    let (plan, history) = pen.done();
    assert!(judge(&plan, &history).unwrap_err().to_string().contains("1 steps are running"));
}

#[test]
fn a_signal_goes_to_a_wait_that_names_it() {
    let mut pen = Pen::new(build_plan(graph_scope(vec![wait_step("w")])));
    let name = SignalName::new("paid").unwrap();
    let payload = Arc::new(json!(1));
    pen.put(Event::SignalKept { name: name.clone(), payload: payload.clone() });
    let opening = Waitpoint(0);
    let opened = |at| Event::Opened {
        at,
        opening,
        deadline: None,
        approvers: Vec::new(),
        quorum: 1,
        message: String::new(),
        shows: Arc::default(),
    };
    pen.put(opened(at(0, 0)));
    pen.put(Event::SignalTaken { opening, name, payload, kept: true });
    let output = json!({"eventName": "paid", "eventPayload": 1});
    pen.ended(at(0, 0), StepOutcome::Succeeded, output, OutcomeEffect::GO_ON, None);
    pen.decided(RunStatus::Succeeded, Value::Null);
    let of = pen.done();
    assert_eq!(judge(&of.0, &of.1), Ok(()));
    refused(&of, "nothing open there waits for that signal", |history| {
        let Event::SignalTaken { name, .. } = &mut history[3].1 else { unreachable!() };
        *name = SignalName::new("shipped").unwrap();
    });
    refused(&of, "no such signal was kept", |history| _ = history.remove(1));
    refused(&of, "no step waits for that signal", |history| {
        let Event::SignalKept { name, .. } = &mut history[1].1 else { unreachable!() };
        *name = SignalName::new("shipped").unwrap();
    });
    refused(&of, "no signal came", |history| _ = history.remove(3));
}

/// `a` aborts while `b` is running; `b` is stopped, or left to finish.
fn aborted(siblings: SiblingPolicy) -> (Plan, History) {
    let mut scope = graph_scope(vec![work_step("a"), work_step("b"), work_step("c")]);
    scope.siblings = siblings;
    let mut pen = Pen::new(build_plan(scope));
    let (a, b) = (attempt(at(0, 0), 1, AttemptRole::Main, 1), attempt(at(0, 1), 1, AttemptRole::Main, 1));
    pen.starts(a);
    pen.starts(b);
    pen.ends(a, failed_end(ErrorClass::Fatal));
    pen.ended(at(0, 0), StepOutcome::Failed(ErrorClass::Fatal), Value::Null, OutcomeEffect::ABORT, None);
    pen.put(Event::InstanceHalted { instance: InstanceIx(0), why: HaltReason::Failed { step: 0 }, undo: false });
    if siblings == SiblingPolicy::Cancel {
        pen.put(Event::StopAsked { attempt: b, why: AttemptStopReason::Halted });
        pen.ends(b, AttemptEnd::Stopped);
        pen.ended(at(0, 1), StepOutcome::Cancelled, Value::Null, OutcomeEffect::BLOCK, None);
    } else {
        pen.ends(b, succeeded_end(json!({"n": 1})));
        pen.ended(at(0, 1), StepOutcome::Succeeded, json!({"n": 1}), OutcomeEffect::GO_ON, None);
    }
    pen.decided(RunStatus::Failed, Value::Null);
    pen.done()
}

#[test]
fn siblings_are_stopped_or_drained() {
    for siblings in [SiblingPolicy::Cancel, SiblingPolicy::Drain] {
        let of = aborted(siblings);
        assert_eq!(judge(&of.0, &of.1), Ok(()));
        refused(&of, "the instance must be halted first", |history| {
            history.remove(5);
            history.drain(5..history.len() - 2);
        });
        refused(&of, "is still", |history| _ = history.drain(history.len() - 3..history.len() - 2));
        for (after, why) in [(5, "the instance is about to be halted"), (6, "the instance is halted")] {
            let late = (START, Event::StepReady { at: at(0, 2) });
            refused(&of, why, |history| history.insert(after, late));
        }
    }
    refused(&aborted(SiblingPolicy::Cancel), "no outer instance has stopped", |history| history.swap(5, 6));
    refused(&aborted(SiblingPolicy::Cancel), "it cannot end this way", |history| {
        let end = history.len() - 3;
        let Event::StepEnded { outcome, effect, .. } = &mut history[end].1 else { unreachable!() };
        (*outcome, *effect) = (StepOutcome::Failed(ErrorClass::Transient), OutcomeEffect::ABORT);
    });
}
