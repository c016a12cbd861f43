//! The simulation of one seed: draws the setup, runs it, and compares the result with the references.

use std::cell::RefCell;

use skein_core::plan::{Plan, check_workflow};

use crate::{
    compare,
    faults::{FaultInjector, InjectedFault},
    forks,
    generate::{self, WorkflowSize},
    outcome::LuckLevel,
    rng::Rng,
    scenario,
    violation::RuleViolation,
    world::{self, SimulatedRun, WorldSetup},
};

/// Draws the setup of a run from a seed.
pub fn draw_setup(seed: u64) -> WorldSetup {
    let mut rng = Rng::new(seed).fork("setup");
    let plan = shared_plan(seed / RUNS_PER_PLAN);
    let calm = rng.chance_percent(30);
    let luck = *rng.pick(&[LuckLevel::Calm, LuckLevel::Usual, LuckLevel::Usual, LuckLevel::Rough]);
    let mut faults = if calm { FaultInjector::without_faults() } else { FaultInjector::from_seed(seed) };
    if plan.definition.root().workflow.id.as_str() == scenario::NAME {
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
                return last.insert((number, scenario::build_plan())).1.clone();
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
        match compare::compare_with_reference(seed, luck, &finished) {
            None => finished.coverage.record_point("race"),
            Some(Ok(())) => finished.coverage.record_point("reference agreed"),
            Some(Err(violation)) => finished.violation = Some(violation),
        }
    }
    forks::simulate_forks(seed, luck, calm, finished)
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
