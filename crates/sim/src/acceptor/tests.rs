//! Histories that the rules allow, and the same histories with one change.

mod plain;
mod reuse;
mod wider;

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptInput, AttemptMode, AttemptRole, Cost, CursorRoute, Event, ExecutionError,
        InstanceIx, NextAction, RunStart, StepAt, StepOutcome,
    },
    ids::RunId,
    ir::{ErrorClass, OutcomeEffect, RunStatus},
    plan::Plan,
    time::Timestamp,
};

use super::Acceptor;
use crate::{tests::*, violation::RuleResult};

/// A history: each event with its time.
pub(super) type History = Vec<(Timestamp, Event)>;

/// Writes a history. Time passes only on request.
pub(super) struct Pen {
    plan: Plan,
    now: Timestamp,
    history: History,
}

pub(super) fn at(instance: u32, step: u32) -> StepAt {
    StepAt(InstanceIx(instance), step)
}

pub(super) fn attempt(at: StepAt, iteration: u32, role: AttemptRole, attempt: u32) -> AttemptId {
    AttemptId { at, visit: 1, iteration, role, attempt }
}

pub(super) fn error(class: ErrorClass) -> ExecutionError {
    ExecutionError { class, code: None, message: "no".into(), origin: None }
}

impl Pen {
    pub(super) fn new(plan: Plan) -> Pen {
        Pen::started(plan, RunStart::new(RunId::new("r").unwrap()))
    }

    pub(super) fn started(plan: Plan, start: RunStart) -> Pen {
        let started = Event::RunStarted {
            start: Box::new(start),
            definition: plan.definition.hash(),
            parameters: plan.parameters.clone(),
            env: Arc::new(Value::Null),
            deadline: None,
            publish: Vec::new(),
            rulings: plan.definition.rulings().clone(),
        };
        let mut pen = Pen { plan, now: START, history: Vec::new() };
        pen.put(started);
        pen
    }

    pub(super) fn put(&mut self, event: Event) {
        self.history.push((self.now, event));
    }

    pub(super) fn pass(&mut self, millis: i64) {
        self.now = Timestamp(self.now.0 + millis);
    }

    pub(super) fn starts(&mut self, id: AttemptId) {
        let first = id.attempt == 1 && id.iteration == 1 && id.role == AttemptRole::Main;
        let given = first.then(|| Arc::new(AttemptInput { inputs: json!({}), texts: Vec::new() }));
        let mode = if first { AttemptMode::Fresh } else { AttemptMode::Again };
        self.put(Event::AttemptStarted { attempt: id, mode, given, deadline: None });
    }

    pub(super) fn ends(&mut self, id: AttemptId, end: AttemptEnd) {
        let (cost, proofs) = (Cost::default(), Vec::new());
        self.put(Event::AttemptEnded { attempt: id, end, cost, proofs, by: None });
    }

    pub(super) fn goes_on(&mut self, at: StepAt, role: AttemptRole, iteration: u32) {
        self.put(Event::StepGoesOn { at, next: NextAction { role, iteration, mode: AttemptMode::Fresh, stage: 1 } });
    }

    pub(super) fn ended(
        &mut self,
        at: StepAt,
        outcome: StepOutcome,
        output: Value,
        effect: OutcomeEffect,
        route: Option<CursorRoute>,
    ) {
        let error = match outcome {
            StepOutcome::Failed(class) => Some(error(class)),
            _ => None,
        };
        self.put(Event::StepEnded { at, outcome, output: Arc::new(output), error, effect, route, settler: None });
    }

    /// A first attempt that succeeds with `{"n": 1}`, and the end of its step.
    pub(super) fn works(&mut self, at: StepAt, route: Option<CursorRoute>) {
        let id = attempt(at, 1, AttemptRole::Main, 1);
        self.put(Event::StepReady { at });
        self.starts(id);
        self.ends(id, succeeded_end(json!({"n": 1})));
        self.ended(at, StepOutcome::Succeeded, json!({"n": 1}), OutcomeEffect::GO_ON, route);
    }

    pub(super) fn decided(&mut self, status: RunStatus, output: Value) {
        let output = Arc::new(output);
        let publish = Vec::new();
        self.put(Event::RunDecided { status, output, error: None, degraded: false, publish, retry: None });
        self.put(Event::Closed);
    }

    pub(super) fn done(self) -> (Plan, History) {
        (self.plan, self.history)
    }
}

pub(super) fn judge(plan: &Plan, history: &[(Timestamp, Event)]) -> RuleResult {
    let mut acceptor = Acceptor::new(plan.clone());
    history.iter().try_for_each(|(at, event)| acceptor.accept(*at, event))?;
    acceptor.check_finished()
}

/// Asserts that the changed history is rejected for this reason.
pub(super) fn refused(of: &(Plan, History), why: &str, change: impl FnOnce(&mut History)) {
    let (plan, mut history) = (of.0.clone(), of.1.clone());
    change(&mut history);
    match judge(&plan, &history) {
        Ok(()) => panic!("accepted, though {why}"),
        Err(said) => assert!(said.to_string().contains(why), "{said}\nwanted: {why}"),
    }
}

/// The index of the `n`th event that matches.
pub(super) fn find(history: &History, n: usize, is: impl Fn(&Event) -> bool) -> usize {
    let found = history.iter().enumerate().filter(|(_, (_, event))| is(event)).nth(n);
    found.map(|(i, _)| i).unwrap()
}
