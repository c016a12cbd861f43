//! Any list of stimuli to any generated plan: nothing panics, and replay comes to the same state.
//!
//! The first two bytes choose the plan. Each stimulus takes a few more bytes: what, to whom, how it went, the grant.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        Actor, AttemptEnd, AttemptId, Cost, Decision, Finding, Input, InstanceIx, Opening, Publication,
        Report, Role, RunState, Start, StepAt, Stimulus, apply, decide,
    },
    ids::RunId,
    ir::{ErrorClass, HoldReason},
    plan::Plan,
    time::{Millis, Time},
};
use skein_sim::{generate::Size, simulate};

/// How many plans there are to choose from; those that were used are kept.
const PLANS: u16 = 4_096;

thread_local! {
    static MADE: RefCell<BTreeMap<u16, Plan>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn stimuli(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let plan = plan(u16::from_le_bytes([bytes.next(), bytes.next()]) % PLANS);
    let (mut state, mut replayed) = (RunState::new(), RunState::new());
    let mut now = Time(0);
    let mut input = start();
    loop {
        let stimulus = Stimulus { at: now, grant: u32::from(bytes.next() % 4), input };
        let mut events = Vec::new();
        let answer = decide(&plan, &mut state, &stimulus, &mut events);
        assert!(answer.is_ok() || events.is_empty(), "a refusal changes nothing: {events:?}");
        for event in &events {
            apply(&plan, &mut replayed, now, event);
        }
        if bytes.0.is_empty() {
            break;
        }
        now = now.after(Millis(u64::from(bytes.next()).pow(3)));
        input = next(&plan, &state, &mut bytes);
    }
    assert_eq!(state, replayed);
}

fn plan(seed: u16) -> Plan {
    MADE.with_borrow_mut(|made| {
        let size = if seed.is_multiple_of(16) { Size::large() } else { Size::small() };
        made.entry(seed).or_insert_with(|| simulate::plan(u64::from(seed), size)).clone()
    })
}

fn start() -> Input {
    let run = RunId::new("fuzz").expect("a name");
    Input::Start(Box::new(Start::new(run)))
}

fn next(plan: &Plan, state: &RunState, bytes: &mut Bytes<'_>) -> Input {
    match bytes.next() % 32 {
        0..=15 => finished(state, bytes),
        16..=18 => Input::Wake,
        19..=21 => Input::Decide {
            opening: Opening(u32::from(bytes.next())),
            decision: if bytes.next().is_multiple_of(4) { Decision::Reject } else { Decision::Approve },
            by: Actor { name: "ada".into(), roles: vec!["lead".into(), "legal".into(), "ops".into()] },
            reason: None,
        },
        22..=24 => match bytes.pick(plan.definition.signals.iter()) {
            Some(name) => {
                let to = bytes.next().is_multiple_of(4).then(|| step(bytes));
                Input::Signal { name: name.clone(), payload: value(bytes), to }
            }
            None => Input::Capacity,
        },
        25 => Input::Hold {
            step: step(bytes),
            reason: *bytes.pick(HoldReason::ALL.iter()).expect("there are reasons"),
            until: None,
            message: "held".into(),
        },
        26 => Input::Recover,
        27 => Input::Cancel { by: "ada".into(), reason: None },
        28 => Input::RetryUndo { by: "ada".into() },
        29 => Input::Published { item: publication(bytes), failed: None },
        30 => start(),
        31 if bytes.next().is_multiple_of(2) => {
            Input::Tampered { by: "a worker".into(), what: "approve".into() }
        }
        _ => Input::Capacity,
    }
}

fn finished(state: &RunState, bytes: &mut Bytes<'_>) -> Input {
    let unknown = AttemptId { at: step(bytes), visit: 1, iteration: 1, role: Role::Main, attempt: 1 };
    let attempt = bytes.pick(state.in_flight().iter()).copied().unwrap_or(unknown);
    let tokens = u64::from(bytes.next());
    Input::Finished {
        attempt,
        report: Report::new(end(attempt.role, bytes), Cost { tokens, micro_usd: None }),
    }
}

fn end(role: Role, bytes: &mut Bytes<'_>) -> AttemptEnd {
    match bytes.next() % 16 {
        0..=4 if role == Role::Check => AttemptEnd::Checked {
            finding: *bytes
                .pick([Finding::Complete, Finding::Incomplete, Finding::Undecided, Finding::Blocked].iter())
                .expect("there are findings"),
            reasons: vec![format!("reason {}", bytes.next() % 2)],
            fingerprints: Vec::new(),
            output: None,
        },
        0..=8 => AttemptEnd::Succeeded { output: value(bytes) },
        9..=11 => AttemptEnd::Failed {
            class: *bytes.pick(ErrorClass::ALL.iter()).expect("there are classes"),
            code: None,
            message: "it failed".into(),
            retry_at: None,
        },
        12 => AttemptEnd::TimedOut,
        13 => AttemptEnd::Stopped,
        14 => AttemptEnd::Interrupted,
        _ => AttemptEnd::Blocked {
            reason: *bytes.pick(HoldReason::ALL.iter()).expect("there are reasons"),
            until: Some(Time(i64::from(bytes.next()) * 100_000)),
            message: "blocked".into(),
        },
    }
}

fn value(bytes: &mut Bytes<'_>) -> Arc<Value> {
    let n = bytes.next();
    Arc::new(match n % 8 {
        0 => Value::Null,
        1 => json!(n % 2 == 0),
        2 => json!(n),
        3 => json!("text"),
        4 => json!([1, 2, 3]),
        5 => json!([]),
        6 => json!({}),
        _ => json!({"n": n, "ok": n > 127, "items": [n, 1], "text": "x", "list": [{"id": 1}]}),
    })
}

fn step(bytes: &mut Bytes<'_>) -> StepAt {
    StepAt(InstanceIx(u32::from(bytes.next() % 8)), u32::from(bytes.next() % 16))
}

fn publication(bytes: &mut Bytes<'_>) -> Publication {
    match bytes.next() % 8 {
        0 => Publication::Files,
        1 => Publication::Context,
        2 => Publication::Retry,
        n => Publication::Hook(u32::from(n) - 3),
    }
}

/// Bytes one after another, zeros after the last.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn pick<T>(&mut self, mut from: impl ExactSizeIterator<Item = T>) -> Option<T> {
        match from.len() {
            0 => None,
            n => from.nth(usize::from(self.next()) % n),
        }
    }
}
