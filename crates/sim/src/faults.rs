//! Injected faults: their kinds, their probabilities, and how often each one occurred; and inputs that make no sense in
//! the current state of the run, or that only sometimes do.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, Cost, DecisionActor, InstanceIx, Publication,
        RunInput, RunPhase, RunStart, RunState, StepAt, Verdict, Waitpoint, transitions::StepPhase,
    },
    ids::{RunId, SignalName},
    ir::HoldReason,
    plan::Plan,
    time::{Millis, Timestamp},
};

use crate::rng::Rng;

skein_core::listed_enum! {
    /// A way in which the world misbehaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum InjectedFault {
        /// The host dies before a row is stored; the row is lost.
        CrashBeforeAppend,
        /// The host dies after a row is stored and before the acknowledgement.
        CrashAfterAppend,
        /// The host dies after the acknowledgement and before it acts on it.
        CrashAfterAcknowledgement,
        CrashBeforeSpawn,
        CrashAfterSpawn,
        /// The host dies after a worker has ended and before its end is reported.
        CrashAfterExit,
        /// The host dies after an end was reported and before a decision.
        CrashAfterReport,
        /// A worker outlives the host, and reports to the next one.
        WorkerOutlivesHost,
        LateResult,
        DuplicateResult,
        /// The end of a worker is never reported; the host detects it when it restarts.
        LostResult,
        SlowAppend,
        EarlyWake,
        RepeatedWake,
        ClockForward,
        ClockBack,
        /// Two people decide at the same time.
        RacingDecisions,
        Cancel,
        CancelAgain,
        HoldByHost,
        StraySignal,
        SignalFlood,
        NoCapacity,
        /// An attempt fails, regardless of the end drawn for it.
        FailedAttempt,
        /// An undo runs again because its end was not recorded.
        RepeatedUndo,
        RetryUndo,
        BrokenInvariant,
        /// An input that makes no sense in the current state of the run.
        Nonsense,
    }
}

/// Decides which faults a run has, and counts them.
#[derive(Debug, Clone)]
pub struct FaultInjector {
    rng: Rng,
    /// The chance of each fault, in permille.
    chances: BTreeMap<InjectedFault, u64>,
    /// The number of crashes that may still happen; bounded so that every run ends.
    crashes: u32,
    /// A fault that strikes exactly once, and the chances left until it does.
    nth: Option<(InjectedFault, u64)>,
    pub seen: BTreeMap<InjectedFault, u64>,
}

impl FaultInjector {
    pub fn without_faults() -> FaultInjector {
        FaultInjector { rng: Rng::new(0), chances: BTreeMap::new(), crashes: 0, nth: None, seen: BTreeMap::new() }
    }

    /// Chooses a few kinds of fault by the seed, each with its own chance.
    pub fn from_seed(seed: u64) -> FaultInjector {
        let mut rng = Rng::new(seed).fork("faults");
        let mut chances = BTreeMap::new();
        for fault in InjectedFault::ALL {
            if rng.chance_percent(30) {
                chances.insert(fault, *rng.pick(&[10, 40, 150]));
            }
        }
        for rare in [InjectedFault::BrokenInvariant, InjectedFault::SignalFlood] {
            if let Some(chance) = chances.get_mut(&rare) {
                *chance = 2;
            }
        }
        let crashes = rng.next_u32_between(1, 6);
        FaultInjector { rng, chances, crashes, nth: None, seen: BTreeMap::new() }
    }

    /// Injects only this fault, at its n-th chance, counted from 1.
    pub fn single_fault(fault: InjectedFault, n: u64) -> FaultInjector {
        FaultInjector { nth: Some((fault, n)), ..FaultInjector::without_faults() }
    }

    /// Adds these chances.
    pub fn with_chances(mut self, also: &[(InjectedFault, u64)]) -> FaultInjector {
        self.chances.extend(also.iter().copied());
        self
    }

    /// True if this fault strikes now.
    pub fn strikes(&mut self, fault: InjectedFault) -> bool {
        if let Some((one, left)) = &mut self.nth
            && *one == fault
            && *left > 0
        {
            *left -= 1;
            if *left == 0 {
                self.record_fault(fault);
                return true;
            }
            return false;
        }
        let Some(chance) = self.chances.get(&fault) else { return false };
        let crash = is_crash(fault);
        if (crash && self.crashes == 0) || !self.rng.chance_permille(*chance) {
            return false;
        }
        self.crashes -= u32::from(crash);
        self.record_fault(fault);
        true
    }

    /// Counts a fault that was chosen or that followed from another.
    pub fn record_fault(&mut self, fault: InjectedFault) {
        *self.seen.entry(fault).or_default() += 1;
    }

    pub fn is_faultless(&self) -> bool {
        self.chances.is_empty() && self.nth.is_none()
    }

    pub fn can_strike(&self, fault: InjectedFault) -> bool {
        self.chances.contains_key(&fault) || self.nth.is_some_and(|(one, _)| one == fault)
    }

    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

fn is_crash(fault: InjectedFault) -> bool {
    matches!(
        fault,
        InjectedFault::CrashBeforeAppend
            | InjectedFault::CrashAfterAppend
            | InjectedFault::CrashAfterAcknowledgement
            | InjectedFault::CrashBeforeSpawn
            | InjectedFault::CrashAfterSpawn
            | InjectedFault::CrashAfterExit
            | InjectedFault::CrashAfterReport
            | InjectedFault::LostResult
            | InjectedFault::RepeatedUndo
    )
}

fn unauthorised_actor() -> DecisionActor {
    DecisionActor { name: "mallory".into(), roles: vec!["none".into()] }
}

fn start_input(state: &RunState) -> RunInput {
    let start = Box::new(RunStart::new(RunId::new("again").expect("it is a name")));
    if hashed_percent(state, 50) { RunInput::Start(start) } else { RunInput::Fork { start, reused: Vec::new() } }
}

fn attempt_id(at: StepAt, visit: u32, iteration: u32, role: AttemptRole, attempt: u32) -> AttemptId {
    AttemptId { at, visit, iteration, role, attempt }
}

fn cheap_report(end: AttemptEnd) -> AttemptReport {
    AttemptReport::new(end, Cost { tokens: 1, micro_usd: None })
}

/// Draws any input for a run that has not been started.
pub(crate) fn draw_input_before_start(rng: &mut Rng) -> RunInput {
    let at = StepAt(InstanceIx(0), 0);
    match rng.next_below(12) {
        11 => tampered_input(),
        10 => RunInput::Break { message: "before it began".into() },
        0 => RunInput::Recover,
        1 => RunInput::Capacity,
        2 => RunInput::Finished {
            attempt: attempt_id(at, 1, 1, AttemptRole::Main, 1),
            report: cheap_report(AttemptEnd::Stopped),
        },
        3 => RunInput::Decide {
            opening: Waitpoint(0),
            decision: Verdict::Approve,
            by: unauthorised_actor(),
            reason: None,
        },
        4 => signal_input("s", None),
        5 => hold_input(at),
        6 => RunInput::Wake,
        7 => RunInput::Cancel { by: "ann".into(), reason: None },
        8 => RunInput::Published { item: Publication::Files, failed: None },
        _ => RunInput::RetryUndo { by: "ann".into() },
    }
}

fn signal_input(name: &str, to: Option<StepAt>) -> RunInput {
    let name = SignalName::new(name).expect("it is a name");
    RunInput::Signal { name, payload: Arc::new(json!({"n": 1})), to }
}

fn tampered_input() -> RunInput {
    RunInput::Tampered { by: "a worker".into(), what: "approve `gate`".into() }
}

fn hold_input(step: StepAt) -> RunInput {
    RunInput::Hold { step, reason: HoldReason::Quota, until: None, message: "a guess".into() }
}

/// Phases that last only a moment or occur in few runs, so inputs in them have to be tried more often.
const RARE: [StepPhase; 5] =
    [StepPhase::Summing, StepPhase::Stopping, StepPhase::Unwinding, StepPhase::Undoing, StepPhase::Stuck];

/// The number of additional tries that nonsense gets in this state.
pub(crate) fn count_extra_tries(state: &RunState) -> u32 {
    let rare = RARE.iter().any(|phase| state.count_in_phase(*phase) > 0);
    u32::from(rare) + 5 * u32::from(state.count_in_phase(StepPhase::Unwinding) > 0)
}

/// Draws a hold by the host: of a ready step if there is one, otherwise of any step, sometimes with a time limit.
pub(crate) fn draw_host_hold(state: &RunState, rng: &mut Rng, now: Timestamp) -> Option<RunInput> {
    let steps = all_steps(state);
    let ready: Vec<StepAt> = steps.iter().copied().filter(|at| state.step(*at).phase == StepPhase::Ready).collect();
    let step = if ready.is_empty() { *pick_some(rng, &steps)? } else { *rng.pick(&ready) };
    let until = rng.chance_percent(60).then(|| now.saturating_add(Millis::from_secs(rng.next_between(60, 300))));
    let reason = *rng.pick(&HoldReason::ALL);
    Some(RunInput::Hold { step, reason, until, message: "the host says so".into() })
}

fn pick_some<'a, T>(rng: &mut Rng, of: &'a [T]) -> Option<&'a T> {
    (!of.is_empty()).then(|| rng.pick(of))
}

fn all_steps(state: &RunState) -> Vec<StepAt> {
    let instances = (0..).map(InstanceIx).zip(&state.instances);
    instances.flat_map(|(ix, instance)| (0..).zip(&instance.steps).map(move |(i, _)| StepAt(ix, i))).collect()
}

/// Draws any input for any step. Steps in rare phases are chosen as often as steps in common phases.
pub(crate) fn draw_any_input(plan: &Plan, state: &RunState, rng: &mut Rng) -> Option<RunInput> {
    if state.phase == RunPhase::Quarantined {
        let broken = RunInput::Break { message: "again".into() };
        return Some(match rng.next_below(15) {
            0..3 => start_input(state),
            3 => broken,
            _ => draw_input_before_start(rng),
        });
    }
    let steps = all_steps(state);
    // Few steps had a waitpoint, have left it, and have not ended.
    let asked = |opening: &&skein_core::engine::WaitpointState| {
        matches!(state.step(opening.at).phase, StepPhase::Pending | StepPhase::Stopping)
    };
    if let Some(opening) = state.openings.iter().find(asked).filter(|_| rng.chance_percent(30)) {
        let by = crate::outcome::allowed_actor(&opening.approvers);
        return Some(draw_decision_input(rng, state, opening.at, by));
    }
    let present: Vec<StepPhase> = StepPhase::ALL.into_iter().filter(|phase| state.count_in_phase(*phase) > 0).collect();
    let rare: Vec<StepPhase> = present.iter().copied().filter(|phase| RARE.contains(phase)).collect();
    let any = rare.is_empty() || rng.chance_percent(40);
    let rarest = rare.contains(&StepPhase::Unwinding) && rng.chance_percent(50);
    let phase = if rarest { StepPhase::Unwinding } else { *pick_some(rng, if any { &present } else { &rare })? };
    let of: Vec<StepAt> = steps.into_iter().filter(|at| state.step(*at).phase == phase).collect();
    let at = *pick_some(rng, &of)?;
    let more = state.visit_state(at);
    let live = more.and_then(|more| more.live);
    Some(match rng.next_below(16) {
        0 => start_input(state),
        1 => RunInput::Recover,
        2 if hashed_percent(state, 50) => tampered_input(),
        2 => RunInput::Capacity,
        3..6 => draw_finished_input(rng, state, at, live),
        6 => draw_decision_input(rng, state, at, unauthorised_actor()),
        7..10 => {
            let approvers = more.and_then(|more| more.opening).and_then(|opening| state.waitpoint(opening));
            let by = crate::outcome::allowed_actor(approvers.map_or(&[], |opening| &opening.approvers));
            draw_decision_input(rng, state, at, by)
        }
        10..12 => {
            let names: Vec<&SignalName> = plan.definition.signals.iter().collect();
            let known = pick_some(rng, &names)
                .filter(|_| hashed_percent(state, 80))
                .map_or("no-such-signal", |name| name.as_str());
            let to = match rng.next_below(8) {
                0..6 => Some(at),
                6 => Some(StepAt(InstanceIx(u32::MAX), 0)),
                _ => None,
            };
            signal_input(known, to)
        }
        12 => hold_input(if rng.chance_percent(90) { at } else { StepAt(InstanceIx(9_999), 1) }),
        13 => RunInput::Wake,
        14 => RunInput::Published { item: Publication::Hook(rng.next_u32_between(0, 3)), failed: None },
        _ => RunInput::RetryUndo { by: "ann".into() },
    })
}

/// Draws a chance without using the stream, so that a longer list of names changes nothing else.
fn hashed_percent(state: &RunState, n: u64) -> bool {
    crate::rng::mix_bits(state.events) % 100 < n
}

/// Draws the end of an attempt: one in flight, one that is over, or one that never existed.
fn draw_finished_input(rng: &mut Rng, state: &RunState, at: StepAt, live: Option<AttemptId>) -> RunInput {
    let undo = state.in_flight().iter().find(|attempt| attempt.at == at).copied();
    let step = state.step(at);
    let iteration = step.more.as_ref().map_or(1, |more| more.next.iteration);
    let attempt = match (live.or(undo), rng.next_below(3)) {
        (Some(live), 0) => live,
        (_, 1) => attempt_id(at, step.visit.max(1), iteration, *rng.pick(&AttemptRole::ALL), 1),
        _ => attempt_id(
            at,
            rng.next_u32_between(0, 3),
            rng.next_u32_between(0, 3),
            *rng.pick(&AttemptRole::ALL),
            rng.next_u32_between(0, 4),
        ),
    };
    let end = match rng.next_below(10) {
        0 => AttemptEnd::Succeeded { output: Arc::new(json!({"n": 1, "flag": true})) },
        1 => AttemptEnd::Checked {
            finding: CheckFinding::Complete,
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
    RunInput::Finished { attempt, report: cheap_report(end) }
}

fn draw_decision_input(rng: &mut Rng, state: &RunState, at: StepAt, by: DecisionActor) -> RunInput {
    let had = state.openings.iter().rposition(|opening| opening.at == at);
    let opening = had.and_then(|i| u32::try_from(i).ok()).map_or(Waitpoint(u32::MAX), Waitpoint);
    let decision = if rng.chance_percent(50) { Verdict::Approve } else { Verdict::Reject };
    RunInput::Decide { opening, decision, by, reason: None }
}
