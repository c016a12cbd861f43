//! Fork: a new run, of the same plan or of one that was read again, that begins with results of one that is over.
//!
//! Owns what a fork needs of the old run beside its journal: copies of the artifacts that its steps may take. Which
//! results are reused is the core's to choose.

use std::path::Path;

use serde_json::Value;
use skein_core::{
    engine::{AttemptId, Fork, ForkedFrom, NoFork, Outcome, Past, Reused, Start, StepReused},
    ids::RunId,
    ir::Kind,
    plan::Plan,
};

use super::{Begin, Recall};
use crate::{
    crew::About,
    store::{RunRow, Store, StoreError},
    workspace::{ArtifactError, Root, RunDir, root::PathError},
};

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    NoFork(#[from] NoFork),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("what the steps gave cannot be copied: {0}")]
    Artifacts(#[from] ArtifactError),
    #[error("what `{step}` gave is not there any more")]
    Gone { step: String },
}

impl From<PathError> for ForkError {
    fn from(error: PathError) -> ForkError {
        ForkError::Artifacts(error.into())
    }
}

/// Makes ready a fork of a run from a step. Its folder has all that it takes over; the run itself is not there yet.
pub fn fork(
    store: &dyn Store,
    state: &Path,
    row: &RunRow,
    from: &str,
    run: RunId,
) -> Result<(Begin, Fork), ForkError> {
    let past = past(store, row)?;
    let fork = past.fork(from)?;
    let begin = begin(state, &past, row, past.plan().clone(), &fork, from, run)?;
    Ok((begin, fork))
}

/// A run that is over, to be forked with another plan than its own.
#[derive(Debug)]
pub struct ReloadFork<'a> {
    row: &'a RunRow,
    past: Past,
    plan: Plan,
    pub fork: Fork,
}

impl<'a> ReloadFork<'a> {
    /// Compares the run with another plan and with what is settled about that. A step that is named is done again.
    pub fn new(
        store: &dyn Store,
        row: &'a RunRow,
        plan: Plan,
        (before, now): (&About, &About),
        from: Option<&str>,
    ) -> Result<ReloadFork<'a>, ForkError> {
        let past = past(store, row)?;
        let fork = past.reload(&plan, from, &|step| !before.settles_alike(now, step))?;
        Ok(ReloadFork { row, past, plan, fork })
    }

    /// Makes the fork ready. None: it would do nothing.
    pub fn begin(&self, state: &Path, run: RunId) -> Result<Option<Begin>, ForkError> {
        let Some((first, _)) = self.fork.again.first() else { return Ok(None) };
        begin(state, &self.past, self.row, self.plan.clone(), &self.fork, first, run).map(Some)
    }
}

/// The parameters of a run, as it was given them.
pub fn parameters(store: &dyn Store, row: &RunRow) -> Result<Value, StoreError> {
    Ok((*Recall::new(store).plan(row)?.parameters).clone())
}

/// A run that begins with what a fork takes over. All of that is in its folder.
fn begin(
    state: &Path,
    past: &Past,
    row: &RunRow,
    plan: Plan,
    fork: &Fork,
    from: &str,
    run: RunId,
) -> Result<Begin, ForkError> {
    let state = Root::open(state)?;
    if let Err(error) = carry(&state, past, &row.run, &run, fork) {
        // A folder without a run is nobody's; if it cannot go either, that is not what went wrong.
        let _ = RunDir::remove(&state, &run);
        return Err(error);
    }
    let context = past.state().start.as_ref().map(|start| start.context.clone()).unwrap_or_default();
    let forked_from = Some(ForkedFrom { run: row.run.clone(), step: from.to_owned() });
    let start = Start { context, forked_from, ..Start::new(run) };
    let begin = Begin::new(plan, start, row.about.clone());
    Ok(Begin { reused: fork.reused.clone(), ..begin })
}

fn past(store: &dyn Store, row: &RunRow) -> Result<Past, StoreError> {
    let mut past = Past::new(Recall::new(store).plan(row)?);
    let mut broken = None;
    store.read(&row.run, 0, &mut |batch| {
        broken = past.read(&batch).err();
        broken.is_none()
    })?;
    match broken {
        None => Ok(past),
        Some(error) => {
            Err(StoreError::Damaged(format!("the journal of `{}` cannot be read: {error}", row.run)))
        }
    }
}

/// Copies what the steps that are reused gave.
fn carry(state: &Root, past: &Past, old: &RunId, new: &RunId, fork: &Fork) -> Result<(), ForkError> {
    let steps = fork.reused.iter().filter_map(|reused| match reused {
        Reused::Step(step) => step.attempt.map(|attempt| (attempt, step)),
        Reused::Instance(_) => None,
    });
    let steps: std::collections::BTreeMap<AttemptId, &StepReused> =
        steps.map(|(attempt, step)| (attempt, &**step)).collect();
    let theirs = match RunDir::open(state, old) {
        Ok(folder) => Some(folder),
        Err(error) if error.is_missing() => None,
        Err(error) => return Err(error.into()),
    };
    let ours = RunDir::create(state, new)?;
    for (before, now) in &fork.attempts {
        let adopted = theirs.as_ref().map(|theirs| ours.adopt(theirs, *before, *now)).transpose()?;
        let must = steps.get(now).is_some_and(|step| gives(past, *before, step.outcome));
        if must && adopted != Some(true) {
            let instance = past.state().instance(before.at.0);
            let step = past.plan().definition.scope(instance.scope).step(before.at.1).id.to_string();
            return Err(ForkError::Gone { step });
        }
    }
    Ok(())
}

/// Whether an attempt kept something that others may take.
fn gives(past: &Past, attempt: AttemptId, outcome: Outcome) -> bool {
    let instance = past.state().instance(attempt.at.0);
    let step = past.plan().definition.scope(instance.scope).step(attempt.at.1);
    let ended = matches!(outcome, Outcome::Succeeded | Outcome::Incomplete | Outcome::Exhausted);
    ended && matches!(&step.kind, Kind::Work(work) if !work.gives.is_empty())
}
