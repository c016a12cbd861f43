//! The loop: waits for something to be said, lets each run that it concerns decide, and does what they then want.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError},
    },
    time::Duration,
};

use skein_core::{
    engine::{Action, AttemptEnd, Cost, Input, Publication, Report, RunPhase},
    ids::RunId,
    time::{Millis, Time},
};

use super::{
    Answer, Capacity, Key, Said, Told, Watcher, letter,
    owned::{Asker, InputAnswer, Owned},
    snapshot::Keeper,
};
use crate::{
    clock::Clock,
    hands::{Finish, Hands, Published},
    store::{Append, AppendError, Notice, Store},
};

/// So much is heard before anything is done about it, so that one busy run does not keep the others waiting.
const HEARD_AT_ONCE: usize = 4_096;
/// With a deadline ahead, the clock is looked at this often: it may have been set, or the machine may have slept.
const LOOK: Duration = Duration::from_secs(10);
/// How soon an append for which there was no space is tried again.
const NO_SPACE: Millis = Millis::seconds(1);

#[derive(Debug)]
enum Go {
    On,
    /// The journal is broken, or nobody wants anything more.
    Stop,
}

pub(super) struct Loop {
    pub store: Arc<dyn Store>,
    pub hands: Box<dyn Hands>,
    pub clock: Clock,
    pub watcher: Watcher,
    to: Sender<Said>,
    pub runs: BTreeMap<Key, Owned>,
    pub by_id: BTreeMap<RunId, Key>,
    keys: u64,
    wakes: BTreeSet<(Time, Key)>,
    /// Runs that are over and are to be retried, and when.
    pub retries: BTreeSet<(Time, Key)>,
    /// Runs about which something was said in this turn.
    touched: BTreeSet<Key>,
    /// Runs that could do more with more workers, in turn.
    hungry: VecDeque<Key>,
    capacity: u32,
    pub busy: u32,
    pub keeper: Keeper,
    /// Rows that were decided in this turn, and how many are on their way to the disk.
    rows: Vec<(Key, Append)>,
    in_flight: usize,
}

impl Loop {
    pub fn new(
        store: Arc<dyn Store>,
        hands: Box<dyn Hands>,
        clock: Clock,
        capacity: Capacity,
        watcher: Watcher,
        to: Sender<Said>,
    ) -> Loop {
        Loop {
            store,
            hands,
            clock,
            watcher,
            to,
            runs: BTreeMap::new(),
            by_id: BTreeMap::new(),
            keys: 0,
            wakes: BTreeSet::new(),
            retries: BTreeSet::new(),
            touched: BTreeSet::new(),
            hungry: VecDeque::new(),
            capacity: capacity.workers,
            busy: 0,
            keeper: Keeper::default(),
            rows: Vec::new(),
            in_flight: 0,
        }
    }

    pub fn run(mut self, inbox: &Receiver<Said>) {
        while let Go::On = self.turn(inbox) {}
    }

    fn turn(&mut self, inbox: &Receiver<Said>) -> Go {
        match self.wait(inbox) {
            Ok(said) => {
                if let Go::Stop = self.hear(said) {
                    return Go::Stop;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Go::Stop,
        }
        for _ in 0..HEARD_AT_ONCE {
            match inbox.try_recv() {
                Ok(said) => {
                    if let Go::Stop = self.hear(said) {
                        return Go::Stop;
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        self.wake();
        self.retry_due();
        while let Some(key) = self.touched.pop_first() {
            self.pump(key);
        }
        self.feed();
        self.hand_over();
        Go::On
    }

    /// The rows of this turn go to the disk. For a single one there is nothing better to do than to write it.
    fn hand_over(&mut self) {
        let alone = self.in_flight == 0 && self.rows.len() == 1;
        for (key, append) in std::mem::take(&mut self.rows) {
            self.in_flight += 1;
            let to = self.to.clone();
            let done = Box::new(move |result| {
                let _ = to.send(Said::Appended { key, result });
            });
            match alone {
                true => self.store.append_and_wait(append, done),
                false => self.store.append(append, done),
            }
        }
    }

    fn wait(&self, inbox: &Receiver<Said>) -> Result<Said, RecvTimeoutError> {
        if !self.touched.is_empty() {
            return inbox.recv_timeout(Duration::ZERO);
        }
        self.hurry();
        let firsts = [self.wakes.first(), self.retries.first()];
        let Some((next, _)) = firsts.into_iter().flatten().min() else {
            return inbox.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = Duration::from_millis(next.since(self.clock.now()).0);
        inbox.recv_timeout(left.min(LOOK))
    }

    fn hear(&mut self, said: Said) -> Go {
        match said {
            Said::Begin { begin, reply } => {
                let _ = reply.send(self.begin(begin));
            }
            Said::Resume { runs, reply } => {
                let _ = reply.send(self.resume(&runs));
            }
            Said::Input { run, input, reply } => {
                // Of a run that is not owned here the reply is dropped, which says so.
                if let Some(key) = self.by_id.get(&run).copied() {
                    self.say(key, input, Some(Asker::Here(reply)));
                }
            }
            Said::Leave { runs, reply } => {
                self.leave(&runs);
                let _ = reply.send(());
            }
            Said::Appended { key, result } => return self.appended(key, result),
            Said::Finished { key, attempt, report } => {
                if let Some(owned) = self.runs.get_mut(&key) {
                    owned.busy = owned.busy.saturating_sub(1);
                    self.busy = self.busy.saturating_sub(1);
                    self.say(key, Input::Finished { attempt, report }, None);
                }
            }
            Said::Published { key, item, failed } => self.say(key, Input::Published { item, failed }, None),
            Said::Notice(Notice::Mail) => self.read_letters(),
            Said::Notice(Notice::Lost(claim)) => {
                let key = self.by_id.get(&claim.run).copied();
                // Old news of a run that was claimed again is none.
                if let Some(key) = key
                    && self.runs.get(&key).is_some_and(|owned| owned.claim == claim)
                {
                    self.lose(key);
                }
            }
            Said::Notice(Notice::Leave(run)) => self.leave_as_asked(&run),
            Said::Stop => return Go::Stop,
        }
        Go::On
    }

    pub fn say(&mut self, key: Key, input: Input, asker: Option<Asker>) {
        if let Input::Cancel { by, .. } = &input
            && self.call_off_retry(key, by)
        {
            return self.answer_ok(asker);
        }
        if let Some(owned) = self.runs.get_mut(&key) {
            owned.queue(input, asker);
            self.touched.insert(key);
            if owned.full && owned.is_cancel_queued() {
                self.append_urgently(key);
            }
        }
    }

    /// Appends a row again for which there was no space, now with the space that is kept back: a cancel waits behind it.
    fn append_urgently(&mut self, key: Key) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        owned.full = false;
        if let Some(append) = &mut owned.appending {
            append.urgent = true;
            let append = append.clone();
            let due = owned.due;
            self.schedule(key, due);
            self.append(key, append);
        }
    }

    pub fn own(&mut self, owned: Owned) -> Key {
        self.keys += 1;
        let key = Key(self.keys);
        self.by_id.insert(owned.run().clone(), key);
        self.runs.insert(key, owned);
        self.touched.insert(key);
        key
    }

    /// Runs whose deadline has come are told so.
    fn wake(&mut self) {
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
                Some(append) if std::mem::take(&mut owned.full) => self.append(key, append),
                // While an append is in flight, the time waits to be told with what else comes meanwhile.
                _ => {
                    owned.due = None;
                    self.say(key, Input::Wake, None);
                }
            }
        }
    }

    /// Lets a run decide what was said to it, and does what it wants until nothing is left to do.
    fn pump(&mut self, key: Key) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        if owned.appending.is_none() && owned.is_queued() {
            self.decide(key, self.grant());
        }
    }

    /// What a run may take at once. Where others wait for workers it waits for its turn.
    pub fn grant(&self) -> u32 {
        if self.hungry.is_empty() { self.capacity.saturating_sub(self.busy) } else { 0 }
    }

    fn decide(&mut self, key: Key, grant: u32) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let append = owned.decide(self.clock.now(), grant);
        self.stand_in_line(key);
        match append {
            Some(append) => self.decided(key, append),
            None => self.done(key),
        }
    }

    /// A run that could do more with more workers waits for its turn.
    pub fn stand_in_line(&mut self, key: Key) {
        if let Some(owned) = self.runs.get_mut(&key)
            && owned.driver.state().wants_workers()
            && !std::mem::replace(&mut owned.hungry, true)
        {
            self.hungry.push_back(key);
        }
    }

    /// A row has been decided: its workers are taken, and it is written at the end of the turn.
    fn decided(&mut self, key: Key, append: Append) {
        if let Some(owned) = self.runs.get_mut(&key) {
            self.busy += owned.take_workers(&append.batch);
        }
        self.append(key, append);
    }

    fn append(&mut self, key: Key, append: Append) {
        if let Some(owned) = self.runs.get_mut(&key) {
            owned.let_go = append.last;
        }
        self.rows.push((key, append));
    }

    fn appended(&mut self, key: Key, result: Result<(), AppendError>) -> Go {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(owned) = self.runs.get_mut(&key) else { return Go::On };
        match result {
            Ok(()) => self.durable(key),
            // A cancel that came while the row was on its way to the disk.
            Err(AppendError::NoSpace) if owned.is_cancel_behind() => self.append_urgently(key),
            Err(AppendError::NoSpace) => {
                (self.watcher)(Told::NoSpace { run: owned.run() });
                owned.full = true;
                let at = self.clock.now().after(NO_SPACE);
                self.schedule(key, Some(at));
            }
            Err(AppendError::Lost) => self.lose(key),
            Err(error @ AppendError::Broken(_)) => {
                (self.watcher)(Told::Broken { why: &error.to_string() });
                return Go::Stop;
            }
        }
        Go::On
    }

    /// The row in flight is there to stay.
    pub fn durable(&mut self, key: Key) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let append = owned.appending.take();
        owned.driver.appended();
        if let Some(append) = append {
            (self.watcher)(Told::Row { running: owned.running(), batch: &append.batch });
            self.hands.told(owned.running(), &append.batch);
        }
        // The wait for space may have taken the place of what the run waits for.
        let due = owned.due;
        self.schedule(key, due);
        self.snapshot_if_grown(key);
        self.done(key);
        self.touched.insert(key);
    }

    /// Answers go out, what is wanted is done, and a run that wants nothing more is let go.
    fn done(&mut self, key: Key) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        let now = self.clock.now();
        while let Some(InputAnswer { asker, result, refused }) = owned.poll_answer(now) {
            if let Some(entry) = refused {
                // The refusal stands also where there is no space for the record of it.
                let _ = self.store.note(&[entry]);
            }
            match asker {
                Some(Asker::Here(reply)) => {
                    let _ = reply.send(result);
                }
                Some(Asker::Letter(letter)) => {
                    // The letter stays, and is answered when it is seen again.
                    let _ = self.store.answer(letter, &Answer::from(&result).bytes());
                }
                None => {}
            }
        }
        while let Some(action) = self.runs.get_mut(&key).and_then(|owned| owned.driver.poll_action()) {
            self.act(key, action);
        }
        let Some(owned) = self.runs.get(&key) else { return };
        let idle = owned.driver.is_idle() && !owned.is_queued();
        match owned.driver.state().phase {
            RunPhase::Closed if idle => self.close(key),
            RunPhase::Quarantined if idle => self.set_aside(key),
            _ => {}
        }
    }

    fn act(&mut self, key: Key, action: Action) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        match action {
            Action::Start(attempt, task) => {
                owned.ahead.remove(&attempt);
                let finish = Finish::new(self.to.clone(), key, attempt);
                self.hands.start(owned.running(), attempt, &task, finish);
            }
            // One that was called off in the row that started it never began, and nobody else can say that it stopped.
            Action::Stop(attempt) if owned.ahead.remove(&attempt) => {
                Finish::new(self.to.clone(), key, attempt)
                    .tell(Report::new(AttemptEnd::Stopped, Cost::default()));
            }
            Action::Stop(attempt) => self.hands.stop(owned.run(), attempt),
            Action::Publish(Publication::Retry) => self.await_retry(key),
            Action::Publish(item) => {
                let published = Published::new(self.to.clone(), key, item);
                self.hands.publish(owned.running(), item, published);
            }
            Action::Wake(at) => {
                owned.due = at;
                self.schedule(key, at);
            }
        }
    }

    pub fn schedule(&mut self, key: Key, at: Option<Time>) {
        let Some(owned) = self.runs.get_mut(&key) else { return };
        if let Some(before) = owned.wake.take() {
            self.wakes.remove(&(before, key));
        }
        owned.wake = at;
        self.wakes.extend(at.map(|at| (at, key)));
    }

    /// Workers that are free go to runs that want them, one run after the other.
    fn feed(&mut self) {
        for _ in 0..self.hungry.len() {
            let free = self.capacity.saturating_sub(self.busy);
            if free == 0 {
                return;
            }
            let Some(key) = self.hungry.pop_front() else { return };
            let Some(owned) = self.runs.get_mut(&key) else { continue };
            if owned.appending.is_some() {
                self.hungry.push_back(key);
                continue;
            }
            owned.hungry = false;
            if owned.driver.state().wants_workers() {
                owned.queue(Input::Capacity, None);
                self.decide(key, free);
            }
        }
    }

    pub fn read_letters(&mut self) {
        // What cannot be read now is looked for again at the next notice.
        let Ok(letters) = self.store.letters() else { return };
        for received in letters {
            let Some(key) = self.by_id.get(&received.run).copied() else { continue };
            if self.runs.get(&key).is_some_and(|owned| owned.has_letter(received.id)) {
                continue;
            }
            match letter::read(&received.body) {
                Ok(input) => self.say(key, input, Some(Asker::Letter(received.id))),
                Err(why) => {
                    let _ = self.store.answer(received.id, &Answer::Unreadable(why).bytes());
                }
            }
        }
    }
}
