//! What a run came to, step by step, as its journal tells it: what a fork of it may begin with.
//!
//! Owns the reading. Every end of every visit is kept with what is known of how it came to that, because the state has
//! only the last. Refuses to choose: `fork` does.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AttemptId, AttemptRole, Event, InstanceIx, JournalBatch, JournalError, JournalRecord, RunState, StepAt,
    StepReused, apply,
};
use crate::plan::{ContentHash, Plan};

/// Fed with every row of a run in order.
#[derive(Debug)]
pub struct ReusableResults {
    pub(super) plan: Plan,
    pub(super) state: RunState,
    chain: ContentHash,
    /// How the steps of each instance ended, in that order.
    pub(super) ends: BTreeMap<InstanceIx, Vec<VisitEnd>>,
    /// When each step of the root was first reached, in events.
    pub(super) reached: BTreeMap<u32, u64>,
    /// What was taken back, or could not be.
    pub(super) undone: BTreeSet<StepAt>,
    /// The last attempt at the work of each step.
    attempts: BTreeMap<StepAt, AttemptId>,
    decided: BTreeMap<StepAt, String>,
}

/// The end of a visit.
#[derive(Debug)]
pub(super) struct VisitEnd {
    /// The number of its event.
    pub seq: u64,
    /// The numbers in it are those of the run that is read.
    pub step: StepReused,
    /// The instances of its last try.
    pub children: Vec<InstanceIx>,
}

impl ReusableResults {
    /// Of a run of this plan, of which nothing has been read.
    pub fn new(plan: Plan) -> ReusableResults {
        ReusableResults {
            plan,
            state: RunState::new(),
            chain: ContentHash::ZERO,
            ends: BTreeMap::new(),
            reached: BTreeMap::new(),
            undone: BTreeSet::new(),
            attempts: BTreeMap::new(),
            decided: BTreeMap::new(),
        }
    }

    /// The run as it was read.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads the next row.
    pub fn read_batch(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        batch.check(self.state.events, self.chain)?;
        if batch.seq == 0 && !self.matches_plan(batch) {
            return Err(JournalError::OtherPlan);
        }
        for JournalRecord { at, event } in &batch.records {
            apply(&self.plan, &mut self.state, *at, event);
            self.note_event(event);
        }
        self.chain = batch.chain;
        Ok(())
    }

    fn matches_plan(&self, batch: &JournalBatch) -> bool {
        let first = batch.records.first().map(|record| &record.event);
        let ours = self.plan.definition.hash();
        match first {
            Some(Event::RunStarted { definition, .. }) => *definition == ours,
            first => matches!(first, Some(Event::Quarantined { .. })),
        }
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::StepReady { at } | Event::Opened { at, .. } | Event::StepHeld { at, .. } => {
                self.mark_reached(*at)
            }
            Event::AttemptStarted { attempt, .. } if attempt.role == AttemptRole::Main => {
                self.attempts.insert(attempt.at, *attempt);
            }
            Event::Decided { opening, by, .. } => {
                if let Some(opening) = self.state.waitpoint(*opening) {
                    self.decided.insert(opening.at, by.clone());
                }
            }
            Event::StepEnded { at, .. } => self.record_step_end(*at),
            Event::StepReused(reused) => {
                self.attempts.extend(reused.attempt.map(|attempt| (reused.at, attempt)));
                self.decided.extend(reused.decided_by.clone().map(|by| (reused.at, by)));
                self.record_step_end(reused.at);
            }
            Event::StepUndone { at, .. } | Event::UndoFailed { at, .. } => {
                self.undone.insert(*at);
            }
            _ => {}
        }
    }

    fn mark_reached(&mut self, at: StepAt) {
        if at.0 == InstanceIx::ROOT {
            self.reached.entry(at.1).or_insert(self.state.events);
        }
    }

    fn record_step_end(&mut self, at: StepAt) {
        self.mark_reached(at);
        let (step, decided_by) = (self.state.step(at), self.decided.remove(&at));
        let (Some(outcome), Some(effect), Some(more)) = (step.outcome, step.effect, &step.more) else {
            return;
        };
        let reused = StepReused {
            at,
            outcome,
            output: step.output.clone(),
            error: more.error.clone(),
            effect,
            route: self.state.instance(at.0).cursor,
            settler: more.settler,
            attempt: self.attempts.get(&at).copied().filter(|attempt| attempt.visit == step.visit),
            attempts: more.total_attempts,
            summary: more.summary.clone(),
            items: more.items.clone(),
            decided_by,
            started: more.started,
            ended: more.ended.unwrap_or(self.state.now),
        };
        let end = VisitEnd { seq: self.state.events, step: reused, children: more.children.clone() };
        self.ends.entry(at.0).or_default().push(end);
    }
}
