//! Small runs for tests of views.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, Cost, DecisionActor, JournalRecord, RunInput, RunStart, RunState, StepAt,
        TimedInput, Verdict, Waitpoint, decide,
    },
    expr::aip15,
    ids::{BranchId, RunId, SignalName, StepId, WorkflowId},
    ir::*,
    plan::{Plan, check_workflow},
    time::{Millis, Timestamp},
    view::{RunView, StepView, view_run},
};

pub(super) fn step_id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub(super) fn work_step(name: &str) -> Step {
    let worker = WorkerSpec::Tool { tool: "t".into(), pinned: None };
    Step::new(step_id(name), StepKindSpec::Work(Box::new(WorkSpec::new(worker))))
}

pub(super) fn dependent_step(name: &str, dependencies: &[&str]) -> Step {
    Step { after: dependencies.iter().map(|name| step_id(name)).collect(), ..work_step(name) }
}

pub(super) fn undoable_step(name: &str) -> Step {
    let worker = WorkerSpec::Tool { tool: "undo".into(), pinned: None };
    let undo = UndoSpec {
        id: step_id(&format!("un-{name}")),
        work: WorkSpec::new(worker),
        inputs: Vec::new(),
        timeout: None,
        retry: StepRetry::default(),
    };
    Step { undo: Some(Box::new(undo)), ..work_step(name) }
}

pub(super) fn gate_step(name: &str) -> Step {
    let gate = GateSpec {
        message: aip15::parse_value(&json!("Go on?")).unwrap(),
        shows: Vec::new(),
        approvers: vec![Approver::Role("lead".into()), Approver::User("ann".into())],
        quorum: 1,
        timeout: Some(Millis::from_secs(60)),
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    Step::new(step_id(name), StepKindSpec::Gate(Box::new(gate)))
}

pub(super) fn wait_step(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    Step::new(
        step_id(name),
        StepKindSpec::Wait(Box::new(WaitSpec { on, timeout: None, on_timeout: WaitTimeout::Expire })),
    )
}

pub(super) fn routed_scope(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)
}

pub(super) fn parallel_step(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    let lane = |(name, steps)| LaneSpec { id: BranchId::new(name).unwrap(), scope: Arc::new(routed_scope(steps)) };
    Step::new(
        step_id(name),
        StepKindSpec::Parallel(Box::new(ParallelSpec { lanes: lanes.into_iter().map(lane).collect() })),
    )
}

pub(super) fn graph_scope(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Graph, steps)
}

/// A run that is sent inputs, one second apart.
pub(super) struct ViewTestRun {
    pub plan: Plan,
    pub state: RunState,
    pub records: Vec<JournalRecord>,
    pub now: Timestamp,
    pub grant: u32,
}

impl ViewTestRun {
    pub(super) fn new(scope: StepScope) -> ViewTestRun {
        ViewTestRun::with_library(scope, &BTreeMap::new())
    }

    pub(super) fn with_library(scope: StepScope, library: &BTreeMap<String, Arc<Workflow>>) -> ViewTestRun {
        let workflow = Workflow::new(WorkflowId::new("main").unwrap(), scope);
        let checked = check_workflow(Arc::new(workflow), library);
        let definition = checked.definition.unwrap_or_else(|| panic!("{:#?}", checked.problems));
        let plan = definition.bind(Value::Null).unwrap();
        ViewTestRun { plan, state: RunState::new(), records: Vec::new(), now: Timestamp(0), grant: 100 }
    }

    pub(super) fn send_input(mut self, input: RunInput) -> ViewTestRun {
        let mut events = Vec::new();
        let timed = TimedInput { at: self.now, grant: self.grant, input };
        decide(&self.plan, &mut self.state, &timed, &mut events).unwrap();
        self.records.extend(events.into_iter().map(|event| JournalRecord { at: self.now, event }));
        self.now = self.now.saturating_add(Millis::from_secs(1));
        self
    }

    pub(super) fn start_run(self) -> ViewTestRun {
        let run = RunId::new("r1").unwrap();
        let start = RunStart::new(run);
        self.send_input(RunInput::Start(Box::new(start)))
    }

    fn step_at(&self, path: &str) -> StepAt {
        self.step_view(path).at
    }

    fn live_attempt(&self, path: &str) -> AttemptId {
        let at = self.step_at(path);
        let mut found = self.state.in_flight().iter().filter(|attempt| attempt.at == at);
        *found.next().unwrap_or_else(|| panic!("nothing of {path} is in flight"))
    }

    pub(super) fn end_attempt(self, path: &str, end: AttemptEnd) -> ViewTestRun {
        let attempt = self.live_attempt(path);
        self.send_input(RunInput::Finished { attempt, report: AttemptReport::new(end, Cost::default()) })
    }

    pub(super) fn succeed_step(self, path: &str) -> ViewTestRun {
        self.end_attempt(path, AttemptEnd::Succeeded { output: Arc::new(json!({"by": path})) })
    }

    pub(super) fn fail_step(self, path: &str) -> ViewTestRun {
        let class = ErrorClass::Transient;
        self.end_attempt(path, AttemptEnd::Failed { class, code: None, message: "boom".into(), retry_at: None })
    }

    pub(super) fn decide_waitpoint(self, opening: u32, decision: Verdict) -> ViewTestRun {
        let by = DecisionActor { name: "ann".into(), roles: Vec::new() };
        self.send_input(RunInput::Decide { opening: Waitpoint(opening), decision, by, reason: Some("no time".into()) })
    }

    pub(super) fn cancel_run(self) -> ViewTestRun {
        self.send_input(RunInput::Cancel { by: "ann".into(), reason: None })
    }

    pub(super) fn wake_at(mut self, seconds: i64) -> ViewTestRun {
        self.now = Timestamp(seconds * 1_000);
        self.send_input(RunInput::Wake)
    }

    pub(super) fn view(&self) -> RunView {
        view_run(&self.plan, &self.state)
    }

    pub(super) fn step_view(&self, path: &str) -> StepView {
        let mut steps = self.view().steps.into_iter();
        steps.find(|step| step.path == path).unwrap_or_else(|| panic!("there is no {path}"))
    }

    /// Returns the reason and the sentence of a step.
    pub(super) fn explain_step(&self, path: &str) -> String {
        let why = self.step_view(path).why.unwrap_or_else(|| panic!("{path} has no why"));
        let reason = serde_json::to_value(why.reason).unwrap();
        format!("{}: {}", reason.as_str().unwrap(), why.text)
    }
}
