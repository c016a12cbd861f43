//! Inputs that make no sense where the run is, or that only sometimes do.

use std::sync::Arc;

use serde_json::json;
use skein_core::{
    engine::{
        Actor, AttemptEnd, AttemptId, Cost, Decision, Finding, Input, InstanceIx, Opening, Publication,
        Report, Role, RunPhase, RunState, Start, StepAt, transitions::Phase,
    },
    ids::{RunId, SignalName},
    ir::HoldReason,
    plan::Plan,
    time::{Millis, Time},
};

use crate::rng::Rng;

fn nobody() -> Actor {
    Actor { name: "mallory".into(), roles: vec!["none".into()] }
}

fn start(state: &RunState) -> Input {
    let start = Box::new(Start::new(RunId::new("again").expect("it is a name")));
    if rng_percent(state, 50) { Input::Start(start) } else { Input::Fork { start, reused: Vec::new() } }
}

fn attempt(at: StepAt, visit: u32, iteration: u32, role: Role, attempt: u32) -> AttemptId {
    AttemptId { at, visit, iteration, role, attempt }
}

fn report(end: AttemptEnd) -> Report {
    Report::new(end, Cost { tokens: 1, micro_usd: None })
}

/// Any input, to a run that has not been started.
pub fn before(rng: &mut Rng) -> Input {
    let at = StepAt(InstanceIx(0), 0);
    match rng.below(12) {
        11 => tampered(),
        10 => Input::Break { message: "before it began".into() },
        0 => Input::Recover,
        1 => Input::Capacity,
        2 => {
            Input::Finished { attempt: attempt(at, 1, 1, Role::Main, 1), report: report(AttemptEnd::Stopped) }
        }
        3 => Input::Decide { opening: Opening(0), decision: Decision::Approve, by: nobody(), reason: None },
        4 => signal("s", None),
        5 => held(at),
        6 => Input::Wake,
        7 => Input::Cancel { by: "ann".into(), reason: None },
        8 => Input::Published { item: Publication::Files, failed: None },
        _ => Input::RetryUndo { by: "ann".into() },
    }
}

fn signal(name: &str, to: Option<StepAt>) -> Input {
    let name = SignalName::new(name).expect("it is a name");
    Input::Signal { name, payload: Arc::new(json!({"n": 1})), to }
}

fn tampered() -> Input {
    Input::Tampered { by: "a worker".into(), what: "approve `gate`".into() }
}

fn held(step: StepAt) -> Input {
    Input::Hold { step, reason: HoldReason::Quota, until: None, message: "a guess".into() }
}

/// Phases that a step is in only for a moment, or in few runs; what is said in them has to be tried more often.
const RARE: [Phase; 5] = [Phase::Summing, Phase::Stopping, Phase::Unwinding, Phase::Undoing, Phase::Stuck];

/// How much more often nonsense is worth trying now.
pub fn rarity(state: &RunState) -> u32 {
    let rare = RARE.iter().any(|phase| state.count(*phase) > 0);
    u32::from(rare) + 5 * u32::from(state.count(Phase::Unwinding) > 0)
}

/// The host holds a step that is ready, or another, now and then for a while.
pub fn hold(state: &RunState, rng: &mut Rng, now: Time) -> Option<Input> {
    let steps = all_steps(state);
    let ready: Vec<StepAt> =
        steps.iter().copied().filter(|at| state.step(*at).phase == Phase::Ready).collect();
    let step = if ready.is_empty() { *some(rng, &steps)? } else { *rng.pick(&ready) };
    let until = rng.percent(60).then(|| now.after(Millis::seconds(rng.between(60, 300))));
    let reason = *rng.pick(&HoldReason::ALL);
    Some(Input::Hold { step, reason, until, message: "the host says so".into() })
}

fn some<'a, T>(rng: &mut Rng, of: &'a [T]) -> Option<&'a T> {
    (!of.is_empty()).then(|| rng.pick(of))
}

fn all_steps(state: &RunState) -> Vec<StepAt> {
    let instances = (0..).map(InstanceIx).zip(&state.instances);
    instances.flat_map(|(ix, instance)| (0..).zip(&instance.steps).map(move |(i, _)| StepAt(ix, i))).collect()
}

/// Any input about any step. Steps in rare phases are chosen as often as those in common ones.
pub fn anything(plan: &Plan, state: &RunState, rng: &mut Rng) -> Option<Input> {
    if state.phase == RunPhase::Quarantined {
        let broken = Input::Break { message: "again".into() };
        return Some(match rng.below(15) {
            0..3 => start(state),
            3 => broken,
            _ => before(rng),
        });
    }
    let steps = all_steps(state);
    // Few have been asked about and are not any more, and have not ended.
    let asked = |opening: &&skein_core::engine::OpeningState| {
        matches!(state.step(opening.at).phase, Phase::Pending | Phase::Stopping)
    };
    if let Some(opening) = state.openings.iter().find(asked).filter(|_| rng.percent(30)) {
        let by = crate::outcome::actor(&opening.approvers);
        return Some(decision(rng, state, opening.at, by));
    }
    let present: Vec<Phase> = Phase::ALL.into_iter().filter(|phase| state.count(*phase) > 0).collect();
    let rare: Vec<Phase> = present.iter().copied().filter(|phase| RARE.contains(phase)).collect();
    let any = rare.is_empty() || rng.percent(40);
    let rarest = rare.contains(&Phase::Unwinding) && rng.percent(50);
    let phase = if rarest { Phase::Unwinding } else { *some(rng, if any { &present } else { &rare })? };
    let of: Vec<StepAt> = steps.into_iter().filter(|at| state.step(*at).phase == phase).collect();
    let at = *some(rng, &of)?;
    let more = state.more(at);
    let live = more.and_then(|more| more.live);
    Some(match rng.below(16) {
        0 => start(state),
        1 => Input::Recover,
        2 if rng_percent(state, 50) => tampered(),
        2 => Input::Capacity,
        3..6 => finished(rng, state, at, live),
        6 => decision(rng, state, at, nobody()),
        7..10 => {
            let approvers = more.and_then(|more| more.opening).and_then(|opening| state.opening(opening));
            let by = crate::outcome::actor(approvers.map_or(&[], |opening| &opening.approvers));
            decision(rng, state, at, by)
        }
        10..12 => {
            let names: Vec<&SignalName> = plan.definition.signals.iter().collect();
            let known = some(rng, &names)
                .filter(|_| rng_percent(state, 80))
                .map_or("no-such-signal", |name| name.as_str());
            let to = match rng.below(8) {
                0..6 => Some(at),
                6 => Some(StepAt(InstanceIx(u32::MAX), 0)),
                _ => None,
            };
            signal(known, to)
        }
        12 => held(if rng.percent(90) { at } else { StepAt(InstanceIx(9_999), 1) }),
        13 => Input::Wake,
        14 => Input::Published { item: Publication::Hook(rng.small(0, 3)), failed: None },
        _ => Input::RetryUndo { by: "ann".into() },
    })
}

/// A chance that does not take from the stream, so that a longer list of names changes nothing else.
fn rng_percent(state: &RunState, n: u64) -> bool {
    crate::rng::mix(state.events) % 100 < n
}

/// The end of an attempt: of one in flight, of one that is over, of one that never was.
fn finished(rng: &mut Rng, state: &RunState, at: StepAt, live: Option<AttemptId>) -> Input {
    let undo = state.in_flight().iter().find(|attempt| attempt.at == at).copied();
    let step = state.step(at);
    let iteration = step.more.as_ref().map_or(1, |more| more.next.iteration);
    let attempt = match (live.or(undo), rng.below(3)) {
        (Some(live), 0) => live,
        (_, 1) => attempt(at, step.visit.max(1), iteration, *rng.pick(&Role::ALL), 1),
        _ => attempt(at, rng.small(0, 3), rng.small(0, 3), *rng.pick(&Role::ALL), rng.small(0, 4)),
    };
    let end = match rng.below(10) {
        0 => AttemptEnd::Succeeded { output: Arc::new(json!({"n": 1, "flag": true})) },
        1 => AttemptEnd::Checked {
            finding: Finding::Complete,
            reasons: Vec::new(),
            fingerprints: Vec::new(),
            output: None,
        },
        2 => AttemptEnd::TimedOut,
        3..5 => AttemptEnd::Stopped,
        8 => AttemptEnd::Unmerged { output: Arc::new(json!({"n": 1, "flag": true})), message: "no".into() },
        5 => AttemptEnd::Interrupted,
        7 => AttemptEnd::HandedOver { to: "another".into(), message: "no".into() },
        6 => AttemptEnd::Blocked { reason: *rng.pick(&HoldReason::ALL), until: None, message: "no".into() },
        _ => AttemptEnd::Failed {
            class: *rng.pick(&skein_core::ir::ErrorClass::ALL),
            code: None,
            message: "no".into(),
            retry_at: None,
        },
    };
    Input::Finished { attempt, report: report(end) }
}

fn decision(rng: &mut Rng, state: &RunState, at: StepAt, by: Actor) -> Input {
    let had = state.openings.iter().rposition(|opening| opening.at == at);
    let opening = had.and_then(|i| u32::try_from(i).ok()).map_or(Opening(u32::MAX), Opening);
    let decision = if rng.percent(50) { Decision::Approve } else { Decision::Reject };
    Input::Decide { opening, decision, by, reason: None }
}
