//! The results of a run, step by step, read from its journal for a fork, and the events that take them over.
//!
//! Owns the reading. The end of every visit is kept with the details of its attempts and decisions, because the state
//! holds only the last visit. Does not select results: `fork` does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AttemptId, AttemptRole, CursorRoute, Event, ExecutionError, HaltReason, InstanceEnd, InstanceIx, InstancePart,
    JournalBatch, JournalError, JournalRecord, RunState, StepAt, StepOutcome, apply, event::is_null,
};
use crate::{
    ir::{OutcomeEffect, is_default},
    plan::{ContentHash, Plan},
    time::Timestamp,
};

/// An instance of the original run. It takes the next number, and it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceReused {
    pub parent: StepAt,
    pub part: InstancePart,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "is_null")]
    pub env: Arc<Value>,
    /// The reason why it was halted, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<HaltReason>,
    pub end: InstanceEnd,
}

/// The end of a step in the original run. It follows the instances of the same visit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepReused {
    pub at: StepAt,
    pub outcome: StepOutcome,
    #[serde(default, skip_serializing_if = "is_null")]
    pub output: Arc<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ExecutionError>,
    pub effect: OutcomeEffect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<CursorRoute>,
    /// The step that resolved its merge conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settler: Option<u32>,
    /// The last main attempt, with its id in this run; its artifacts are stored under that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptId>,
    /// The number of attempts up to this end, over all iterations and visits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The items of an each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Arc<Value>>,
    /// The person who decided the gate or the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    pub ended: Timestamp,
}

/// A result that a fork takes over from the original run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReusedResult {
    Instance(Box<InstanceReused>),
    Step(Box<StepReused>),
}

impl From<ReusedResult> for Event {
    fn from(reused: ReusedResult) -> Event {
        match reused {
            ReusedResult::Instance(instance) => Event::InstanceReused(instance),
            ReusedResult::Step(step) => Event::StepReused(step),
        }
    }
}

/// The results read so far. It is fed every row of a run in order.
#[derive(Debug)]
pub struct ReusableResults {
    pub(super) plan: Plan,
    pub(super) state: RunState,
    chain: ContentHash,
    /// The ends of visits of each instance, in the order in which they ended.
    pub(super) ends: BTreeMap<InstanceIx, Vec<VisitEnd>>,
    /// The number of events at which each root step was first reached.
    pub(super) reached: BTreeMap<u32, u64>,
    /// Steps that were undone or whose undo failed.
    pub(super) undone: BTreeSet<StepAt>,
    /// The last main attempt of each step.
    attempts: BTreeMap<StepAt, AttemptId>,
    decided: BTreeMap<StepAt, String>,
}

/// The end of a visit.
#[derive(Debug)]
pub(super) struct VisitEnd {
    /// The number of its event.
    pub seq: u64,
    /// The end of the step, in the numbers of the original run.
    pub step: StepReused,
    /// The instances of the last try.
    pub children: Vec<InstanceIx>,
}

impl ReusableResults {
    /// Creates an empty reader for a run of this plan.
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

    /// The state after the rows read so far.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads the next row.
    pub fn read_batch(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        batch.check(self.state.events, self.chain)?;
        batch.check_definition(self.plan.definition.hash())?;
        for JournalRecord { at, event } in &batch.records {
            apply(&self.plan, &mut self.state, *at, event);
            self.note_event(event);
        }
        self.chain = batch.chain;
        Ok(())
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::StepReady { at } | Event::Opened { at, .. } | Event::StepHeld { at, .. } => self.mark_reached(*at),
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
