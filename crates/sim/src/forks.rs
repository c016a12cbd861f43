//! Forks of finished runs: from some step, in their own world, and sometimes a fork of a fork.
//!
//! Owns a second, naive selection of the steps that a fork reuses. In a world without faults, a fork draws the same
//! outcomes for the steps it repeats as the original run, so the reference must agree with it too.

use std::collections::BTreeSet;

use skein_core::{
    engine::{
        ForkOrigin, ForkRefusal, ForkSeed, InstanceIx, ReusableResults, ReusedResult, RunInput, RunStart, StepAt,
        StepOutcome, StepPhase,
    },
    ids::RunId,
    ir::{OutcomeAction, RunImpact},
};

use crate::{
    compare,
    faults::FaultInjector,
    outcome::LuckLevel,
    rng::{Rng, mix_bits},
    violation::RuleResult,
    world::{self, SimulatedRun, WorldSetup},
};

/// The maximum depth of forks of forks.
const DEEPEST: u32 = 2;

/// Simulates forks of a run. Returns the run, or the fork that broke a rule.
pub(crate) fn simulate_forks(seed: u64, luck: LuckLevel, calm: bool, mut finished: SimulatedRun) -> SimulatedRun {
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
        match compare::compare_with_reference(seed, luck, &forked) {
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
