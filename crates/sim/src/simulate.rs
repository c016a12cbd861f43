//! The simulation of one seed: draws the setup, runs it, compares the result with the recursive reference, and forks
//! the finished run.
//!
//! A fork starts from some step, in a world of its own, and sometimes from another fork. A second, naive selection of
//! the steps that it reuses is compared with the engine's. In a world without faults, a fork draws the same outcomes
//! for the steps it repeats as the original run, so the reference must agree with it too.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use skein_core::{
    engine::{
        Event, ForkOrigin, ForkRefusal, ForkSeed, HaltReason, InstanceIx, ReusableResults, ReusedResult, RunInput,
        RunPhase, RunStart, StepAt, StepOutcome, StepPhase,
    },
    ids::RunId,
    ir::{OutcomeAction, RunImpact, RunStatus, StepKindName, StepStatus},
    plan::{Plan, check_workflow},
};

use crate::{
    faults::{FaultInjector, InjectedFault},
    generate::{self, WorkflowSize},
    outcome::{LuckLevel, RunPathIndex, SeededWorld},
    reference::{self, ExpectedRun},
    rng::{Rng, mix_bits},
    violation::{RuleResult, RuleViolation},
    world::{self, SimulatedRun, WorldSetup},
};

/// Draws the setup of a run from a seed.
pub fn draw_setup(seed: u64) -> WorldSetup {
    let mut rng = Rng::new(seed).fork("setup");
    let plan = shared_plan(seed / RUNS_PER_PLAN);
    let calm = rng.chance_percent(30);
    let luck = *rng.pick(&[LuckLevel::Calm, LuckLevel::Usual, LuckLevel::Usual, LuckLevel::Rough]);
    let mut faults = if calm { FaultInjector::without_faults() } else { FaultInjector::from_seed(seed) };
    if plan.definition.root().workflow.id.as_str() == generate::NAME {
        faults = FaultInjector::from_seed(seed)
            .with_chances(&[(InjectedFault::HoldByHost, 150), (InjectedFault::Nonsense, 150)]);
    }
    let workers = if calm { 1_000 } else { *rng.pick(&[1, 2, 3, 1_000]) };
    WorldSetup { seed, plan, luck, faults, workers, fork: None }
}

/// The number of runs, each in its own world, that share one plan: checking a workflow takes longer than running it.
const RUNS_PER_PLAN: u64 = 4;

/// Returns the plan with this number, and caches the last one.
fn shared_plan(number: u64) -> Plan {
    thread_local! { static LAST: RefCell<Option<(u64, Plan)>> = const { RefCell::new(None) } }
    LAST.with_borrow_mut(|last| match last {
        Some((known, plan)) if *known == number => plan.clone(),
        _ => {
            let mut rng = Rng::new(number).fork("size");
            if rng.chance_percent(1) {
                return last.insert((number, generate::build_plan())).1.clone();
            }
            let size = if rng.chance_percent(2) { WorkflowSize::large() } else { WorkflowSize::small() };
            last.insert((number, generate_plan(number, size))).1.clone()
        }
    })
}

pub fn generate_plan(seed: u64, size: WorkflowSize) -> Plan {
    let made = generate::generate_workflow(seed, size);
    let checked = check_workflow(made.workflow, &made.library);
    let definition = checked.definition.expect("generated workflows are valid");
    definition.bind(made.parameters).expect("generated parameters fit")
}

/// Simulates a seed, and compares the result with the reference if possible.
pub fn simulate_run(seed: u64) -> SimulatedRun {
    let setup = draw_setup(seed);
    let (luck, calm) = (setup.luck, setup.faults.is_faultless());
    let mut finished = world::simulate_world(setup);
    if calm && finished.violation.is_none() {
        match compare_with_reference(seed, luck, &finished) {
            None => finished.coverage.record_point("race"),
            Some(Ok(())) => finished.coverage.record_point("reference agreed"),
            Some(Err(violation)) => finished.violation = Some(violation),
        }
    }
    simulate_forks(seed, luck, calm, finished)
}

/// The faults that are injected at every possible point.
const SWEPT_FAULTS: [InjectedFault; 11] = [
    InjectedFault::Cancel,
    InjectedFault::FailedAttempt,
    InjectedFault::RepeatedUndo,
    InjectedFault::CrashBeforeAppend,
    InjectedFault::CrashAfterAppend,
    InjectedFault::CrashAfterAcknowledgement,
    InjectedFault::CrashBeforeSpawn,
    InjectedFault::CrashAfterSpawn,
    InjectedFault::CrashAfterExit,
    InjectedFault::CrashAfterReport,
    InjectedFault::DuplicateResult,
];

/// Runs one plan repeatedly with one fault, at its first chance, its second, and so on, until there is no further
/// chance.
pub fn sweep_faults(number: u64) -> FaultSweepTotals {
    let mut total = FaultSweepTotals::default();
    let plan = shared_plan(number);
    for fault in SWEPT_FAULTS {
        for n in 1.. {
            let (seed, luck) = (number, LuckLevel::Usual);
            let faults = FaultInjector::single_fault(fault, n);
            let finished = world::simulate_world(WorldSetup {
                seed,
                plan: plan.clone(),
                luck,
                faults,
                workers: 1_000,
                fork: None,
            });
            total.runs += 1;
            total.events += finished.events;
            if let Some(violation) = finished.violation {
                total
                    .violation
                    .get_or_insert(violation.found_by(format_args!("{fault:?} at its chance {n} with plan {number}")));
            }
            if !finished.coverage.faults.contains_key(&fault) {
                break;
            }
        }
    }
    total
}

/// The results of injecting faults at every possible point.
#[derive(Debug, Clone, Default)]
pub struct FaultSweepTotals {
    pub runs: u64,
    pub events: u64,
    pub violation: Option<RuleViolation>,
}

/// Compares a run without faults with the reference. Returns `None` if the result depends on timing.
pub fn compare_with_reference(seed: u64, luck: LuckLevel, finished: &SimulatedRun) -> Option<RuleResult> {
    let plan = finished.driver.plan();
    let expected = reference::evaluate_plan(plan, &SeededWorld { seed, luck }).ok()?;
    // In a run that waits forever, timing decides which steps have the slots.
    let slots = plan.definition.scopes.iter().any(|entry| entry.scope.concurrency.is_some());
    if slots && expected.status == RunStatus::Waiting {
        return None;
    }
    // Timing also decides how far the other steps were when a timeout or a limit stopped them all.
    let root = finished.driver.state().instances.first().and_then(|root| root.halt_reason());
    if matches!(root, Some(HaltReason::Cancelled { .. } | HaltReason::Limit { .. })) {
        return None;
    }
    Some(find_difference(&expected, finished).map_or(Ok(()), |how| Err(format!("I10: {how}").into())))
}

fn find_difference(expected: &ExpectedRun, finished: &SimulatedRun) -> Option<String> {
    let state = finished.driver.state();
    if state.status() != expected.status {
        return Some(format!("the run is {}, not {}", state.status(), expected.status));
    }
    if let Some(end) = &state.end {
        if end.degraded != expected.degraded {
            return Some(format!("degraded is {}", end.degraded));
        }
        if !reference::matches_expected(&expected.output, &end.output) {
            return Some(format!("the output is {}, not {}", end.output, expected.output));
        }
        if state.phase != RunPhase::Closed {
            return Some("it has ended but is not closed".to_owned());
        }
    }
    let (paths, mut undone) = read_history(finished);
    // Concurrent undo walks interleave in any order.
    let mut right = expected.undone.clone();
    if state.walks.len() > 1 {
        undone.sort();
        right.sort();
    }
    if undone != right {
        return Some(format!("undone were {undone:?}, not {right:?}"));
    }
    find_step_difference(expected, finished, &paths)
}

/// The paths of all instances, and the undone steps in order.
fn read_history(finished: &SimulatedRun) -> (RunPathIndex, Vec<String>) {
    let definition = &finished.driver.plan().definition;
    let mut paths = RunPathIndex::new(definition.clone());
    let mut undone = Vec::new();
    for record in finished.rows.iter().flat_map(|row| &row.records) {
        paths.observe(&record.event);
        if let Event::StepUndone { at, .. } = &record.event {
            undone.push(shown_step_path(&paths, definition, *at));
        }
    }
    (paths, undone)
}

fn shown_step_path(paths: &RunPathIndex, definition: &skein_core::plan::PlanDefinition, at: StepAt) -> String {
    paths.instance_paths(at.0).step_path(definition.scope(paths.instance_scope(at.0)).step(at.1).id.as_str())
}

fn find_step_difference(expected: &ExpectedRun, finished: &SimulatedRun, paths: &RunPathIndex) -> Option<String> {
    let state = finished.driver.state();
    let definition = &finished.driver.plan().definition;
    // Of several tries of a composite, the last one is shown.
    let mut shown: BTreeMap<String, StepAt> = BTreeMap::new();
    for (ix, instance) in (0..).map(InstanceIx).zip(&state.instances) {
        for i in (0..).zip(&instance.steps).map(|(i, _)| i) {
            shown.insert(shown_step_path(paths, definition, StepAt(ix, i)), StepAt(ix, i));
        }
    }
    if !shown.keys().eq(expected.steps.keys()) {
        let (ours, theirs): (Vec<_>, Vec<_>) = (shown.keys().collect(), expected.steps.keys().collect());
        return Some(format!("the steps are {ours:?}, not {theirs:?}"));
    }
    for (path, at) in &shown {
        let want = &expected.steps[path];
        let composite = definition.scope(state.instance(at.0).scope).step(at.1).kind.name() != StepKindName::Work;
        let status = state.step_status(*at);
        // A composite is shown as running while a step inside it waits.
        let inside = state.step(*at).phase == StepPhase::Inside && want.status == StepStatus::Waiting;
        // A step that had failed before it was cut short may be shown as failed or as cancelled.
        let cut = want.status == StepStatus::Cancelled && !state.instance(at.0).is_going();
        let cut = cut && matches!(status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Skipped);
        // Timing decides which of several failures came first, and therefore the class.
        let failed = |status| matches!(status, StepStatus::Failed | StepStatus::TimedOut);
        let class = composite && failed(want.status) && failed(status);
        // A step is not undone if only some of its visits, or of the tries around it, could be undone.
        let failed = state.walks.values().any(|walk| walk.failed > 0);
        let stuck = want.status == StepStatus::Undone && failed;
        if !(want.accepts_status(status) || inside || cut || class || stuck) {
            return Some(format!("`{path}` is {status}, not {}", want.status));
        }
        let step = state.step(*at);
        let over = step.outcome.is_some() && status != StepStatus::Cancelled;
        if over && !reference::matches_expected(&want.output, &step.output) {
            return Some(format!("`{path}` gave {}, not {}", step.output, want.output));
        }
        let attempts = step.more.as_ref().map_or(0, |more| more.total_attempts);
        // A composite that cannot begin or is cut short may or may not have counted a try.
        let fits = attempts == want.attempts || (composite && status != StepStatus::Succeeded);
        let never = status == StepStatus::Skipped && attempts == 0;
        if !fits || (step.visit != want.visits && !never) {
            let (a, v) = (want.attempts, want.visits);
            return Some(format!("`{path}` had {attempts} attempts and {} visits, not {a} and {v}", step.visit));
        }
    }
    None
}

/// The maximum depth of forks of forks.
const DEEPEST: u32 = 2;

/// Simulates forks of a run. Returns the run, or the fork that broke a rule.
fn simulate_forks(seed: u64, luck: LuckLevel, calm: bool, mut finished: SimulatedRun) -> SimulatedRun {
    let mut rng = Rng::new(seed).fork("fork");
    let mut from = None;
    for depth in 1..=DEEPEST {
        if finished.violation.is_some() || !rng.chance_percent(30) {
            break;
        }
        let last = from.as_ref().unwrap_or(&finished);
        let forked = match simulate_fork(seed, luck, calm, depth, last, &mut rng) {
            Ok(Some(forked)) => forked,
            Ok(None) => {
                finished.coverage.record_point("fork refused");
                break;
            }
            Err(violation) => {
                finished.violation = Some(violation);
                break;
            }
        };
        finished.coverage.merge(&forked.coverage);
        if depth > 1 {
            finished.coverage.record_point("fork of a fork");
        }
        finished.trace = mix_bits(finished.trace ^ forked.trace);
        if forked.violation.is_some() {
            return SimulatedRun { coverage: finished.coverage, trace: finished.trace, ..forked };
        }
        from = Some(forked);
    }
    finished
}

/// Forks a run from some step and runs the fork to its end. Returns `None` if no fork from that step is possible.
fn simulate_fork(
    seed: u64,
    luck: LuckLevel,
    calm: bool,
    depth: u32,
    finished: &SimulatedRun,
    rng: &mut Rng,
) -> RuleResult<Option<SimulatedRun>> {
    let plan = finished.driver.plan();
    let mut past = ReusableResults::new(plan.clone());
    for row in &finished.rows {
        past.read_batch(row).map_err(|error| format!("fork: the journal cannot be read: {error}"))?;
    }
    let entry = plan.definition.scope(plan.definition.root().root);
    let step = rng.next_below(entry.scope.steps.len() as u64);
    let step = u32::try_from(step).unwrap_or_default();
    let from = entry.step(step).id.to_string();
    let fork = match past.fork_from_step(&from) {
        Ok(fork) => fork,
        Err(ForkRefusal::NotOver | ForkRefusal::Never { .. }) => return Ok(None),
        Err(other) => return Err(format!("fork: {other}").into()),
    };
    check_reused_steps(&past, step, &fork)?;
    let run = |name: String| RunId::new(name).expect("a number is a name");
    let forked_from = Some(ForkOrigin { run: run(format!("run-{seed}")), step: from });
    let (context, attempt) =
        past.state().start.as_ref().map(|start| (start.context.clone(), start.attempt)).unwrap_or_default();
    let start = RunStart { forked_from, attempt, context, ..RunStart::new(run(format!("run-{seed}-fork-{depth}"))) };
    let begins = RunInput::Fork { start: Box::new(start), reused: fork.reused };
    let faults = if calm {
        FaultInjector::without_faults()
    } else {
        FaultInjector::from_seed(mix_bits(seed ^ u64::from(depth)))
    };
    let workers = if calm { 1_000 } else { *rng.pick(&[1, 2, 1_000]) };
    let mut forked =
        world::simulate_world(WorldSetup { seed, plan: plan.clone(), luck, faults, workers, fork: Some(begins) });
    if calm && forked.violation.is_none() && !depends_on_time(&forked) {
        match compare_with_reference(seed, luck, &forked) {
            None => {}
            Some(Ok(())) => forked.coverage.record_point("fork agreed"),
            Some(Err(violation)) => forked.violation = Some(violation.found_by("fork")),
        }
    }
    Ok(Some(forked))
}

/// True if timing may separate a fork from the reference. Reused steps take no time, so a fork may be at another point
/// when a halt stops the other steps or when a slot becomes free.
fn depends_on_time(forked: &SimulatedRun) -> bool {
    let slots = forked.driver.plan().definition.scopes.iter().any(|entry| entry.scope.concurrency.is_some());
    slots || forked.driver.state().instances.iter().any(|instance| instance.halt_reason().is_some())
}

/// Checks for each step of the root that a fork reuses it if and only if it should.
fn check_reused_steps(past: &ReusableResults, from: u32, fork: &ForkSeed) -> RuleResult {
    let plan = past.plan();
    let entry = plan.definition.scope(plan.definition.root().root);
    let reused: BTreeSet<u32> = fork
        .reused
        .iter()
        .filter_map(|reused| match reused {
            ReusedResult::Step(step) if step.at.0 == InstanceIx::ROOT => Some(step.at.1),
            _ => None,
        })
        .collect();
    if entry.is_routed() {
        return match reused.contains(&from) {
            true => Err("fork: the step itself is reused".into()),
            false => Ok(()),
        };
    }
    let good = find_reusable_steps(past, from);
    for step in (0..).zip(&entry.scope.steps).map(|(i, _)| i) {
        let right = good.contains(&step);
        if reused.contains(&step) != right {
            return Err(format!("fork: reuse of step {step} should be {right}").into());
        }
    }
    Ok(())
}

/// The steps of a graph that can be reused. A step with a conflict can be reused only together with its resolver.
fn find_reusable_steps(past: &ReusableResults, from: u32) -> BTreeSet<u32> {
    let entry = past.plan().definition.scope(past.plan().definition.root().root);
    let mut good: BTreeSet<u32> = (0..entry.len()).filter(|step| is_reusable_step(past, from, *step)).collect();
    loop {
        let bad = good.iter().copied().find(|step| {
            let more = past.state().visit_state(StepAt(InstanceIx::ROOT, *step));
            let settler = more.and_then(|more| more.settler);
            let after = entry.step(*step).after.iter().filter_map(|id| entry.by_id.get(id));
            !settler.iter().chain(after).all(|other| good.contains(other))
        });
        let Some(bad) = bad else { return good };
        good.remove(&bad);
    }
}

/// True if a step of a graph and all its predecessors ended well enough to be reused, and none of them is the step from
/// which the run is forked.
fn is_reusable_step(past: &ReusableResults, from: u32, step: u32) -> bool {
    let state = past.state();
    let entry = past.plan().definition.scope(past.plan().definition.root().root);
    let now = state.step(StepAt(InstanceIx::ROOT, step));
    let stays =
        now.effect.is_some_and(|effect| effect.then == OutcomeAction::GoOn && effect.verdict != RunImpact::Failed);
    let over = now.phase == StepPhase::Done && now.outcome.is_some_and(|outcome| outcome != StepOutcome::Cancelled);
    let before = |id| entry.by_id.get(id).is_none_or(|before| is_reusable_step(past, from, *before));
    step != from && over && stays && !is_undone_inside(past, step) && entry.step(step).after.iter().all(before)
}

/// True if a step of the run's own workflow was undone inside this step, in its last try.
fn is_undone_inside(past: &ReusableResults, step: u32) -> bool {
    let state = past.state();
    let mut inside: Vec<StepAt> = vec![StepAt(InstanceIx::ROOT, step)];
    while let Some(at) = inside.pop() {
        let own = state.instance(at.0).home == InstanceIx::ROOT;
        if own && matches!(state.step(at).phase, StepPhase::Undone | StepPhase::Stuck) {
            return true;
        }
        for child in state.visit_state(at).map_or(&[][..], |more| &more.children) {
            inside.extend((0..).zip(&state.instance(*child).steps).map(|(i, _)| StepAt(*child, i)));
        }
    }
    false
}
