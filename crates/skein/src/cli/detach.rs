//! Detaching: leaves a run to a background process, which is this program with `resume`, in a session of its own.
//!
//! The run is started and durable before that process exists, so that nothing is lost if it fails to start.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    context::{self, ContextHoldError},
    invocation::command_prefix,
    state::{StateHandle, refuse_store_error},
};
use skein_core::{ids::RunId, ir::RunStatus};
use skein_host::{
    executor::RunSettings,
    host::RunLaunch,
    secret::Secrets,
    store::Store,
    workspace::{ContextLocks, RootFolder, RunDir},
};

use crate::{exit::Exit, host_session::HostSession, output::CliOutput};

/// The file with the output of the background process, in the folder of the run.
const PRINTED: &str = "output.log";

/// Starts a run durably, without starting any work, and releases it.
pub fn begin_queued(state: &StateHandle, begin: RunLaunch, output: CliOutput) -> Result<(), AppError> {
    let run = begin.start.run.clone();
    let own = HostSession::new(state, Secrets::default(), 0, output)?;
    own.host.launch_runs(vec![begin]).map_err(|error| refuse_store_error(&error))?;
    own.host.leave_runs(std::slice::from_ref(&run));
    Ok(())
}

/// Starts a run, and leaves it to a background process.
pub fn begin_detached(
    state: &StateHandle,
    begin: RunLaunch,
    about: &RunSettings,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let run = begin.start.run.clone();
    // A run whose context folder is in use waits in the background; one whose folder is nested could never start.
    match context::hold_context(&ContextLocks::default(), state, &run, &begin.plan, about) {
        Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse()),
        Err(taken @ ContextHoldError::InUse(_)) => {
            output.warn_people(&context::queued_warning(&run, &taken));
        }
        Ok(()) => {}
    }
    begin_queued(state, begin, output)?;
    detach_run(state, &run, &about.warnings, output)
}

/// Leaves a run without an owner to a background process. The warnings about its workflow are part of the JSON.
pub fn detach_run(
    state: &StateHandle,
    run: &RunId,
    warnings: &[Value],
    output: CliOutput,
) -> Result<Exit, AppError> {
    let row = state.store.find_run(run).map_err(|error| refuse_store_error(&error))?;
    // A failed undo is tried again.
    let over = row.is_some_and(|row| row.head.closed && row.head.status != RunStatus::UndoFailed);
    let printed = if over { None } else { Some(start_background(state, run)?) };
    if output.is_json() {
        let mut object = json!({"run_id": run, "output": printed});
        if !warnings.is_empty() {
            object["diagnostics"] = Value::from(warnings);
        }
        output.print_json(&object);
        return Ok(Exit::Done);
    }
    output.print_text(&format!("run {run} continues in the background\n"));
    let rows = [
        format!("{} runs {run} --follow", command_prefix()),
        format!("{} logs {run} --follow", command_prefix()),
        format!("{} cancel {run}", command_prefix()),
    ];
    output.print_text(&rows.iter().map(|row| format!("  {row}\n")).collect::<String>());
    Ok(Exit::Done)
}

/// Starts the process, and waits until it owns the run.
fn start_background(state: &StateHandle, run: &RunId) -> Result<PathBuf, AppError> {
    let printed = create_run_folder(state, run)
        .map_err(|why| AppError::new(AppErrorKind::Store, &why, None))?
        .join(PRINTED);
    let begun = spawn_background(&state.path, run, &printed);
    let hint = format!("the run is kept; `skein resume {run}` resumes it");
    match begun {
        Ok(true) => Ok(printed),
        Ok(false) => {
            let said = std::fs::read_to_string(&printed).unwrap_or_default();
            let said = said.trim().strip_prefix("error: ").unwrap_or(said.trim());
            let message = format!("the background process did not claim the run: {said}");
            Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)))
        }
        Err(error) => {
            let message = format!("cannot start a background process: {error}");
            Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)))
        }
    }
}

fn create_run_folder(state: &StateHandle, run: &RunId) -> Result<PathBuf, String> {
    let root = RootFolder::open(&state.path).map_err(|error| error.to_string())?;
    let folder = RunDir::create(&root, run).map_err(|error| error.to_string())?;
    Ok(folder.path().to_owned())
}

/// Returns true if the process reports that it owns the run. It reports that on its standard input, which is otherwise
/// unused.
fn spawn_background(state: &Path, run: &RunId, printed: &Path) -> io::Result<bool> {
    let to = OpenOptions::new().append(true).create(true).mode(0o600).open(printed)?;
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

/// Starts a session of its own, so that closing the terminal does not end the process.
pub fn begin_session() {
    // A session leader already has a session of its own.
    let _ = rustix::process::setsid();
}

/// Tells the parent process that this process owns the run.
pub fn notify_parent() {
    // A parent that has ended is ignored.
    let _ = rustix::io::write(io::stdin().as_fd(), b"!");
}
