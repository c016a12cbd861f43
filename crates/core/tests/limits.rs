//! The limits of a run: one below, at, and one above.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{Event, Refusal, RunInput, RunStart, RunState, StepOutcome, TimedInput, code, decide},
    expr::Expr,
    ids::{RunId, SignalName, StepId, WorkflowId},
    ir::{
        EachErrorPolicy, EachSpec, ErrorClass, RunStatus, ScopeShape, Step, StepKindSpec, StepScope, WaitSpec,
        WaitTimeout, WorkSpec, WorkerSpec, Workflow,
    },
    limits,
    plan::{Plan, check_workflow},
    time::Timestamp,
};

fn plan(steps: Vec<Step>, parameters: Value) -> Plan {
    let scope = StepScope::new(ScopeShape::Graph, steps);
    let workflow = Workflow::new(WorkflowId::new("w").unwrap(), scope);
    check_workflow(Arc::new(workflow), &()).definition.unwrap().bind(parameters).unwrap()
}

fn work(id: &str) -> Step {
    let work = WorkSpec::new(WorkerSpec::Tool { tool: "t".into(), pinned: None });
    Step::new(StepId::new(id).unwrap(), StepKindSpec::Work(Box::new(work)))
}

fn tell(plan: &Plan, state: &mut RunState, input: RunInput) -> Result<Vec<Event>, Refusal> {
    let mut events = Vec::new();
    decide(plan, state, &TimedInput { at: Timestamp(0), grant: 1, input }, &mut events).map(|()| events)
}

fn start() -> RunInput {
    let run = RunId::new("r").unwrap();
    RunInput::Start(Box::new(RunStart::new(run)))
}

fn first_end(events: &[Event]) -> Option<(StepOutcome, Option<String>)> {
    events.iter().find_map(|event| match event {
        Event::StepEnded { outcome, error, .. } => Some((*outcome, error.as_ref()?.code.clone())),
        _ => None,
    })
}

#[test]
fn an_each_has_so_many_items_and_no_more() {
    let inner = StepScope::new(ScopeShape::Graph, vec![work("x")]);
    let over = Expr::input(["list"]);
    let each = EachSpec { over, parallelism: Some(1), errors: EachErrorPolicy::FailFast, scope: Arc::new(inner) };
    let step = Step::new(StepId::new("each").unwrap(), StepKindSpec::Each(Box::new(each)));
    for (count, fits) in [(limits::ITEMS - 1, true), (limits::ITEMS, true), (limits::ITEMS + 1, false)] {
        let plan = plan(vec![step.clone()], json!({"list": vec![0; count]}));
        let events = tell(&plan, &mut RunState::new(), start()).unwrap();
        let too_many = (StepOutcome::Failed(ErrorClass::Validation), Some(code::TOO_MANY_ITEMS.to_owned()));
        assert_eq!(first_end(&events), (!fits).then_some(too_many), "{count}");
    }
}

#[test]
fn so_many_signals_are_kept_and_no_more() {
    let name = SignalName::new("go").unwrap();
    let wait = StepKindSpec::Wait(Box::new(WaitSpec {
        on: vec![name.clone()],
        timeout: None,
        on_timeout: WaitTimeout::Expire,
    }));
    let mut waits = Step::new(StepId::new("waits").unwrap(), wait);
    waits.after = vec![StepId::new("first").unwrap()];
    let plan = plan(vec![work("first"), waits], json!({}));
    let mut state = RunState::new();
    tell(&plan, &mut state, start()).unwrap();
    for n in 1..=limits::KEPT_SIGNALS + 1 {
        let input = RunInput::Signal { name: name.clone(), payload: Arc::new(json!(n)), to: None };
        let told = tell(&plan, &mut state, input);
        if n <= limits::KEPT_SIGNALS {
            assert!(told.is_ok(), "{n}");
        } else {
            assert_eq!(told, Err(Refusal::TooManySignals));
        }
    }
}

#[test]
fn so_many_tries_to_tamper_are_noted_and_no_more() {
    let plan = plan(vec![work("a")], json!({}));
    let mut state = RunState::new();
    tell(&plan, &mut state, start()).unwrap();
    for n in 1..=limits::TAMPERS + 1 {
        let input = RunInput::Tampered { by: "a worker".into(), what: "approve".into() };
        let told = tell(&plan, &mut state, input).unwrap();
        assert_eq!(told.len(), usize::from(n <= limits::TAMPERS), "{n}");
    }
}

#[test]
fn a_run_that_is_too_long_ends_with_a_code() {
    for (events, goes_on) in [(limits::EVENTS - 1, true), (limits::EVENTS, false), (limits::EVENTS + 1, false)] {
        let plan = plan(vec![work("a")], json!({}));
        let mut state = RunState::new();
        tell(&plan, &mut state, start()).unwrap();
        // As if the run had that many events.
        state.events = events;
        let told = tell(&plan, &mut state, RunInput::Wake).unwrap();
        assert_eq!(told.is_empty(), goes_on, "{events}: {told:?}");
        if !goes_on {
            let stop = RunInput::Recover;
            tell(&plan, &mut state, stop).unwrap();
            assert_eq!(state.status(), RunStatus::Failed);
            let code = state.end.and_then(|end| end.error?.code);
            assert_eq!(code.as_deref(), Some(code::TOO_MANY_EVENTS));
        }
    }
}

#[test]
fn an_output_that_is_too_large_is_not_taken() {
    for (size, fits) in [(limits::VALUE_BYTES - 2, true), (limits::VALUE_BYTES - 1, false)] {
        let plan = plan(vec![work("a")], json!({}));
        let mut state = RunState::new();
        tell(&plan, &mut state, start()).unwrap();
        let attempt = *state.in_flight().first().unwrap();
        let end = skein_core::engine::AttemptEnd::Succeeded { output: Arc::new(json!("x".repeat(size))) };
        let report = skein_core::engine::AttemptReport::new(end, Default::default());
        let events = tell(&plan, &mut state, RunInput::Finished { attempt, report }).unwrap();
        let too_large = (StepOutcome::Failed(ErrorClass::Validation), Some(code::OUTPUT_INVALID.to_owned()));
        assert_eq!(first_end(&events), (!fits).then_some(too_large), "{size}");
    }
}
