//! One seed, one run: what is drawn, how it is run, and what it is compared with.

use std::cell::RefCell;

use skein_core::plan::{Plan, check};

use crate::{
    compare,
    faults::{Fault, Faults},
    forks,
    generate::{self, Size},
    outcome::Luck,
    rng::Rng,
    scenario,
    world::{self, Finished, Setup},
};

/// How a run is made from a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed).fork("setup");
    let plan = shared_plan(seed / RUNS_PER_PLAN);
    let calm = rng.percent(30);
    let luck = *rng.pick(&[Luck::Calm, Luck::Usual, Luck::Usual, Luck::Rough]);
    let mut faults = if calm { Faults::none() } else { Faults::chosen(seed) };
    if plan.definition.root().workflow.id.as_str() == scenario::NAME {
        faults = Faults::chosen(seed).with(&[(Fault::HoldByHost, 150), (Fault::Nonsense, 150)]);
    }
    let workers = if calm { 1_000 } else { *rng.pick(&[1, 2, 3, 1_000]) };
    Setup { seed, plan, luck, faults, workers, fork: None }
}

/// How many runs, each in a world of its own, are made of one plan: checking a workflow takes longer than running it.
const RUNS_PER_PLAN: u64 = 4;

/// The plan of this number; the last one is kept.
fn shared_plan(number: u64) -> Plan {
    thread_local! { static LAST: RefCell<Option<(u64, Plan)>> = const { RefCell::new(None) } }
    LAST.with_borrow_mut(|last| match last {
        Some((known, plan)) if *known == number => plan.clone(),
        _ => {
            let mut rng = Rng::new(number).fork("size");
            if rng.percent(1) {
                return last.insert((number, scenario::plan())).1.clone();
            }
            let size = if rng.percent(2) { Size::large() } else { Size::small() };
            last.insert((number, plan(number, size))).1.clone()
        }
    })
}

pub fn plan(seed: u64, size: Size) -> Plan {
    let made = generate::workflow(seed, size);
    let checked = check(made.workflow, &made.library);
    let definition = checked.definition.expect("generated workflows are valid");
    definition.bind(made.parameters).expect("generated parameters fit")
}

/// Runs a seed, and compares it where that is possible.
pub fn run(seed: u64) -> Finished {
    let setup = setup(seed);
    let (luck, calm) = (setup.luck, setup.faults.is_none());
    let mut finished = world::run(setup);
    if calm && finished.violation.is_none() {
        match compare::compare(seed, luck, &finished) {
            None => finished.coverage.sometimes("race"),
            Some(Ok(())) => finished.coverage.sometimes("reference agreed"),
            Some(Err(violation)) => finished.violation = Some(violation),
        }
    }
    forks::follow(seed, luck, calm, finished)
}

/// Faults that are tried at every place where they can strike.
const EVERYWHERE: [Fault; 11] = [
    Fault::Cancel,
    Fault::FailedAttempt,
    Fault::RepeatedUndo,
    Fault::CrashBeforeAppend,
    Fault::CrashAfterAppend,
    Fault::CrashAfterAcknowledgement,
    Fault::CrashBeforeSpawn,
    Fault::CrashAfterSpawn,
    Fault::CrashAfterExit,
    Fault::CrashAfterReport,
    Fault::DuplicateResult,
];

/// Runs one plan again and again with one fault, at its first chance, at its second, and so on until it has none.
pub fn everywhere(number: u64) -> Everywhere {
    let mut total = Everywhere::default();
    let plan = shared_plan(number);
    for fault in EVERYWHERE {
        for n in 1.. {
            let (seed, luck) = (number, Luck::Usual);
            let faults = Faults::nth(fault, n);
            let finished =
                world::run(Setup { seed, plan: plan.clone(), luck, faults, workers: 1_000, fork: None });
            total.runs += 1;
            total.events += finished.events;
            if let Some(violation) = finished.violation {
                total
                    .violation
                    .get_or_insert(format!("{fault:?} at its chance {n} with plan {number}: {violation}"));
            }
            if !finished.coverage.faults.contains_key(&fault) {
                break;
            }
        }
    }
    total
}

/// What came of trying one fault everywhere.
#[derive(Debug, Clone, Default)]
pub struct Everywhere {
    pub runs: u64,
    pub events: u64,
    pub violation: Option<String>,
}
