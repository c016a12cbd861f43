//! For tests: workflows and worlds in few words.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptEnd, Cost, Decision, Finding, Report, Role},
    expr::{Expr, aip15},
    ids::{BranchId, SignalName, StepId, WorkflowId},
    ir::{
        Backoff, Check, Each, EachErrors, ErrorClass, Gate, GateTimeout, Growth, Kind, Lane, Loop, LoopTest,
        Parallel, Retry, Scope, Shape, Step, Target, Undo, Wait, WaitTimeout, Work, Worker, Workflow,
    },
    plan::{self, Plan},
    time::{Millis, Time},
};

use crate::outcome::{Answer, Asked, Outcomes, Sent, Who};

pub fn id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub fn cond(text: &str) -> Expr {
    aip15::condition(text).unwrap()
}

pub fn value(value: Value) -> Expr {
    aip15::value(&value).unwrap()
}

fn tool() -> Worker {
    Worker::Tool { tool: "t".into(), pinned: None }
}

pub fn work(name: &str) -> Step {
    Step::new(id(name), Kind::Work(Box::new(Work::new(tool()))))
}

/// Work with a check of so many iterations.
pub fn checked(name: &str, iterations: u32) -> Step {
    let mut work = Work::new(tool());
    work.check = Some(Box::new(Check {
        worker: tool(),
        timeout: None,
        max_iterations: iterations,
        incomplete_is_an_end: false,
        decision_file: None,
        convergence: None,
    }));
    Step::new(id(name), Kind::Work(Box::new(work)))
}

pub fn check_of(step: &mut Step) -> &mut Check {
    match &mut step.kind {
        Kind::Work(work) => work.check.as_mut().unwrap(),
        _ => panic!("not work"),
    }
}

pub fn gate(name: &str) -> Step {
    Step::new(
        id(name),
        Kind::Gate(Box::new(Gate {
            message: value(json!("go on?")),
            shows: Vec::new(),
            approvers: Vec::new(),
            quorum: 1,
            timeout: None,
            on_timeout: GateTimeout::Expire,
            on_approve: None,
            on_reject: None,
        })),
    )
}

pub fn gate_of(step: &mut Step) -> &mut Gate {
    match &mut step.kind {
        Kind::Gate(gate) => gate,
        _ => panic!("not a gate"),
    }
}

pub fn wait(name: &str) -> Step {
    let on = vec![SignalName::new("paid").unwrap()];
    Step::new(id(name), Kind::Wait(Box::new(Wait { on, timeout: None, on_timeout: WaitTimeout::Expire })))
}

pub fn parallel(name: &str, lanes: Vec<(&str, Scope)>) -> Step {
    let lane = |(id, scope): (&str, Scope)| Lane { id: BranchId::new(id).unwrap(), scope: Arc::new(scope) };
    Step::new(id(name), Kind::Parallel(Box::new(Parallel { lanes: lanes.into_iter().map(lane).collect() })))
}

pub fn each(name: &str, over: Value, errors: EachErrors, scope: Scope) -> Step {
    let over = value(over);
    Step::new(
        id(name),
        Kind::Each(Box::new(Each { over, parallelism: Some(1), errors, scope: Arc::new(scope) })),
    )
}

pub fn repeat(name: &str, condition: &str, test: LoopTest, max: u32, scope: Scope) -> Step {
    let condition = cond(condition);
    Step::new(id(name), Kind::Loop(Box::new(Loop { condition, test, max, scope: Arc::new(scope) })))
}

pub fn graph(steps: Vec<Step>) -> Scope {
    Scope::new(Shape::Graph, steps)
}

pub fn routed(steps: Vec<Step>) -> Scope {
    Scope::new(Shape::Routed { start: None, cycles: false }, steps)
}

pub fn to(name: &str) -> Target {
    Target::Step(id(name))
}

pub fn undo(name: &str) -> Option<Box<Undo>> {
    Some(Box::new(Undo {
        id: id(&format!("undo-{name}")),
        work: Work::new(tool()),
        inputs: Vec::new(),
        timeout: None,
        retry: Retry::default(),
    }))
}

pub fn undoable(name: &str) -> Step {
    Step { undo: undo(name), ..work(name) }
}

pub fn retried(mut step: Step, class: ErrorClass, attempts: u32) -> Step {
    let backoff =
        Backoff { initial: Millis(100), growth: Growth::Constant, max: Millis(1_000), jitter: false };
    step.policy.retry = Retry::of(&[class], attempts, backoff);
    step
}

pub fn after(mut step: Step, on: &[&str]) -> Step {
    step.after = on.iter().map(|on| id(on)).collect();
    step
}

pub fn workflow(name: &str, scope: Scope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub fn plan(scope: Scope) -> Plan {
    plan_of(workflow("w", scope), &[], json!({}))
}

pub fn plan_of(root: Workflow, called: &[Workflow], parameters: Value) -> Plan {
    let library: BTreeMap<String, Arc<Workflow>> =
        called.iter().map(|called| (called.id.to_string(), Arc::new(called.clone()))).collect();
    let checked = plan::check(Arc::new(root), &library);
    let errors: Vec<_> = checked.problems.iter().filter(|problem| problem.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    checked.definition.unwrap().bind(parameters).unwrap()
}

pub fn good(output: Value) -> AttemptEnd {
    AttemptEnd::Succeeded { output: Arc::new(output) }
}

pub fn bad(class: ErrorClass) -> AttemptEnd {
    AttemptEnd::Failed { class, code: None, message: "no".into(), retry_at: None }
}

pub fn finds(finding: Finding, reasons: &[&str]) -> AttemptEnd {
    let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
    AttemptEnd::Checked { finding, reasons, fingerprints: Vec::new(), output: None }
}

type Reports = Box<dyn Fn(&Who<'_>) -> Option<AttemptEnd>>;

/// A world in which all goes well but what it is told.
pub struct World {
    pub reports: Reports,
    pub answers: Vec<Option<Decision>>,
    pub signals: bool,
    pub cost: Cost,
}

impl World {
    /// What `ends` gives nothing for succeeds: main with `{"n": 1}`.
    pub fn new(ends: impl Fn(&Who<'_>) -> Option<AttemptEnd> + 'static) -> World {
        World { reports: Box::new(ends), answers: Vec::new(), signals: true, cost: Cost::default() }
    }

    /// The main attempts of these steps fail, always.
    pub fn failing(steps: &'static [&'static str]) -> World {
        World::new(move |who| {
            (who.role == Role::Main && steps.contains(&who.step)).then(|| bad(ErrorClass::External))
        })
    }
}

impl Outcomes for World {
    fn report(&self, who: &Who<'_>, _: &Step) -> Report {
        let end = (self.reports)(who).unwrap_or_else(|| good(json!({"n": 1})));
        Report::new(end, self.cost)
    }

    /// The openings of a visit are answered from the list; those beyond it are approved.
    fn answer(&self, asked: &Asked<'_>) -> Option<Answer> {
        let decision = self.answers.get(asked.nth as usize - 1).copied().unwrap_or(Some(Decision::Approve));
        decision.map(|decision| Answer { decision, reason: None, after: Millis(1) })
    }

    fn signal(&self, _: &Asked<'_>, wait: &Wait) -> Option<Sent> {
        let name = wait.on.first()?.clone();
        self.signals.then(|| Sent { name, payload: json!({"n": 2}), after: Millis(1) })
    }
}

pub const START: Time = Time(1_000);
