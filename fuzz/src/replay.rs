//! Any list of inputs to any generated plan: nothing panics, and replay gives the same state.
//!
//! The first two bytes choose the plan. Each input takes a few more bytes: its kind, its target, its result, the grant.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, Cost, DecisionActor, InstanceIx, Publication,
        RunInput, RunStart, RunState, StepAt, TimedInput, Verdict, Waitpoint, apply, decide,
    },
    ids::RunId,
    ir::{ErrorClass, HoldReason},
    plan::Plan,
    time::{Millis, Timestamp},
};
use skein_sim::{generate::WorkflowSize, simulate};

/// The number of plans to choose from; plans that were used are cached.
const PLANS: u16 = 4_096;

thread_local! {
    static MADE: RefCell<BTreeMap<u16, Plan>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn fuzz_timed_inputs(bytes: &[u8]) {
    let mut bytes = FuzzBytes(bytes);
    let plan = cached_plan(u16::from_le_bytes([bytes.next_byte(), bytes.next_byte()]) % PLANS);
    let (mut state, mut replayed) = (RunState::new(), RunState::new());
    let mut now = Timestamp(0);
    let mut input = start_input();
    loop {
        let stimulus = TimedInput { at: now, grant: u32::from(bytes.next_byte() % 4), input };
        let mut events = Vec::new();
        let answer = decide(&plan, &mut state, &stimulus, &mut events);
        assert!(answer.is_ok() || events.is_empty(), "a refusal changes nothing: {events:?}");
        for event in &events {
            apply(&plan, &mut replayed, now, event);
        }
        if bytes.0.is_empty() {
            break;
        }
        now = now.saturating_add(Millis(u64::from(bytes.next_byte()).pow(3)));
        input = draw_input(&plan, &state, &mut bytes);
    }
    assert_eq!(state, replayed);
}

fn cached_plan(seed: u16) -> Plan {
    MADE.with_borrow_mut(|made| {
        let size = if seed.is_multiple_of(16) { WorkflowSize::large() } else { WorkflowSize::small() };
        made.entry(seed).or_insert_with(|| simulate::generate_plan(u64::from(seed), size)).clone()
    })
}

fn start_input() -> RunInput {
    let run = RunId::new("fuzz").expect("a name");
    RunInput::Start(Box::new(RunStart::new(run)))
}

fn draw_input(plan: &Plan, state: &RunState, bytes: &mut FuzzBytes<'_>) -> RunInput {
    match bytes.next_byte() % 32 {
        0..=15 => draw_finished_input(state, bytes),
        16..=18 => RunInput::Wake,
        19..=21 => RunInput::Decide {
            opening: Waitpoint(u32::from(bytes.next_byte())),
            decision: if bytes.next_byte().is_multiple_of(4) { Verdict::Reject } else { Verdict::Approve },
            by: DecisionActor { name: "ada".into(), roles: vec!["lead".into(), "legal".into(), "ops".into()] },
            reason: None,
        },
        22..=24 => match bytes.pick(plan.definition.signals.iter()) {
            Some(name) => {
                let to = bytes.next_byte().is_multiple_of(4).then(|| draw_step(bytes));
                RunInput::Signal { name: name.clone(), payload: draw_value(bytes), to }
            }
            None => RunInput::Capacity,
        },
        25 => RunInput::Hold {
            step: draw_step(bytes),
            reason: *bytes.pick(HoldReason::ALL.iter()).expect("there are reasons"),
            until: None,
            message: "held".into(),
        },
        26 => RunInput::Recover,
        27 => RunInput::Cancel { by: "ada".into(), reason: None },
        28 => RunInput::RetryUndo { by: "ada".into() },
        29 => RunInput::Published { item: draw_publication(bytes), failed: None },
        30 => start_input(),
        31 if bytes.next_byte().is_multiple_of(2) => {
            RunInput::Tampered { by: "a worker".into(), what: "approve".into() }
        }
        _ => RunInput::Capacity,
    }
}

fn draw_finished_input(state: &RunState, bytes: &mut FuzzBytes<'_>) -> RunInput {
    let unknown = AttemptId { at: draw_step(bytes), visit: 1, iteration: 1, role: AttemptRole::Main, attempt: 1 };
    let attempt = bytes.pick(state.in_flight().iter()).copied().unwrap_or(unknown);
    let tokens = u64::from(bytes.next_byte());
    RunInput::Finished {
        attempt,
        report: AttemptReport::new(draw_attempt_end(attempt.role, bytes), Cost { tokens, micro_usd: None }),
    }
}

fn draw_attempt_end(role: AttemptRole, bytes: &mut FuzzBytes<'_>) -> AttemptEnd {
    match bytes.next_byte() % 16 {
        0..=4 if role == AttemptRole::Check => AttemptEnd::Checked {
            finding: *bytes
                .pick(
                    [CheckFinding::Complete, CheckFinding::Incomplete, CheckFinding::Undecided, CheckFinding::Blocked]
                        .iter(),
                )
                .expect("there are findings"),
            reasons: vec![format!("reason {}", bytes.next_byte() % 2)],
            fingerprints: Vec::new(),
            output: None,
        },
        0..=8 => AttemptEnd::Succeeded { output: draw_value(bytes) },
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
            until: Some(Timestamp(i64::from(bytes.next_byte()) * 100_000)),
            message: "blocked".into(),
        },
    }
}

fn draw_value(bytes: &mut FuzzBytes<'_>) -> Arc<Value> {
    let n = bytes.next_byte();
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

fn draw_step(bytes: &mut FuzzBytes<'_>) -> StepAt {
    StepAt(InstanceIx(u32::from(bytes.next_byte() % 8)), u32::from(bytes.next_byte() % 16))
}

fn draw_publication(bytes: &mut FuzzBytes<'_>) -> Publication {
    match bytes.next_byte() % 8 {
        0 => Publication::Files,
        1 => Publication::Context,
        2 => Publication::Retry,
        n => Publication::Hook(u32::from(n) - 3),
    }
}

/// A stream of bytes, followed by zeros.
struct FuzzBytes<'a>(&'a [u8]);

impl FuzzBytes<'_> {
    fn next_byte(&mut self) -> u8 {
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
            n => from.nth(usize::from(self.next_byte()) % n),
        }
    }
}
