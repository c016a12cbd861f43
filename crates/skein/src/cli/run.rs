//! `skein run`: runs a workflow durably, and shows its progress.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde_json::Value;
use skein_app::{
    app_error::{AppError, AppErrorKind},
    bindings,
    context::{self, ContextHoldError},
    missing_env,
    prepare_run::{self, RunPreparationError, RunRequest},
    project::DiskProject,
    run_files,
    state::{StateHandle, refuse_store_error},
};
use skein_core::{
    engine::RunStart,
    limits,
    plan::{Plan, Severity},
};
use skein_dialects::{Diagnostic, render};
use skein_host::{
    clock::Clock,
    executor::RunSettings,
    host::{RunLaunch, new_run_id},
    identity::current_user,
    store::Store,
};

use super::{
    detach,
    load::LoadedWorkflow,
    plan,
    resume::{ResumeOptions, SessionRun, follow_to_end, take_over_run},
};
use crate::{
    exit::Exit,
    host_session::{self, HostSession},
    inbox, orphans,
    output::CliOutput,
    recording,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct RunArguments {
    #[command(flatten)]
    what: plan::PlanArguments,
    /// Folder to work in; default: the project.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Folder outside the project in which steps may work.
    #[arg(long = "allow-root", value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// Context folder of this run, relative to the workspace; default: the one that the workflow names.
    #[arg(long, value_name = "DIR")]
    context: Option<PathBuf>,
    /// Record the work of the workers in this folder, for a replay.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Replay the recording in this folder, without starting anything.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "detach"])]
    replay: Option<PathBuf>,
    #[command(flatten)]
    how: AttachOptions,
}

/// Options for following a started run.
#[derive(Debug, Default, Args)]
#[group(skip)]
pub struct AttachOptions {
    /// Exit when the run waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
    /// Leave the run to a background process.
    #[arg(long, conflicts_with = "no_wait")]
    detach: bool,
    /// True if no output for programs is printed.
    #[arg(skip)]
    quiet: bool,
}

impl AttachOptions {
    /// Follows the run until it ends; quiet if programs read another value.
    pub fn with_quiet(quiet: bool) -> AttachOptions {
        AttachOptions { quiet, ..AttachOptions::default() }
    }
}

pub fn run(arguments: &RunArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let run = new_run_id();
    let mut opened = None;
    let files = |project: &DiskProject| {
        let state = opened.insert(StateHandle::open(state, &project.root)?);
        Ok(Some(run_files::files_root(state, &run)))
    };
    let (loaded, plan) = plan::bind_workflow(&arguments.what, files, output)?;
    let state = opened.map_or_else(|| StateHandle::open(state, &loaded.project.root), Ok)?;
    let about = build_run_settings(arguments, &loaded, &plan, &state, output)?;
    for missing in missing_env::find_missing_variables(
        &plan.definition,
        &loaded.project.config,
        &missing_env::is_set_here,
    ) {
        output.warn(&missing.message());
    }
    let context = bindings::bind_context(&plan, &loaded.project);
    let begin = RunLaunch::new(plan, RunStart { context, ..RunStart::new(run) }, about.to_json());
    let workers = loaded.project.config.max_workers.unwrap_or(limits::WORKERS_DEFAULT);
    start_run(&state, begin, &about, workers, &arguments.how, output)
}

/// Starts a run, and shows it until it ends, or leaves it.
pub fn start_run(
    state: &StateHandle,
    begin: RunLaunch,
    about: &RunSettings,
    workers: u32,
    how: &AttachOptions,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let secrets = host_session::load_secrets(&about.secrets)?;
    orphans::report_and_reap(state, output)?;
    run_files::stage_files(state, &begin, about)?;
    if how.detach {
        return detach::begin_detached(state, begin, about, output);
    }
    let (run, plan) = (begin.start.run.clone(), begin.plan.clone());
    let own = HostSession::new(state, secrets, workers, output)?;
    match context::hold_context(&own.contexts, state, &run, &plan, about) {
        Ok(()) => {}
        Err(ContextHoldError::InUse(_)) => {
            drop(own);
            return start_queued_run(state, begin, how, output);
        }
        Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse()),
    }
    own.handle_signals(vec![run.clone()], &about.user)?;
    inbox::receive_decisions(state, &about.project, output);
    own.host.launch_runs(vec![begin]).map_err(|error| skein_app::state::refuse_store_error(&error))?;
    let going = SessionRun { run: &run, plan, about, before: 0, waits: !how.no_wait, quiet: how.quiet };
    follow_to_end(state, &own, going, output)
}

/// Starts a run that has to wait for its context folder, and continues it when the folder is free.
fn start_queued_run(
    state: &StateHandle,
    begin: RunLaunch,
    how: &AttachOptions,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let run = begin.start.run.clone();
    detach::begin_queued(state, begin, output)?;
    let row = state.store.find_run(&run).map_err(|error| refuse_store_error(&error))?;
    let row = row.ok_or_else(|| AppError::new(AppErrorKind::Store, &format!("run `{run}` is gone"), None))?;
    let stay = ResumeOptions { waits: !how.no_wait, quiet: how.quiet, detached: false };
    take_over_run(state, &row, &stay, output)
}

fn build_run_settings(
    arguments: &RunArguments,
    loaded: &LoadedWorkflow,
    plan: &Plan,
    state: &StateHandle,
    output: CliOutput,
) -> Result<RunSettings, AppError> {
    let wishes = RunRequest {
        source: &arguments.what.workflow,
        workspace: arguments.workspace.as_deref(),
        allowed: &arguments.allow_root,
        state: &state.path,
        overridden: &loaded.report.overridden,
        user: current_user(),
        replay: arguments.replay.as_deref().map(recording::open_recording).transpose()?,
    };
    let settled = prepare_run::prepare_run(plan, &loaded.project, wishes);
    let mut about = settled.map_err(|no| refuse_unprepared(&no, state))?;
    about.context =
        arguments.context.as_deref().map(|folder| parse_context_folder(folder, plan)).transpose()?;
    about.warnings = print_warnings(&loaded.report.diagnostics, output);
    // An older recording is removed only after everything else has succeeded.
    about.record =
        arguments.record.as_deref().map(|path| recording::create_recording(path, plan)).transpose()?;
    Ok(about)
}

/// Returns the requested context folder as a path within the workspace.
fn parse_context_folder(folder: &Path, plan: &Plan) -> Result<String, AppError> {
    let refuse = |message: &str| Err(AppError::new(AppErrorKind::Usage, message, None));
    if plan.definition.root().workflow.context.directory.is_none() {
        return refuse("`--context` is for workflows of AgentCore; no other format has a context folder");
    }
    let is_below = folder.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let is_named = folder.components().any(|part| matches!(part, Component::Normal(_)));
    match folder.to_str().filter(|_| is_below && is_named) {
        Some(folder) => Ok(folder.to_owned()),
        None => refuse("`--context` must be a folder inside of the workspace, as a path relative to it"),
    }
}

/// Prints the warnings about a workflow that is about to run, and returns them for the run's JSON object.
fn print_warnings(diagnostics: &[Diagnostic], output: CliOutput) -> Vec<Value> {
    let warnings = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning);
    if !output.is_json() {
        output.print_diagnostics(warnings.clone());
    }
    warnings.map(render::render_json).collect()
}

/// Reports why a run is not started, and records refused secrets in the audit.
pub fn refuse_unprepared(no: &RunPreparationError, state: &StateHandle) -> AppError {
    let (user, now) = (current_user(), Clock::default().now());
    let entries: Vec<_> = no.refused.iter().map(|refused| refused.to_audit_entry(&user, now)).collect();
    match state.store.append_audit(&entries) {
        Err(error) => refuse_store_error(&error),
        Ok(()) => AppError::new(AppErrorKind::Refused, &no.problems.join("\n       "), None),
    }
}
