//! Whether a run did what the recursive reference says it must.
//!
//! Owns the comparison of an [`Expected`] with a run's events. Refuses to know the engine's state and the world.

use std::collections::BTreeMap;

use serde_json::Value;
use skein_core::{
    engine::{Event, Outcome, Role, StepAt},
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
    steps: BTreeMap<String, Seen>,
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
        told.forget(event);
    }
    told.compare(expected)
}

impl Told {
    fn seen(&mut self, plan: &Plan, at: StepAt) -> &mut Seen {
        let step = plan.definition.scope(self.paths.scope(at.0)).step(at.1);
        let path = self.paths.name(at.0).step(step.id.as_str());
        let work = matches!(step.kind, Kind::Work(_));
        let seen = self.steps.entry(path).or_default();
        seen.work = work;
        seen
    }

    /// A new instance takes the place of an earlier one with the same path, with all that was in it.
    fn forget(&mut self, event: &Event) {
        if matches!(event, Event::InstanceStarted { .. }) {
            let inside = format!("{}/", self.paths.last().shown);
            self.steps.retain(|path, _| !path.starts_with(&inside));
        }
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
        let seen = self.steps.get(path).unwrap_or(&nothing);
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
mod tests;
