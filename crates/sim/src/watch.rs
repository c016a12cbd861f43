//! Sees every durable event and says which rule was broken.
//!
//! Owns a second state, folded from the journal alone, the invariants over it, and the count of what occurred.
//! The invariants are named I1 to I12; what each means is said where it is checked.

use std::collections::BTreeMap;

use skein_core::{
    engine::{
        AttemptId, Batch, Driver, Event, Input, InstancePhase, Refusal, RunPhase, RunState, StepAt, Stimulus,
        apply,
        transitions::{Arrow, Asked, Phase, Told, arrow, run_arrow},
        wanted,
    },
    ir::StepStatus,
    plan::{Hash, Plan},
};

use crate::{acceptor::Acceptor, coverage::Coverage, invariants::Invariants, paths::Paths};

#[derive(Debug)]
pub struct Watch {
    plan: Plan,
    /// The fold of the journal.
    pub shadow: RunState,
    chain: Hash,
    /// How many events there have been, counted here.
    events: u64,
    pub paths: Paths,
    invariants: Invariants,
    acceptor: Acceptor,
    pub coverage: Coverage,
    told: Option<Seen>,
    broken: Option<String>,
}

/// An input that is being decided alone, and where the run was.
#[derive(Debug)]
struct Seen {
    asked: Asked,
    run: RunPhase,
    /// The phase of the step that it is about; none when it is about all.
    phase: Option<Phase>,
    told: Option<Told>,
    /// Steps that it reaches and that have not moved, and where they were.
    watched: Vec<(StepAt, Phase)>,
    /// From where to where the others went first.
    moved: Vec<(Phase, Phase)>,
}

impl Watch {
    pub fn new(plan: &Plan) -> Watch {
        Watch {
            plan: plan.clone(),
            shadow: RunState::new(),
            chain: Hash::ZERO,
            events: 0,
            paths: Paths::new(plan.definition.clone()),
            invariants: Invariants::new(plan.clone()),
            acceptor: Acceptor::new(plan.clone()),
            coverage: Coverage::default(),
            told: None,
            broken: None,
        }
    }

    /// Something is about to be said to the driver.
    pub fn told(&mut self, driver: &Driver, stimulus: &Stimulus, busy: bool) {
        let state = driver.state();
        self.coverage.run_input(state.phase, &stimulus.input);
        // Only what is decided alone can be told from what follows.
        self.told = None;
        if busy || state.phase == RunPhase::New || state.phase == RunPhase::Quarantined {
            return;
        }
        let (step, told) = about(state, &stimulus.input);
        let watched = match (step, told) {
            (_, None) => Vec::new(),
            (Some(at), Some(_)) => vec![(at, state.step(at).phase)],
            (None, Some(_)) => phases(state),
        };
        if let Some(told) = told {
            watched.iter().for_each(|(_, phase)| self.coverage.step_input(*phase, told));
        }
        let phase = step.map(|at| state.step(at).phase);
        let asked = Asked::of(&stimulus.input);
        self.told = Some(Seen { asked, run: state.phase, phase, told, watched, moved: Vec::new() });
    }

    /// The driver has answered.
    pub fn answered(&mut self, answer: &Result<(), Refusal>) {
        if let Err(refusal) = answer {
            self.coverage.sometimes(format!("refused {}", crate::coverage::refusal_name(refusal)));
        }
        let Some(seen) = self.told.take() else { return };
        let refused = answer.is_err();
        let run = run_arrow(seen.run, seen.asked);
        if run == Arrow::Refused && !refused {
            self.broken.get_or_insert(format!("table: a {:?} run accepted {:?}", seen.run, seen.asked));
        }
        if let (Some(phase), Some(told)) = (seen.phase, seen.told) {
            let legal = match arrow(phase, told) {
                Arrow::Refused => refused,
                Arrow::To(_) => true,
                Arrow::Unsayable => false,
            };
            if !legal {
                self.broken.get_or_insert(format!("table: {phase:?} told {told:?} was answered {answer:?}"));
            }
        }
    }

    /// A row is durable. The driver has decided nothing after it.
    pub fn durable(&mut self, driver: &Driver, batch: &Batch) -> Result<(), String> {
        batch.check(self.events, self.chain).map_err(|error| format!("I2: {error}"))?;
        self.chain = batch.chain;
        self.events += batch.records.len() as u64;
        for record in &batch.records {
            self.coverage.event(&record.event);
            self.invariants.before(&self.shadow, &record.event)?;
            apply(&self.plan, &mut self.shadow, record.at, &record.event);
            self.paths.observe(&record.event);
            self.first_moves();
            self.invariants.after(&self.shadow, record.at, &record.event)?;
            self.count(&record.event);
            self.acceptor.accept(record.at, &record.event).map_err(|why| format!("I10: {why}"))?;
        }
        // I1: the state in memory is what the journal adds up to.
        if driver.state().events != self.events {
            return Err(format!(
                "I2: the state counts {} events, not {}",
                driver.state().events,
                self.events
            ));
        }
        if *driver.state() != self.shadow {
            return Err("I1: the state is not the fold of the journal".to_owned());
        }
        self.check_arrows()?;
        Ok(())
    }

    /// Takes note of where each step that was told something goes first.
    fn first_moves(&mut self) {
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

    /// Every step went where the table lets it go.
    fn check_arrows(&mut self) -> Result<(), String> {
        let Some(seen) = &self.told else { return Ok(()) };
        let Some(told) = seen.told else { return Ok(()) };
        let stayed = seen.watched.iter().map(|(_, phase)| (*phase, *phase));
        for (before, now) in seen.moved.iter().copied().chain(stayed) {
            let legal = match arrow(before, told) {
                Arrow::To(legal) => legal.contains(&now),
                Arrow::Refused | Arrow::Unsayable => false,
            };
            if !legal {
                return Err(format!("table: {before:?} told {told:?} went to {now:?}"));
            }
        }
        Ok(())
    }

    fn count(&mut self, event: &Event) {
        if let Event::StepEnded { at, settler, .. } = event {
            let scope = self.plan.definition.scope(self.shadow.instance(at.0).scope);
            let settled = match self.shadow.step_status(*at) {
                StepStatus::Succeeded => "a conflict is settled",
                StepStatus::Skipped => "there is no conflict",
                _ => "a conflict is not settled",
            };
            let settles = scope
                .scope
                .steps
                .iter()
                .any(|step| step.policy.settled_by.as_ref() == Some(&scope.step(at.1).id));
            let points = [settles.then_some(settled), settler.map(|_| "a conflict")];
            points.into_iter().flatten().for_each(|point| self.coverage.sometimes(point));
        }
        match event {
            Event::StepEnded { at, .. } => {
                let status = self.shadow.step_status(*at);
                let scope = self.plan.definition.scope(self.shadow.instance(at.0).scope);
                let kind = scope.step(at.1).kind.name();
                self.coverage.sometimes(format!("step {status}"));
                self.coverage.sometimes(format!("kind {kind:?}"));
                let mut depth = 0;
                let mut ix = at.0;
                while let Some(parent) = self.shadow.instance(ix).parent {
                    depth += 1;
                    ix = parent.0;
                }
                if depth >= 3 {
                    self.coverage.sometimes("three deep");
                }
            }
            Event::StepUndone { .. } => self.coverage.sometimes(format!("step {}", StepStatus::Undone)),
            Event::StepHeld { reason, .. } => self.coverage.sometimes(format!("hold {reason:?}")),
            Event::RunDecided { status, .. } => self.coverage.sometimes(format!("run {status}")),
            _ => {}
        }
    }

    /// A row was acknowledged: what is wanted must be what the state says, from scratch.
    pub fn settled(&mut self, driver: &Driver) -> Result<(), String> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        self.invariants.settled(driver.state())
    }

    /// A driver was made from the journal.
    pub fn replayed(&mut self, driver: &Driver) -> Result<(), String> {
        self.told = None;
        if *driver.state() != self.shadow {
            return Err("I1: replay gives another state".to_owned());
        }
        // A host may have kept the state instead of reading all rows again.
        let written = serde_json::to_vec(driver.state()).map_err(|error| error.to_string())?;
        match serde_json::from_slice::<RunState>(&written) {
            Ok(read) if read == self.shadow => Ok(()),
            Ok(_) => Err("I1: a state that was written is read as another".to_owned()),
            Err(error) => Err(format!("I1: a state that was written cannot be read: {error}")),
        }
    }

    /// Nothing will happen any more.
    pub fn ended(&mut self, driver: &Driver, workers: &BTreeMap<AttemptId, ()>) -> Result<(), String> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let state = driver.state();
        if state.phase != RunPhase::New {
            self.acceptor.finish().map_err(|why| format!("I10: {why}"))?;
            self.coverage.sometimes("trace accepted");
        }
        // I8: nothing is in flight that nobody wants.
        if let Some(attempt) = workers.keys().find(|attempt| !state.in_flight().contains(attempt)) {
            return Err(format!("I8: {attempt} is in flight and not known"));
        }
        // I7: a run ends, or waits for something that has a name.
        let live = |phase: &InstancePhase| !matches!(phase, InstancePhase::Ended { .. });
        match state.phase {
            RunPhase::Closed if !wanted(state).is_empty() => {
                Err("I5: a closed run wants something".to_owned())
            }
            RunPhase::Closed if state.instances.iter().any(|instance| live(&instance.phase)) => {
                Err("I7: a closed run has an open instance".to_owned())
            }
            RunPhase::Closed | RunPhase::Quarantined | RunPhase::New => Ok(()),
            RunPhase::Going if state.is_waiting() => {
                self.coverage.sometimes("waits for ever");
                Ok(())
            }
            RunPhase::Going | RunPhase::Decided => Err(format!("I7: the run is stuck: {:?}", stuck(state))),
        }
    }
}

fn stuck(state: &RunState) -> Vec<(StepAt, Phase)> {
    phases(state).into_iter().filter(|(_, phase)| phase.is_live()).collect()
}

fn phases(state: &RunState) -> Vec<(StepAt, Phase)> {
    let mut all = Vec::new();
    for (ix, instance) in (0..).map(skein_core::engine::InstanceIx).zip(&state.instances) {
        all.extend((0..).zip(&instance.steps).map(|(i, step)| (StepAt(ix, i), step.phase)));
    }
    all
}

/// What an input says, and to which step; to all, if there is none.
fn about(state: &RunState, input: &Input) -> (Option<StepAt>, Option<Told>) {
    use skein_core::engine::{AttemptEnd, Decision};
    match input {
        Input::Finished { attempt, report } => {
            if state.find(attempt.at).is_none() {
                return (None, None);
            }
            let told = match &report.end {
                _ if !state.in_flight().contains(attempt) => Told::Late,
                AttemptEnd::Checked { .. } if attempt.role != skein_core::engine::Role::Check => {
                    return (None, None);
                }
                AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => Told::Succeeded,
                AttemptEnd::Failed { .. } | AttemptEnd::Unmerged { .. } => Told::Failed,
                AttemptEnd::TimedOut => Told::TimedOut,
                AttemptEnd::Stopped => Told::Stopped,
                AttemptEnd::Interrupted => Told::Interrupted,
                AttemptEnd::Blocked { .. } => Told::Blocked,
                AttemptEnd::HandedOver { .. } => Told::HandedOver,
            };
            (Some(attempt.at), Some(told))
        }
        Input::Decide { opening, decision, by, .. } => {
            let Some(open) = state.opening(*opening) else { return (None, None) };
            let people = crate::outcome::actors(&open.approvers, open.quorum);
            let again =
                *decision == Decision::Approve && open.approvals.iter().any(|(who, _)| *who == by.name);
            let allowed = (open.approvers.is_empty() || people.contains(by)) && !again;
            if !allowed {
                return (None, None);
            }
            let told = if *decision == Decision::Approve { Told::Approved } else { Told::Rejected };
            (Some(open.at), Some(told))
        }
        Input::Signal { to: Some(at), .. } if state.find(*at).is_some() => (Some(*at), Some(Told::Signalled)),
        Input::Hold { step, .. } if state.find(*step).is_some() => (Some(*step), Some(Told::Held)),
        Input::Wake => (None, Some(Told::Woken)),
        Input::Cancel { .. } if state.end.is_none() => (None, Some(Told::Cancelled)),
        Input::Capacity => (None, Some(Told::Granted)),
        Input::Recover => (None, Some(Told::Recovered)),
        _ => (None, None),
    }
}
