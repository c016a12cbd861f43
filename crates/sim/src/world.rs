//! A virtual host: a clock, a store, workers and people around the real [`Driver`], moved by one seed.
//!
//! Owns time and chance. Whatever the world does is a function of the seed, so a run can be had again. What is right
//! and wrong is not decided here but by [`crate::watch`], which sees every durable event.

mod crash;
mod misbehave;
mod people;

use std::collections::BTreeMap;

use skein_core::{
    engine::{
        Action, AttemptEnd, AttemptId, Batch, Cost, Driver, Input, Opening, Report, Role, Start, StepAt,
        Stimulus, Token,
    },
    ids::RunId,
    ir::ErrorClass,
    plan::Plan,
    time::{Millis, Time},
};

use crate::{
    coverage::Coverage,
    faults::{Fault, Faults},
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
    /// What begins the run, if it is a fork.
    pub fork: Option<Input>,
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
    let Setup { seed, plan, luck, faults, workers, fork } = setup;
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
    let start = fork.unwrap_or_else(|| world.start());
    world.live(start);
    world.finish()
}

impl World {
    fn start(&self) -> Input {
        Input::Start(Box::new(Start {
            run: RunId::new(format!("run-{}", self.seed)).expect("a number is a name"),
            retry_of: None,
            attempt: 1 + u32::try_from(self.seed % 3).unwrap_or(0),
            context: serde_json::json!({"n": 1}),
            forked_from: None,
        }))
    }

    fn live(&mut self, start: Input) {
        self.misbehave_before();
        self.say(start, true);
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
                self.report(attempt, Report::new(end, Cost::default()));
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
        let mut report = self.how_it_ends(attempt);
        if self.faults.strikes(Fault::FailedAttempt) {
            let class = ErrorClass::NonRetryable;
            report.end =
                AttemptEnd::Failed { class, code: None, message: "on purpose".into(), retry_at: None };
        }
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
                self.append(batch.as_ref().clone());
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

    fn check_end(&mut self) {
        if let Err(violation) = self.watch.ended(&self.driver, &self.workers) {
            self.violation.get_or_insert(violation);
        }
    }
}
