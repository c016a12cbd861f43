//! The loop: inputs in, rows to append out, and what to do once they are durable.
//!
//! Owns the order of things: one append is in flight at a time, what arrives meanwhile is decided together into the
//! next, nothing is done or answered before the append it depends on is acknowledged. Refuses to know how anything
//! is done: the host and the simulator poll it and tell it what happened. A decision that panics quarantines the run.

use std::{
    collections::{BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    AttemptAssignment, AttemptId, Event, JournalBatch, JournalError, JournalRecord, Publication, Refusal,
    RunInput, RunState, TimedInput, apply, decide, wanted,
};
use crate::{plan::ContentHash, plan::Plan, time::Timestamp};

/// Names an input, so that its answer can be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputToken(pub u64);

/// What the host is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum DriverAction {
    Start(AttemptId, Box<AttemptAssignment>),
    Stop(AttemptId),
    Publish(Publication),
    /// Send `Wake` at this time, instead of at any told before; never, if none.
    Wake(Option<Timestamp>),
}

/// A run and its loop.
#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    state: RunState,
    chain: ContentHash,
    queue: VecDeque<(InputToken, TimedInput)>,
    /// The row that is being appended.
    pending: Option<Arc<JournalBatch>>,
    /// Answers that wait for the append in flight.
    undelivered: Vec<DriverAnswer>,
    answers: VecDeque<DriverAnswer>,
    actions: VecDeque<DriverAction>,
    /// What the host was told to start and has not reported the end of.
    started: BTreeSet<AttemptId>,
    stopped: BTreeSet<AttemptId>,
    wake: Option<Timestamp>,
}

type DriverAnswer = (InputToken, Result<(), Refusal>);

impl Driver {
    /// A run that has not been started.
    pub fn new(plan: Plan) -> Driver {
        Driver {
            plan,
            state: RunState::new(),
            chain: ContentHash::ZERO,
            queue: VecDeque::new(),
            pending: None,
            undelivered: Vec::new(),
            answers: VecDeque::new(),
            actions: VecDeque::new(),
            started: BTreeSet::new(),
            stopped: BTreeSet::new(),
            wake: None,
        }
    }

    /// A run as its journal tells it. The host then says `Recover`, once nothing of it is in flight.
    pub fn replay<'a>(
        plan: Plan,
        journal: impl IntoIterator<Item = &'a JournalBatch>,
    ) -> Result<Driver, JournalError> {
        let mut driver = Driver::new(plan);
        for batch in journal {
            driver.replay_batch(batch)?;
        }
        driver.finish_replay();
        Ok(driver)
    }

    /// A run as it was after a row whose hash is this, for which others vouch. The rows that follow are then recalled.
    /// None: it is not a state of this plan.
    pub fn from_state(plan: &Plan, state: RunState, chain: ContentHash) -> Option<Driver> {
        let root = state.instances.first().filter(|_| state.definition == plan.definition.hash())?;
        let plan = plan.definition.plan_with_parameters(root.input.clone());
        Some(Driver { state, chain, ..Driver::new(plan) })
    }

    /// The next row of the journal of a run that is being read back.
    pub fn replay_batch(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        batch.check(self.state.events, self.chain)?;
        self.replay_checked_batch(batch)
    }

    /// The same, of a store that has checked each row against the one before it.
    pub fn replay_checked_batch(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        batch.check_place(self.state.events)?;
        if let (0, Some(JournalRecord { event, .. })) = (batch.seq, batch.records.first()) {
            self.check_plan(event)?;
        }
        for JournalRecord { at, event } in &batch.records {
            apply(&self.plan, &mut self.state, *at, event);
        }
        self.chain = batch.chain;
        Ok(())
    }

    /// The journal has been read to its end.
    pub fn finish_replay(&mut self) {
        self.wake = wanted(&self.state).wake;
        self.actions.push_back(DriverAction::Wake(self.wake));
        for item in &wanted(&self.state).publish {
            self.actions.push_back(DriverAction::Publish(*item));
        }
    }

    fn check_plan(&mut self, first: &Event) -> Result<(), JournalError> {
        match first {
            Event::RunStarted { definition, parameters, .. }
                if *definition == self.plan.definition.hash() =>
            {
                self.plan = self.plan.definition.plan_with_parameters(parameters.clone());
                Ok(())
            }
            Event::Quarantined { .. } => Ok(()),
            _ => Err(JournalError::OtherPlan),
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The state, with what is being appended.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The hash of everything appended so far, and of what is being appended.
    pub fn chain(&self) -> ContentHash {
        self.chain
    }

    /// The plan and the state, for who only looks.
    pub fn into_parts(self) -> (Plan, RunState) {
        (self.plan, self.state)
    }

    /// Whether everything said so far has been decided and is durable.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.pending.is_none()
    }

    /// An input. Its answer comes when what it led to is durable.
    pub fn push_input(&mut self, token: InputToken, stimulus: TimedInput) {
        if let RunInput::Finished { attempt, .. } = &stimulus.input {
            self.started.remove(attempt);
            self.stopped.remove(attempt);
        }
        self.queue.push_back((token, stimulus));
    }

    /// Decides what is queued, and gives the row to append, if there is one and none is in flight. The host calls
    /// [`appended`](Driver::appended) when it is durable, and gives the row again to another store if that failed.
    pub fn poll_append(&mut self) -> Option<Arc<JournalBatch>> {
        if self.pending.is_some() {
            return None;
        }
        let seq = self.state.events;
        let mut records = Vec::new();
        while let Some((token, stimulus)) = self.queue.pop_front() {
            if matches!(stimulus.input, RunInput::Wake) {
                // The time that was told is used up. What is still due then, or was not due yet, is told anew.
                self.wake = None;
            }
            let answer = self.decide_input(&stimulus, &mut records);
            self.undelivered.push((token, answer));
        }
        if records.is_empty() {
            self.schedule_wake();
            self.deliver_answers();
            return None;
        }
        let batch = JournalBatch::new(seq, self.chain, records);
        self.chain = batch.chain;
        self.pending = Some(Arc::new(batch));
        self.pending.clone()
    }

    fn decide_input(
        &mut self,
        stimulus: &TimedInput,
        records: &mut Vec<JournalRecord>,
    ) -> Result<(), Refusal> {
        let mut events = Vec::new();
        let Driver { plan, state, .. } = self;
        let decided = catch_unwind(AssertUnwindSafe(|| decide(plan, state, stimulus, &mut events)));
        let answer = match decided {
            Ok(answer) => answer,
            Err(panic) => {
                let message = format!("a decision failed: {}", panic_message(&*panic));
                let event = Event::Quarantined { message: message.clone() };
                apply(&self.plan, &mut self.state, stimulus.at, &event);
                events.push(event);
                Err(Refusal::Quarantined { message })
            }
        };
        records.extend(events.into_iter().map(|event| JournalRecord { at: stimulus.at, event }));
        answer
    }

    /// The row is durable: its answers and actions can go out.
    pub fn confirm_append(&mut self) {
        let Some(batch) = self.pending.take() else { return };
        for JournalRecord { event, .. } in &batch.records {
            self.react_to_event(event);
        }
        self.schedule_wake();
        self.deliver_answers();
    }

    fn schedule_wake(&mut self) {
        let wake = wanted(&self.state).wake;
        if wake != self.wake {
            self.wake = wake;
            self.actions.push_back(DriverAction::Wake(wake));
        }
    }

    /// Brings what an event was about in line with what is wanted now.
    fn react_to_event(&mut self, event: &Event) {
        match event {
            Event::AttemptStarted { attempt, .. } | Event::StopAsked { attempt, .. } => {
                self.reconcile_attempt(*attempt)
            }
            Event::RunStarted { publish, .. } | Event::RunDecided { publish, .. } => {
                self.actions.extend(publish.iter().copied().map(DriverAction::Publish));
            }
            Event::Quarantined { .. } => {
                for attempt in std::mem::take(&mut self.started) {
                    self.actions.push_back(DriverAction::Stop(attempt));
                }
            }
            _ => {}
        }
    }

    fn reconcile_attempt(&mut self, attempt: AttemptId) {
        match wanted(&self.state).runs.get(&attempt) {
            Some(assignment) if self.started.insert(attempt) => {
                self.actions.push_back(DriverAction::Start(attempt, Box::new(assignment.clone())));
            }
            // An attempt that was stopped before it was started is reported as stopped by the host all the same.
            None if self.state.in_flight().contains(&attempt) && self.stopped.insert(attempt) => {
                self.actions.push_back(DriverAction::Stop(attempt));
            }
            _ => {}
        }
    }

    fn deliver_answers(&mut self) {
        self.answers.extend(self.undelivered.drain(..));
    }

    /// The answers that go out when the append in flight is durable, for a host that keeps them beside it.
    pub fn undelivered_answers(&self) -> &[(InputToken, Result<(), Refusal>)] {
        &self.undelivered
    }

    pub fn poll_answer(&mut self) -> Option<(InputToken, Result<(), Refusal>)> {
        self.answers.pop_front()
    }

    pub fn poll_action(&mut self) -> Option<DriverAction> {
        self.actions.pop_front()
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_quoted_whatever_it_was_made_of() {
        assert_eq!(panic_message(&"broken"), "broken");
        assert_eq!(panic_message(&"broken".to_owned()), "broken");
        assert_eq!(panic_message(&7), "no message");
    }
}
