//! Leaving a run to a process in the background: ourselves again, as `resume`, in a session of its own.
//!
//! The run is begun and durable before that process exists, so that nothing is lost if it never does.

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
use skein_core::{ids::RunId, ir::RunStatus};
use skein_host::{
    executor::RunSettings,
    host::RunLaunch,
    secret::Secrets,
    store::Store,
    workspace::{ContextLocks, RootFolder, RunDir},
};

use crate::{
    context::{self, ContextHoldError},
    exit::Exit,
    host_session::HostSession,
    invocation::command_prefix,
    output::CliOutput,
    state::{StateHandle, refuse_store_error},
};

/// What the process in the background prints, in the folder of the run.
const PRINTED: &str = "output.log";

/// Begins a run here, durable and with nothing at work, and leaves it to nobody.
pub fn begin_queued(state: &StateHandle, begin: RunLaunch, output: CliOutput) -> Result<(), Exit> {
    let run = begin.start.run.clone();
    let own = HostSession::new(state, Secrets::default(), 0, output)?;
    own.host.launch_runs(vec![begin]).map_err(|error| refuse_store_error(&error, output))?;
    own.host.leave_runs(std::slice::from_ref(&run));
    Ok(())
}

/// Begins a run here, and leaves it to a process in the background.
pub fn begin_detached(
    state: &StateHandle,
    begin: RunLaunch,
    about: &RunSettings,
    output: CliOutput,
) -> Result<Exit, Exit> {
    let run = begin.start.run.clone();
    // One whose folder is in use waits in the background; one whose folder is nested could never start.
    match context::hold_context(&ContextLocks::default(), state, &run, &begin.plan, about) {
        Err(taken @ ContextHoldError::Nested(_)) => return Err(taken.refuse(output)),
        Err(taken @ ContextHoldError::InUse(_)) => context::warn_queued(&run, &taken, output),
        Ok(()) => {}
    }
    begin_queued(state, begin, output)?;
    detach_run(state, &run, &about.warnings, output)
}

/// Leaves a run that nobody has to a process in the background. The warnings about its workflow are part of the JSON.
pub fn detach_run(
    state: &StateHandle,
    run: &RunId,
    warnings: &[Value],
    output: CliOutput,
) -> Result<Exit, Exit> {
    let row = state.store.find_run(run).map_err(|error| refuse_store_error(&error, output))?;
    // What could not be undone is tried again.
    let over = row.is_some_and(|row| row.head.closed && row.head.status != RunStatus::UndoFailed);
    let printed = if over { None } else { Some(start_background(state, run, output)?) };
    if output.is_json() {
        let mut object = json!({"run_id": run, "output": printed});
        if !warnings.is_empty() {
            object["diagnostics"] = Value::from(warnings);
        }
        output.print_json(&object);
        return Ok(Exit::Done);
    }
    output.print_text(&format!("run {run} goes on in the background\n"));
    let rows = [
        format!("{} runs {run} --follow", command_prefix()),
        format!("{} logs {run} --follow", command_prefix()),
        format!("{} cancel {run}", command_prefix()),
    ];
    output.print_text(&rows.iter().map(|row| format!("  {row}\n")).collect::<String>());
    Ok(Exit::Done)
}

/// Starts the process, and waits until it has the run.
fn start_background(state: &StateHandle, run: &RunId, output: CliOutput) -> Result<PathBuf, Exit> {
    let printed =
        create_run_folder(state, run).map_err(|why| output.refuse(Exit::Store, &why, None))?.join(PRINTED);
    let begun = spawn_background(&state.path, run, &printed);
    let hint = format!("the run is kept; `skein resume {run}` goes on with it");
    match begun {
        Ok(true) => Ok(printed),
        Ok(false) => {
            let said = std::fs::read_to_string(&printed).unwrap_or_default();
            let said = said.trim().strip_prefix("error: ").unwrap_or(said.trim());
            let message = format!("the process in the background did not take the run: {said}");
            Err(output.refuse(Exit::Refused, &message, Some(&hint)))
        }
        Err(error) => {
            let message = format!("no process can be started in the background: {error}");
            Err(output.refuse(Exit::Refused, &message, Some(&hint)))
        }
    }
}

fn create_run_folder(state: &StateHandle, run: &RunId) -> Result<PathBuf, String> {
    let root = RootFolder::open(&state.path).map_err(|error| error.to_string())?;
    let folder = RunDir::create(&root, run).map_err(|error| error.to_string())?;
    Ok(folder.path().to_owned())
}

/// Whether it says that it has the run. It says so on its standard input, where nothing is ever to be read.
fn spawn_background(state: &Path, run: &RunId, printed: &Path) -> io::Result<bool> {
    let to = OpenOptions::new().append(true).create(true).mode(0o600).open(printed)?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--state").arg(state).args(["resume", run.as_str(), "--detached"]);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::from(to.try_clone()?)).stderr(to);
    let mut child = command.spawn()?;
    // Our end of what it was given is closed with this.
    drop(command);
    if matches!(ours.read(&mut [0]), Ok(1)) {
        // It outlives us, and is nobody's to wait for.
        return Ok(true);
    }
    child.wait()?;
    Ok(false)
}

/// A session of its own, which no terminal takes down with it.
pub fn begin_session() {
    // Who leads a session already has one.
    let _ = rustix::process::setsid();
}

/// Tells whoever started this process that it has the run.
pub fn notify_parent() {
    // Someone who does not listen needs not to know.
    let _ = rustix::io::write(io::stdin().as_fd(), b"!");
}
