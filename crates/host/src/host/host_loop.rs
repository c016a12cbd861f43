//! The loop: waits for messages, lets each affected run decide, and performs the resulting actions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptReport, Cost, DriverAction, Publication, Refusal, RunInput, RunPhase},
    ids::RunId,
    time::{Millis, Timestamp},
};

use super::{
    HostEvent, HostMessage, HostWatcher, OwnedRunKey, RequestAnswer, WorkerCapacity,
    load_run::SnapshotWriter,
    owned_run::{AnswerRecipient, InputAnswer, OwnedRun},
};
use crate::{
    clock::Clock,
    executor_api::{AttemptReporter, Executor, PublicationReporter},
    host,
    store::{AppendError, JournalAppend, Store, StoreNotice},
};

/// The maximum number of messages handled per turn, so that one busy run does not keep the others waiting.
const MESSAGES_PER_TURN: usize = 4_096;
/// The interval of clock checks while a deadline is pending: the clock may be set, or the machine may sleep.
const LOOK: Duration = Duration::from_secs(10);
/// The delay before an append that failed on a full disk is retried.
const NO_SPACE: Millis = Millis::from_secs(1);

pub(crate) struct HostLoop {
    pub store: Arc<dyn Store>,
    pub executor: Box<dyn Executor>,
    pub clock: Clock,
    pub watcher: HostWatcher,
    to: Sender<HostMessage>,
    pub runs: BTreeMap<OwnedRunKey, OwnedRun>,
    pub by_id: BTreeMap<RunId, OwnedRunKey>,
    keys: u64,
    wakes: BTreeSet<(Timestamp, OwnedRunKey)>,
    /// Runs that are over and will be retried, with the time of the retry.
    pub retries: BTreeSet<(Timestamp, OwnedRunKey)>,
    /// Runs that have new messages in this turn.
    dirty_runs: BTreeSet<OwnedRunKey>,
    /// Runs that could use more workers, in order.
    worker_queue: VecDeque<OwnedRunKey>,
    capacity: u32,
    pub busy: u32,
    pub snapshot_writer: SnapshotWriter,
    /// Rows decided in this turn, and the number of appends in flight.
    rows: Vec<(OwnedRunKey, JournalAppend)>,
    in_flight: usize,
}

impl HostLoop {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        executor: Box<dyn Executor>,
        clock: Clock,
        capacity: WorkerCapacity,
        watcher: HostWatcher,
        to: Sender<HostMessage>,
    ) -> HostLoop {
        HostLoop {
            store,
            executor,
            clock,
            watcher,
            to,
            runs: BTreeMap::new(),
            by_id: BTreeMap::new(),
            keys: 0,
            wakes: BTreeSet::new(),
            retries: BTreeSet::new(),
            dirty_runs: BTreeSet::new(),
            worker_queue: VecDeque::new(),
            capacity: capacity.workers,
            busy: 0,
            snapshot_writer: SnapshotWriter::default(),
            rows: Vec::new(),
            in_flight: 0,
        }
    }

    pub(crate) fn run(mut self, inbox: &Receiver<HostMessage>) {
        while self.run_turn(inbox).is_continue() {}
    }

    /// Runs one turn. Breaks if the journal is broken, or if the host was told to stop.
    fn run_turn(&mut self, inbox: &Receiver<HostMessage>) -> ControlFlow<()> {
        let first = match self.wait_for_message(inbox) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        };
        for message in first.into_iter().chain(inbox.try_iter().take(MESSAGES_PER_TURN)) {
            self.handle_message(message)?;
        }
        self.wake_due_runs();
        self.start_due_retries();
        while let Some(key) = self.dirty_runs.pop_first() {
            self.drive_run(key);
        }
        self.grant_workers();
        self.submit_appends();
        ControlFlow::Continue(())
    }

    /// Submits the rows of this turn. If there is only one row to append, the loop writes it on its own thread.
    fn submit_appends(&mut self) {
        let alone = self.in_flight == 0 && self.rows.len() == 1;
        for (key, append) in std::mem::take(&mut self.rows) {
            self.in_flight += 1;
            let to = self.to.clone();
            let done = Box::new(move |result| {
                let _ = to.send(HostMessage::Appended { key, result });
            });
            match alone {
                true => self.store.append_and_wait(append, done),
                false => self.store.append(append, done),
            }
        }
    }

    fn wait_for_message(&self, inbox: &Receiver<HostMessage>) -> Result<HostMessage, RecvTimeoutError> {
        if !self.dirty_runs.is_empty() {
            return inbox.recv_timeout(Duration::ZERO);
        }
        self.skip_replay_delays();
        let firsts = [self.wakes.first(), self.retries.first()];
        let Some((next, _)) = firsts.into_iter().flatten().min() else {
            return inbox.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = Duration::from_millis(next.duration_since(self.clock.now()).0);
        inbox.recv_timeout(left.min(LOOK))
    }

    /// If every run is a replay and only waits for retries, moves the clock forward to the next one.
    fn skip_replay_delays(&self) {
        let waits = |owned: &OwnedRun| {
            let replayed = owned.settings.replay.is_some();
            replayed && owned.appending.is_none() && owned.driver.state().in_flight().is_empty()
        };
        if self.runs.is_empty() || !self.runs.values().all(waits) {
            return;
        }
        let pauses = self.runs.values().filter_map(|owned| owned.driver.state().pauses_until());
        if let Some(next) = pauses.chain(self.retries.first().map(|(due, _)| *due)).min() {
            self.clock.set_forward(next);
        }
    }

    fn handle_message(&mut self, message: HostMessage) -> ControlFlow<()> {
        match message {
            HostMessage::Begin { begin, reply } => {
                let _ = reply.send(self.launch_runs(begin));
            }
            HostMessage::Resume { runs, reply } => {
                let _ = reply.send(self.resume_runs(&runs));
            }
            HostMessage::Input { run, input, reply } => {
                // If the run is not owned here, the reply is dropped, which tells the caller.
                if let Some(key) = self.by_id.get(&run).copied() {
                    self.queue_input(key, input, Some(AnswerRecipient::Here(reply)));
                }
            }
            HostMessage::Leave { runs, reply } => {
                self.leave_runs(&runs);
                let _ = reply.send(());
            }
            HostMessage::Appended { key, result } => return self.handle_append_result(key, result),
            HostMessage::Finished { key, attempt, report } => {
                if let Some(owned) = self.runs.get_mut(&key) {
                    owned.busy = owned.busy.saturating_sub(1);
                    self.busy = self.busy.saturating_sub(1);
                    self.queue_input(key, RunInput::Finished { attempt, report }, None);
                }
            }
            HostMessage::Published { key, item, failed } => {
                self.queue_input(key, RunInput::Published { item, failed }, None)
            }
            HostMessage::Notice(StoreNotice::Requests) => self.read_requests(),
            HostMessage::Notice(StoreNotice::Lost(claim)) => {
                let key = self.by_id.get(&claim.run).copied();
                // An old notice about a run that was claimed again is ignored.
                if let Some(key) = key
                    && self.runs.get(&key).is_some_and(|owned| owned.claim == claim)
                {
                    self.lose_run(key);
                }
            }
            HostMessage::Notice(StoreNotice::Leave(run)) => self.leave_on_request(&run),
            HostMessage::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn queue_input(&mut self, key: OwnedRunKey, input: RunInput, recipient: Option<AnswerRecipient>) {
        if let RunInput::Cancel { by, .. } = &input
            && self.cancel_retry(key, by)
        {
            return send_answer(&*self.store, recipient, Ok(()));
        }
        if let Some(owned) = self.runs.get_mut(&key) {
            owned.queue_input(input, recipient);
            self.dirty_runs.insert(key);
            if owned.full && owned.has_queued_cancel() {
                self.append_urgently(key);
            }
        }
    }

    /// Retries an append that failed on a full disk, now with the reserved space, because a cancel waits behind it.
    fn append_urgently(&mut self, key: OwnedRunKey) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        owned.full = false;
        if let Some(append) = &mut owned.appending {
            append.urgent = true;
            let append = append.clone();
            let due = owned.due;
            self.schedule_wake(key, due);
            self.queue_append(key, append);
        }
    }

    pub(crate) fn insert_run(&mut self, owned: OwnedRun) -> OwnedRunKey {
        self.keys += 1;
        let key = OwnedRunKey(self.keys);
        self.by_id.insert(owned.run().clone(), key);
        self.runs.insert(key, owned);
        self.dirty_runs.insert(key);
        key
    }

    /// Queues a wake input for each run whose deadline has passed.
    fn wake_due_runs(&mut self) {
        if self.wakes.is_empty() {
            return;
        }
        let now = self.clock.now();
        while let Some((at, key)) = self.wakes.first().copied() {
            if at > now {
                break;
            }
            self.wakes.pop_first();
            let Some(owned) = self.runs.get_mut(&key) else { continue };
            owned.wake = None;
            match owned.appending.clone() {
                Some(append) if std::mem::take(&mut owned.full) => self.queue_append(key, append),
                // While an append is in flight, the wake input is queued with other inputs.
                _ => {
                    owned.due = None;
                    self.queue_input(key, RunInput::Wake, None);
                }
            }
        }
    }

    /// Lets a run decide its queued inputs, if no append is in flight.
    fn drive_run(&mut self, key: OwnedRunKey) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        if owned.appending.is_none() && owned.has_queued_inputs() {
            self.decide_run(key, self.worker_grant());
        }
    }

    /// The number of workers that a run may take at once. Zero if others wait for workers: it must wait for its turn.
    pub(crate) fn worker_grant(&self) -> u32 {
        if self.worker_queue.is_empty() { self.capacity.saturating_sub(self.busy) } else { 0 }
    }

    fn decide_run(&mut self, key: OwnedRunKey, grant: u32) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let append = owned.decide(self.clock.now(), grant);
        self.queue_for_workers(key);
        match append {
            Some(append) => self.append_with_workers(key, append),
            None => self.flush_run(key),
        }
    }

    /// Queues a run that could use more workers.
    pub(crate) fn queue_for_workers(&mut self, key: OwnedRunKey) {
        if let Some(owned) = self.runs.get_mut(&key)
            && owned.driver.state().wants_workers()
            && !std::mem::replace(&mut owned.queued_for_workers, true)
        {
            self.worker_queue.push_back(key);
        }
    }

    /// Takes the workers of a decided row, which is written at the end of the turn.
    fn append_with_workers(&mut self, key: OwnedRunKey, append: JournalAppend) {
        if let Some(owned) = self.runs.get_mut(&key) {
            self.busy += owned.take_workers(&append.batch);
        }
        self.queue_append(key, append);
    }

    fn queue_append(&mut self, key: OwnedRunKey, append: JournalAppend) {
        if let Some(owned) = self.runs.get_mut(&key) {
            owned.let_go = append.last;
        }
        self.rows.push((key, append));
    }

    fn handle_append_result(&mut self, key: OwnedRunKey, result: Result<(), AppendError>) -> ControlFlow<()> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(owned) = self.runs.get_mut(&key) else { return ControlFlow::Continue(()) };
        match result {
            Ok(()) => self.finish_append(key),
            // A cancel arrived while the append was in flight.
            Err(AppendError::NoSpace) if owned.is_cancel_blocked() => self.append_urgently(key),
            Err(AppendError::NoSpace) => {
                (self.watcher)(HostEvent::NoSpace { run: owned.run() });
                owned.full = true;
                let at = self.clock.now().saturating_add(NO_SPACE);
                self.schedule_wake(key, Some(at));
            }
            Err(AppendError::Lost) => self.lose_run(key),
            Err(error @ AppendError::Broken(_)) => {
                (self.watcher)(HostEvent::Broken { why: &error.to_string() });
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Completes the append in flight, which is durable now.
    pub(crate) fn finish_append(&mut self, key: OwnedRunKey) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let append = owned.appending.take();
        owned.driver.confirm_append();
        if let Some(append) = append {
            (self.watcher)(HostEvent::Row { running: owned.run_context(), batch: &append.batch });
            self.executor.observe_batch(owned.run_context(), &append.batch);
        }
        // The wait for disk space may have replaced the wake-up that the run wants.
        let due = owned.due;
        self.schedule_wake(key, due);
        self.snapshot_if_grown(key);
        self.flush_run(key);
        self.dirty_runs.insert(key);
    }

    /// Sends answers, performs the wanted actions, and gives up a run that is over.
    fn flush_run(&mut self, key: OwnedRunKey) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let now = self.clock.now();
        while let Some(InputAnswer { recipient, result, refused }) = owned.poll_answer(now) {
            if let Some(entry) = refused {
                // The refusal is valid even if there is no space to record it.
                let _ = self.store.append_audit(&[entry]);
            }
            send_answer(&*self.store, recipient, result);
        }
        while let Some(action) = self.runs.get_mut(&key).and_then(|owned| owned.driver.poll_action()) {
            self.perform_action(key, action);
        }
        let Some(owned) = self.runs.get(&key) else { return };
        let idle = owned.driver.is_idle() && !owned.has_queued_inputs();
        match owned.driver.state().phase {
            RunPhase::Closed if idle => self.close_run(key),
            RunPhase::Quarantined if idle => self.quarantine_run(key),
            _ => {}
        }
    }

    fn perform_action(&mut self, key: OwnedRunKey, action: DriverAction) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        match action {
            DriverAction::Start(attempt, task) => {
                owned.ahead.remove(&attempt);
                let finish = attempt_reporter(self.to.clone(), key, attempt);
                self.executor.start_attempt(owned.run_context(), attempt, &task, finish);
            }
            // An attempt cancelled in the row that started it never ran, so only the loop can report that it stopped.
            DriverAction::Stop(attempt) if owned.ahead.remove(&attempt) => {
                attempt_reporter(self.to.clone(), key, attempt)
                    .report(AttemptReport::new(AttemptEnd::Stopped, Cost::default()));
            }
            DriverAction::Stop(attempt) => self.executor.stop_attempt(owned.run(), attempt),
            DriverAction::Publish(Publication::Retry) => self.schedule_retry(key),
            DriverAction::Publish(item) => {
                let to = self.to.clone();
                // A host that has ended needs no reports.
                let published = PublicationReporter::new(move |failed| {
                    let _ = to.send(HostMessage::Published { key, item, failed });
                });
                self.executor.publish(owned.run_context(), item, published);
            }
            DriverAction::Wake(at) => {
                owned.due = at;
                self.schedule_wake(key, at);
            }
        }
    }

    pub(crate) fn schedule_wake(&mut self, key: OwnedRunKey, at: Option<Timestamp>) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        if let Some(before) = owned.wake.take() {
            self.wakes.remove(&(before, key));
        }
        owned.wake = at;
        self.wakes.extend(at.map(|at| (at, key)));
    }

    /// Grants free workers to the runs that want them, one run after the other.
    fn grant_workers(&mut self) {
        for _ in 0..self.worker_queue.len() {
            let free = self.capacity.saturating_sub(self.busy);
            if free == 0 {
                return;
            }
            let Some(key) = self.worker_queue.pop_front() else { return };
            let Some(owned) = self.runs.get_mut(&key) else { continue };
            if owned.appending.is_some() {
                self.worker_queue.push_back(key);
                continue;
            }
            owned.queued_for_workers = false;
            if owned.driver.state().wants_workers() {
                owned.queue_input(RunInput::Capacity, None);
                self.decide_run(key, free);
            }
        }
    }

    pub(crate) fn read_requests(&mut self) {
        // Requests that cannot be read now are read again at the next notice.
        let Ok(requests) = self.store.pending_requests() else { return };
        for request in requests {
            let Some(key) = self.by_id.get(&request.run).copied() else { continue };
            if self.runs.get(&key).is_some_and(|owned| owned.has_request(request.id)) {
                continue;
            }
            match host::parse_request(&request.body) {
                Ok(input) => self.queue_input(key, input, Some(AnswerRecipient::Request(request.id))),
                Err(why) => {
                    let _ = self.store.answer_request(request.id, &RequestAnswer::Unreadable(why).to_bytes());
                }
            }
        }
    }
}

fn send_answer(store: &dyn Store, recipient: Option<AnswerRecipient>, result: Result<(), Refusal>) {
    match recipient {
        Some(AnswerRecipient::Here(reply)) => {
            let _ = reply.send(result);
        }
        Some(AnswerRecipient::Request(request)) => {
            // If this fails, the request stays, and is answered when it is read again.
            let _ = store.answer_request(request, &RequestAnswer::from(&result).to_bytes());
        }
        None => {}
    }
}

/// Returns the reporter of an attempt, which sends its end to the loop.
fn attempt_reporter(to: Sender<HostMessage>, key: OwnedRunKey, attempt: AttemptId) -> AttemptReporter {
    AttemptReporter::new(move |report| {
        // A host that has ended needs no reports.
        let _ = to.send(HostMessage::Finished { key, attempt, report });
    })
}
