//! Small runs to look at.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{RunView, StepView, run};
use crate::{
    engine::{
        Actor, AttemptEnd, AttemptId, Cost, Decision, Input, Opening, Record, Report, RunState, Start,
        StepAt, Stimulus, decide,
    },
    expr::aip15,
    ids::{BranchId, RunId, SignalName, StepId, WorkflowId},
    ir::*,
    plan::{Plan, check},
    time::{Millis, Time},
};

pub fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub fn work(name: &str) -> Step {
    let worker = Worker::Tool { tool: "t".into(), pinned: None };
    Step::new(id(name), Kind::Work(Box::new(Work::new(worker))))
}

pub fn after(name: &str, dependencies: &[&str]) -> Step {
    Step { after: dependencies.iter().map(|name| id(name)).collect(), ..work(name) }
}

pub fn undoable(name: &str) -> Step {
    let worker = Worker::Tool { tool: "undo".into(), pinned: None };
    let undo = Undo {
        id: id(&format!("un-{name}")),
        work: Work::new(worker),
        inputs: Vec::new(),
        timeout: None,
        retry: Retry::default(),
    };
    Step { undo: Some(Box::new(undo)), ..work(name) }
}

pub fn gate(name: &str) -> Step {
    let gate = Gate {
        message: aip15::value(&json!("Go on?")).unwrap(),
        shows: Vec::new(),
        approvers: vec![Approver::Role("lead".into()), Approver::User("ann".into())],
        quorum: 1,
        timeout: Some(Millis::seconds(60)),
        on_timeout: GateTimeout::Expire,
        on_approve: None,
        on_reject: None,
    };
    Step::new(id(name), Kind::Gate(Box::new(gate)))
}

pub fn wait(name: &str, signals: &[&str]) -> Step {
    let on = signals.iter().map(|name| SignalName::new(name).unwrap()).collect();
    Step::new(id(name), Kind::Wait(Box::new(Wait { on, timeout: None, on_timeout: WaitTimeout::Expire })))
}

pub fn route(steps: Vec<Step>) -> Scope {
    Scope::new(Shape::Routed { start: None, cycles: false }, steps)
}

pub fn parallel(name: &str, lanes: Vec<(&str, Vec<Step>)>) -> Step {
    let lane = |(name, steps)| Lane { id: BranchId::new(name).unwrap(), scope: Arc::new(route(steps)) };
    Step::new(id(name), Kind::Parallel(Box::new(Parallel { lanes: lanes.into_iter().map(lane).collect() })))
}

pub fn graph(steps: Vec<Step>) -> Scope {
    Scope::new(Shape::Graph, steps)
}

/// A run that is told things, each at its second.
pub struct Trial {
    pub plan: Plan,
    pub state: RunState,
    pub records: Vec<Record>,
    pub now: Time,
    pub grant: u32,
}

impl Trial {
    pub fn new(scope: Scope) -> Trial {
        Trial::calling(scope, &BTreeMap::new())
    }

    pub fn calling(scope: Scope, library: &BTreeMap<String, Arc<Workflow>>) -> Trial {
        let workflow = Workflow::new(WorkflowId::new("main").unwrap(), scope);
        let checked = check(Arc::new(workflow), library);
        let definition = checked.definition.unwrap_or_else(|| panic!("{:#?}", checked.problems));
        let plan = definition.bind(Value::Null).unwrap();
        Trial { plan, state: RunState::new(), records: Vec::new(), now: Time(0), grant: 100 }
    }

    pub fn say(mut self, input: Input) -> Trial {
        let mut events = Vec::new();
        let stimulus = Stimulus { at: self.now, grant: self.grant, input };
        decide(&self.plan, &mut self.state, &stimulus, &mut events).unwrap();
        self.records.extend(events.into_iter().map(|event| Record { at: self.now, event }));
        self.now = self.now.after(Millis::seconds(1));
        self
    }

    pub fn start(self) -> Trial {
        let run = RunId::new("r1").unwrap();
        let start = Start::new(run);
        self.say(Input::Start(Box::new(start)))
    }

    pub fn at(&self, path: &str) -> StepAt {
        self.step(path).at
    }

    fn attempt(&self, path: &str) -> AttemptId {
        let at = self.at(path);
        let mut found = self.state.in_flight().iter().filter(|attempt| attempt.at == at);
        *found.next().unwrap_or_else(|| panic!("nothing of {path} is in flight"))
    }

    pub fn end(self, path: &str, end: AttemptEnd) -> Trial {
        let attempt = self.attempt(path);
        self.say(Input::Finished { attempt, report: Report::new(end, Cost::default()) })
    }

    pub fn ok(self, path: &str) -> Trial {
        self.end(path, AttemptEnd::Succeeded { output: Arc::new(json!({"by": path})) })
    }

    pub fn fail(self, path: &str) -> Trial {
        let class = ErrorClass::Transient;
        self.end(path, AttemptEnd::Failed { class, code: None, message: "boom".into(), retry_at: None })
    }

    pub fn decide(self, opening: u32, decision: Decision) -> Trial {
        let by = Actor { name: "ann".into(), roles: Vec::new() };
        self.say(Input::Decide { opening: Opening(opening), decision, by, reason: Some("no time".into()) })
    }

    pub fn cancel(self) -> Trial {
        self.say(Input::Cancel { by: "ann".into(), reason: None })
    }

    pub fn wake_at(mut self, seconds: i64) -> Trial {
        self.now = Time(seconds * 1_000);
        self.say(Input::Wake)
    }

    pub fn view(&self) -> RunView {
        run(&self.plan, &self.state)
    }

    pub fn step(&self, path: &str) -> StepView {
        let mut steps = self.view().steps.into_iter();
        steps.find(|step| step.path == path).unwrap_or_else(|| panic!("there is no {path}"))
    }

    /// The reason and the sentence of a step.
    pub fn why(&self, path: &str) -> String {
        let why = self.step(path).why.unwrap_or_else(|| panic!("{path} has no why"));
        let reason = serde_json::to_value(why.reason).unwrap();
        format!("{}: {}", reason.as_str().unwrap(), why.text)
    }
}
