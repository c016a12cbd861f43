//! Test helpers: concise builders of workflows and worlds.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, CheckFinding, Cost, Verdict},
    expr::{Expr, aip15},
    ids::{BranchId, SignalName, StepId, WorkflowId},
    ir::{
        Backoff, BackoffGrowth, CompletionCheck, EachErrorPolicy, EachSpec, ErrorClass, GateSpec, GateTimeout,
        LaneSpec, LoopSpec, LoopTest, ParallelSpec, RouteTarget, ScopeShape, Step, StepKindSpec, StepRetry, StepScope,
        UndoSpec, WaitSpec, WaitTimeout, WorkSpec, WorkerSpec, Workflow,
    },
    plan::{self, Plan},
    time::{Millis, Timestamp},
};

use crate::outcome::{AttemptIdentity, DelayedDecision, DelayedSignal, WaitpointIdentity, WorldOutcomes};

pub(crate) fn step_id(text: &str) -> StepId {
    StepId::new(text).unwrap()
}

pub(crate) fn parse_condition(text: &str) -> Expr {
    aip15::parse_condition(text).unwrap()
}

pub(crate) fn parse_value(value: Value) -> Expr {
    aip15::parse_value(&value).unwrap()
}

fn tool_worker() -> WorkerSpec {
    WorkerSpec::Tool { tool: "t".into(), pinned: None }
}

pub(crate) fn work_step(name: &str) -> Step {
    Step::new(step_id(name), StepKindSpec::Work(Box::new(WorkSpec::new(tool_worker()))))
}

/// A work step with a check and a maximum number of iterations.
pub(crate) fn checked_step(name: &str, iterations: u32) -> Step {
    let mut work = WorkSpec::new(tool_worker());
    work.check = Some(Box::new(CompletionCheck {
        worker: tool_worker(),
        timeout: None,
        max_iterations: iterations,
        incomplete_is_an_end: false,
        decision_file: None,
        convergence: None,
    }));
    Step::new(step_id(name), StepKindSpec::Work(Box::new(work)))
}

pub(crate) fn check_mut(step: &mut Step) -> &mut CompletionCheck {
    match &mut step.kind {
        StepKindSpec::Work(work) => work.check.as_mut().unwrap(),
        _ => panic!("not work"),
    }
}

pub(crate) fn gate_step(name: &str) -> Step {
    Step::new(
        step_id(name),
        StepKindSpec::Gate(Box::new(GateSpec {
            message: parse_value(json!("go on?")),
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

pub(crate) fn gate_mut(step: &mut Step) -> &mut GateSpec {
    match &mut step.kind {
        StepKindSpec::Gate(gate) => gate,
        _ => panic!("not a gate"),
    }
}

pub(crate) fn wait_step(name: &str) -> Step {
    let on = vec![SignalName::new("paid").unwrap()];
    Step::new(
        step_id(name),
        StepKindSpec::Wait(Box::new(WaitSpec { on, timeout: None, on_timeout: WaitTimeout::Expire })),
    )
}

pub(crate) fn parallel_step(name: &str, lanes: Vec<(&str, StepScope)>) -> Step {
    let lane = |(id, scope): (&str, StepScope)| LaneSpec { id: BranchId::new(id).unwrap(), scope: Arc::new(scope) };
    Step::new(
        step_id(name),
        StepKindSpec::Parallel(Box::new(ParallelSpec { lanes: lanes.into_iter().map(lane).collect() })),
    )
}

pub(crate) fn each_step(name: &str, over: Value, errors: EachErrorPolicy, scope: StepScope) -> Step {
    let over = parse_value(over);
    Step::new(
        step_id(name),
        StepKindSpec::Each(Box::new(EachSpec { over, parallelism: Some(1), errors, scope: Arc::new(scope) })),
    )
}

pub(crate) fn loop_step(name: &str, condition: &str, test: LoopTest, max: u32, scope: StepScope) -> Step {
    let condition = parse_condition(condition);
    Step::new(step_id(name), StepKindSpec::Loop(Box::new(LoopSpec { condition, test, max, scope: Arc::new(scope) })))
}

pub(crate) fn graph_scope(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Graph, steps)
}

pub(crate) fn routed_scope(steps: Vec<Step>) -> StepScope {
    StepScope::new(ScopeShape::Routed { start: None, cycles: false }, steps)
}

pub(crate) fn step_target(name: &str) -> RouteTarget {
    RouteTarget::Step(step_id(name))
}

fn tool_undo(name: &str) -> Option<Box<UndoSpec>> {
    Some(Box::new(UndoSpec {
        id: step_id(&format!("undo-{name}")),
        work: WorkSpec::new(tool_worker()),
        inputs: Vec::new(),
        timeout: None,
        retry: StepRetry::default(),
    }))
}

pub(crate) fn undoable_step(name: &str) -> Step {
    Step { undo: tool_undo(name), ..work_step(name) }
}

pub(crate) fn with_retry(mut step: Step, class: ErrorClass, attempts: u32) -> Step {
    let backoff = Backoff { initial: Millis(100), growth: BackoffGrowth::Constant, max: Millis(1_000), jitter: false };
    step.policy.retry = StepRetry::for_classes(&[class], attempts, backoff);
    step
}

pub(crate) fn with_dependencies(mut step: Step, on: &[&str]) -> Step {
    step.after = on.iter().map(|on| step_id(on)).collect();
    step
}

pub(crate) fn build_workflow(name: &str, scope: StepScope) -> Workflow {
    Workflow::new(WorkflowId::new(name).unwrap(), scope)
}

pub(crate) fn build_plan(scope: StepScope) -> Plan {
    bind_plan(build_workflow("w", scope), &[], json!({}))
}

pub(crate) fn bind_plan(root: Workflow, called: &[Workflow], parameters: Value) -> Plan {
    let library: BTreeMap<String, Arc<Workflow>> =
        called.iter().map(|called| (called.id.to_string(), Arc::new(called.clone()))).collect();
    let checked = plan::check_workflow(Arc::new(root), &library);
    let errors: Vec<_> = checked.problems.iter().filter(|problem| problem.is_error()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    checked.definition.unwrap().bind(parameters).unwrap()
}

pub(crate) fn succeeded_end(output: Value) -> AttemptEnd {
    AttemptEnd::Succeeded { output: Arc::new(output) }
}

pub(crate) fn failed_end(class: ErrorClass) -> AttemptEnd {
    AttemptEnd::Failed { class, code: None, message: "no".into(), retry_at: None }
}

pub(crate) fn checked_end(finding: CheckFinding, reasons: &[&str]) -> AttemptEnd {
    let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
    AttemptEnd::Checked { finding, reasons, fingerprints: Vec::new(), output: None }
}

type ScriptedEnds = Box<dyn Fn(&AttemptIdentity<'_>) -> Option<AttemptEnd>>;

/// A world in which every attempt succeeds, except those in its script.
pub(crate) struct ScriptedWorld {
    pub reports: ScriptedEnds,
    pub answers: Vec<Option<Verdict>>,
    pub signals: bool,
    pub cost: Cost,
}

impl ScriptedWorld {
    /// Attempts for which `ends` returns nothing succeed; main attempts succeed with `{"n": 1}`.
    pub(crate) fn new(ends: impl Fn(&AttemptIdentity<'_>) -> Option<AttemptEnd> + 'static) -> ScriptedWorld {
        ScriptedWorld { reports: Box::new(ends), answers: Vec::new(), signals: true, cost: Cost::default() }
    }

    /// The main attempts of these steps always fail.
    pub(crate) fn with_failures(steps: &'static [&'static str]) -> ScriptedWorld {
        ScriptedWorld::new(move |who| {
            (who.role == AttemptRole::Main && steps.contains(&who.step)).then(|| failed_end(ErrorClass::External))
        })
    }
}

impl WorldOutcomes for ScriptedWorld {
    fn attempt_report(&self, who: &AttemptIdentity<'_>, _: &Step) -> AttemptReport {
        let end = (self.reports)(who).unwrap_or_else(|| succeeded_end(json!({"n": 1})));
        AttemptReport::new(end, self.cost)
    }

    /// Answers the waitpoints of a visit from the list, and approves those beyond its end.
    fn waitpoint_decision(&self, asked: &WaitpointIdentity<'_>) -> Option<DelayedDecision> {
        let decision = self.answers.get(asked.nth as usize - 1).copied().unwrap_or(Some(Verdict::Approve));
        decision.map(|decision| DelayedDecision { decision, reason: None, after: Millis(1) })
    }

    fn wait_signal(&self, _: &WaitpointIdentity<'_>, wait: &WaitSpec) -> Option<DelayedSignal> {
        let name = wait.on.first()?.clone();
        self.signals.then(|| DelayedSignal { name, payload: json!({"n": 2}), after: Millis(1) })
    }
}

pub(crate) const START: Timestamp = Timestamp(1_000);
