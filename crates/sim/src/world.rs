//! A virtual host: a clock, a store, workers and people around the real [`Driver`], driven by one seed.
//!
//! Owns time and chance. Everything in the world is a function of the seed, so a run can be reproduced. The world does
//! not check rules; [`crate::rule_monitor`] does, which observes every durable event.

mod outside;

use std::collections::BTreeMap;

use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, AttemptRole, Cost, Driver, DriverAction, InputToken, JournalBatch,
        RunInput, RunStart, StepAt, TimedInput, Waitpoint,
    },
    ids::RunId,
    ir::ErrorClass,
    plan::Plan,
    time::{Millis, Timestamp},
};

use crate::{
    coverage::Coverage,
    faults::{FaultInjector, InjectedFault},
    outcome::{self, AttemptIdentity, LuckLevel},
    rng::{Rng, mix_bits},
    rule_monitor::{DriverMove, RuleMonitor},
    violation::RuleViolation,
};

/// The setup of a world.
#[derive(Debug)]
pub struct WorldSetup {
    pub seed: u64,
    pub plan: Plan,
    pub luck: LuckLevel,
    pub faults: FaultInjector,
    /// The number of workers.
    pub workers: u32,
    /// The input that starts the run, if it is a fork.
    pub fork: Option<RunInput>,
}

/// The result of a simulated run.
#[derive(Debug)]
pub struct SimulatedRun {
    pub driver: Driver,
    pub coverage: Coverage,
    pub events: u64,
    /// A hash of the history: the same history gives the same number.
    pub trace: u64,
    pub rows: Vec<JournalBatch>,
    pub moves: Vec<DriverMove>,
    pub violation: Option<RuleViolation>,
    /// True if the run waits for something that never comes.
    pub waits: bool,
}

/// A scheduled event.
#[derive(Debug, Clone)]
enum WorldEvent {
    WorkerEnds(AttemptId),
    WorkerStops(AttemptId),
    Say(RunInput),
    Decide(Waitpoint),
    Acknowledged,
    Crash,
    /// A worker started before the last crash reports.
    Late(AttemptId, AttemptReport),
}

/// The start of the virtual clock: a day in 2027.
const BEGIN: Timestamp = Timestamp(1_800_000_000_000);
/// A time later than any event of a run without faults.
const NEVER: Timestamp = Timestamp(BEGIN.0 + 100 * 3_600_000);
/// The maximum number of turns and moves; a run that exceeds it does not end.
const MOST: u32 = 20_000;

#[derive(Debug)]
pub struct SimulatedWorld {
    seed: u64,
    luck: LuckLevel,
    faults: FaultInjector,
    rng: Rng,
    plan: Plan,
    driver: Driver,
    rows: Vec<JournalBatch>,
    /// True while a row has been handed to the store and has not been acknowledged.
    appending: bool,
    /// True while the driver is being polled.
    pumping: bool,
    /// The monotonic time, and the offset of the wall clock from it.
    steady: Timestamp,
    skew: i64,
    queue: BTreeMap<(Timestamp, u64), WorldEvent>,
    order: u64,
    wake: Option<Timestamp>,
    workers: BTreeMap<AttemptId, ()>,
    capacity: u32,
    tokens: u64,
    /// Inputs of people that have no answer yet; they are sent again when the host is back.
    owed: BTreeMap<InputToken, RunInput>,
    ended: Vec<(AttemptId, AttemptReport)>,
    trace: u64,
    moves: Vec<DriverMove>,
    violation: Option<RuleViolation>,
    watch: RuleMonitor,
}

/// Runs one world to its end.
pub fn simulate_world(setup: WorldSetup) -> SimulatedRun {
    let WorldSetup { seed, plan, luck, faults, workers, fork } = setup;
    let mut world = SimulatedWorld {
        seed,
        luck,
        faults,
        rng: Rng::new(seed).fork("world"),
        driver: Driver::new(plan.clone()),
        watch: RuleMonitor::new(&plan),
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
        trace: mix_bits(seed),
        moves: Vec::new(),
        violation: None,
    };
    let start = fork.unwrap_or_else(|| world.start_input());
    world.run_to_end(start);
    world.into_simulated_run()
}

impl SimulatedWorld {
    fn start_input(&self) -> RunInput {
        RunInput::Start(Box::new(RunStart {
            run: RunId::new(format!("run-{}", self.seed)).expect("a number is a name"),
            retry_of: None,
            attempt: 1 + u32::try_from(self.seed % 3).unwrap_or(0),
            context: serde_json::json!({"n": 1}),
            forked_from: None,
        }))
    }

    fn run_to_end(&mut self, start: RunInput) {
        self.inject_faults_before_start();
        self.send_input(start, true);
        self.schedule_stray_signals();
        for _ in 0..MOST {
            if self.violation.is_some() {
                return;
            }
            self.drive_run();
            self.inject_faults();
            if !self.advance_time() {
                if self.retry_undo() {
                    continue;
                }
                return self.check_end();
            }
        }
        self.violation.get_or_insert_with(|| "I7: the run does not end".into());
    }

    fn into_simulated_run(mut self) -> SimulatedRun {
        let events = self.driver.state().events;
        let mut coverage = std::mem::take(&mut self.watch.coverage);
        coverage.faults = std::mem::take(&mut self.faults.seen);
        let violation = self.violation.take();
        let waits = self.driver.state().is_waiting();
        let trace = self.driver.chain().0.iter().fold(self.trace, |h, b| mix_bits(h ^ u64::from(*b)));
        SimulatedRun {
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

    fn wall_clock(&self) -> Timestamp {
        Timestamp(self.steady.0 + self.skew)
    }

    fn schedule_event(&mut self, after: Millis, what: WorldEvent) {
        self.order += 1;
        self.queue.insert((self.steady.saturating_add(after), self.order), what);
    }

    fn draw_short_delay(&mut self, most: u64) -> Millis {
        Millis(1 + self.rng.next_below(most))
    }

    /// Processes the next scheduled event. Returns false if there is none.
    fn advance_time(&mut self) -> bool {
        let next = self.queue.first_key_value().map(|((time, _), _)| *time);
        let wake = self.wake.map(|time| Timestamp((time.0 - self.skew).max(self.steady.0)));
        match (next, wake) {
            (None, None) => return false,
            // Without faults, events this late are assumed never to come.
            (next, wake) if self.faults.is_faultless() && [next, wake].iter().flatten().all(|time| *time > NEVER) => {
                return false;
            }
            (Some(next), wake) if wake.is_none_or(|wake| next <= wake) => {
                let ((time, _), what) = self.queue.pop_first().expect("there is a next one");
                self.steady = self.steady.max(time);
                self.handle_event(what);
            }
            (_, Some(wake)) => {
                self.steady = wake;
                self.wake = None;
                self.send_input(RunInput::Wake, false);
            }
            (Some(_), None) => unreachable!("covered by the second arm"),
        }
        true
    }

    fn handle_event(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::WorkerEnds(attempt) if self.workers.contains_key(&attempt) => self.end_worker(attempt),
            WorldEvent::WorkerStops(attempt) if self.workers.remove(&attempt).is_some() => {
                let end = AttemptEnd::Stopped;
                self.report_attempt(attempt, AttemptReport::new(end, Cost::default()));
            }
            WorldEvent::WorkerEnds(_) | WorldEvent::WorkerStops(_) => {}
            WorldEvent::Say(input) => self.send_input(input, true),
            WorldEvent::Decide(opening) => self.send_decision(opening),
            WorldEvent::Acknowledged => self.acknowledge_row(),
            WorldEvent::Crash => self.crash_host(false),
            WorldEvent::Late(attempt, report) => self.send_input(RunInput::Finished { attempt, report }, false),
        }
    }

    fn end_worker(&mut self, attempt: AttemptId) {
        self.workers.remove(&attempt);
        let mut report = self.draw_report(attempt);
        if self.faults.strikes(InjectedFault::FailedAttempt) {
            let class = ErrorClass::NonRetryable;
            report.end = AttemptEnd::Failed { class, code: None, message: "on purpose".into(), retry_at: None };
        }
        if self.faults.strikes(InjectedFault::CrashAfterExit) {
            return self.crash_host(false);
        }
        if attempt.role == AttemptRole::Undo && self.faults.strikes(InjectedFault::RepeatedUndo) {
            return self.crash_host(false);
        }
        if self.faults.strikes(InjectedFault::LostResult) {
            let after = self.draw_short_delay(5_000);
            return self.schedule_event(after, WorldEvent::Crash);
        }
        self.report_attempt(attempt, report);
    }

    fn draw_report(&self, attempt: AttemptId) -> AttemptReport {
        let who = self.watch.paths.attempt_identity(&attempt);
        outcome::draw_report(self.seed, &who, self.step_definition(attempt.at), self.luck, self.wall_clock())
    }

    fn step_definition(&self, at: StepAt) -> &skein_core::ir::Step {
        let scope = self.watch.paths.instance_scope(at.0);
        self.plan.definition.scope(scope).step(at.1)
    }

    fn report_attempt(&mut self, attempt: AttemptId, report: AttemptReport) {
        if self.faults.can_strike(InjectedFault::LateResult) || self.faults.can_strike(InjectedFault::DuplicateResult) {
            self.ended.push((attempt, report.clone()));
        }
        self.send_input(RunInput::Finished { attempt, report: report.clone() }, false);
        if self.faults.strikes(InjectedFault::DuplicateResult) {
            self.send_input(RunInput::Finished { attempt, report }, false);
        }
        if self.faults.strikes(InjectedFault::CrashAfterReport) {
            self.crash_host(false);
        }
    }

    /// Sends an input to the driver. Inputs of people are sent again if the host dies before it answers.
    fn send_input(&mut self, input: RunInput, again: bool) {
        self.tokens += 1;
        let token = InputToken(self.tokens);
        if let RunInput::Finished { attempt, report } = &input
            && (attempt.role == AttemptRole::Check || !matches!(report.end, AttemptEnd::Checked { .. }))
        {
            self.workers.remove(attempt);
        }
        if again {
            self.owed.insert(token, input.clone());
        }
        let stimulus = TimedInput { at: self.wall_clock(), grant: self.count_free_workers(&input), input };
        self.moves.push(DriverMove::Say(stimulus.clone()));
        let busy = !self.driver.is_idle();
        self.watch.observe_input(&self.driver, &stimulus, busy);
        self.driver.push_input(token, stimulus);
        if !self.pumping {
            self.drive_run();
        }
    }

    fn count_free_workers(&mut self, input: &RunInput) -> u32 {
        if !self.driver.is_idle() || self.faults.strikes(InjectedFault::NoCapacity) {
            return 0;
        }
        let flying = u32::try_from(self.driver.state().in_flight().len()).unwrap_or(u32::MAX);
        let ends = match input {
            RunInput::Finished { attempt, .. } => self.driver.state().in_flight().contains(attempt),
            _ => false,
        };
        let lost = if matches!(input, RunInput::Recover) { flying } else { u32::from(ends) };
        (self.capacity + lost).saturating_sub(flying)
    }

    /// Lets the driver do all it can without a further event in the world.
    fn drive_run(&mut self) {
        self.pumping = true;
        self.drive_until_idle();
        self.pumping = false;
    }

    fn drive_until_idle(&mut self) {
        while self.violation.is_none() {
            if self.moves.len() > MOST as usize {
                self.violation = Some("I7: the run never becomes idle".into());
            }
            if self.appending {
                return;
            }
            if let Some(batch) = self.driver.poll_append() {
                self.append_row(batch.as_ref().clone());
                continue;
            }
            while let Some((token, answer)) = self.driver.poll_answer() {
                self.owed.remove(&token);
                self.trace = mix_bits(self.trace ^ token.0 ^ (u64::from(answer.is_err()) << 63));
                self.watch.observe_answer(&answer);
            }
            if let Some(action) = self.driver.poll_action() {
                self.perform_action(action);
                continue;
            }
            let free = u32::try_from(self.driver.state().in_flight().len()).unwrap_or(u32::MAX) < self.capacity;
            if free && self.driver.state().wants_workers() {
                self.send_input(RunInput::Capacity, false);
                continue;
            }
            return;
        }
    }

    fn append_row(&mut self, batch: JournalBatch) {
        if self.faults.strikes(InjectedFault::CrashBeforeAppend) {
            return self.crash_host(true);
        }
        let seen = self.watch.observe_durable_row(&self.driver, &batch);
        self.violation = seen.err();
        self.rows.push(batch);
        if self.violation.is_some() {
            return;
        }
        self.appending = true;
        if self.faults.strikes(InjectedFault::CrashAfterAppend) {
            return self.crash_host(false);
        }
        if self.faults.strikes(InjectedFault::SlowAppend) {
            let after = self.draw_short_delay(400);
            return self.schedule_event(after, WorldEvent::Acknowledged);
        }
        self.acknowledge_row();
    }

    fn acknowledge_row(&mut self) {
        if !std::mem::take(&mut self.appending) {
            return;
        }
        self.driver.confirm_append();
        let row = self.rows.last().cloned();
        if let Err(violation) = self.watch.check_settled(&self.driver) {
            self.violation.get_or_insert(violation);
        }
        if self.faults.strikes(InjectedFault::CrashAfterAcknowledgement) {
            return self.crash_host(false);
        }
        for record in row.into_iter().flat_map(|row| row.records) {
            self.schedule_reactions(&record.event);
        }
    }

    fn perform_action(&mut self, action: DriverAction) {
        match action {
            DriverAction::Start(attempt, _) => {
                if self.faults.strikes(InjectedFault::CrashBeforeSpawn) {
                    return self.crash_host(false);
                }
                self.workers.insert(attempt, ());
                let who: AttemptIdentity<'_> = self.watch.paths.attempt_identity(&attempt);
                let after = outcome::draw_delay(self.seed, &who);
                self.schedule_event(after, WorldEvent::WorkerEnds(attempt));
                if self.faults.strikes(InjectedFault::CrashAfterSpawn) {
                    self.crash_host(false);
                }
            }
            DriverAction::Stop(attempt) => {
                self.workers.insert(attempt, ());
                let after = self.draw_short_delay(50);
                self.schedule_event(after, WorldEvent::WorkerStops(attempt));
            }
            DriverAction::Publish(item) => {
                let failed = self.rng.chance_percent(20).then(|| "nobody there".to_owned());
                let after = self.draw_short_delay(500);
                self.schedule_event(after, WorldEvent::Say(RunInput::Published { item, failed }));
            }
            DriverAction::Wake(at) => self.wake = at,
        }
    }

    fn check_end(&mut self) {
        if let Err(violation) = self.watch.check_ended(&self.driver, &self.workers) {
            self.violation.get_or_insert(violation);
        }
    }
}
