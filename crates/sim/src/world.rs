//! A virtual host: a clock, a store, workers and people around the real [`Driver`], moved by one seed.
//!
//! Owns time and chance. Whatever the world does is a function of the seed, so a run can be had again. What is right
//! and wrong is not decided here but by [`crate::watch`], which sees every durable event.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{
        Action, AttemptEnd, AttemptId, Batch, Cost, Decision, Driver, Event, Input, Opening, OpeningKind,
        Report, Role, RunPhase, Start, StepAt, Stimulus, Token,
    },
    ids::RunId,
    ir::Kind,
    limits,
    plan::Plan,
    time::{Millis, Time},
};

use crate::{
    coverage::Coverage,
    faults::{Fault, Faults},
    nonsense,
    outcome::{self, Luck, Who},
    rng::{Rng, mix},
    script::Move,
    watch::Watch,
};

/// What a world is made of.
#[derive(Debug)]
pub struct Setup {
    pub seed: u64,
    pub plan: Plan,
    pub luck: Luck,
    pub faults: Faults,
    /// How many workers there are.
    pub workers: u32,
}

/// How a run went.
#[derive(Debug)]
pub struct Finished {
    pub driver: Driver,
    pub coverage: Coverage,
    pub events: u64,
    /// A number that is the same for the same history.
    pub trace: u64,
    pub rows: Vec<Batch>,
    pub moves: Vec<Move>,
    pub violation: Option<String>,
    /// Whether it waits for something that never comes.
    pub waits: bool,
}

/// Something that is going to happen.
#[derive(Debug, Clone)]
enum Happening {
    WorkerEnds(AttemptId),
    WorkerStops(AttemptId),
    Say(Input),
    Decide(Opening),
    Acknowledged,
    Crash,
    /// A worker of an earlier life reports.
    Late(AttemptId, Report),
}

/// When the virtual clock begins: some day in 2027.
const BEGIN: Time = Time(1_800_000_000_000);
/// Later than anything that happens in a run without faults.
const NEVER: Time = Time(BEGIN.0 + 100 * 3_600_000);
/// A run that does more than this does not end.
const MOST: u32 = 20_000;

#[derive(Debug)]
pub struct World {
    seed: u64,
    luck: Luck,
    faults: Faults,
    rng: Rng,
    plan: Plan,
    driver: Driver,
    rows: Vec<Batch>,
    /// A row has been handed to the store and not been acknowledged.
    appending: bool,
    /// Whether the driver is being polled.
    pumping: bool,
    /// Time that does not jump, and how far the wall clock is from it.
    steady: Time,
    skew: i64,
    queue: BTreeMap<(Time, u64), Happening>,
    order: u64,
    wake: Option<Time>,
    workers: BTreeMap<AttemptId, ()>,
    capacity: u32,
    tokens: u64,
    /// What people said and have no answer to; they say it again when the host is back.
    owed: BTreeMap<Token, Input>,
    ended: Vec<(AttemptId, Report)>,
    trace: u64,
    moves: Vec<Move>,
    violation: Option<String>,
    watch: Watch,
}

/// Runs one world to its end.
pub fn run(setup: Setup) -> Finished {
    let Setup { seed, plan, luck, faults, workers } = setup;
    let mut world = World {
        seed,
        luck,
        faults,
        rng: Rng::new(seed).fork("world"),
        driver: Driver::new(plan.clone()),
        watch: Watch::new(&plan),
        plan,
        rows: Vec::new(),
        appending: false,
        pumping: false,
        steady: BEGIN,
        skew: 0,
        queue: BTreeMap::new(),
        order: 0,
        wake: None,
        workers: BTreeMap::new(),
        capacity: workers,
        tokens: 0,
        owed: BTreeMap::new(),
        ended: Vec::new(),
        trace: mix(seed),
        moves: Vec::new(),
        violation: None,
    };
    world.live();
    world.finish()
}

impl World {
    fn live(&mut self) {
        self.misbehave_before();
        let start = Start {
            run: RunId::new(format!("run-{}", self.seed)).expect("a number is a name"),
            retry_of: None,
            attempt: 1 + u32::try_from(self.seed % 3).unwrap_or(0),
            context: serde_json::json!({"n": 1}),
        };
        self.say(Input::Start(Box::new(start)), true);
        self.strays();
        for _ in 0..MOST {
            if self.violation.is_some() {
                return;
            }
            self.pump();
            self.misbehave();
            if !self.advance() {
                if self.revive() {
                    continue;
                }
                return self.check_end();
            }
        }
        self.violation.get_or_insert_with(|| "I7: the run does not end".to_owned());
    }

    fn finish(mut self) -> Finished {
        let events = self.driver.state().events;
        let mut coverage = std::mem::take(&mut self.watch.coverage);
        coverage.faults = std::mem::take(&mut self.faults.seen);
        let violation = self.violation.take();
        let waits = self.driver.state().is_waiting();
        let trace = self.driver.chain().0.iter().fold(self.trace, |h, b| mix(h ^ u64::from(*b)));
        Finished {
            driver: self.driver,
            coverage,
            events,
            trace,
            rows: self.rows,
            moves: self.moves,
            violation,
            waits,
        }
    }

    fn wall(&self) -> Time {
        Time(self.steady.0 + self.skew)
    }

    fn at(&mut self, after: Millis, what: Happening) {
        self.order += 1;
        self.queue.insert((self.steady.after(after), self.order), what);
    }

    fn soon(&mut self, most: u64) -> Millis {
        Millis(1 + self.rng.below(most))
    }

    /// Lets the next thing happen. False when nothing will.
    fn advance(&mut self) -> bool {
        let next = self.queue.first_key_value().map(|((time, _), _)| *time);
        let wake = self.wake.map(|time| Time((time.0 - self.skew).max(self.steady.0)));
        match (next, wake) {
            (None, None) => return false,
            // Without faults, what would come so late is taken never to come.
            (next, wake)
                if self.faults.is_none() && [next, wake].iter().flatten().all(|time| *time > NEVER) =>
            {
                return false;
            }
            (Some(next), wake) if wake.is_none_or(|wake| next <= wake) => {
                let ((time, _), what) = self.queue.pop_first().expect("there is a next one");
                self.steady = self.steady.max(time);
                self.happen(what);
            }
            (_, Some(wake)) => {
                self.steady = wake;
                self.wake = None;
                self.say(Input::Wake, false);
            }
            (Some(_), None) => unreachable!("covered by the second arm"),
        }
        true
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::WorkerEnds(attempt) if self.workers.contains_key(&attempt) => {
                self.worker_ends(attempt)
            }
            Happening::WorkerStops(attempt) if self.workers.remove(&attempt).is_some() => {
                let end = AttemptEnd::Stopped;
                self.report(attempt, Report { end, cost: Cost::default() });
            }
            Happening::WorkerEnds(_) | Happening::WorkerStops(_) => {}
            Happening::Say(input) => self.say(input, true),
            Happening::Decide(opening) => self.decide(opening),
            Happening::Acknowledged => self.acknowledge(),
            Happening::Crash => self.crash(false),
            Happening::Late(attempt, report) => self.say(Input::Finished { attempt, report }, false),
        }
    }

    fn worker_ends(&mut self, attempt: AttemptId) {
        self.workers.remove(&attempt);
        let report = self.how_it_ends(attempt);
        if self.faults.strikes(Fault::CrashAfterExit) {
            return self.crash(false);
        }
        if attempt.role == Role::Undo && self.faults.strikes(Fault::RepeatedUndo) {
            return self.crash(false);
        }
        if self.faults.strikes(Fault::LostResult) {
            let after = self.soon(5_000);
            return self.at(after, Happening::Crash);
        }
        self.report(attempt, report);
    }

    fn how_it_ends(&self, attempt: AttemptId) -> Report {
        let who = self.watch.paths.who(&attempt);
        outcome::report(self.seed, &who, self.step(attempt.at), self.luck, self.wall())
    }

    fn step(&self, at: StepAt) -> &skein_core::ir::Step {
        let scope = self.watch.paths.scope(at.0);
        self.plan.definition.scope(scope).step(at.1)
    }

    fn report(&mut self, attempt: AttemptId, report: Report) {
        if self.faults.has(Fault::LateResult) || self.faults.has(Fault::DuplicateResult) {
            self.ended.push((attempt, report.clone()));
        }
        self.say(Input::Finished { attempt, report: report.clone() }, false);
        if self.faults.strikes(Fault::DuplicateResult) {
            self.say(Input::Finished { attempt, report }, false);
        }
        if self.faults.strikes(Fault::CrashAfterReport) {
            self.crash(false);
        }
    }

    fn decide(&mut self, opening: Opening) {
        let Some(asked) = self.watch.paths.asked(opening) else { return };
        let Some(answer) = outcome::answer(self.seed, &asked) else { return };
        let Some(open) = self.driver.state().opening(opening) else { return };
        let by = outcome::actor(&open.approvers);
        let input =
            |decision| Input::Decide { opening, decision, by: by.clone(), reason: answer.reason.clone() };
        let first = input(answer.decision);
        if self.faults.strikes(Fault::RacingDecisions) {
            let other = match answer.decision {
                Decision::Approve => Decision::Reject,
                Decision::Reject => Decision::Approve,
            };
            let second = input(other);
            let swapped = self.rng.percent(50);
            self.say(if swapped { second.clone() } else { first.clone() }, true);
            return self.say(if swapped { first } else { second }, true);
        }
        self.say(first, true);
    }

    /// Tells the driver something. What people say is said again if the host dies before it answers.
    fn say(&mut self, input: Input, again: bool) {
        self.tokens += 1;
        let token = Token(self.tokens);
        if let Input::Finished { attempt, report } = &input
            && (attempt.role == Role::Check || !matches!(report.end, AttemptEnd::Checked { .. }))
        {
            self.workers.remove(attempt);
        }
        if again {
            self.owed.insert(token, input.clone());
        }
        let stimulus = Stimulus { at: self.wall(), grant: self.grant(&input), input };
        self.moves.push(Move::Say(stimulus.clone()));
        let busy = !self.driver.is_idle();
        self.watch.told(&self.driver, &stimulus, busy);
        self.driver.push(token, stimulus);
        if !self.pumping {
            self.pump();
        }
    }

    fn grant(&mut self, input: &Input) -> u32 {
        if !self.driver.is_idle() || self.faults.strikes(Fault::NoCapacity) {
            return 0;
        }
        let flying = u32::try_from(self.driver.state().in_flight().len()).unwrap_or(u32::MAX);
        let ends = match input {
            Input::Finished { attempt, .. } => self.driver.state().in_flight().contains(attempt),
            _ => false,
        };
        let lost = if matches!(input, Input::Recover) { flying } else { u32::from(ends) };
        (self.capacity + lost).saturating_sub(flying)
    }

    /// Lets the driver do what it can without anything happening in the world.
    fn pump(&mut self) {
        self.pumping = true;
        self.pump_on();
        self.pumping = false;
    }

    fn pump_on(&mut self) {
        while self.violation.is_none() {
            if self.moves.len() > MOST as usize {
                self.violation = Some("I7: the run does not come to rest".to_owned());
            }
            if self.appending {
                return;
            }
            if let Some(batch) = self.driver.poll_append() {
                let batch = batch.clone();
                self.append(batch);
                continue;
            }
            while let Some((token, answer)) = self.driver.poll_answer() {
                self.owed.remove(&token);
                self.trace = mix(self.trace ^ token.0 ^ (u64::from(answer.is_err()) << 63));
                self.watch.answered(&answer);
            }
            if let Some(action) = self.driver.poll_action() {
                self.act(action);
                continue;
            }
            let free =
                u32::try_from(self.driver.state().in_flight().len()).unwrap_or(u32::MAX) < self.capacity;
            if free && self.driver.state().wants_workers() {
                self.say(Input::Capacity, false);
                continue;
            }
            return;
        }
    }

    fn append(&mut self, batch: Batch) {
        if self.faults.strikes(Fault::CrashBeforeAppend) {
            return self.crash(true);
        }
        let seen = self.watch.durable(&self.driver, &batch);
        self.violation = seen.err();
        self.rows.push(batch);
        if self.violation.is_some() {
            return;
        }
        self.appending = true;
        if self.faults.strikes(Fault::CrashAfterAppend) {
            return self.crash(false);
        }
        if self.faults.strikes(Fault::SlowAppend) {
            let after = self.soon(400);
            return self.at(after, Happening::Acknowledged);
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        if !std::mem::take(&mut self.appending) {
            return;
        }
        self.driver.appended();
        let row = self.rows.last().cloned();
        if let Err(violation) = self.watch.settled(&self.driver) {
            self.violation.get_or_insert(violation);
        }
        if self.faults.strikes(Fault::CrashAfterAcknowledgement) {
            return self.crash(false);
        }
        for record in row.into_iter().flat_map(|row| row.records) {
            self.people_notice(&record.event);
        }
    }

    /// People see what was opened, and answer or not.
    fn people_notice(&mut self, event: &Event) {
        match event {
            Event::Opened { at, opening, .. } => {
                if let Kind::Wait(wait) = &self.step(*at).kind {
                    let Some(asked) = self.watch.paths.asked(*opening) else { return };
                    let Some(sent) = outcome::signal(self.seed, &asked, wait) else { return };
                    let input =
                        Input::Signal { name: sent.name, payload: sent.payload.into(), to: Some(*at) };
                    self.at(sent.after, Happening::Say(input));
                } else {
                    self.schedule_answer(*opening);
                }
            }
            Event::StepHeld { opening, .. } => self.schedule_answer(*opening),
            _ => {}
        }
    }

    fn schedule_answer(&mut self, opening: Opening) {
        let Some(asked) = self.watch.paths.asked(opening) else { return };
        if let Some(answer) = outcome::answer(self.seed, &asked) {
            self.at(answer.after, Happening::Decide(opening));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start(attempt, _) => {
                if self.faults.strikes(Fault::CrashBeforeSpawn) {
                    return self.crash(false);
                }
                self.workers.insert(attempt, ());
                let who: Who<'_> = self.watch.paths.who(&attempt);
                let after = outcome::delay(self.seed, &who);
                self.at(after, Happening::WorkerEnds(attempt));
                if self.faults.strikes(Fault::CrashAfterSpawn) {
                    self.crash(false);
                }
            }
            Action::Stop(attempt) => {
                self.workers.insert(attempt, ());
                let after = self.soon(50);
                self.at(after, Happening::WorkerStops(attempt));
            }
            Action::Publish(item) => {
                let failed = self.rng.percent(20).then(|| "nobody there".to_owned());
                let after = self.soon(500);
                self.at(after, Happening::Say(Input::Published { item, failed }));
            }
            Action::Wake(at) => self.wake = at,
        }
    }

    /// The host dies and comes back.
    fn crash(&mut self, row_lost: bool) {
        self.moves.push(Move::Crash { row_lost });
        self.appending = false;
        for attempt in std::mem::take(&mut self.workers).into_keys() {
            if self.faults.strikes(Fault::WorkerOutlivesHost) {
                let report = self.how_it_ends(attempt);
                let after = self.soon(2_000);
                self.at(after, Happening::Late(attempt, report));
            }
        }
        // What was on its way inside the host is gone; what people will say is not.
        self.queue.retain(|_, what| {
            let published = matches!(what, Happening::Say(Input::Published { .. }));
            matches!(what, Happening::Say(_) | Happening::Decide(_) | Happening::Late(..)) && !published
        });
        self.steady = self.steady.after(Millis(1 + self.rng.below(10_000)));
        match Driver::replay(self.plan.clone(), &self.rows) {
            Ok(driver) => self.driver = driver,
            Err(error) => {
                self.violation.get_or_insert(format!("I2: the journal does not replay: {error}"));
                return;
            }
        }
        self.wake = None;
        if let Err(violation) = self.watch.replayed(&self.driver) {
            self.violation.get_or_insert(violation);
        }
        self.reopen();
        let owed: Vec<Input> = std::mem::take(&mut self.owed).into_values().collect();
        if self.driver.state().phase != RunPhase::New {
            self.say(Input::Recover, false);
        }
        for input in owed.into_iter().filter(|input| !matches!(input, Input::Published { .. })) {
            self.say(input, true);
        }
    }

    /// People look again at what is open.
    fn reopen(&mut self) {
        let open: Vec<(Opening, OpeningKind)> = (0..)
            .map(Opening)
            .zip(&self.driver.state().openings)
            .filter(|(_, state)| !state.closed)
            .map(|(opening, state)| (opening, state.kind))
            .collect();
        for (opening, kind) in open {
            if kind != OpeningKind::Wait {
                self.schedule_answer(opening);
            } else if let Some(state) = self.driver.state().opening(opening) {
                let (at, shows) = (state.at, state.shows.clone());
                let event = Event::Opened {
                    at,
                    opening,
                    deadline: None,
                    approvers: Vec::new(),
                    message: String::new(),
                    shows,
                };
                self.people_notice(&event);
            }
        }
    }

    fn strays(&mut self) {
        if !self.faults.has(Fault::StraySignal) {
            return;
        }
        let names = self.plan.definition.signals.iter().cloned();
        for sent in outcome::stray_signals(self.seed, names) {
            self.faults.note(Fault::StraySignal);
            let input = Input::Signal { name: sent.name, payload: sent.payload.into(), to: None };
            self.at(sent.after, Happening::Say(input));
        }
    }

    /// More signals than are kept for waits to come.
    fn flood(&mut self) {
        let Some(name) = self.plan.definition.signals.first().cloned() else { return };
        for n in 0..=limits::KEPT_SIGNALS {
            let input = Input::Signal { name: name.clone(), payload: Arc::new(n.into()), to: None };
            self.say(input, false);
        }
    }

    /// Nonsense before the run has begun.
    fn misbehave_before(&mut self) {
        if self.faults.strikes(Fault::Nonsense) {
            let input = nonsense::before(self.faults.rng());
            self.say(input, false);
        }
    }

    /// Whatever can go wrong at any moment.
    fn misbehave(&mut self) {
        if self.faults.strikes(Fault::EarlyWake) {
            self.say(Input::Wake, false);
        }
        if self.faults.strikes(Fault::RepeatedWake) {
            self.say(Input::Wake, false);
            self.say(Input::Wake, false);
        }
        if self.faults.strikes(Fault::ClockForward) {
            self.skew += 86_400_000;
        }
        if self.faults.strikes(Fault::ClockBack) {
            self.skew -= 3_600_000;
        }
        if self.faults.strikes(Fault::Cancel) {
            self.say(Input::Cancel { by: "ann".into(), reason: None }, true);
            if self.faults.strikes(Fault::CancelAgain) {
                self.say(Input::Cancel { by: "bob".into(), reason: Some("too".into()) }, true);
            }
        }
        if self.faults.strikes(Fault::LateResult)
            && let Some((attempt, report)) = self.ended.last().cloned()
        {
            self.say(Input::Finished { attempt, report }, false);
        }
        let now = self.wall();
        if self.faults.strikes(Fault::HoldByHost)
            && let Some(input) = nonsense::hold(self.driver.state(), self.faults.rng(), now)
        {
            self.say(input, false);
        }
        if self.faults.strikes(Fault::SignalFlood) {
            self.flood();
        }
        if self.faults.strikes(Fault::BrokenInvariant) {
            self.say(Input::Break { message: "a test".into() }, false);
        }
        if self.faults.strikes(Fault::Nonsense) {
            self.talk_nonsense();
        }
        if self.faults.has(Fault::Nonsense) {
            for _ in 0..nonsense::rarity(self.driver.state()) {
                if self.rng.percent(25) {
                    self.talk_nonsense();
                }
            }
        }
    }

    fn talk_nonsense(&mut self) {
        if let Some(input) = nonsense::anything(&self.plan, self.driver.state(), self.faults.rng()) {
            self.say(input, false);
        }
    }

    /// A run that ended with something not undone can be told to try again.
    fn revive(&mut self) -> bool {
        if !self.faults.has(Fault::RetryUndo) || !self.faults.strikes(Fault::RetryUndo) {
            return false;
        }
        self.say(Input::RetryUndo { by: "ann".into() }, false);
        true
    }

    fn check_end(&mut self) {
        if let Err(violation) = self.watch.ended(&self.driver, &self.workers) {
            self.violation.get_or_insert(violation);
        }
    }
}
