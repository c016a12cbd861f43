//! Small workflows, and a run of one that receives inputs and keeps the rows of its journal.

use std::{cell::RefCell, collections::BTreeMap, io, rc::Rc, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, CheckFinding, Cost, DecisionActor, Driver, InputToken, JournalBatch,
        Publication, RunInput, RunStart, StepAt, TimedInput, Verdict, Waitpoint,
    },
    expr::aip15,
    ids::{RunId, SignalName, WorkflowId},
    ir::*,
    plan::{Plan, Severity, check_workflow},
    time::{Millis, Timestamp},
    view,
};
pub(super) use skein_testkit::workflow::*;

use crate::render::{
    live::{LiveOptions, LiveView, TerminalSize, TerminalSurface},
    output::Paint,
};

pub(super) fn retried(mut step: Step, attempts: u32) -> Step {
    step.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], attempts, five_seconds());
    step
}

pub(super) fn five_seconds() -> Backoff {
    constant_backoff(Millis::from_secs(5))
}

/// Returns a step whose failure undoes the completed steps, and that can be undone itself.
pub(super) fn undoable(name: &str) -> Step {
    let undo = undo_by(name, tool("undo"));
    undoing(Step { undo: Some(Box::new(undo)), ..work(name) })
}

pub(super) fn gate(name: &str, message: &str) -> Step {
    skein_testkit::workflow::gate(name, |gate| {
        gate.message = value(message);
        gate.approvers = vec![Approver::Role("lead".into()), Approver::User("ann".into())];
        gate.timeout = Some(Millis::from_mins(10));
    })
}

/// Returns a branch with two targets that always takes `goes`.
pub(super) fn branch(name: &str, could: &str, goes: &str) -> Step {
    skein_testkit::workflow::branch(name, &[("1 == 2", could)], goes)
}

pub(super) fn each(name: &str, over: Value, steps: Vec<Step>) -> Step {
    each_scope(name, aip15::parse_value(&over).unwrap(), 2, route(steps))
}

/// Returns a loop of at most three passes, as long as this condition holds.
pub(super) fn repeat(name: &str, condition: &str, steps: Vec<Step>) -> Step {
    loop_scope(name, condition, LoopTest::After, 3, route(steps))
}

pub(super) fn graph(steps: Vec<Step>) -> StepScope {
    graph_scope(steps)
}

pub(super) fn workflow(scope: StepScope) -> Workflow {
    let workflow = Workflow::new(WorkflowId::new("release").unwrap(), scope);
    Workflow { version: Some("1.4.0".into()), ..workflow }
}

/// A run that receives one input per second.
pub(super) struct Trial {
    pub driver: Driver,
    pub rows: Vec<Arc<JournalBatch>>,
    pub now: Timestamp,
    pub grant: u32,
    cost: Cost,
}

impl Trial {
    pub(super) fn new(scope: StepScope) -> Trial {
        Trial::calling(scope, Vec::new())
    }

    pub(super) fn calling(scope: StepScope, called: Vec<(&str, StepScope)>) -> Trial {
        let called = called.into_iter().map(|(name, scope)| (name.to_owned(), Arc::new(workflow(scope))));
        let checked = check_workflow(Arc::new(workflow(scope)), &called.collect::<BTreeMap<_, _>>());
        let definition = checked.definition.unwrap_or_else(|| {
            let errors = checked.problems.iter().filter(|problem| problem.severity == Severity::Error);
            panic!("{:#?}", errors.collect::<Vec<_>>())
        });
        Trial::of(definition.bind(Value::Null).unwrap()).start()
    }

    /// Creates a run that is not started yet.
    pub(super) fn of(plan: Plan) -> Trial {
        // A day in 2026.
        let now = Timestamp(1_767_225_600_000);
        Trial { driver: Driver::new(plan), rows: Vec::new(), now, grant: 100, cost: Cost::default() }
    }

    pub(super) fn start(mut self) -> Trial {
        let run = RunId::new("r1").unwrap();
        let start = RunStart::new(run);
        self.say(RunInput::Start(Box::new(start)));
        self
    }

    pub(super) fn say(&mut self, input: RunInput) -> &mut Trial {
        let stimulus = TimedInput { at: self.now, grant: self.grant, input };
        self.driver.push_input(InputToken(0), stimulus);
        while let Some(row) = self.driver.poll_append() {
            self.rows.push(row);
            self.driver.confirm_append();
        }
        while let Some((_, answer)) = self.driver.poll_answer() {
            assert_eq!(answer, Ok(()));
        }
        self.pass(1_000)
    }

    pub(super) fn pass(&mut self, ms: u64) -> &mut Trial {
        self.now = self.now.saturating_add(Millis(ms));
        self
    }

    pub(super) fn at(&self, path: &str) -> StepAt {
        let view = view::view_run(self.driver.plan(), self.driver.state());
        let found = view.steps.iter().find(|step| step.path == path);
        let paths = || view.steps.iter().map(|step| format!("{} {}", step.path, step.status));
        found.unwrap_or_else(|| panic!("no {path} among {:?}", paths().collect::<Vec<_>>())).at
    }

    pub(super) fn attempt(&self, path: &str) -> AttemptId {
        let at = self.at(path);
        let mut found = self.driver.state().in_flight().iter().filter(|attempt| attempt.at == at);
        *found.next().unwrap_or_else(|| panic!("nothing of {path} is in flight"))
    }

    /// Sets the cost in the next report.
    pub(super) fn spending(&mut self, tokens: u64, micro_usd: u64) -> &mut Trial {
        self.cost = Cost { tokens, micro_usd: Some(micro_usd) };
        self
    }

    pub(super) fn end(&mut self, path: &str, end: AttemptEnd) -> &mut Trial {
        let attempt = self.attempt(path);
        let cost = std::mem::take(&mut self.cost);
        self.say(RunInput::Finished { attempt, report: AttemptReport::new(end, cost) })
    }

    pub(super) fn ok(&mut self, path: &str) -> &mut Trial {
        self.end(path, AttemptEnd::Succeeded { output: Arc::new(json!({"by": path})) })
    }

    pub(super) fn fail(&mut self, path: &str) -> &mut Trial {
        self.fails(path, ErrorClass::Transient, "exit status 1")
    }

    pub(super) fn fails(&mut self, path: &str, class: ErrorClass, message: &str) -> &mut Trial {
        self.end(path, AttemptEnd::Failed { class, code: None, message: message.into(), retry_at: None })
    }

    pub(super) fn check(&mut self, path: &str, finding: CheckFinding, reasons: &[&str]) -> &mut Trial {
        let reasons = reasons.iter().map(|&reason| reason.to_owned()).collect();
        self.end(path, AttemptEnd::Checked { finding, reasons, fingerprints: Vec::new(), output: None })
    }

    pub(super) fn decide(&mut self, opening: u32, decision: Verdict) -> &mut Trial {
        let by = DecisionActor { name: "ann".into(), roles: Vec::new() };
        self.say(RunInput::Decide { opening: Waitpoint(opening), decision, by, reason: Some("it is time".into()) })
    }

    pub(super) fn signal(&mut self, name: &str) -> &mut Trial {
        let name = SignalName::new(name).unwrap();
        self.say(RunInput::Signal { name, payload: Arc::new(json!(1)), to: None })
    }

    pub(super) fn cancel(&mut self) -> &mut Trial {
        self.say(RunInput::Cancel { by: "ann".into(), reason: Some("wrong branch".into()) })
    }

    /// Advances the time to the next timer, and wakes the run.
    pub(super) fn wake(&mut self) -> &mut Trial {
        let due = skein_core::engine::wanted(self.driver.state()).wake.expect("something is due");
        self.now = self.now.max(due);
        self.say(RunInput::Wake)
    }

    /// Confirms all publications.
    pub(super) fn publish(&mut self) -> &mut Trial {
        let items = skein_core::engine::wanted(self.driver.state()).publish.clone();
        items.into_iter().for_each(|item: Publication| {
            self.say(RunInput::Published { item, failed: None });
        });
        self
    }

    pub(super) fn plan(&self) -> Plan {
        self.driver.plan().clone()
    }
}

/// Returns the options with which the tests show a run.
pub(super) fn options(paint: bool) -> LiveOptions {
    LiveOptions {
        paint: Paint(paint),
        workspace: Some("/w".into()),
        logs_folder: Some("/w/.skein/runs/r1".into()),
        worktrees: Box::new(Vec::new),
        slow: LiveOptions::SLOW,
        tail: Box::new(|attempt| Some(format!("trying\n  at line 7\nno luck with {attempt}\n"))),
        owned_elsewhere: false,
    }
}

/// A pipe that keeps the written text.
#[derive(Clone, Default)]
pub(super) struct Pipe(pub Rc<RefCell<String>>);

impl TerminalSurface for Pipe {
    fn write(&mut self, text: &str) -> io::Result<()> {
        self.0.borrow_mut().push_str(text);
        Ok(())
    }

    fn size(&self) -> Option<TerminalSize> {
        None
    }
}

/// Returns the output to a pipe for all rows, and the summary.
pub(super) fn piped(trial: &Trial, options: LiveOptions) -> String {
    let pipe = Pipe::default();
    let mut live = LiveView::new(trial.plan(), pipe.clone(), options);
    for row in &trial.rows {
        live.show_row(row).unwrap();
        live.tick(row.records[0].at.saturating_add(Millis(500))).unwrap();
    }
    assert_eq!(live.state(), trial.driver.state());
    let summary = live.finish().unwrap();
    let lines = pipe.0.borrow();
    format!("{lines}{summary}")
}

/// Compares a text with the snapshot of this name.
pub(super) fn same(name: &str, text: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/render/live/tests/snapshots");
    skein_testkit::assert_snapshot!(folder, name, text);
}
