//! Forking: a new run from a step of an ended run, or with the present workflow, that reuses results.
//!
//! Owns reading the workflow and the configuration again. The core decides which results are reused.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use skein_core::{
    engine::{ForkRefusal, ForkSeed},
    ids::RunId,
    plan::{Plan, PlanField, PlanProblem, ProblemCode},
    suggest::did_you_mean,
};
use skein_dialects::Project;
use skein_host::{
    clock::Clock,
    host::{ForkError, ReloadFork, RunLaunch, new_run_id, prepare_fork, read_run_parameters},
    identity::current_user,
    run_settings::RunSettings,
    store::{DeadLetterId, DeadLetterSelection, DeadLetterSettlement, RunRow, SettlementKind, Store, StoreError},
    workspace::{ROOT_PARAMETER, RootFolder, RunDir, has_files, with_root_parameter},
};

use crate::{
    app::App,
    app_error::AppError,
    prepare::{RunRequest, prepare_run, run_folders, run_inputs},
    runs::{
        follow::RunFrontEnd,
        send_input,
        session::read_max_workers,
        start::{RunAttachment, RunOutcome, launch_run, refuse_unprepared},
    },
    state::{StateHandle, refuse_shortened},
    workflows::{self, LoadedWorkflow, load_workflow},
};

/// Maximum number of steps that are named.
pub const NAMED: usize = 10;

/// A fork of an ended run.
#[derive(Debug)]
pub struct ForkRequest {
    /// The run id, or a unique prefix of it.
    pub run: String,
    /// The first step to run again, with all steps after it. Required unless the workflow is reloaded.
    pub from: Option<String>,
    /// Use the present workflow and configuration, and reuse the results of unchanged steps.
    pub reload: Option<ForkReloadRequest>,
    pub attachment: RunAttachment,
}

/// The changes of a fork with the present workflow.
#[derive(Debug, Default)]
pub struct ForkReloadRequest {
    /// The workflow, if it is not the one of the run.
    pub workflow: Option<String>,
    /// Parameters with other values than in the run, as `name=value`.
    pub parameters: Vec<String>,
}

/// The steps that a fork reuses and runs again.
#[derive(Debug)]
pub struct ForkPreview {
    pub forked_from: RunId,
    pub from: Option<String>,
    pub seed: ForkSeed,
    pub workspace: PathBuf,
    /// The source and the plan of a fork with the present workflow.
    pub reloaded: Option<(String, Plan)>,
}

impl ForkPreview {
    /// Returns the reused steps and those that run, as JSON.
    pub fn to_json(&self) -> Value {
        let ForkSeed { steps, again, removed, .. } = &self.seed;
        let runs: Vec<Value> = again.iter().map(|(step, why)| json!({"step": step, "because": why})).collect();
        let workflow = self.reloaded.as_ref().map(|(_, plan)| {
            let root = &plan.definition.root().workflow;
            json!({"id": root.id, "version": root.version, "hash": plan.hash})
        });
        json!({
            "forked_from": self.forked_from,
            "workflow": workflow,
            "reused": steps,
            "runs": runs,
            "removed": removed,
            "workspace": self.workspace,
        })
    }
}

/// Compares a run with the present workflow, without starting anything.
pub fn preview_fork(app: &App, request: &ForkRequest) -> Result<ForkPreview, AppError> {
    let (state, row) = app.open_run(&request.run)?;
    Ok(load_reload(app, &state, &row, request)?.preview(&row, request))
}

/// Forks a run.
pub fn fork_run(app: &App, request: &ForkRequest, front_end: &dyn RunFrontEnd) -> Result<RunOutcome, AppError> {
    let (state, row) = app.open_run(&request.run)?;
    match (&request.from, &request.reload) {
        (Some(from), None) => fork_from_step(app, &state, &row, from, request.attachment, front_end),
        _ => fork_reloaded(app, &state, &row, request, front_end),
    }
}

/// Forks a run with the present workflow and configuration.
fn fork_reloaded(
    app: &App,
    state: &StateHandle,
    row: &RunRow,
    request: &ForkRequest,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    let reload = load_reload(app, state, row, request)?;
    let run = new_run_id();
    let launch = reload.fork.prepare_launch(&state.path, run.clone());
    let Some(launch) = launch.map_err(|error| refuse_fork(row, error))? else {
        return Err(refuse_unchanged(row));
    };
    let settles = collect_settlements(state, row, &reload.fork.fork, &run)?;
    let plan = run_folders::bind_files_root(&launch.plan, state, &run);
    let launch = RunLaunch { settles, settings: Arc::new(reload.settings.clone()), plan, ..launch };
    let settings = reload.settings.clone();
    front_end.describe_fork(&reload.preview(row, request));
    launch_fork(app, state, launch, &settings, request.attachment, front_end)
}

/// Forks a run from a step.
pub(crate) fn fork_from_step(
    app: &App,
    state: &StateHandle,
    row: &RunRow,
    from: &str,
    attachment: RunAttachment,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    // Decisions at gates are taken over, which only a person may do.
    send_input::require_person(state, &row.run, "fork the run")?;
    check_forkable(row)?;
    let mut settings = send_input::read_run_settings(row)?;
    settings.user = current_user();
    // The recording belongs to the original run.
    settings.record = None;
    let run = new_run_id();
    let (launch, seed) =
        prepare_fork(&*state.store, &state.path, row, from, run.clone()).map_err(|error| refuse_fork(row, error))?;
    let settles = collect_settlements(state, row, &seed, &run)?;
    let plan = run_folders::bind_files_root(&launch.plan, state, &run);
    let launch = RunLaunch { settles, settings: Arc::new(settings.clone()), plan, ..launch };
    front_end.describe_fork(&ForkPreview {
        forked_from: row.run.clone(),
        from: Some(from.to_owned()),
        seed,
        workspace: settings.workspace.clone(),
        reloaded: None,
    });
    launch_fork(app, state, launch, &settings, attachment, front_end)
}

/// Launches a fork. The folder of one that was not started is removed.
fn launch_fork(
    app: &App,
    state: &StateHandle,
    launch: RunLaunch,
    settings: &RunSettings,
    attachment: RunAttachment,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    let run = launch.start.run.clone();
    let workers = read_max_workers(&settings.project);
    let outcome = launch_run(app, state, launch, settings, workers, attachment, front_end);
    if let (true, Ok(None), Ok(root)) = (outcome.is_err(), state.store.find_run(&run), RootFolder::open(&state.path)) {
        // A folder that cannot be removed does no harm.
        let _ = RunDir::remove(&root, &run);
    }
    outcome
}

/// A run, compared with the present workflow.
struct ForkReload<'a> {
    settings: RunSettings,
    plan: Plan,
    fork: ReloadFork<'a>,
}

impl ForkReload<'_> {
    fn preview(self, row: &RunRow, request: &ForkRequest) -> ForkPreview {
        ForkPreview {
            forked_from: row.run.clone(),
            from: request.from.clone(),
            seed: self.fork.fork,
            workspace: self.settings.workspace,
            reloaded: Some((self.settings.source, self.plan)),
        }
    }
}

/// Reads the workflow and the configuration of a run again, and compares.
fn load_reload<'a>(
    app: &App,
    state: &StateHandle,
    row: &'a RunRow,
    request: &ForkRequest,
) -> Result<ForkReload<'a>, AppError> {
    send_input::require_person(state, &row.run, "fork the run")?;
    check_forkable(row)?;
    let unchanged = ForkReloadRequest::default();
    let reload = request.reload.as_ref().unwrap_or(&unchanged);
    let before = send_input::read_run_settings(row)?;
    let source = find_source(&before, reload);
    let loaded = load_workflow(app, &source)?;
    let plan = bind_reloaded(state, row, &loaded, reload)?;
    let allowed = find_allowed_roots(&before);
    let run_request = RunRequest {
        source: &source,
        workspace: Some(&before.workspace),
        allowed: &allowed,
        state: &state.path,
        overridden: &loaded.report.overridden,
        user: current_user(),
        replay: None,
    };
    let settings =
        prepare_run(&plan, &loaded.project, run_request).map_err(|error| refuse_unprepared(&error, state))?;
    let fork = ReloadFork::new(&*state.store, row, plan.clone(), (&before, &settings), request.from.as_deref());
    Ok(ForkReload { settings, plan, fork: fork.map_err(|error| refuse_fork(row, error))? })
}

/// Returns the file that was named, or else the one of the run, independent of the current folder.
fn find_source(before: &RunSettings, reload: &ForkReloadRequest) -> String {
    let own = before.project.join(&before.source);
    match &reload.workflow {
        Some(file) => file.clone(),
        None if own.exists() => own.display().to_string(),
        None => before.source.clone(),
    }
}

/// Returns the folders that were allowed on the command line when the run was started.
fn find_allowed_roots(before: &RunSettings) -> Vec<PathBuf> {
    let named = before.overrides.iter().filter(|entry| entry.name == "allow-root");
    let paths = named.filter_map(|entry| entry.used.as_array()).flatten();
    paths.filter_map(Value::as_str).map(PathBuf::from).collect()
}

/// Binds the parameters of the run to the workflow. Parameters that it no longer declares are left out.
fn bind_reloaded(
    state: &StateHandle,
    row: &RunRow,
    loaded: &LoadedWorkflow,
    reload: &ForkReloadRequest,
) -> Result<Plan, AppError> {
    let Some(definition) = &loaded.report.definition else {
        return Err(AppError::invalid_source(loaded.report.diagnostics.clone()));
    };
    let schema = &definition.root().workflow.inputs;
    let changed = run_inputs::read_parameters(&reload.parameters, None, schema)?;
    let mut given = read_run_parameters(&*state.store, row)?;
    if has_files(&definition.root().workflow) && given.get(ROOT_PARAMETER).is_none() {
        given = (*with_root_parameter(&given, &state.run_folder(&row.run))).clone();
    }
    if let Err(problems) = definition.bind(given.clone())
        && let Some(given) = given.as_object_mut()
    {
        problems.iter().filter_map(unknown_parameter).for_each(|name| drop(given.remove(&name)));
    }
    if let (Some(given), Value::Object(changed)) = (given.as_object_mut(), changed) {
        given.extend(changed);
    }
    let (principal, now) = (loaded.project.current_principal(), loaded.project.now());
    definition
        .bind_for(given.clone(), &principal, now)
        .map_err(|problems| workflows::refuse_parameters(&problems, &given, schema))
}

/// Returns the parameter that a workflow does not declare.
fn unknown_parameter(problem: &PlanProblem) -> Option<String> {
    let field = problem.at.field.strip_prefix(PlanField::Parameters)?;
    (problem.code == ProblemCode::UnknownParameter).then(|| field.to_string())
}

fn refuse_unchanged(row: &RunRow) -> AppError {
    let run = &row.run;
    let message = format!("nothing to do: no step changed since run `{run}`, and all of its results are still valid");
    let hint = format!("`skein fork {run} --reload --from STEP` runs a step again");
    AppError::refused(message).with_hint(hint)
}

/// Returns the dead letters of a run that its fork settles: those of steps that are run again.
fn collect_settlements(
    state: &StateHandle,
    row: &RunRow,
    fork: &ForkSeed,
    by: &RunId,
) -> Result<Vec<(DeadLetterId, DeadLetterSettlement)>, StoreError> {
    let letters = state.store.list_dead_letters(&DeadLetterSelection::InRun(row.run.clone()))?;
    let open = letters
        .iter()
        .filter(|dead| dead.settled.is_none() && !fork.steps.iter().any(|step| step == outermost_step(&dead.row.step)));
    Ok(open.map(|dead| (dead.id(), settle_now(SettlementKind::Rerun(by.clone())))).collect())
}

/// Returns a settlement by the current user, now.
pub(crate) fn settle_now(how: SettlementKind) -> DeadLetterSettlement {
    DeadLetterSettlement { how, by: Some(current_user()), at: Some(Clock::new().now()) }
}

/// Refuses a run that has not ended: two runs would work in one workspace.
fn check_forkable(row: &RunRow) -> Result<(), AppError> {
    let run = &row.run;
    refuse_shortened(row)?;
    if let Some(why) = &row.quarantined {
        let message = format!("run `{run}` was set aside: {why}");
        return Err(AppError::refused(message).with_hint(format!("`skein events {run}` shows what happened")));
    }
    if !row.head.closed {
        return Err(refuse_not_over(row));
    }
    Ok(())
}

fn refuse_not_over(row: &RunRow) -> AppError {
    let run = &row.run;
    let message = format!("run `{run}` has not ended, and a fork would work in the same workspace");
    let hint = format!("`skein resume {run}` finishes it, `skein cancel {run}` cancels it");
    AppError::refused(message).with_hint(hint)
}

fn refuse_fork(row: &RunRow, error: ForkError) -> AppError {
    let run = &row.run;
    let error = match error {
        ForkError::Store(error) => return error.into(),
        ForkError::Settings(error) => return AppError::store(error.to_string()),
        other => other,
    };
    let (message, hint) = match &error {
        ForkError::NoFork(ForkRefusal::NotOver) => return refuse_not_over(row),
        ForkError::NoFork(ForkRefusal::Unknown { step, known }) => {
            let hint = did_you_mean(step, known.iter().map(String::as_str));
            let steps = format!("it can be forked from {}", list_steps(known));
            (format!("run `{run}` has no step `{step}`"), Some(hint.unwrap_or(steps)))
        }
        ForkError::NoFork(inside @ ForkRefusal::Inside { outer, .. }) => {
            (inside.to_string(), Some(format!("`skein fork {run} --from {outer}` runs all of `{outer}` again")))
        }
        ForkError::NoFork(ForkRefusal::Never { step }) => {
            let message = format!("run `{run}` never reached `{step}`, so there are no results before it");
            (message, Some(format!("`skein runs {run}` shows its steps")))
        }
        ForkError::Store(_) | ForkError::Settings(_) | ForkError::Artifacts(_) | ForkError::Gone { .. } => (
            error.to_string(),
            Some(format!("fork from an earlier step, or see `{}`", RunDir::run_path(Path::new("runs"), run).display())),
        ),
    };
    AppError::refused(message).with_optional_hint(hint)
}

/// Names the first steps of a list.
pub fn list_steps(steps: &[String]) -> String {
    let more = if steps.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", steps.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "))
}

/// Returns the step of the workflow's own scope that contains a step.
pub fn outermost_step(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or(path);
    if first == path { path } else { first.split(['[', '#']).next().unwrap_or(first) }
}
