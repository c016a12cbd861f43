//! Detaching: leaves a run to a background process, which is this program with `resume`, in a session of its own.
//!
//! The run is started and durable before that process exists, so that nothing is lost if it fails to start.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use skein_core::{ids::RunId, ir::RunStatus};
use skein_host::{
    host::RunLaunch,
    run_settings::RunSettings,
    secret::Secrets,
    store::Store,
    workspace::{ContextLocks, RootFolder, RunDir},
};

use crate::{
    app::App,
    app_error::AppError,
    prepare::run_folders::{self, ContextHoldError},
    runs::{follow::RunFrontEnd, session::HostSession},
    state::StateHandle,
};

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
