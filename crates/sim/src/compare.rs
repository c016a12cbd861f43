//! Whether a run did what the recursive reference says it must.
//!
//! Owns the comparison of an [`Expected`] with a run's events. Refuses to know the engine's state and the world.

use std::collections::BTreeMap;

use serde_json::Value;
use skein_core::{
    engine::{Event, InstanceIx, Outcome, Role, StepAt},
    ir::{ErrorClass, Kind, RunStatus, StepStatus},
    plan::Plan,
};

use crate::{
    paths::Paths,
    reference::{Expected, ExpectedStep, matches},
};

/// What the events say of a step, the last instance of its path counting.
#[derive(Debug, Default)]
struct Seen {
    status: Option<StepStatus>,
    output: Value,
    attempts: u32,
    work: bool,
}

/// What the events of a run add up to.
#[derive(Debug)]
struct Told {
    paths: Paths,
    steps: BTreeMap<String, (InstanceIx, Seen)>,
    undone: Vec<String>,
    status: Option<(RunStatus, Value, bool)>,
}

/// Says where a run differs from what it must be. Only for runs without faults.
pub fn agrees<'e>(
    plan: &Plan,
    expected: &Expected,
    events: impl IntoIterator<Item = &'e Event>,
) -> Result<(), String> {
    let mut told = Told {
        paths: Paths::new(plan.definition.clone()),
        steps: BTreeMap::new(),
        undone: Vec::new(),
        status: None,
    };
    for event in events {
        told.note(plan, event);
        told.paths.observe(event);
    }
    told.compare(expected)
}

impl Told {
    fn seen(&mut self, plan: &Plan, at: StepAt) -> &mut Seen {
        let step = plan.definition.scope(self.paths.scope(at.0)).step(at.1);
        let path = self.paths.name(at.0).step(step.id.as_str());
        let work = matches!(step.kind, Kind::Work(_));
        let entry = self.steps.entry(path).or_insert_with(|| (at.0, Seen::default()));
        // A later try of a composite has the same path, and counts in its place.
        if entry.0 < at.0 {
            *entry = (at.0, Seen::default());
        }
        entry.1.work = work;
        &mut entry.1
    }

    fn note(&mut self, plan: &Plan, event: &Event) {
        match event {
            Event::AttemptStarted { attempt, .. } if attempt.role == Role::Main => {
                self.seen(plan, attempt.at).attempts += 1;
            }
            Event::StepEnded { at, outcome, output, effect, .. } => {
                let failed =
                    !matches!(outcome, Outcome::Succeeded | Outcome::Skipped(_) | Outcome::Cancelled);
                let seen = self.seen(plan, *at);
                let own = failed && effect.as_skipped;
                seen.status = Some(if own { StepStatus::Skipped } else { shown(*outcome) });
                seen.output = (**output).clone();
            }
            Event::StepUndone { at, .. } => {
                let seen = self.seen(plan, *at);
                if seen.status == Some(StepStatus::Succeeded) {
                    seen.status = Some(StepStatus::Undone);
                }
                let step = plan.definition.scope(self.paths.scope(at.0)).step(at.1);
                self.undone.push(self.paths.name(at.0).step(step.id.as_str()));
            }
            Event::RunDecided { status, output, degraded, .. } => {
                self.status = Some((*status, (**output).clone(), *degraded));
            }
            _ => {}
        }
    }

    fn compare(&self, expected: &Expected) -> Result<(), String> {
        for (path, step) in &expected.steps {
            self.compare_step(path, step)?;
        }
        if let Some(path) = self.steps.keys().find(|path| !expected.steps.contains_key(*path)) {
            return Err(format!("{path} should not be there"));
        }
        if self.undone != expected.undone {
            return Err(format!("undone: {:?}, expected {:?}", self.undone, expected.undone));
        }
        match &self.status {
            None if expected.status == RunStatus::Waiting => Ok(()),
            None => Err(format!("not decided, expected {}", expected.status)),
            Some((status, ..)) if *status != expected.status => {
                Err(format!("the run: {status}, expected {}", expected.status))
            }
            Some((RunStatus::Succeeded, output, degraded)) => {
                if !matches(&expected.output, output) {
                    return Err(format!("the run gives {output}, expected {}", expected.output));
                }
                if *degraded != expected.degraded {
                    return Err(format!("degraded: {degraded}"));
                }
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    fn compare_step(&self, path: &str, expected: &ExpectedStep) -> Result<(), String> {
        let nothing = Seen::default();
        let seen = self.steps.get(path).map_or(&nothing, |(_, seen)| seen);
        let open = matches!(expected.status, StepStatus::Pending | StepStatus::Waiting);
        match seen.status {
            None if open || expected.accepts(StepStatus::Skipped) => {}
            // A step that waits in a later visit has ended in an earlier one.
            Some(_) if expected.status == StepStatus::Waiting => {}
            Some(status) if expected.accepts(status) => {}
            status => return Err(format!("{path}: {status:?}, expected {}", expected.status)),
        }
        if seen.work && seen.attempts != expected.attempts {
            return Err(format!("{path}: {} attempts, expected {}", seen.attempts, expected.attempts));
        }
        if expected.status == StepStatus::Succeeded && !matches(&expected.output, &seen.output) {
            return Err(format!("{path}: gives {}, expected {}", seen.output, expected.output));
        }
        Ok(())
    }
}

fn shown(outcome: Outcome) -> StepStatus {
    match outcome {
        Outcome::Succeeded => StepStatus::Succeeded,
        Outcome::Incomplete => StepStatus::Incomplete,
        Outcome::Failed(ErrorClass::Timeout) => StepStatus::TimedOut,
        Outcome::Exhausted | Outcome::Failed(_) | Outcome::Rejected => StepStatus::Failed,
        Outcome::Skipped(_) => StepStatus::Skipped,
        Outcome::Cancelled => StepStatus::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skein_core::engine::Event;

    use super::*;
    use crate::{
        acceptor::Acceptor,
        faults::Faults,
        generate::Size,
        outcome::{Luck, Seeded},
        reference::evaluate,
        simulate,
        world::{self, Finished, Setup},
    };

    fn events(finished: &Finished) -> impl Iterator<Item = &Event> {
        finished.rows.iter().flat_map(|row| &row.records).map(|record| &record.event)
    }

    /// So that what is alike is counted together.
    fn gist(why: &str) -> String {
        let why = why.split(": {\"").next().unwrap_or(why);
        why.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect()
    }

    fn report(kind: &str, wrong: BTreeMap<String, (u32, u64, String)>) {
        let mut lines: Vec<_> = wrong.into_values().collect();
        lines.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
        for (count, seed, why) in lines.iter().take(25) {
            println!("{kind}: {count} times, such as seed {seed}: {why}");
        }
        assert!(lines.is_empty(), "{} kinds of disagreement", lines.len());
    }

    #[test]
    fn runs_without_races_are_what_the_reference_says() {
        let mut wrong = BTreeMap::new();
        for seed in 0..3_000 {
            let plan = simulate::plan(seed, Size::small());
            let luck = if seed % 3 == 0 { Luck::Rough } else { Luck::Usual };
            let Ok(expected) = evaluate(&plan, &Seeded { seed, luck }) else { continue };
            let setup = Setup { seed, plan: plan.clone(), luck, faults: Faults::none(), workers: 1_000 };
            let finished = world::run(setup);
            if let Err(why) = agrees(&plan, &expected, events(&finished)) {
                let entry = wrong.entry(gist(&why)).or_insert((0, seed, why));
                entry.0 += 1;
            }
        }
        report("reference", wrong);
    }

    /// Shows a disagreement: `SEED=7 cargo test -p skein-sim show -- --ignored --nocapture`.
    #[test]
    #[ignore = "a tool"]
    fn show() {
        let seed = std::env::var("SEED").unwrap().parse().unwrap();
        let plan = simulate::plan(seed, Size::small());
        let luck = if seed % 3 == 0 { Luck::Rough } else { Luck::Usual };
        let setup = Setup { seed, plan: plan.clone(), luck, faults: Faults::none(), workers: 1_000 };
        let finished = world::run(setup);
        events(&finished).for_each(|event| println!("{}", serde_json::to_string(event).unwrap()));
        println!("{}", serde_json::to_string(&*plan.definition.root().workflow).unwrap());
        println!("{:#?}", evaluate(&plan, &Seeded { seed, luck }));
    }

    #[test]
    fn every_history_is_accepted() {
        let mut wrong = BTreeMap::new();
        for seed in 0..3_000 {
            let plan = simulate::setup(seed).plan;
            let finished = simulate::run(seed);
            let mut acceptor = Acceptor::new(plan);
            let mut records = finished.rows.iter().flat_map(|row| &row.records);
            if let Err(why) = records.try_for_each(|record| acceptor.accept(record.at, &record.event)) {
                let entry = wrong.entry(gist(&why[why.find(": ").unwrap_or(0)..])).or_insert((0, seed, why));
                entry.0 += 1;
            }
        }
        report("acceptor", wrong);
    }
}
