//! A script: a workflow, a sequence of inputs, and the result of each.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, CheckFinding, Cost, DecisionActor, Driver, ForkOrigin, InputToken,
        JournalBatch, JournalRecord, Publication, ReusableResults, RunInput, RunStart, RunState, StepAt, StepPaths,
        TimedInput, Verdict, Waitpoint, apply, decide, wanted,
    },
    ids::{RunId, SignalName},
    ir::{ErrorClass, HoldReason, Workflow},
    plan::{ContentHash, Plan, check_workflow},
    time::{Millis, Timestamp},
    view::view_run,
};

use crate::{print, snapshot, support::Others};

/// Creates a script that is named after the test it is in.
macro_rules! script {
    ($workflow:expr) => {
        script!($workflow, $crate::support::library(Vec::new()))
    };
    ($workflow:expr, $library:expr) => {{
        fn here() {}
        $crate::script::Script::new(std::any::type_name_of_val(&here), $workflow, &$library)
    }};
}

pub(crate) struct Script {
    name: String,
    plan: Plan,
    state: RunState,
    /// The same state, folded from the events alone.
    replayed: RunState,
    records: Vec<JournalRecord>,
    names: StepPaths,
    now: Timestamp,
    grant: u32,
    cost: Cost,
    parameters: Value,
    shown: BTreeMap<String, String>,
    text: String,
}

impl Script {
    pub(crate) fn new(test: &str, workflow: Workflow, library: &Others) -> Script {
        // `scripts::area::rule::here`.
        let parts: Vec<&str> = test.split("::").collect();
        let (area, rule) = (parts[1], parts[2]);
        let checked = check_workflow(Arc::new(workflow), library);
        let definition = checked.definition.unwrap_or_else(|| panic!("{:#?}", checked.problems));
        // Parameters are bound later, if at all.
        let plan = Plan { hash: definition.hash(), parameters: Arc::new(json!({})), definition };
        Script {
            name: format!("{area}/{rule}"),
            names: StepPaths::new(plan.definition.clone()),
            plan,
            state: RunState::new(),
            replayed: RunState::new(),
            records: Vec::new(),
            now: Timestamp(0),
            grant: 100,
            cost: Cost::default(),
            parameters: Value::Null,
            shown: BTreeMap::new(),
            text: format!("{}\n", rule.replace('_', " ")),
        }
    }

    pub(crate) fn with(mut self, parameters: Value) -> Script {
        self.parameters = parameters;
        self
    }

    /// Sets the number of workers that each of the following inputs may start.
    pub(crate) fn grant(mut self, grant: u32) -> Script {
        self.grant = grant;
        self
    }

    /// Sets the cost in the next report.
    pub(crate) fn spending(mut self, tokens: u64) -> Script {
        self.cost = Cost { tokens, micro_usd: None };
        self
    }

    /// Lets time pass without an input.
    pub(crate) fn pass(mut self, seconds: u64) -> Script {
        self.now = self.now.saturating_add(Millis::from_secs(seconds));
        self
    }

    fn say(mut self, what: &str, input: RunInput) -> Script {
        writeln!(self.text, "\n{}: {what}", print::time(self.now)).unwrap();
        let before = self.state.clone();
        let mut events = Vec::new();
        let stimulus = TimedInput { at: self.now, grant: self.grant, input };
        let answer = decide(&self.plan, &mut self.state, &stimulus, &mut events);
        if let Err(refusal) = answer {
            assert_eq!((&self.state, events.as_slice()), (&before, &[][..]), "a refusal changes nothing");
            writeln!(self.text, "  refused: {refusal}").unwrap();
            return self;
        }
        for event in events {
            let record = JournalRecord { at: self.now, event };
            let record: JournalRecord = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
            apply(&self.plan, &mut self.replayed, record.at, &record.event);
            self.names.note_event(&record.event);
            writeln!(self.text, "  {}", print::event(&self.names, &record.event)).unwrap();
            self.records.push(record);
        }
        assert_eq!(self.state, self.replayed, "the events do not say all that was decided");
        self.look();
        self
    }

    /// Writes the wanted work and the changes in the view.
    fn look(&mut self) {
        let view = view_run(&self.plan, &self.state);
        let names = StepPaths::from_state(&self.plan.definition, &self.state);
        let short = if self.state.wants_workers() { ", and more workers" } else { "" };
        writeln!(self.text, "  wants {}{short}", print::wanted(&names, wanted(&self.state))).unwrap();
        let mut shown = BTreeMap::from([(String::new(), print::run(&view))]);
        let mut lines = vec![(String::new(), format!("run: {}", print::run(&view)))];
        for step in &view.steps {
            shown.insert(step.path.clone(), print::step(step));
            lines.push((step.path.clone(), print::step(step)));
        }
        for (key, line) in lines {
            if self.shown.get(&key) != shown.get(&key) {
                writeln!(self.text, "    {line}").unwrap();
            }
        }
        self.shown = shown;
    }

    pub(crate) fn start(self) -> Script {
        self.start_as(None, 1)
    }

    pub(crate) fn start_as(mut self, retry_of: Option<&str>, attempt: u32) -> Script {
        let parameters = std::mem::take(&mut self.parameters);
        self.plan = self.plan.definition.bind(parameters).unwrap();
        let retry_of = retry_of.map(|run| RunId::new(run).unwrap());
        let start = RunStart { retry_of, attempt, ..RunStart::new(RunId::new("r1").unwrap()) };
        self.say("start", RunInput::Start(Box::new(start)))
    }

    /// Starts a new run with the results of this one up to a step.
    pub(crate) fn fork(mut self, from: &str) -> Script {
        let mut past = ReusableResults::new(self.plan.clone());
        past.read_batch(&JournalBatch::new(0, ContentHash::ZERO, self.records.clone())).unwrap();
        writeln!(self.text, "\n{}: a fork from {from}", print::time(self.now)).unwrap();
        let fork = match past.fork_from_step(from) {
            Ok(fork) => fork,
            Err(why) => {
                writeln!(self.text, "  there is none: {why}").unwrap();
                return self;
            }
        };
        writeln!(self.text, "  reuses {:?}, again {:?}", fork.steps, fork.again).unwrap();
        for (before, now) in &fork.attempts {
            writeln!(self.text, "  the artifacts of {before} are those of {now}").unwrap();
        }
        self.records.clear();
        (self.state, self.replayed) = (RunState::new(), RunState::new());
        self.names = StepPaths::new(self.plan.definition.clone());
        self.shown.clear();
        let (step, run) = (from.to_owned(), RunId::new("r1").unwrap());
        let start =
            RunStart { forked_from: Some(ForkOrigin { run, step }), ..RunStart::new(RunId::new("r2").unwrap()) };
        self.say("it starts", RunInput::Fork { start: Box::new(start), reused: fork.reused })
    }

    fn at(&self, path: &str) -> StepAt {
        let steps = view_run(&self.plan, &self.state).steps;
        let step = steps.into_iter().find(|step| step.path == path);
        step.unwrap_or_else(|| panic!("there is no {path}\n{}", self.text)).at
    }

    fn attempt(&self, path: &str) -> AttemptId {
        let at = self.at(path);
        let mut found = self.state.in_flight().iter().filter(|attempt| attempt.at == at);
        *found.next().unwrap_or_else(|| panic!("nothing of {path} is in flight\n{}", self.text))
    }

    /// Ends the attempt in flight of a step.
    pub(crate) fn end(mut self, path: &str, what: &str, end: AttemptEnd) -> Script {
        let attempt = self.attempt(path);
        let report = AttemptReport::new(end, std::mem::take(&mut self.cost));
        let who = print::attempt(&self.names, attempt);
        self.say(&format!("{who} {what}"), RunInput::Finished { attempt, report })
    }

    pub(crate) fn ok(self, path: &str) -> Script {
        self.end(path, "succeeds", AttemptEnd::Succeeded { output: Arc::new(Value::Null) })
    }

    pub(crate) fn gives(self, path: &str, output: Value) -> Script {
        self.end(path, "succeeds", AttemptEnd::Succeeded { output: Arc::new(output) })
    }

    pub(crate) fn fail(self, path: &str, class: ErrorClass) -> Script {
        self.fails(path, class, None, None)
    }

    pub(crate) fn fails(self, path: &str, class: ErrorClass, code: Option<&str>, retry_at: Option<i64>) -> Script {
        let (code, retry_at) = (code.map(str::to_owned), retry_at.map(|seconds| Timestamp(seconds * 1_000)));
        self.end(path, "fails", AttemptEnd::Failed { class, code, message: "boom".into(), retry_at })
    }

    pub(crate) fn times_out(self, path: &str) -> Script {
        self.end(path, "times out", AttemptEnd::TimedOut)
    }

    pub(crate) fn stops(self, path: &str) -> Script {
        self.end(path, "stops", AttemptEnd::Stopped)
    }

    pub(crate) fn blocks(self, path: &str, reason: HoldReason, until: Option<i64>) -> Script {
        let until = until.map(|seconds| Timestamp(seconds * 1_000));
        self.end(path, "is blocked", AttemptEnd::Blocked { reason, until, message: "not now".into() })
    }

    pub(crate) fn finds(self, path: &str, finding: CheckFinding, fingerprints: &[&str]) -> Script {
        let fingerprints = fingerprints.iter().map(ToString::to_string).collect();
        self.end(path, "finds", AttemptEnd::Checked { finding, reasons: Vec::new(), fingerprints, output: None })
    }

    pub(crate) fn incomplete(self, path: &str) -> Script {
        self.finds(path, CheckFinding::Incomplete, &[])
    }

    /// Sends a report for a named attempt, in flight or not.
    pub(crate) fn report(self, attempt: &str, end: AttemptEnd) -> Script {
        let report = AttemptReport::new(end, Cost::default());
        let id = attempt.parse().unwrap();
        self.say(&format!("a report for {attempt}"), RunInput::Finished { attempt: id, report })
    }

    pub(crate) fn late(self, attempt: &str) -> Script {
        self.report(attempt, AttemptEnd::Succeeded { output: Arc::new(json!("late")) })
    }

    /// Returns the last waitpoint of a step.
    fn opening(&self, path: &str) -> Waitpoint {
        let at = self.at(path);
        let found = (0..).zip(&self.state.openings).filter(|(_, opening)| opening.at == at).last();
        Waitpoint(found.unwrap_or_else(|| panic!("{path} never opened\n{}", self.text)).0)
    }

    pub(crate) fn decide(self, path: &str, decision: Verdict, name: &str, roles: &[&str]) -> Script {
        let opening = self.opening(path);
        let by = DecisionActor { name: name.into(), roles: roles.iter().map(ToString::to_string).collect() };
        let word = if decision == Verdict::Approve { "approves" } else { "rejects" };
        self.say(&format!("{name} {word} {path}"), RunInput::Decide { opening, decision, by, reason: None })
    }

    pub(crate) fn approve(self, path: &str) -> Script {
        self.decide(path, Verdict::Approve, "ann", &[])
    }

    pub(crate) fn reject(self, path: &str) -> Script {
        self.decide(path, Verdict::Reject, "ann", &[])
    }

    pub(crate) fn signal(self, name: &str, payload: Value) -> Script {
        let input = RunInput::Signal { name: SignalName::new(name).unwrap(), payload: Arc::new(payload), to: None };
        self.say(&format!("signal {name}"), input)
    }

    pub(crate) fn signal_to(self, path: &str, name: &str) -> Script {
        let to = Some(self.at(path));
        let name = SignalName::new(name).unwrap();
        let input = RunInput::Signal { name: name.clone(), payload: Arc::new(json!(1)), to };
        self.say(&format!("signal {name} to {path}"), input)
    }

    pub(crate) fn hold(self, path: &str, reason: HoldReason, until: Option<i64>) -> Script {
        let until = until.map(|seconds| Timestamp(seconds * 1_000));
        let step = self.at(path);
        let input = RunInput::Hold { step, reason, until, message: "the host says so".into() };
        self.say(&format!("the host holds {path}"), input)
    }

    pub(crate) fn wake(self) -> Script {
        self.say("wake", RunInput::Wake)
    }

    /// Advances the time to the next deadline and wakes the run.
    pub(crate) fn due(mut self) -> Script {
        let due = wanted(&self.state).wake;
        self.now = due.unwrap_or_else(|| panic!("nothing is due\n{}", self.text));
        self.wake()
    }

    pub(crate) fn cancel(self) -> Script {
        self.say("ann cancels", RunInput::Cancel { by: "ann".into(), reason: None })
    }

    pub(crate) fn recover(self) -> Script {
        self.say("the host is back after a crash", RunInput::Recover)
    }

    pub(crate) fn capacity(mut self, grant: u32) -> Script {
        let usual = std::mem::replace(&mut self.grant, grant);
        let mut script = self.say(&format!("workers: {grant}"), RunInput::Capacity);
        script.grant = usual;
        script
    }

    pub(crate) fn published(self, item: Publication) -> Script {
        self.say(&format!("{item:?} is published"), RunInput::Published { item, failed: None })
    }

    pub(crate) fn not_published(self, item: Publication) -> Script {
        let failed = Some("no network".into());
        self.say(&format!("{item:?} cannot be published"), RunInput::Published { item, failed })
    }

    pub(crate) fn retry_undo(self) -> Script {
        self.say("ann retries the undo", RunInput::RetryUndo { by: "ann".into() })
    }

    pub(crate) fn break_off(self) -> Script {
        self.say("the state makes no sense", RunInput::Break { message: "nonsense".into() })
    }

    /// Compares everything with the snapshot.
    pub(crate) fn done(self) {
        self.through_the_driver();
        snapshot::compare(&self.name, &self.text);
    }

    /// Checks that a driver can replay the journal of this run.
    fn through_the_driver(&self) {
        let batch = JournalBatch::new(0, ContentHash::ZERO, self.records.clone());
        let mut driver = Driver::replay(self.plan.clone(), [&batch]).unwrap();
        assert_eq!(driver.state(), &self.state);
        driver.push_input(InputToken(0), TimedInput { at: self.now, grant: 0, input: RunInput::Capacity });
        driver.poll_append();
    }
}
