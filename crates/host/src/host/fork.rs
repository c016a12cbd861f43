//! Fork: a new run, of the same plan or of a reloaded one, that reuses results of a run that is over.
//!
//! Owns what a fork needs from the old run in addition to its journal: copies of the artifacts that its steps may use.
//! The core chooses which results are reused.

use std::path::Path;

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptId, ForkOrigin, ForkRefusal, ForkSeed, ReusableResults, ReusedResult, RunStart, StepOutcome, StepReused,
    },
    ids::RunId,
    ir::StepKindSpec,
    plan::Plan,
};

use super::{RunLaunch, RunLoader};
use crate::{
    run_settings::{RunSettings, RunSettingsError},
    store::{RunRow, Store, StoreError},
    workspace::{ArtifactError, RootFolder, RunDir, root::FilePathError},
};

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    NoFork(#[from] ForkRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Settings(#[from] RunSettingsError),
    #[error("the artifacts of the reused steps cannot be copied: {0}")]
    Artifacts(#[from] ArtifactError),
    #[error("the artifacts of `{step}` no longer exist")]
    Gone { step: String },
}

impl From<FilePathError> for ForkError {
    fn from(error: FilePathError) -> ForkError {
        ForkError::Artifacts(error.into())
    }
}

/// Prepares a fork of a run from a step. Creates its folder with all that it reuses; the run itself does not exist yet.
pub fn prepare_fork(
    store: &dyn Store,
    state: &Path,
    row: &RunRow,
    from: &str,
    run: RunId,
) -> Result<(RunLaunch, ForkSeed), ForkError> {
    let past = load_reusable_results(store, row)?;
    let fork = past.fork_from_step(from)?;
    let begin = prepare_fork_launch(state, &past, row, past.plan().clone(), &fork, from, run)?;
    Ok((begin, fork))
}

/// A run that is over, to be forked with another plan than its own.
#[derive(Debug)]
pub struct ReloadFork<'a> {
    row: &'a RunRow,
    past: ReusableResults,
    plan: Plan,
    pub fork: ForkSeed,
}

impl<'a> ReloadFork<'a> {
    /// Compares the run with another plan and its run settings. A step named in `from` is run again.
    pub fn new(
        store: &dyn Store,
        row: &'a RunRow,
        plan: Plan,
        (before, now): (&RunSettings, &RunSettings),
        from: Option<&str>,
    ) -> Result<ReloadFork<'a>, ForkError> {
        let past = load_reusable_results(store, row)?;
        let fork = past.fork_with_plan(&plan, from, &|step| !before.has_same_step_settings(now, step))?;
        Ok(ReloadFork { row, past, plan, fork })
    }

    /// Prepares the launch of the fork. None: it would have nothing to run.
    pub fn prepare_launch(&self, state: &Path, run: RunId) -> Result<Option<RunLaunch>, ForkError> {
        let Some((first, _)) = self.fork.again.first() else { return Ok(None) };
        prepare_fork_launch(state, &self.past, self.row, self.plan.clone(), &self.fork, first, run).map(Some)
    }
}

/// The parameters that a run was started with.
pub fn read_run_parameters(store: &dyn Store, row: &RunRow) -> Result<Value, StoreError> {
    Ok((*RunLoader::new(store).load_plan(row)?.parameters).clone())
}

/// Prepares a run that starts with the reused results. All of their artifacts are in its folder.
fn prepare_fork_launch(
    state: &Path,
    past: &ReusableResults,
    row: &RunRow,
    plan: Plan,
    fork: &ForkSeed,
    from: &str,
    run: RunId,
) -> Result<RunLaunch, ForkError> {
    let state = RootFolder::open(state)?;
    if let Err(error) = copy_artifacts(&state, past, &row.run, &run, fork) {
        // A folder without a run is unused; a failure to remove it is not the error to report.
        let _ = RunDir::remove(&state, &run);
        return Err(error);
    }
    let context = past.state().start.as_ref().map(|start| start.context.clone()).unwrap_or_default();
    let forked_from = Some(ForkOrigin { run: row.run.clone(), step: from.to_owned() });
    let start = RunStart { context, forked_from, ..RunStart::new(run) };
    let begin = RunLaunch::new(plan, start, RunSettings::from_json(&row.about)?);
    Ok(RunLaunch { reused: fork.reused.clone(), ..begin })
}

fn load_reusable_results(store: &dyn Store, row: &RunRow) -> Result<ReusableResults, StoreError> {
    let mut past = ReusableResults::new(RunLoader::new(store).load_plan(row)?);
    let mut broken = None;
    store.read_journal(&row.run, 0, &mut |batch| {
        broken = past.read_batch(&batch).err();
        broken.is_none()
    })?;
    match broken {
        None => Ok(past),
        Some(error) => Err(StoreError::Damaged(format!("the journal of `{}` cannot be read: {error}", row.run))),
    }
}

/// Copies the artifacts of the reused steps.
fn copy_artifacts(
    state: &RootFolder,
    past: &ReusableResults,
    old: &RunId,
    new: &RunId,
    fork: &ForkSeed,
) -> Result<(), ForkError> {
    let steps = fork.reused.iter().filter_map(|reused| match reused {
        ReusedResult::Step(step) => step.attempt.map(|attempt| (attempt, step)),
        ReusedResult::Instance(_) => None,
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
        let adopted = theirs.as_ref().map(|theirs| ours.adopt_artifacts(theirs, *before, *now)).transpose()?;
        let must = steps.get(now).is_some_and(|step| has_artifacts(past, *before, step.outcome));
        if must && adopted != Some(true) {
            let instance = past.state().instance(before.at.0);
            let step = past.plan().definition.scope(instance.scope).step(before.at.1).id.to_string();
            return Err(ForkError::Gone { step });
        }
    }
    Ok(())
}

/// True if an attempt kept artifacts that other steps may use.
fn has_artifacts(past: &ReusableResults, attempt: AttemptId, outcome: StepOutcome) -> bool {
    let instance = past.state().instance(attempt.at.0);
    let step = past.plan().definition.scope(instance.scope).step(attempt.at.1);
    let ended = matches!(outcome, StepOutcome::Succeeded | StepOutcome::Incomplete | StepOutcome::Exhausted);
    ended && matches!(&step.kind, StepKindSpec::Work(work) if !work.gives.is_empty())
}
