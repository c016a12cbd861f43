//! A run that is owned here: its driver, what waits to be decided, and who waits for an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc::Sender},
};

use skein_core::{
    engine::{
        AttemptId, Batch, Decision, Driver, Event, Input, Opening, OpeningKind, Record, Refusal, RunPhase,
        RunState, Stimulus, Token,
    },
    ids::RunId,
    plan::Plan,
    time::Time,
    view::Names,
};

use super::{Answer, audit, dead};
use crate::{
    audit::Entry,
    hands::Running,
    store::{Append, Claim, Head, LetterId, OpenRow},
    workspace::Ledger,
};

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Asker {
    Here(Sender<Result<(), Refusal>>),
    Letter(LetterId),
}

/// The answer to an input.
#[derive(Debug)]
pub(super) struct InputAnswer {
    /// None: nobody waits for the answer, or it went out with the append.
    pub asker: Option<Asker>,
    pub result: Result<(), Refusal>,
    /// The record of a person's decision that was refused.
    pub refused: Option<Entry>,
}

/// A person's decision that was queued.
#[derive(Debug)]
pub(super) struct DecisionAttempt {
    pub opening: Opening,
    pub decision: Decision,
    pub by: String,
    pub reason: Option<String>,
}

#[derive(Debug)]
pub(super) struct Owned {
    pub claim: Claim,
    pub driver: Driver,
    pub about: Arc<serde_json::Value>,
    /// The paths of its steps, kept up with its instances.
    names: Names,
    /// What the journal tells beyond the state.
    ledger: Ledger,
    queue: Vec<(Token, Input)>,
    asked: BTreeMap<Token, Asker>,
    /// Decisions of people that have no answer yet.
    decisions: BTreeMap<Token, DecisionAttempt>,
    tokens: u64,
    /// The append in flight, to be given again if there was no space for it.
    pub appending: Option<Append>,
    /// The head as it was last stored.
    head: Option<Head>,
    /// What is open, as it was last stored.
    open: BTreeSet<Opening>,
    /// When it is looked at again.
    pub wake: Option<Time>,
    /// When it wants to be told the time.
    pub due: Option<Time>,
    /// There was no space for the append in flight.
    pub full: bool,
    /// Workers that it has.
    pub busy: u32,
    /// Attempts of the append in flight, whose workers have been taken and not yet put to work.
    pub ahead: BTreeSet<AttemptId>,
    /// Whether it stands in line for more.
    pub hungry: bool,
    /// Whether the row in flight lets go of the run.
    pub let_go: bool,
    /// How many events were in it when a snapshot was last made.
    pub snapshot: u64,
}

impl Owned {
    pub fn new(claim: Claim, driver: Driver, ledger: Ledger, about: Arc<serde_json::Value>) -> Owned {
        let names = Names::of(&driver.plan().definition, driver.state());
        let numbered = (0..).map(Opening).zip(&driver.state().openings);
        let open = numbered.filter(|(_, opening)| !opening.closed).map(|(number, _)| number).collect();
        Owned {
            claim,
            driver,
            about,
            names,
            ledger,
            queue: Vec::new(),
            asked: BTreeMap::new(),
            decisions: BTreeMap::new(),
            tokens: 0,
            appending: None,
            head: None,
            open,
            wake: None,
            due: None,
            full: false,
            busy: 0,
            ahead: BTreeSet::new(),
            hungry: false,
            let_go: false,
            snapshot: 0,
        }
    }

    pub fn run(&self) -> &RunId {
        &self.claim.run
    }

    pub fn running(&self) -> Running<'_> {
        Running {
            run: &self.claim.run,
            plan: self.driver.plan(),
            state: self.driver.state(),
            about: &self.about,
            names: &self.names,
            ledger: &self.ledger,
        }
    }

    pub fn queue(&mut self, input: Input, asker: Option<Asker>) {
        self.tokens += 1;
        let token = Token(self.tokens);
        if let Input::Decide { opening, decision, by, reason } = &input {
            let (by, reason) = (by.name.clone(), reason.clone());
            let attempt = DecisionAttempt { opening: *opening, decision: *decision, by, reason };
            self.decisions.insert(token, attempt);
        }
        self.queue.push((token, input));
        if let Some(asker) = asker {
            self.asked.insert(token, asker);
        }
    }

    pub fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a cancel waits to be decided.
    pub fn is_cancel_queued(&self) -> bool {
        self.queue.iter().any(|(_, input)| matches!(input, Input::Cancel { .. }))
    }

    /// Whether a cancel waits behind a row that may not use the space that is kept back.
    pub fn is_cancel_behind(&self) -> bool {
        self.is_cancel_queued() && self.appending.as_ref().is_some_and(|append| !append.urgent)
    }

    /// Whether this letter is being decided already.
    pub fn has_letter(&self, letter: LetterId) -> bool {
        self.asked.values().any(|asker| matches!(asker, Asker::Letter(id) if *id == letter))
            || self.appending.iter().flat_map(|append| &append.answers).any(|(id, _)| *id == letter)
    }

    /// Decides what is queued, with so many workers to be had, and gives what is to be appended.
    pub fn decide(&mut self, now: Time, grant: u32) -> Option<Append> {
        let last = self.queue.len().saturating_sub(1);
        for (i, (token, input)) in self.queue.drain(..).enumerate() {
            // The grant is for all of them together.
            let grant = if i == last { grant } else { 0 };
            self.driver.push(token, Stimulus { at: now, grant, input });
        }
        let batch = self.driver.poll_append()?;
        let (mut dead, mut retried, mut audit) = (Vec::new(), None, Vec::new());
        for (number, record) in (batch.seq..).zip(&batch.records) {
            self.ledger.feed(record);
            self.names.feed(&record.event);
            dead.extend(dead::of(self.running(), number, record));
            retried = dead::retried(record).or(retried);
            audit.extend(audit::of(self.running(), number, record));
        }
        audit.extend(self.refused_with_append(now));
        let append = Append {
            claim: self.claim.clone(),
            head: self.new_head(),
            open: self.new_open(&batch),
            dead,
            retried,
            audit,
            answers: self.answers(),
            urgent: self.is_ending(),
            last: self.driver.state().phase == RunPhase::Closed,
            batch,
        };
        self.appending = Some(append.clone());
        Some(append)
    }

    /// Takes a worker for each attempt that a row starts, and says how many.
    pub fn take_workers(&mut self, batch: &Batch) -> u32 {
        let mut taken = 0;
        for record in &batch.records {
            if let Event::AttemptStarted { attempt, .. } = record.event {
                self.ahead.insert(attempt);
                taken += 1;
            }
        }
        self.busy += taken;
        taken
    }

    /// What lists show of it.
    pub fn head(&self) -> Head {
        head(self.driver.plan(), self.driver.state())
    }

    /// The head, if it is not what was stored last.
    fn new_head(&mut self) -> Option<Head> {
        let state = self.driver.state();
        let (status, closed) = (state.status(), state.phase == RunPhase::Closed);
        if self.head.as_ref().is_some_and(|head| (head.status, head.closed) == (status, closed)) {
            return None;
        }
        self.head = Some(self.head());
        self.head.clone()
    }

    /// Whether the run is being brought to its end, for which space is kept back.
    fn is_ending(&self) -> bool {
        let state = self.driver.state();
        state.cancel.is_some() || state.end.is_some()
    }

    /// All that is open, if that is not what was stored last.
    fn new_open(&mut self, batch: &Batch) -> Option<Vec<OpenRow>> {
        let state = self.driver.state();
        let before = self.open.len();
        self.open.retain(|opening| state.opening(*opening).is_some_and(|opening| !opening.closed));
        let mut changed = self.open.len() != before;
        for Record { event, .. } in &batch.records {
            let (Event::Opened { opening, .. } | Event::StepHeld { opening, .. }) = event else { continue };
            let open = state.opening(*opening).is_some_and(|opening| !opening.closed);
            changed |= open && self.open.insert(*opening);
        }
        changed.then(|| self.open_rows())
    }

    fn open_rows(&self) -> Vec<OpenRow> {
        let state = self.driver.state();
        let rows = self.open.iter().filter_map(|number| Some((*number, state.opening(*number)?)));
        rows.map(|(opening, it)| OpenRow {
            opening,
            step: self.names.step(it.at),
            kind: match it.kind {
                OpeningKind::Gate => "gate".to_owned(),
                OpeningKind::Wait => "wait".to_owned(),
                OpeningKind::Hold(_) => "hold".to_owned(),
            },
            message: it.message.clone(),
            since: it.opened,
        })
        .collect()
    }

    /// The answers to letters that go with the append.
    fn answers(&mut self) -> Vec<(LetterId, Vec<u8>)> {
        let mut answers = Vec::new();
        for (token, result) in self.driver.undelivered() {
            if let Some(Asker::Letter(letter)) = self.asked.get(token) {
                answers.push((*letter, Answer::from(result).bytes()));
                self.asked.remove(token);
            }
        }
        answers
    }

    /// The records of refused decisions whose answers wait for the append.
    fn refused_with_append(&mut self, now: Time) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (token, result) in self.driver.undelivered() {
            if let Some((attempt, refusal)) = self.decisions.remove(token).zip(result.as_ref().err()) {
                entries.push(audit::of_refused(self.running(), now, &attempt, refusal));
            }
        }
        entries
    }

    /// An answer that is due now.
    pub fn poll_answer(&mut self, now: Time) -> Option<InputAnswer> {
        let (token, result) = self.driver.poll_answer()?;
        let attempt = self.decisions.remove(&token).zip(result.as_ref().err());
        let refused =
            attempt.map(|(attempt, refusal)| audit::of_refused(self.running(), now, &attempt, refusal));
        Some(InputAnswer { asker: self.asked.remove(&token), result, refused })
    }
}

/// What lists show of a run.
fn head(plan: &Plan, state: &RunState) -> Head {
    let workflow = &plan.definition.root().workflow;
    let status = state.status();
    Head {
        workflow: workflow.id.to_string(),
        version: workflow.version.clone(),
        dialect: workflow.origin.dialect.clone(),
        status,
        native_status: workflow.words.run(status).to_owned(),
        started_at: state.instances.first().map(|root| root.started),
        finished_at: state.end.as_ref().map(|end| end.at),
        closed: state.phase == RunPhase::Closed,
        forked_from: state.start.as_ref().and_then(|start| start.forked_from.clone()),
        cost: state.spent,
    }
}
