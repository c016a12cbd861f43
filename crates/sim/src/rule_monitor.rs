//! The rule monitor: observes every durable event and reports the rule that was broken. It also replays a run that is
//! recorded as a list of moves, without the world, and minimizes a list that breaks a rule.
//!
//! Owns a second state, folded from the journal alone, the invariants over it, and the coverage counts. The invariants
//! are named I1 to I12; each one is described at its check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{
        AttemptId, Driver, Event, InputToken, InstancePhase, JournalBatch, Refusal, RunInput, RunPhase, RunState,
        StepAt, TimedInput, apply,
        transitions::{InputKind, StepPhase, TransitionInput, TransitionRule, run_transition, step_transition},
        wanted,
    },
    ir::StepStatus,
    plan::{ContentHash, Plan},
};

use crate::{
    acceptor::Acceptor,
    coverage::Coverage,
    invariants::InvariantChecker,
    outcome::RunPathIndex,
    violation::{RuleResult, RuleViolation},
};

#[derive(Debug)]
pub struct RuleMonitor {
    plan: Plan,
    /// The fold of the journal.
    pub shadow: RunState,
    chain: ContentHash,
    /// The number of events, counted independently.
    events: u64,
    pub paths: RunPathIndex,
    invariants: InvariantChecker,
    acceptor: Acceptor,
    pub coverage: Coverage,
    told: Option<ObservedInput>,
    broken: Option<RuleViolation>,
}

/// An input that is decided alone, and the state of the run before it.
#[derive(Debug)]
struct ObservedInput {
    asked: InputKind,
    run: RunPhase,
    /// The phase of the addressed step; none if the input addresses all steps.
    phase: Option<StepPhase>,
    told: Option<TransitionInput>,
    /// The affected steps that have not moved yet, with their phases.
    watched: Vec<(StepAt, StepPhase)>,
    /// The first transition of each affected step that moved.
    moved: Vec<(StepPhase, StepPhase)>,
}

impl RuleMonitor {
    pub fn new(plan: &Plan) -> RuleMonitor {
        RuleMonitor {
            plan: plan.clone(),
            shadow: RunState::new(),
            chain: ContentHash::ZERO,
            events: 0,
            paths: RunPathIndex::new(plan.definition.clone()),
            invariants: InvariantChecker::new(plan.clone()),
            acceptor: Acceptor::new(plan.clone()),
            coverage: Coverage::default(),
            told: None,
            broken: None,
        }
    }

    /// Observes an input before the driver gets it.
    pub fn observe_input(&mut self, driver: &Driver, stimulus: &TimedInput, busy: bool) {
        let state = driver.state();
        self.coverage.record_run_input(state.phase, &stimulus.input);
        // Only an input that is decided alone can be distinguished from what follows.
        self.told = None;
        if busy || state.phase == RunPhase::New || state.phase == RunPhase::Quarantined {
            return;
        }
        let (step, told) = classify_input(state, &stimulus.input);
        let watched = match (step, told) {
            (_, None) => Vec::new(),
            (Some(at), Some(_)) => vec![(at, state.step(at).phase)],
            (None, Some(_)) => list_step_phases(state),
        };
        if let Some(told) = told {
            watched.iter().for_each(|(_, phase)| self.coverage.record_step_input(*phase, told));
        }
        let phase = step.map(|at| state.step(at).phase);
        let asked = InputKind::from_input(&stimulus.input);
        self.told = Some(ObservedInput { asked, run: state.phase, phase, told, watched, moved: Vec::new() });
    }

    /// Observes the driver's answer to the input.
    pub fn observe_answer(&mut self, answer: &Result<(), Refusal>) {
        if let Err(refusal) = answer {
            self.coverage.record_point(format!("refused {}", crate::coverage::refusal_name(refusal)));
        }
        let Some(seen) = self.told.take() else { return };
        let refused = answer.is_err();
        let run = run_transition(seen.run, seen.asked);
        if run == TransitionRule::Refused && !refused {
            self.broken.get_or_insert(format!("table: a {:?} run accepted {:?}", seen.run, seen.asked).into());
        }
        if let (Some(phase), Some(told)) = (seen.phase, seen.told) {
            let legal = match step_transition(phase, told) {
                TransitionRule::Refused => refused,
                TransitionRule::To(_) => true,
                TransitionRule::Unsayable => false,
            };
            if !legal {
                self.broken.get_or_insert(format!("table: {phase:?} with {told:?} was answered {answer:?}").into());
            }
        }
    }

    /// Observes a durable row. The driver has decided nothing after it.
    pub fn observe_durable_row(&mut self, driver: &Driver, batch: &JournalBatch) -> RuleResult {
        batch.check(self.events, self.chain).map_err(|error| format!("I2: {error}"))?;
        self.chain = batch.chain;
        self.events += batch.records.len() as u64;
        for record in &batch.records {
            self.coverage.record_event(&record.event);
            self.invariants.check_before_event(&self.shadow, &record.event)?;
            apply(&self.plan, &mut self.shadow, record.at, &record.event);
            self.paths.observe(&record.event);
            self.note_first_moves();
            self.invariants.check_after_event(&self.shadow, record.at, &record.event)?;
            self.count_coverage(&record.event);
            self.acceptor.accept(record.at, &record.event).map_err(|violation| violation.found_by("I10"))?;
        }
        // I1: the state in memory equals the fold of the journal.
        if driver.state().events != self.events {
            return Err(format!("I2: the state counts {} events, not {}", driver.state().events, self.events).into());
        }
        if *driver.state() != self.shadow {
            return Err("I1: the state is not the fold of the journal".into());
        }
        self.check_arrows()?;
        Ok(())
    }

    /// Records the first transition of each step that the input affects.
    fn note_first_moves(&mut self) {
        let Some(seen) = &mut self.told else { return };
        let shadow = &self.shadow;
        seen.watched.retain(|(at, before)| {
            let now = shadow.step(*at).phase;
            if now != *before {
                seen.moved.push((*before, now));
            }
            now == *before
        });
    }

    /// Checks that every transition is one that the table allows.
    fn check_arrows(&mut self) -> RuleResult {
        let Some(seen) = &self.told else { return Ok(()) };
        let Some(told) = seen.told else { return Ok(()) };
        let stayed = seen.watched.iter().map(|(_, phase)| (*phase, *phase));
        for (before, now) in seen.moved.iter().copied().chain(stayed) {
            let legal = match step_transition(before, told) {
                TransitionRule::To(legal) => legal.contains(&now),
                TransitionRule::Refused | TransitionRule::Unsayable => false,
            };
            if !legal {
                return Err(format!("table: {before:?} with {told:?} went to {now:?}").into());
            }
        }
        Ok(())
    }

    fn count_coverage(&mut self, event: &Event) {
        if let Event::StepEnded { at, settler, .. } = event {
            let scope = self.plan.definition.scope(self.shadow.instance(at.0).scope);
            let settled = match self.shadow.step_status(*at) {
                StepStatus::Succeeded => "a conflict is resolved",
                StepStatus::Skipped => "there is no conflict",
                _ => "a conflict is not resolved",
            };
            let settles =
                scope.scope.steps.iter().any(|step| step.policy.settled_by.as_ref() == Some(&scope.step(at.1).id));
            let points = [settles.then_some(settled), settler.map(|_| "a conflict")];
            points.into_iter().flatten().for_each(|point| self.coverage.record_point(point));
        }
        match event {
            Event::StepEnded { at, .. } => {
                let status = self.shadow.step_status(*at);
                let scope = self.plan.definition.scope(self.shadow.instance(at.0).scope);
                let kind = scope.step(at.1).kind.name();
                self.coverage.record_point(format!("step {status}"));
                self.coverage.record_point(format!("kind {kind:?}"));
                let mut depth = 0;
                let mut ix = at.0;
                while let Some(parent) = self.shadow.instance(ix).parent {
                    depth += 1;
                    ix = parent.0;
                }
                if depth >= 3 {
                    self.coverage.record_point("three deep");
                }
            }
            Event::StepUndone { .. } => self.coverage.record_point(format!("step {}", StepStatus::Undone)),
            Event::StepHeld { reason, .. } => self.coverage.record_point(format!("hold {reason:?}")),
            Event::RunDecided { status, .. } => self.coverage.record_point(format!("run {status}")),
            _ => {}
        }
    }

    /// Checks, after a row was acknowledged, that the wanted world matches the state, computed from scratch.
    pub fn check_settled(&mut self, driver: &Driver) -> RuleResult {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        self.invariants.check_settled(driver.state())
    }

    /// Checks a driver that was rebuilt from the journal.
    pub fn check_replayed(&mut self, driver: &Driver) -> RuleResult {
        self.told = None;
        if *driver.state() != self.shadow {
            return Err("I1: replay gives a different state".into());
        }
        // A host may have loaded a serialized state instead of replaying all rows.
        let written = serde_json::to_vec(driver.state()).map_err(|error| error.to_string())?;
        match serde_json::from_slice::<RunState>(&written) {
            Ok(read) if read == self.shadow => Ok(()),
            Ok(_) => Err("I1: a state changes when it is written and read".into()),
            Err(error) => Err(format!("I1: a state that was written cannot be read: {error}").into()),
        }
    }

    /// Checks the final state, after which nothing happens any more.
    pub fn check_ended(&mut self, driver: &Driver, workers: &BTreeMap<AttemptId, ()>) -> RuleResult {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let state = driver.state();
        if state.phase != RunPhase::New {
            self.acceptor.check_finished().map_err(|violation| violation.found_by("I10"))?;
            self.coverage.record_point("trace accepted");
        }
        // I8: no attempt is in flight that is not wanted.
        if let Some(attempt) = workers.keys().find(|attempt| !state.in_flight().contains(attempt)) {
            return Err(format!("I8: {attempt} is in flight but not wanted").into());
        }
        // I7: a run ends, or waits for a named thing.
        let live = |phase: &InstancePhase| !matches!(phase, InstancePhase::Ended { .. });
        match state.phase {
            RunPhase::Closed if !wanted(state).is_empty() => Err("I5: a closed run wants something".into()),
            RunPhase::Closed if state.instances.iter().any(|instance| live(&instance.phase)) => {
                Err("I7: a closed run has an open instance".into())
            }
            RunPhase::Closed | RunPhase::Quarantined | RunPhase::New => Ok(()),
            RunPhase::Going if state.is_waiting() => {
                self.coverage.record_point("waits forever");
                Ok(())
            }
            RunPhase::Going | RunPhase::Decided => {
                Err(format!("I7: the run is stuck: {:?}", list_stuck_steps(state)).into())
            }
        }
    }
}

fn list_stuck_steps(state: &RunState) -> Vec<(StepAt, StepPhase)> {
    list_step_phases(state).into_iter().filter(|(_, phase)| phase.is_live()).collect()
}

fn list_step_phases(state: &RunState) -> Vec<(StepAt, StepPhase)> {
    let mut all = Vec::new();
    for (ix, instance) in (0..).map(skein_core::engine::InstanceIx).zip(&state.instances) {
        all.extend((0..).zip(&instance.steps).map(|(i, step)| (StepAt(ix, i), step.phase)));
    }
    all
}

/// Returns the step that an input addresses (none: all steps), and the kind of input for the transition table.
fn classify_input(state: &RunState, input: &RunInput) -> (Option<StepAt>, Option<TransitionInput>) {
    use skein_core::engine::{AttemptEnd, Verdict};
    match input {
        RunInput::Finished { attempt, report } => {
            if state.find_step(attempt.at).is_none() {
                return (None, None);
            }
            let told = match &report.end {
                _ if !state.in_flight().contains(attempt) => TransitionInput::Late,
                AttemptEnd::Checked { .. } if attempt.role != skein_core::engine::AttemptRole::Check => {
                    return (None, None);
                }
                AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => TransitionInput::Succeeded,
                AttemptEnd::Failed { .. } | AttemptEnd::Unmerged { .. } => TransitionInput::Failed,
                AttemptEnd::TimedOut => TransitionInput::TimedOut,
                AttemptEnd::Stopped => TransitionInput::Stopped,
                AttemptEnd::Interrupted => TransitionInput::Interrupted,
                AttemptEnd::Blocked { .. } => TransitionInput::Blocked,
                AttemptEnd::HandedOver { .. } => TransitionInput::HandedOver,
            };
            (Some(attempt.at), Some(told))
        }
        RunInput::Decide { opening, decision, by, .. } => {
            let Some(open) = state.waitpoint(*opening) else { return (None, None) };
            let people = crate::outcome::allowed_actors(&open.approvers, open.quorum);
            let again = *decision == Verdict::Approve && open.approvals.iter().any(|(who, _)| *who == by.name);
            let allowed = (open.approvers.is_empty() || people.contains(by)) && !again;
            if !allowed {
                return (None, None);
            }
            let told =
                if *decision == Verdict::Approve { TransitionInput::Approved } else { TransitionInput::Rejected };
            (Some(open.at), Some(told))
        }
        RunInput::Signal { to: Some(at), .. } if state.find_step(*at).is_some() => {
            (Some(*at), Some(TransitionInput::Signalled))
        }
        RunInput::Hold { step, .. } if state.find_step(*step).is_some() => (Some(*step), Some(TransitionInput::Held)),
        RunInput::Wake => (None, Some(TransitionInput::Woken)),
        RunInput::Cancel { .. } if state.end.is_none() => (None, Some(TransitionInput::Cancelled)),
        RunInput::Capacity => (None, Some(TransitionInput::Granted)),
        RunInput::Recover => (None, Some(TransitionInput::Recovered)),
        _ => (None, None),
    }
}

/// An action on the driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverMove {
    Say(TimedInput),
    Crash { row_lost: bool },
}

/// Performs the moves in order, and returns the rule that the engine broke, if any.
pub fn replay_moves(plan: &Plan, moves: &[DriverMove]) -> RuleResult {
    let mut driver = Driver::new(plan.clone());
    let mut watch = RuleMonitor::new(plan);
    let mut rows = Vec::new();
    for (i, each) in (0..).zip(moves) {
        match each {
            DriverMove::Say(stimulus) => {
                watch.observe_input(&driver, stimulus, false);
                driver.push_input(InputToken(i), stimulus.clone());
                let lost = matches!(
                    moves.get(usize::try_from(i + 1).unwrap_or(0)),
                    Some(DriverMove::Crash { row_lost: true })
                );
                if lost {
                    continue;
                }
                if let Some(batch) = driver.poll_append() {
                    watch.observe_durable_row(&driver, &batch)?;
                    rows.push(batch);
                    driver.confirm_append();
                    watch.check_settled(&driver)?;
                }
                while let Some((_, answer)) = driver.poll_answer() {
                    watch.observe_answer(&answer);
                }
                while driver.poll_action().is_some() {}
            }
            DriverMove::Crash { .. } => {
                driver = Driver::replay(plan.clone(), rows.iter().map(AsRef::as_ref))
                    .map_err(|error| format!("I2: {error}"))?;
                watch.check_replayed(&driver)?;
            }
        }
    }
    Ok(())
}

/// Finds a small subset of the moves that still breaks a rule, by leaving out ever smaller parts.
pub fn shrink_moves(plan: &Plan, moves: Vec<DriverMove>) -> Option<(Vec<DriverMove>, RuleViolation)> {
    let mut violation = replay_moves(plan, &moves).err()?;
    let mut best = moves;
    let mut part = best.len().div_ceil(2).max(1);
    loop {
        let mut i = 0;
        let mut smaller = false;
        while i < best.len() {
            let mut without = best.clone();
            without.drain(i..(i + part).min(best.len()));
            match replay_moves(plan, &without) {
                Err(found) => {
                    (best, violation, smaller) = (without, found, true);
                }
                Ok(()) => i += part,
            }
        }
        if part == 1 && !smaller {
            return Some((best, violation));
        }
        part = (part / 2).max(1);
    }
}
