//! Forks of runs that are over: from some step, in a world of their own, and now and then a fork of that.
//!
//! Owns a second, naive choice of what a fork begins with. A fork in a world without faults draws the same outcomes for
//! what it does again as the run it comes from did, so the reference must agree with it too.

use std::collections::BTreeSet;

use skein_core::{
    engine::{Fork, ForkedFrom, Input, InstanceIx, NoFork, Outcome, Past, Phase, Reused, Start, StepAt},
    ids::RunId,
    ir::{Then, Verdict},
};

use crate::{
    compare,
    faults::Faults,
    outcome::Luck,
    rng::{Rng, mix},
    world::{self, Finished, Setup},
};

/// So many forks of forks at most.
const DEEPEST: u32 = 2;

/// The run, or the fork of it that broke a rule.
pub(crate) fn follow(seed: u64, luck: Luck, calm: bool, mut finished: Finished) -> Finished {
    let mut rng = Rng::new(seed).fork("fork");
    let mut from = None;
    for depth in 1..=DEEPEST {
        if finished.violation.is_some() || !rng.percent(30) {
            break;
        }
        let last = from.as_ref().unwrap_or(&finished);
        let forked = match fork(seed, luck, calm, depth, last, &mut rng) {
            Ok(Some(forked)) => forked,
            Ok(None) => {
                finished.coverage.sometimes("fork refused");
                break;
            }
            Err(violation) => {
                finished.violation = Some(violation);
                break;
            }
        };
        finished.coverage.add(&forked.coverage);
        if depth > 1 {
            finished.coverage.sometimes("fork of a fork");
        }
        finished.trace = mix(finished.trace ^ forked.trace);
        if forked.violation.is_some() {
            return Finished { coverage: finished.coverage, trace: finished.trace, ..forked };
        }
        from = Some(forked);
    }
    finished
}

/// A fork from some step, run to its end. None: there is none from that step.
fn fork(
    seed: u64,
    luck: Luck,
    calm: bool,
    depth: u32,
    finished: &Finished,
    rng: &mut Rng,
) -> Result<Option<Finished>, String> {
    let plan = finished.driver.plan();
    let mut past = Past::new(plan.clone());
    for row in &finished.rows {
        past.read(row).map_err(|error| format!("fork: the journal cannot be read: {error}"))?;
    }
    let entry = plan.definition.scope(plan.definition.root().root);
    let step = rng.below(entry.scope.steps.len() as u64);
    let step = u32::try_from(step).unwrap_or_default();
    let from = entry.step(step).id.to_string();
    let fork = match past.fork(&from) {
        Ok(fork) => fork,
        Err(NoFork::NotOver | NoFork::Never { .. }) => return Ok(None),
        Err(other) => return Err(format!("fork: {other}")),
    };
    right_choice(&past, step, &fork)?;
    let run = |name: String| RunId::new(name).expect("a number is a name");
    let forked_from = Some(ForkedFrom { run: run(format!("run-{seed}")), step: from });
    let (context, attempt) =
        past.state().start.as_ref().map(|start| (start.context.clone(), start.attempt)).unwrap_or_default();
    let start =
        Start { forked_from, attempt, context, ..Start::new(run(format!("run-{seed}-fork-{depth}"))) };
    let begins = Input::Fork { start: Box::new(start), reused: fork.reused };
    let faults = if calm { Faults::none() } else { Faults::chosen(mix(seed ^ u64::from(depth))) };
    let workers = if calm { 1_000 } else { *rng.pick(&[1, 2, 1_000]) };
    let mut forked =
        world::run(Setup { seed, plan: plan.clone(), luck, faults, workers, fork: Some(begins) });
    if calm && forked.violation.is_none() && !depends_on_time(&forked) {
        match compare::compare(seed, luck, &forked) {
            None => {}
            Some(Ok(())) => forked.coverage.sometimes("fork agreed"),
            Some(Err(violation)) => forked.violation = Some(format!("fork: {violation}")),
        }
    }
    Ok(Some(forked))
}

/// What is reused takes no time, so a fork is elsewhere than the reference when something stops the others, or leaves a slot
/// to them.
fn depends_on_time(forked: &Finished) -> bool {
    let slots = forked.driver.plan().definition.scopes.iter().any(|entry| entry.scope.concurrency.is_some());
    slots || forked.driver.state().instances.iter().any(|instance| instance.halt().is_some())
}

/// Whether a fork begins with what it should, step by step of the root.
fn right_choice(past: &Past, from: u32, fork: &Fork) -> Result<(), String> {
    let plan = past.plan();
    let entry = plan.definition.scope(plan.definition.root().root);
    let reused: BTreeSet<u32> = fork
        .reused
        .iter()
        .filter_map(|reused| match reused {
            Reused::Step(step) if step.at.0 == InstanceIx::ROOT => Some(step.at.1),
            _ => None,
        })
        .collect();
    if entry.is_routed() {
        return match reused.contains(&from) {
            true => Err("fork: the step itself is reused".to_owned()),
            false => Ok(()),
        };
    }
    let good = all_good(past, from);
    for step in (0..).zip(&entry.scope.steps).map(|(i, _)| i) {
        let right = good.contains(&step);
        if reused.contains(&step) != right {
            return Err(format!("fork: whether step {step} is reused should be {right}"));
        }
    }
    Ok(())
}

/// The steps of a graph that can be reused. A conflict can only be with who settled it.
fn all_good(past: &Past, from: u32) -> BTreeSet<u32> {
    let entry = past.plan().definition.scope(past.plan().definition.root().root);
    let mut good: BTreeSet<u32> = (0..entry.len()).filter(|step| is_good(past, from, *step)).collect();
    loop {
        let bad = good.iter().copied().find(|step| {
            let more = past.state().more(StepAt(InstanceIx::ROOT, *step));
            let settler = more.and_then(|more| more.settler);
            let after = entry.step(*step).after.iter().filter_map(|id| entry.by_id.get(id));
            !settler.iter().chain(after).all(|other| good.contains(other))
        });
        let Some(bad) = bad else { return good };
        good.remove(&bad);
    }
}

/// Whether a step of a graph and all that it comes after ended well enough to be reused, and none of them is the one.
fn is_good(past: &Past, from: u32, step: u32) -> bool {
    let state = past.state();
    let entry = past.plan().definition.scope(past.plan().definition.root().root);
    let now = state.step(StepAt(InstanceIx::ROOT, step));
    let stays =
        now.effect.is_some_and(|effect| effect.then == Then::GoOn && effect.verdict != Verdict::Failed);
    let over = now.phase == Phase::Done && now.outcome.is_some_and(|outcome| outcome != Outcome::Cancelled);
    let before = |id| entry.by_id.get(id).is_none_or(|before| is_good(past, from, *before));
    step != from
        && over
        && stays
        && !is_undone_inside(past, step)
        && entry.step(step).after.iter().all(before)
}

/// Whether something of the run's own was taken back inside of a step, in the last try at it.
fn is_undone_inside(past: &Past, step: u32) -> bool {
    let state = past.state();
    let mut inside: Vec<StepAt> = vec![StepAt(InstanceIx::ROOT, step)];
    while let Some(at) = inside.pop() {
        let own = state.instance(at.0).home == InstanceIx::ROOT;
        if own && matches!(state.step(at).phase, Phase::Undone | Phase::Stuck) {
            return true;
        }
        for child in state.more(at).map_or(&[][..], |more| &more.children) {
            inside.extend((0..).zip(&state.instance(*child).steps).map(|(i, _)| StepAt(*child, i)));
        }
    }
    false
}
