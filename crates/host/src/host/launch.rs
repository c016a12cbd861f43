//! Launch, resume and fork: the ways in which this process comes to own runs.
//!
//! A fork is a new run, of the same plan or of a reloaded one, that reuses results of a run that is over. Owns what it
//! needs from the old run in addition to its journal: copies of the artifacts that its steps may use. The core chooses
//! which results are reused.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptId, Driver, ForkOrigin, ForkRefusal, ForkSeed, ReusableResults, ReusedResult, RunInput, RunPhase,
        RunStart, StepOutcome, StepReused,
    },
    ids::RunId,
    ir::StepKindSpec,
    plan::{ContentHash, Plan},
};

use crate::{
    host::{
        ResumeError, RunLaunch, RunLoader,
        host_loop::HostLoop,
        load_run::{LoadedRun, replay_journal},
        owned_run::OwnedRun,
    },
    run_settings::{RunSettings, RunSettingsError},
    store::{NewRun, RunClaim, RunRow, Store, StoreError},
    workspace::{ArtifactError, RootFolder, RunDir, none_if_missing, root::FilePathError},
};

impl HostLoop {
    /// Creates and starts runs. A run is created with its start row, so that a crash in between starts nothing.
    pub(crate) fn launch_runs(&mut self, begin: Vec<RunLaunch>) -> Result<(), StoreError> {
        // Runs of one definition share its stored form.
        let mut frozen: BTreeMap<ContentHash, Arc<[u8]>> = BTreeMap::new();
        let (runs, new): (Vec<OwnedRun>, Vec<NewRun>) =
            begin.into_iter().map(|begin| self.prepare_launch(begin, &mut frozen)).unzip();
        let claims = self.store.create_runs(&new)?;
        for (mut owned, claim) in runs.into_iter().zip(claims) {
            owned.claim = claim;
            let key = self.insert_run(owned);
            self.queue_for_workers(key);
            self.finish_append(key);
        }
        Ok(())
    }

    fn prepare_launch(
        &mut self,
        begin: RunLaunch,
        frozen: &mut BTreeMap<ContentHash, Arc<[u8]>>,
    ) -> (OwnedRun, NewRun) {
        let RunLaunch { plan, start, settings, reused, settles } = begin;
        let (run, definition) = (start.run.clone(), Arc::clone(&plan.definition));
        let unborn = RunClaim { run: run.clone(), epoch: 0 };
        let mut owned = OwnedRun::new(unborn, Driver::new(plan), Arc::clone(&settings));
        let start = Box::new(start);
        let input = match start.forked_from {
            Some(_) => RunInput::Fork { start, reused },
            None => RunInput::Start(start),
        };
        owned.queue_input(input, None);
        // Workers are granted once the run is durable: until then it is queued.
        let append = owned.decide(self.clock.now(), 0);
        let head = append.as_ref().and_then(|append| append.head.clone());
        let write = || serde_json::to_vec(&definition.to_frozen()).expect("a definition serialises to JSON").into();
        let new = NewRun {
            run,
            definition: definition.hash(),
            frozen: frozen.entry(definition.hash()).or_insert_with(write).clone(),
            about: settings.to_json(),
            head: head.unwrap_or_else(|| owned.current_head()),
            open: append.as_ref().and_then(|append| append.open.clone()).unwrap_or_default(),
            audit: append.as_ref().map(|append| append.audit.clone()).unwrap_or_default(),
            first: append.map(|append| append.batch),
            settles,
        };
        (owned, new)
    }

    pub(crate) fn resume_runs(&mut self, runs: &[RunId]) -> Vec<Result<u64, ResumeError>> {
        let claims = match self.store.claim_runs(runs) {
            Ok(claims) => claims,
            Err(error) => return runs.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let had: Vec<RunId> = claims.iter().flatten().map(|claim| claim.run.clone()).collect();
        if !had.is_empty() {
            self.executor.reap_orphans(&had);
        }
        let store = Arc::clone(&self.store);
        let mut loader = RunLoader::new(&*store);
        let adopted = claims.into_iter().map(|claim| self.adopt_run(claim?, &mut loader)).collect();
        // Requests that arrived while no process owned the runs.
        self.read_requests();
        adopted
    }

    /// Takes over a claimed run and returns the number of its events.
    pub(crate) fn adopt_run(&mut self, claim: RunClaim, loader: &mut RunLoader<'_>) -> Result<u64, ResumeError> {
        match load_owned_run(&claim, loader) {
            Ok(mut owned) => {
                let events = owned.driver.state().events;
                owned.queue_input(RunInput::Recover, None);
                // Deadlines that passed while no process owned it are handled before new inputs.
                owned.queue_input(RunInput::Wake, None);
                self.insert_run(owned);
                Ok(events)
            }
            Err(ResumeError::Store(StoreError::Damaged(why))) => {
                self.store.quarantine(&claim.run, &why)?;
                Err(ResumeError::SetAside(why))
            }
            Err(error) => {
                self.store.release_runs(&[claim])?;
                Err(error)
            }
        }
    }
}

fn load_owned_run(claim: &RunClaim, loader: &mut RunLoader<'_>) -> Result<OwnedRun, ResumeError> {
    let run = &claim.run;
    let row = loader.find_row(run)?;
    let LoadedRun { projection, snapshot } = loader.load_run(&row)?;
    if projection.state().phase == RunPhase::New {
        return Err(StoreError::Damaged(format!("the journal of `{run}` is empty")).into());
    }
    let driver = Driver::from_projection(projection);
    let settings = loader.load_settings(row)?;
    let mut owned = OwnedRun::new(claim.clone(), driver, settings);
    owned.snapshot = snapshot;
    Ok(owned)
}

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
    replay_journal(store, &row.run, |batch| past.read_batch(batch))?;
    Ok(past)
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
        ReusedResult::Step(step) => Some((step.attempt?, &**step)),
        ReusedResult::Instance(_) => None,
    });
    let steps: BTreeMap<AttemptId, &StepReused> = steps.collect();
    let theirs = none_if_missing(RunDir::open(state, old))?;
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
