//! The driver of one run: it takes inputs, returns journal rows to append, and returns actions once a row is durable.
//!
//! Owns the ordering: one append is in flight at a time, inputs that arrive meanwhile are decided together into the
//! next row, and no action or answer is released before the append it depends on is acknowledged. Does not know how
//! appends or actions are performed: the host and the simulator poll it and report what happened. A decision that
//! panics quarantines the run.

use std::{
    collections::{BTreeSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    AttemptAssignment, AttemptId, Event, JournalBatch, JournalError, JournalRecord, Publication, Refusal, RunInput,
    RunProjection, RunState, TimedInput, apply, decide, wanted,
};
use crate::{plan::ContentHash, plan::Plan, time::Timestamp};

/// Identifies an input, so that its answer can be matched to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputToken(pub u64);

/// An action for the host to perform.
#[derive(Debug, Clone, PartialEq)]
pub enum DriverAction {
    Start(AttemptId, Box<AttemptAssignment>),
    Stop(AttemptId),
    Publish(Publication),
    /// Send `Wake` at this time, which replaces any earlier one; `None`: never.
    Wake(Option<Timestamp>),
}

/// A run and its pending inputs, answers and actions.
#[derive(Debug)]
pub struct Driver {
    projection: RunProjection,
    queue: VecDeque<(InputToken, TimedInput)>,
    /// The row that is being appended.
    pending: Option<Arc<JournalBatch>>,
    /// Answers that wait for the append in flight.
    undelivered: Vec<DriverAnswer>,
    answers: VecDeque<DriverAnswer>,
    actions: VecDeque<DriverAction>,
    /// Attempts that the host was told to start and has not reported as ended.
    started: BTreeSet<AttemptId>,
    stopped: BTreeSet<AttemptId>,
    wake: Option<Timestamp>,
}

/// The answer to an input.
pub type DriverAnswer = (InputToken, Result<(), Refusal>);

impl Driver {
    /// Creates a run that has not been started.
    pub fn new(plan: Plan) -> Driver {
        Driver::with_projection(RunProjection::new(plan))
    }

    fn with_projection(projection: RunProjection) -> Driver {
        Driver {
            projection,
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

    /// Rebuilds a run from its journal. The host then sends `Recover`, once none of its attempts is in flight.
    pub fn replay<'a>(plan: Plan, journal: impl IntoIterator<Item = &'a JournalBatch>) -> Result<Driver, JournalError> {
        let mut projection = RunProjection::new(plan);
        for row in journal {
            projection.apply_row(row)?;
        }
        Ok(Driver::from_projection(projection))
    }

    /// Continues a run, and queues the actions that are still wanted.
    pub fn from_projection(projection: RunProjection) -> Driver {
        let wanted = wanted(projection.state());
        let wake = wanted.wake;
        let publish = wanted.publish.iter().copied().map(DriverAction::Publish);
        let actions = std::iter::once(DriverAction::Wake(wake)).chain(publish).collect();
        Driver { wake, actions, ..Driver::with_projection(projection) }
    }

    pub fn plan(&self) -> &Plan {
        self.projection.plan()
    }

    /// The state, including the row that is being appended.
    pub fn state(&self) -> &RunState {
        self.projection.state()
    }

    /// The projection, including the row that is being appended.
    pub fn projection(&self) -> &RunProjection {
        &self.projection
    }

    /// The hash of all rows appended so far, including the one that is being appended.
    pub fn chain(&self) -> ContentHash {
        self.projection.chain()
    }

    /// Returns the plan and the state, for callers that only read them.
    pub fn into_parts(self) -> (Plan, RunState) {
        self.projection.into_parts()
    }

    /// True if every input has been decided and is durable.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.pending.is_none()
    }

    /// Queues an input. Its answer is released when the resulting row is durable.
    pub fn push_input(&mut self, token: InputToken, timed: TimedInput) {
        if let RunInput::Finished { attempt, .. } = &timed.input {
            self.started.remove(attempt);
            self.stopped.remove(attempt);
        }
        self.queue.push_back((token, timed));
    }

    /// Decides the queued inputs and returns the row to append, if there is one and no append is in flight. The host
    /// calls [`confirm_append`](Driver::confirm_append) when the row is durable. If the append fails, the host appends
    /// the same row to another store.
    pub fn poll_append(&mut self) -> Option<Arc<JournalBatch>> {
        self.poll_append_with(|_, _, _| {})
    }

    /// Same as [`poll_append`](Driver::poll_append), and passes each record of the row to `observe`, with its number and
    /// the projection. The names and the ledger include the records up to this one, the state includes the whole row.
    pub fn poll_append_with(
        &mut self,
        mut observe: impl FnMut(&RunProjection, u64, &JournalRecord),
    ) -> Option<Arc<JournalBatch>> {
        if self.pending.is_some() {
            return None;
        }
        let seq = self.state().events;
        let mut records = Vec::new();
        while let Some((token, timed)) = self.queue.pop_front() {
            if matches!(timed.input, RunInput::Wake) {
                // This wake-up has been delivered. `schedule_wake` requests the next one, also if it is at the same
                // time.
                self.wake = None;
            }
            let answer = self.decide_input(&timed, &mut records);
            self.undelivered.push((token, answer));
        }
        if records.is_empty() {
            self.schedule_wake();
            self.deliver_answers();
            return None;
        }
        let batch = JournalBatch::new(seq, self.chain(), records);
        self.projection.chain = batch.chain;
        for (number, record) in (seq..).zip(&batch.records) {
            self.projection.note_record(record);
            observe(&self.projection, number, record);
        }
        self.pending = Some(Arc::new(batch));
        self.pending.clone()
    }

    fn decide_input(&mut self, timed: &TimedInput, records: &mut Vec<JournalRecord>) -> Result<(), Refusal> {
        let mut events = Vec::new();
        let RunProjection { plan, state, .. } = &mut self.projection;
        let decided = catch_unwind(AssertUnwindSafe(|| decide(plan, state, timed, &mut events)));
        let answer = match decided {
            Ok(answer) => answer,
            Err(panic) => {
                let message = format!("a decision failed: {}", panic_message(&*panic));
                let event = Event::Quarantined { message: message.clone() };
                apply(plan, state, timed.at, &event);
                events.push(event);
                Err(Refusal::Quarantined { message })
            }
        };
        records.extend(events.into_iter().map(|event| JournalRecord { at: timed.at, event }));
        answer
    }

    /// Marks the row in flight as durable and releases its answers and actions.
    pub fn confirm_append(&mut self) {
        let Some(batch) = self.pending.take() else { return };
        for JournalRecord { event, .. } in &batch.records {
            self.react_to_event(event);
        }
        self.schedule_wake();
        self.deliver_answers();
    }

    fn schedule_wake(&mut self) {
        let wake = wanted(self.state()).wake;
        if wake != self.wake {
            self.wake = wake;
            self.actions.push_back(DriverAction::Wake(wake));
        }
    }

    /// Queues the actions that bring the subject of an event in line with the wanted work.
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
        let state = self.projection.state();
        match wanted(state).runs.get(&attempt) {
            Some(assignment) if self.started.insert(attempt) => {
                self.actions.push_back(DriverAction::Start(attempt, Box::new(assignment.clone())));
            }
            // The host reports an attempt that was stopped before it was started as stopped, too.
            None if state.in_flight().contains(&attempt) && self.stopped.insert(attempt) => {
                self.actions.push_back(DriverAction::Stop(attempt));
            }
            _ => {}
        }
    }

    fn deliver_answers(&mut self) {
        self.answers.extend(self.undelivered.drain(..));
    }

    /// The answers that are released when the append in flight is durable, for a host that stores them with the row.
    pub fn undelivered_answers(&self) -> &[DriverAnswer] {
        &self.undelivered
    }

    pub fn poll_answer(&mut self) -> Option<DriverAnswer> {
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
