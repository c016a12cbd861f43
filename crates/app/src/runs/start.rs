//! Starting a run, and executing it in this process until it ends or need not be followed, or in a background process.
//!
//! The background process is this program with `resume`, in a session of its own. The run is started and durable before
//! that process exists, so that nothing is lost if it fails to start.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt, net::UnixStream},
    },
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{RunProjection, RunStart},
    ids::RunId,
    ir::RunStatus,
    limits,
    plan::{Plan, Severity},
};
use skein_dialects::{Diagnostic, render};
use skein_host::{
    clock::Clock,
    host::{RunLaunch, new_run_id},
    identity::current_user,
    run_settings::RunSettings,
    secret::Secrets,
    store::Store,
    workspace::{ContextLocks, RootFolder, RunDir},
};

use crate::{
    app::App,
    app_error::AppError,
    plan::missing_env,
    prepare::{
        self, RunPreparationError, RunRequest,
        run_folders::{self, ContextHoldError},
        run_inputs,
    },
    project::DiskProject,
    runs::{
        decide,
        follow::{ExecutionEnd, FollowEnd, RunFeed, RunFrontEnd},
        recording::{self, RecordingSummary},
        resume::take_over_run,
        session::{self, HostSession, load_secrets},
    },
    state::StateHandle,
    workflows::{self, LoadedWorkflow, PlanRequest},
};

/// A run to start.
#[derive(Debug)]
pub struct StartRequest {
    pub workflow: PlanRequest,
    /// The folder to work in; none: the project.
    pub workspace: Option<PathBuf>,
    /// Folders outside the project in which steps may work.
    pub allowed_roots: Vec<PathBuf>,
    /// The context folder, relative to the workspace; none: the one that the workflow names.
    pub context: Option<PathBuf>,
    /// The folder to record the work of the workers in.
    pub record: Option<PathBuf>,
    /// The recording to replay.
    pub replay: Option<PathBuf>,
    pub attachment: RunAttachment,
}

/// The time for which an operation stays with the run that it executes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunAttachment {
    #[default]
    UntilEnd,
    /// Until the run ends, or waits for a person or a signal.
    UntilWaiting,
    /// The run is left to a background process.
    Detached,
}

/// The result of executing a run.
#[derive(Debug)]
pub enum RunOutcome {
    Ended {
        end: ExecutionEnd,
        /// The recording of a closed run, if it was recorded or replayed.
        recording: Option<RecordingSummary>,
    },
    /// The run waits for its context folder, and the operation does not wait.
    Queued(Box<QueuedRun>),
    Detached(DetachedRun),
}

/// A run that waits for its context folder.
#[derive(Debug)]
pub struct QueuedRun {
    pub run: RunProjection,
    pub warnings: Vec<Value>,
}

impl RunOutcome {
    /// Returns true if the run succeeded, as far as it was recorded.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, RunOutcome::Ended { end: ExecutionEnd::Succeeded, .. } | RunOutcome::Detached(_))
    }
}

/// Starts a run of a workflow.
pub fn start_run(app: &App, request: &StartRequest, front_end: &dyn RunFrontEnd) -> Result<RunOutcome, AppError> {
    let run = new_run_id();
    let mut opened = None;
    let files = |project: &DiskProject| {
        let state = opened.insert(app.open_state(&project.root)?);
        Ok(Some(run_folders::files_root(state, &run)))
    };
    let (loaded, plan) = workflows::bind_workflow(app, &request.workflow, files)?;
    let state = opened.map_or_else(|| app.open_state(&loaded.project.root), Ok)?;
    let settings = build_run_settings(app, request, &loaded, &plan, &state)?;
    let config = &loaded.project.config;
    for missing in missing_env::find_missing_variables(&plan.definition, config, &missing_env::is_set_here) {
        app.warn(&missing.message());
    }
    let context = run_inputs::bind_context(&plan, &loaded.project);
    let launch = RunLaunch::new(plan, RunStart { context, ..RunStart::new(run) }, settings.clone());
    let workers = config.max_workers.unwrap_or(limits::WORKERS_DEFAULT);
    launch_run(app, &state, launch, &settings, workers, request.attachment, front_end)
}

/// Launches a prepared run, and follows it as far as requested.
pub(crate) fn launch_run(
    app: &App,
    state: &StateHandle,
    launch: RunLaunch,
    settings: &RunSettings,
    workers: u32,
    attachment: RunAttachment,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    let secrets = load_secrets(&settings.secrets)?;
    session::report_and_reap(app, state)?;
    run_folders::stage_files(state, &launch, settings)?;
    if attachment == RunAttachment::Detached {
        return Ok(RunOutcome::Detached(launch_detached(app, state, launch, settings, front_end)?));
    }
    let (run, plan) = (launch.start.run.clone(), launch.plan.clone());
    let session = HostSession::new(app, state, secrets, workers, front_end)?;
    match run_folders::hold_context(&session.contexts, state, &run, &plan, settings) {
        Ok(()) => {}
        Err(ContextHoldError::InUse(_)) => {
            // The run waits for its context folder, and is continued when the folder is free.
            drop(session);
            launch_queued(app, state, launch, front_end)?;
            let row = state.store.find_run(&run)?;
            let row = row.ok_or_else(|| AppError::store(format!("run `{run}` is gone")))?;
            return take_over_run(app, state, &row, attachment, front_end);
        }
        Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse()),
    }
    session.attach(vec![run.clone()], &settings.user, front_end)?;
    let _receiver = decide::receive_decisions(app, state, &settings.project);
    session.host.launch_runs(vec![launch])?;
    let waits = attachment == RunAttachment::UntilEnd;
    let session_run = SessionRun { run: &run, plan, settings, before: 0, waits };
    follow_to_end(state, &session, session_run, front_end)
}

/// A run that this process owns.
pub(crate) struct SessionRun<'a> {
    pub run: &'a RunId,
    pub plan: Plan,
    pub settings: &'a RunSettings,
    /// The number of events that are already known.
    pub before: u64,
    /// True if the operation waits for people and signals.
    pub waits: bool,
}

/// Follows a run of this process until it ends or is released, and the runs that retry it.
pub(crate) fn follow_to_end(
    state: &StateHandle,
    session: &HostSession,
    session_run: SessionRun<'_>,
    front_end: &dyn RunFrontEnd,
) -> Result<RunOutcome, AppError> {
    let SessionRun { run, plan, settings, mut before, waits } = session_run;
    let mut run = run.clone();
    let mut all = vec![run.clone()];
    loop {
        let summarize = || {
            session.recorder.flush();
            RecordingSummary::from_runs(settings, &state.path, &all)
        };
        let last = front_end.follow(&RunFeed {
            waits,
            desk: if waits { session.open_desk(state, &run, settings) } else { None },
            recording: &summarize,
            ..session.feed(state, &run, plan.clone(), settings, before)
        });
        if let (FollowEnd::Closed, Some(next)) = (&last.end, last.next) {
            session.add_run(next.clone());
            all.push(next.clone());
            (run, before) = (next, 0);
            continue;
        }
        if last.end == FollowEnd::Waits {
            session.host.leave_runs(&[run]);
        }
        let end = last.end.to_execution_end(&last.state, session.is_stopped())?;
        let recording = summarize().filter(|_| last.end == FollowEnd::Closed);
        // A run with an incomplete recording, or a replay that differs from it, has not succeeded.
        let differs = recording.as_ref().is_some_and(|recording| !recording.problems.is_empty());
        let end = if differs && end == ExecutionEnd::Succeeded { ExecutionEnd::Failed } else { end };
        return Ok(RunOutcome::Ended { end, recording });
    }
}

fn build_run_settings(
    app: &App,
    request: &StartRequest,
    loaded: &LoadedWorkflow,
    plan: &Plan,
    state: &StateHandle,
) -> Result<RunSettings, AppError> {
    let run_request = RunRequest {
        source: &request.workflow.workflow,
        workspace: request.workspace.as_deref(),
        allowed: &request.allowed_roots,
        state: &state.path,
        overridden: &loaded.report.overridden,
        user: current_user(),
        replay: request.replay.as_deref().map(recording::open_recording).transpose()?,
    };
    let prepared = prepare::prepare_run(plan, &loaded.project, run_request);
    let mut settings = prepared.map_err(|error| refuse_unprepared(&error, state))?;
    settings.context = request.context.as_deref().map(|folder| parse_context_folder(folder, plan)).transpose()?;
    let warnings: Vec<&Diagnostic> =
        (loaded.report.diagnostics.iter()).filter(|diagnostic| diagnostic.severity == Severity::Warning).collect();
    app.observer.warn_diagnostics(&warnings);
    settings.warnings = warnings.into_iter().map(render::render_json).collect();
    // An older recording is removed only after everything else has succeeded.
    settings.record = request.record.as_deref().map(|path| recording::create_recording(path, plan)).transpose()?;
    Ok(settings)
}

/// Returns the requested context folder as a path within the workspace.
fn parse_context_folder(folder: &Path, plan: &Plan) -> Result<String, AppError> {
    if plan.definition.root().workflow.context.directory.is_none() {
        return Err(AppError::usage("`--context` is for workflows of AgentCore; no other format has a context folder"));
    }
    let is_below = folder.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let is_named = folder.components().any(|part| matches!(part, Component::Normal(_)));
    folder.to_str().filter(|_| is_below && is_named).map(str::to_owned).ok_or_else(|| {
        AppError::usage("`--context` must be a folder inside of the workspace, as a path relative to it")
    })
}

/// Reports why a run is not started, and records refused secrets in the audit.
pub(crate) fn refuse_unprepared(error: &RunPreparationError, state: &StateHandle) -> AppError {
    let (user, now) = (current_user(), Clock::default().now());
    let entries: Vec<_> = error.refused.iter().map(|refused| refused.to_audit_entry(&user, now)).collect();
    match state.store.append_audit(&entries) {
        Err(error) => error.into(),
        Ok(()) => AppError::refused(error.problems.join("\n       ")),
    }
}

/// The file with the output of the background process, in the folder of the run.
const OUTPUT_FILE: &str = "output.log";

/// A run that a background process executes.
#[derive(Debug)]
pub struct DetachedRun {
    pub run: RunId,
    /// The file with the output of the background process; none if the run was already over.
    pub output: Option<PathBuf>,
    /// Warnings about the workflow, as diagnostics in JSON.
    pub warnings: Vec<Value>,
}

impl DetachedRun {
    pub fn to_json(&self) -> Value {
        let mut object = json!({"run_id": self.run, "output": self.output});
        if !self.warnings.is_empty() {
            object["diagnostics"] = Value::from(self.warnings.clone());
        }
        object
    }
}

/// Starts a run durably, without starting any work, and releases it.
pub(crate) fn launch_queued(
    app: &App,
    state: &StateHandle,
    launch: RunLaunch,
    front_end: &dyn RunFrontEnd,
) -> Result<(), AppError> {
    let run = launch.start.run.clone();
    let session = HostSession::new(app, state, Secrets::default(), 0, front_end)?;
    session.host.launch_runs(vec![launch])?;
    session.host.leave_runs(std::slice::from_ref(&run));
    Ok(())
}

/// Starts a run, and leaves it to a background process.
pub(crate) fn launch_detached(
    app: &App,
    state: &StateHandle,
    launch: RunLaunch,
    settings: &RunSettings,
    front_end: &dyn RunFrontEnd,
) -> Result<DetachedRun, AppError> {
    let run = launch.start.run.clone();
    // A run whose context folder is in use waits in the background; one whose folder is nested could never start.
    match run_folders::hold_context(&ContextLocks::default(), state, &run, &launch.plan, settings) {
        Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse()),
        Err(taken @ ContextHoldError::InUse(_)) => {
            app.observer.warn_person(&run_folders::queued_warning(&run, &taken));
        }
        Ok(()) => {}
    }
    launch_queued(app, state, launch, front_end)?;
    detach_run(state, &run, settings.warnings.clone())
}

/// Leaves a run without an owner to a background process.
pub(crate) fn detach_run(state: &StateHandle, run: &RunId, warnings: Vec<Value>) -> Result<DetachedRun, AppError> {
    let row = state.store.find_run(run)?;
    // A failed undo is tried again.
    let over = row.is_some_and(|row| row.head.closed && row.head.status != RunStatus::UndoFailed);
    let output = if over { None } else { Some(start_background(state, run)?) };
    Ok(DetachedRun { run: run.clone(), output, warnings })
}

/// Starts the process, and waits until it owns the run.
fn start_background(state: &StateHandle, run: &RunId) -> Result<PathBuf, AppError> {
    let root = RootFolder::open(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    let folder = RunDir::create(&root, run).map_err(|error| AppError::store(error.to_string()))?;
    let output = folder.path().join(OUTPUT_FILE);
    let message = match spawn_background(&state.path, run, &output) {
        Ok(true) => return Ok(output),
        Ok(false) => {
            let text = std::fs::read_to_string(&output).unwrap_or_default();
            let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
            format!("the background process did not claim the run: {text}")
        }
        Err(error) => format!("cannot start a background process: {error}"),
    };
    Err(AppError::refused(message).with_hint(format!("the run is kept; `skein resume {run}` resumes it")))
}

/// Returns true if the process reports that it owns the run. It reports that on its standard input, which is otherwise
/// unused.
fn spawn_background(state: &Path, run: &RunId, output: &Path) -> io::Result<bool> {
    let to = OpenOptions::new().append(true).create(true).mode(0o600).open(output)?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--state").arg(state).args(["resume", run.as_str(), "--detached"]);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::from(to.try_clone()?)).stderr(to);
    let mut child = command.spawn()?;
    // Closes our copy of the process's end of the socket.
    drop(command);
    if matches!(ours.read(&mut [0]), Ok(1)) {
        // The process outlives this one, and is not waited for.
        return Ok(true);
    }
    child.wait()?;
    Ok(false)
}
