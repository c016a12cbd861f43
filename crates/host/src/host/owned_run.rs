//! A run that is owned here: its driver, its queued inputs, and the callers that wait for answers.
//!
//! Owns the decision which ends of a step are dead letters: its work was attempted at least once, and no further
//! attempt follows. A rejected gate, a step that never started, a cancelled one and one whose conflict a resolver
//! handles are not; neither is a composite, because the step inside it has its own dead letter.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc::Sender},
};

use skein_core::{
    engine::{
        AttemptId, Driver, Event, InputToken, JournalBatch, JournalRecord, Publication, Refusal, RunInput, RunPhase,
        StepOutcome, TimedInput, Verdict, Waitpoint, WaitpointKind,
    },
    ids::RunId,
    ir::{ErrorClass, StepKindSpec},
    time::Timestamp,
};

use super::{RequestAnswer, audit};
use crate::{
    audit::AuditEntry,
    executor_api::ActiveRun,
    run_settings::RunSettings,
    store::{DeadLetterRow, InboxRequestId, JournalAppend, RunClaim, RunHead, WaitpointRow},
};

/// The recipient of an answer.
#[derive(Debug)]
pub(crate) enum AnswerRecipient {
    Here(Sender<Result<(), Refusal>>),
    Request(InboxRequestId),
}

/// The answer to an input.
#[derive(Debug)]
pub(crate) struct InputAnswer {
    /// None: nobody waits for the answer, or it was stored with the append.
    pub recipient: Option<AnswerRecipient>,
    pub result: Result<(), Refusal>,
    /// The audit record of a person's decision that was refused.
    pub refused: Option<AuditEntry>,
}

/// A person's decision that was queued.
#[derive(Debug)]
pub(crate) struct QueuedDecision {
    pub opening: Waitpoint,
    pub decision: Verdict,
    pub by: String,
    pub reason: Option<String>,
}

#[derive(Debug)]
pub(crate) struct OwnedRun {
    pub claim: RunClaim,
    pub driver: Driver,
    pub settings: Arc<RunSettings>,
    queue: Vec<(InputToken, RunInput)>,
    recipients: BTreeMap<InputToken, AnswerRecipient>,
    /// Decisions of people that have no answer yet.
    decisions: BTreeMap<InputToken, QueuedDecision>,
    tokens: u64,
    /// The append in flight, to be retried if the disk was full.
    pub appending: Option<JournalAppend>,
    /// The run head as it was last stored.
    head: Option<RunHead>,
    /// The open waitpoints as they were last stored.
    open: BTreeSet<Waitpoint>,
    /// The time at which the loop wakes it.
    pub wake: Option<Timestamp>,
    /// The time at which the run itself wants to be woken.
    pub due: Option<Timestamp>,
    /// True if the append in flight failed on a full disk.
    pub full: bool,
    /// The number of workers that it has.
    pub busy: u32,
    /// Attempts of the append in flight, whose workers are taken but not started yet.
    pub ahead: BTreeSet<AttemptId>,
    /// True if it is queued for more workers.
    pub queued_for_workers: bool,
    /// True if the row in flight releases the run.
    pub let_go: bool,
    /// The number of its events when a snapshot was last taken.
    pub snapshot: u64,
}

impl OwnedRun {
    pub(crate) fn new(claim: RunClaim, driver: Driver, settings: Arc<RunSettings>) -> OwnedRun {
        let open = driver.state().open_waitpoints().map(|(number, _)| number).collect();
        OwnedRun {
            claim,
            driver,
            settings,
            queue: Vec::new(),
            recipients: BTreeMap::new(),
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
            queued_for_workers: false,
            let_go: false,
            snapshot: 0,
        }
    }

    pub(crate) fn run(&self) -> &RunId {
        &self.claim.run
    }

    pub(crate) fn run_context(&self) -> ActiveRun<'_> {
        ActiveRun::new(&self.claim.run, self.driver.projection(), &self.settings)
    }

    pub(crate) fn queue_input(&mut self, input: RunInput, recipient: Option<AnswerRecipient>) {
        self.tokens += 1;
        let token = InputToken(self.tokens);
        if let RunInput::Decide { opening, decision, by, reason } = &input {
            let (by, reason) = (by.name.clone(), reason.clone());
            let attempt = QueuedDecision { opening: *opening, decision: *decision, by, reason };
            self.decisions.insert(token, attempt);
        }
        self.queue.push((token, input));
        if let Some(recipient) = recipient {
            self.recipients.insert(token, recipient);
        }
    }

    pub(crate) fn has_queued_inputs(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if a cancel waits to be decided.
    pub(crate) fn has_queued_cancel(&self) -> bool {
        self.queue.iter().any(|(_, input)| matches!(input, RunInput::Cancel { .. }))
    }

    /// True if a cancel waits behind a row that may not use the reserved space.
    pub(crate) fn is_cancel_blocked(&self) -> bool {
        self.has_queued_cancel() && self.appending.as_ref().is_some_and(|append| !append.urgent)
    }

    /// True if this request is already being decided.
    pub(crate) fn has_request(&self, request: InboxRequestId) -> bool {
        self.recipients.values().any(|recipient| matches!(recipient, AnswerRecipient::Request(id) if *id == request))
            || self.appending.iter().flat_map(|append| &append.answers).any(|(id, _)| *id == request)
    }

    /// Decides the queued inputs, with `grant` workers available, and returns the row to append.
    pub(crate) fn decide(&mut self, now: Timestamp, grant: u32) -> Option<JournalAppend> {
        let last = self.queue.len().saturating_sub(1);
        for (i, (token, input)) in self.queue.drain(..).enumerate() {
            // The grant is for all inputs together.
            let grant = if i == last { grant } else { 0 };
            self.driver.push_input(token, TimedInput { at: now, grant, input });
        }
        let (mut dead, mut retried, mut audit) = (Vec::new(), None, Vec::new());
        let batch = self.driver.poll_append_with(|projection, number, record| {
            let running = ActiveRun::new(&self.claim.run, projection, &self.settings);
            dead.extend(find_dead_letter(running, number, record));
            retried = find_retry_decision(record).or(retried);
            audit.extend(audit::audit_event(running, number, record));
        })?;
        audit.extend(self.take_refusal_entries(now));
        let append = JournalAppend {
            claim: self.claim.clone(),
            head: self.take_changed_head(),
            open: self.take_changed_waitpoints(&batch),
            dead,
            retried,
            audit,
            answers: self.take_answers(),
            urgent: self.is_ending(),
            last: self.driver.state().phase == RunPhase::Closed,
            batch,
        };
        self.appending = Some(append.clone());
        Some(append)
    }

    /// Takes a worker for each attempt that a row starts, and returns their number.
    pub(crate) fn take_workers(&mut self, batch: &JournalBatch) -> u32 {
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

    /// The list entry of the run.
    pub(crate) fn current_head(&self) -> RunHead {
        let state = self.driver.state();
        let workflow = &self.driver.plan().definition.root().workflow;
        let status = state.status();
        RunHead {
            workflow: workflow.id.to_string(),
            version: workflow.version.clone(),
            dialect: workflow.origin.dialect.clone(),
            status,
            native_status: workflow.words.run_word(status).to_owned(),
            started_at: state.instances.first().map(|root| root.started),
            finished_at: state.end.as_ref().map(|end| end.at),
            closed: state.phase == RunPhase::Closed,
            forked_from: state.start.as_ref().and_then(|start| start.forked_from.clone()),
            cost: state.spent,
        }
    }

    /// Returns the run head if it differs from the stored one.
    fn take_changed_head(&mut self) -> Option<RunHead> {
        let state = self.driver.state();
        let (status, closed) = (state.status(), state.phase == RunPhase::Closed);
        if self.head.as_ref().is_some_and(|head| (head.status, head.closed) == (status, closed)) {
            return None;
        }
        self.head = Some(self.current_head());
        self.head.clone()
    }

    /// True if the run is being ended, for which disk space is reserved.
    fn is_ending(&self) -> bool {
        let state = self.driver.state();
        state.cancel.is_some() || state.end.is_some()
    }

    /// Returns all open waitpoints if they differ from the stored ones.
    fn take_changed_waitpoints(&mut self, batch: &JournalBatch) -> Option<Vec<WaitpointRow>> {
        let state = self.driver.state();
        let before = self.open.len();
        self.open.retain(|opening| state.waitpoint(*opening).is_some_and(|opening| !opening.closed));
        let mut changed = self.open.len() != before;
        for JournalRecord { event, .. } in &batch.records {
            let (Event::Opened { opening, .. } | Event::StepHeld { opening, .. }) = event else { continue };
            let open = state.waitpoint(*opening).is_some_and(|opening| !opening.closed);
            changed |= open && self.open.insert(*opening);
        }
        changed.then(|| self.waitpoint_rows())
    }

    fn waitpoint_rows(&self) -> Vec<WaitpointRow> {
        let state = self.driver.state();
        let rows = self.open.iter().filter_map(|number| Some((*number, state.waitpoint(*number)?)));
        rows.map(|(opening, it)| WaitpointRow {
            opening,
            step: self.driver.projection().names().step_path(it.at),
            kind: match it.kind {
                WaitpointKind::Gate => "gate".to_owned(),
                WaitpointKind::Wait => "wait".to_owned(),
                WaitpointKind::Hold(_) => "hold".to_owned(),
            },
            message: it.message.clone(),
            since: it.opened,
        })
        .collect()
    }

    /// Takes the answers to requests that are stored with the append.
    fn take_answers(&mut self) -> Vec<(InboxRequestId, Vec<u8>)> {
        let mut answers = Vec::new();
        for (token, result) in self.driver.undelivered_answers() {
            if let Some(AnswerRecipient::Request(request)) = self.recipients.get(token) {
                answers.push((*request, RequestAnswer::from(result).to_bytes()));
                self.recipients.remove(token);
            }
        }
        answers
    }

    /// Takes the audit records of refused decisions whose answers wait for the append.
    fn take_refusal_entries(&mut self, now: Timestamp) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        for (token, result) in self.driver.undelivered_answers() {
            if let Some((attempt, refusal)) = self.decisions.remove(token).zip(result.as_ref().err()) {
                entries.push(audit::audit_refused_decision(self.run_context(), now, &attempt, refusal));
            }
        }
        entries
    }

    /// Returns an answer that is due now.
    pub(crate) fn poll_answer(&mut self, now: Timestamp) -> Option<InputAnswer> {
        let (token, result) = self.driver.poll_answer()?;
        let attempt = self.decisions.remove(&token).zip(result.as_ref().err());
        let refused =
            attempt.map(|(attempt, refusal)| audit::audit_refused_decision(self.run_context(), now, &attempt, refusal));
        Some(InputAnswer { recipient: self.recipients.remove(&token), result, refused })
    }
}

/// Returns the dead letter that a record creates, if any. The ledger must already include the record.
fn find_dead_letter(running: ActiveRun<'_>, number: u64, record: &JournalRecord) -> Option<DeadLetterRow> {
    let Event::StepEnded { at, outcome, error, settler: None, .. } = &record.event else { return None };
    let class = match (outcome, error) {
        (StepOutcome::Failed(class), _) => *class,
        (StepOutcome::Exhausted, Some(error)) => error.class,
        (StepOutcome::Exhausted, None) => ErrorClass::NonRetryable,
        _ => return None,
    };
    let attempts = running.ledger.attempt_count(*at);
    if !matches!(running.names.step(*at).kind, StepKindSpec::Work(_)) || attempts == 0 {
        return None;
    }
    Some(DeadLetterRow {
        number,
        step: running.names.step_path(*at),
        class,
        code: error.as_ref().and_then(|error| error.code.clone()),
        message: error.as_ref().map(|error| error.message.clone()).unwrap_or_default(),
        attempts,
        attempt: running.ledger.last_attempt(*at),
        at: record.at,
    })
}

/// Returns true if a record says that the whole run is retried, which settles its dead letters; false if that failed.
fn find_retry_decision(record: &JournalRecord) -> Option<bool> {
    match &record.event {
        Event::RunDecided { retry: Some(_), .. } => Some(true),
        Event::PublicationEnded { item: Publication::Retry, failed: Some(_) } => Some(false),
        _ => None,
    }
}
