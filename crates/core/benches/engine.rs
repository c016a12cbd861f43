//! Benchmark of the engine: the cost of one event, and its growth with the size of the plan.
//!
//! Executes whole runs through `decide` and `wanted`; every attempt succeeds at once. The best of several rounds
//! counts, since other load on the machine only makes a round slower. Prints PASS or FAIL for each goal, and fails if
//! one is missed.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark needs a clock")]

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptReport, Cost, Driver, Event, InputToken, RunInput, RunPhase, RunStart, RunState, TimedInput,
        decide, wanted,
    },
    ids::{RunId, StepId, WorkflowId},
    ir::{ScopeShape, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow},
    plan::{Plan, check_workflow},
    time::Timestamp,
};

/// Maximum cost of an event in a plan of 10,000 steps, as a multiple of the cost in a plan of 100 steps.
const FLAT: f64 = 2.0;
const EVENTS_PER_SECOND: f64 = 500_000.0;
const SIZES: [usize; 3] = [100, 1_000, 10_000];
const ROUNDS: usize = 7;
/// Each round repeats small plans until it has processed about as many events as the largest plan has.
const EVENTS_PER_ROUND: u64 = 50_000;

type Shaped = fn(usize) -> Vec<Step>;

fn main() -> ExitCode {
    let mut passed = true;
    for (name, steps) in [("chain", chain as Shaped), ("fan-out", fan_out)] {
        let plans: Vec<Plan> = SIZES.iter().map(|size| plan(steps(*size))).collect();
        let costs = costs(&plans);
        for (size, cost) in SIZES.iter().zip(&costs) {
            println!("{name:<8} {size:>6} steps {cost:>8.0} ns/event {:>12.0} events/s", 1e9 / cost);
        }
        let ratio = costs[2] / costs[0];
        passed &= says(ratio <= FLAT, &format!("{name}: 10,000 steps cost {ratio:.2}x of 100 steps, goal {FLAT}"));
        if name == "fan-out" {
            let rate = 1e9 / costs[1];
            let goal = format!("{name} of 1,000: {rate:.0} events/s, goal {EVENTS_PER_SECOND}");
            passed &= says(rate >= EVENTS_PER_SECOND, &goal);
        }
    }
    let plan = plan(fan_out(1_000));
    let (taken, events, rows) = (0..ROUNDS).map(|_| driven(&plan)).min().unwrap_or_default();
    let cost = taken.as_nanos() as f64 / events as f64;
    println!("driver     1000 steps {cost:>8.0} ns/event {:>12.0} events/s, {rows} rows hashed", 1e9 / cost);
    says(passed, "all goals");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn says(passed: bool, what: &str) -> bool {
    println!("{} {what}", if passed { "PASS" } else { "FAIL" });
    passed
}

/// Returns the nanoseconds per event of each plan. The plans take turns, so that a busy machine slows all of them
/// alike.
fn costs(plans: &[Plan]) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; plans.len()];
    for _ in 0..ROUNDS {
        for (plan, best) in plans.iter().zip(&mut best) {
            let (mut taken, mut events) = (Duration::ZERO, 0);
            while events < EVENTS_PER_ROUND {
                let (more, seen) = whole_run(plan);
                taken += more;
                events += seen;
            }
            *best = best.min(taken.as_nanos() as f64 / events as f64);
        }
    }
    best
}

/// Times a run from start to end. Creating and dropping the state does not count.
fn whole_run(plan: &Plan) -> (Duration, u64) {
    let mut state = RunState::new();
    let mut events: Vec<Event> = Vec::new();
    let output = Arc::new(json!({"n": 1}));
    let begin = Instant::now();
    let mut input = start();
    loop {
        events.clear();
        let stimulus = TimedInput { at: Timestamp(0), grant: u32::MAX, input };
        decide(plan, &mut state, &stimulus, &mut events).expect("nothing here is refused");
        let Some(attempt) = wanted(&state).runs.keys().next().copied() else { break };
        input = RunInput::Finished { attempt, report: success(&output) };
    }
    let taken = begin.elapsed();
    assert_eq!(state.phase, RunPhase::Closed, "every run comes to its end");
    (taken, state.events)
}

/// Times the same run through the driver, which also builds the rows and their hashes.
fn driven(plan: &Plan) -> (Duration, u64, usize) {
    let mut driver = Driver::new(plan.clone());
    let output = Arc::new(json!({"n": 1}));
    let begin = Instant::now();
    let (mut input, mut rows) = (start(), 0);
    loop {
        driver.push_input(InputToken(0), TimedInput { at: Timestamp(0), grant: u32::MAX, input });
        rows += usize::from(driver.poll_append().is_some());
        driver.confirm_append();
        while driver.poll_action().is_some() || driver.poll_answer().is_some() {}
        let Some(attempt) = wanted(driver.state()).runs.keys().next().copied() else { break };
        input = RunInput::Finished { attempt, report: success(&output) };
    }
    (begin.elapsed(), driver.state().events, rows)
}

fn start() -> RunInput {
    let run = RunId::new("bench").expect("a name");
    RunInput::Start(Box::new(RunStart::new(run)))
}

fn success(output: &Arc<Value>) -> AttemptReport {
    AttemptReport::new(AttemptEnd::Succeeded { output: output.clone() }, Cost::default())
}

fn plan(steps: Vec<Step>) -> Plan {
    let id = WorkflowId::new("bench").expect("a name");
    let workflow = Workflow::new(id, StepScope::new(ScopeShape::Graph, steps));
    let checked = check_workflow(Arc::new(workflow), &());
    checked.definition.expect("the workflow is valid").bind(Value::Null).expect("it has no parameters")
}

fn name(i: usize) -> StepId {
    StepId::new(format!("step-{i}")).expect("a name")
}

fn step(i: usize, after: impl IntoIterator<Item = usize>) -> Step {
    let worker = WorkerSpec::Command { program: "true".into(), arguments: Vec::new() };
    let after = after.into_iter().map(name).collect();
    Step { after, ..Step::new(name(i), StepKindSpec::Work(Box::new(WorkSpec::new(worker)))) }
}

/// A chain in which each step waits for the one before it.
fn chain(n: usize) -> Vec<Step> {
    (0..n).map(|i| step(i, i.checked_sub(1))).collect()
}

/// One step, then many steps in parallel, then one step that waits for all of them.
fn fan_out(n: usize) -> Vec<Step> {
    let last = n - 1;
    let middle = (1..last).map(|i| step(i, [0]));
    std::iter::once(step(0, [])).chain(middle).chain([step(last, 1..last)]).collect()
}
