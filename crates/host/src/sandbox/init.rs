//! The first process inside of a sandbox: it builds the worker's view, gives up its privileges for good, starts the
//! worker and reaps orphans. If the machine has no process namespaces, it becomes the worker.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, ExitCode, ExitStatus},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    process::{Pid, Signal, WaitOptions, fchdir, kill_process, set_parent_process_death_signal, setsid, wait},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};
use serde_json::json;

use crate::{
    sandbox::{
        MARK_VARIABLE, SandboxEnforcement, SandboxSpec, landlock,
        launcher::{LaunchRequest, own_pid, receive_environment},
        seccomp,
        view::{self, SandboxViewError},
    },
    start_error::{StartError, StartRefusal, classify_start_error},
};

/// The time that processes which the worker started have to end after it.
const SETTLE: Duration = Duration::from_millis(500);
/// The time between the request to end and the kill of processes that the worker left behind.
const LEFT_GRACE: Duration = Duration::from_secs(2);

/// The file in which a worker reports why it failed.
const ERROR_FILE: &str = "SKEIN_ERROR";

/// The exit status of shells for a command that cannot be run.
const CANNOT_RUN: u8 = 126;

type EnvironmentVariables = Vec<(OsString, OsString)>;

/// The end of the worker, as init reports it to the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerEnd {
    Exited(i32),
    Signalled(i32),
}

impl WorkerEnd {
    pub(super) fn from_status(status: ExitStatus) -> WorkerEnd {
        match status.signal() {
            Some(signal) => WorkerEnd::Signalled(signal),
            None => WorkerEnd::Exited(status.code().unwrap_or(i32::from(CANNOT_RUN))),
        }
    }

    pub(super) fn parse(line: &str) -> Option<WorkerEnd> {
        let (word, number) = line.trim_end().split_once(' ')?;
        let number = number.parse().ok()?;
        match word {
            "exited" => Some(WorkerEnd::Exited(number)),
            "signalled" => Some(WorkerEnd::Signalled(number)),
            _ => None,
        }
    }

    fn to_line(self) -> String {
        match self {
            WorkerEnd::Exited(code) => format!("exited {code}\n"),
            WorkerEnd::Signalled(signal) => format!("signalled {signal}\n"),
        }
    }
}

/// The reason why a program was not started in a sandbox.
#[derive(Debug)]
pub(super) struct LaunchFailure(StartError);

impl LaunchFailure {
    /// A failure that would happen again in a retry.
    pub(super) fn permanent(why: impl Into<String>) -> LaunchFailure {
        LaunchFailure(StartError::NotExecutable(why.into()))
    }

    pub(super) fn temporary(doing: &str, error: io::Error) -> LaunchFailure {
        LaunchFailure(StartError::Refused(StartRefusal::Other(format!("{doing}: {error}"))))
    }

    fn is_permanent(&self) -> bool {
        matches!(self.0, StartError::NotExecutable(_))
    }

    /// Reports the failure as a worker would.
    pub(super) fn report(&self, environment: &EnvironmentVariables) -> ExitCode {
        let message = self.0.to_string();
        eprintln!("[skein: {message}]");
        if let Some((_, file)) = environment.iter().rev().find(|(name, _)| name == ERROR_FILE) {
            let class = if matches!(self.0, StartError::Refused(_)) { "transient" } else { "non_retryable" };
            // The message is in the log, too.
            let _ = fs::write(file, json!({"class": class, "message": message}).to_string());
        }
        ExitCode::from(CANNOT_RUN)
    }
}

/// Starts the worker in its sandbox and stays until it has ended.
pub(super) fn run_init(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    close_fds::set_fds_cloexec(3, &[]);
    let mut environment = receive_environment();
    // The mark by which the processes of a worker are found.
    environment.extend(std::env::var_os(MARK_VARIABLE).map(|mark| (MARK_VARIABLE.into(), mark)));
    let Some(request) = LaunchRequest::receive() else {
        return LaunchFailure::permanent("sandbox init received no launch request").report(&environment);
    };
    match start_worker(&request, arguments, &environment) {
        Ok(code) => code,
        Err(failure) => failure.report(&environment),
    }
}

fn start_worker(
    request: &LaunchRequest,
    mut arguments: impl Iterator<Item = OsString>,
    environment: &EnvironmentVariables,
) -> Result<ExitCode, LaunchFailure> {
    let mut report = request.report.and_then(|number| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        open(format!("/proc/self/fd/{number}"), flags, Mode::empty()).ok().map(File::from)
    });
    end_with_monitor(request.parent)?;
    // No terminal controls the session of a worker.
    setsid().map_err(|error| LaunchFailure::temporary("cannot start a session", error.into()))?;
    let confined = confine(request);
    if request.probe {
        println!("{}", json!(confined.map_err(|failure| failure.0.to_string())));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(program) = arguments.next() else {
        return Err(LaunchFailure::permanent("there is no program to start in the sandbox"));
    };
    announce_enforcement(confined, &request.spec)?;
    enter_directory(&request.spec)?;
    let mut command = Command::new(&program);
    command.args(arguments).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    let refused = |error: &io::Error| {
        let directory = std::env::current_dir().unwrap_or_default();
        LaunchFailure(classify_start_error(error, Path::new(&program), &directory))
    };
    if own_pid() != 1 {
        return Err(refused(&command.exec()));
    }
    let _ = rustix::thread::set_name(c"skein-init");
    let child = command.process_group(0).spawn().map_err(|error| refused(&error))?;
    drop(command);
    release_stdio();
    let end = reap_until(Pid::from_child(&child));
    if let Some(report) = &mut report {
        let _ = report.write_all(end.to_line().as_bytes());
    }
    end_remaining();
    Ok(ExitCode::SUCCESS)
}

/// Makes the kernel end this process when the monitor ends. For a parent in another namespace the kernel returns 0, so
/// the check reads `/proc`, which is still the engine's.
fn end_with_monitor(monitor: i32) -> Result<(), LaunchFailure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| LaunchFailure::temporary("cannot set the parent death signal", error.into()))?;
    match read_parent() {
        Some(parent) if parent == monitor => Ok(()),
        _ => Err(LaunchFailure::permanent("the monitor ended before the worker started")),
    }
}

fn read_parent() -> Option<i32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Enforces as much of the sandbox as this machine can.
fn confine(request: &LaunchRequest) -> Result<SandboxEnforcement, LaunchFailure> {
    let why = match &request.no_namespaces {
        Some(why) => why.clone(),
        None => match view::build_view(&request.spec, request.is_root) {
            Ok(()) => {
                give_up_privileges(&request.spec)?;
                landlock::restrict_scope();
                return Ok(SandboxEnforcement::Full);
            }
            Err(SandboxViewError::Unsupported(why)) => why,
            Err(SandboxViewError::Failed(why, error)) => return Err(LaunchFailure::temporary(&why, error)),
        },
    };
    match landlock::restrict_writes(&request.spec) {
        Ok(()) => {
            give_up_privileges(&request.spec)?;
            landlock::restrict_scope();
            Ok(SandboxEnforcement::WritesOnly)
        }
        Err(SandboxViewError::Unsupported(neither)) => {
            Err(LaunchFailure::permanent(format!("this machine cannot enforce a sandbox: {why}; {neither}")))
        }
        Err(SandboxViewError::Failed(why, error)) => Err(LaunchFailure::temporary(&why, error)),
    }
}

fn give_up_privileges(spec: &SandboxSpec) -> Result<(), LaunchFailure> {
    drop_capabilities().map_err(|error| LaunchFailure::temporary("cannot give up capabilities", error))?;
    seccomp::apply_seccomp(spec.no_network)
        .map_err(|error| LaunchFailure::temporary("cannot filter system calls", io::Error::other(error)))
}

/// Reports in the log what is not enforced, or fails.
fn announce_enforcement(
    confined: Result<SandboxEnforcement, LaunchFailure>,
    spec: &SandboxSpec,
) -> Result<(), LaunchFailure> {
    match confined {
        Ok(SandboxEnforcement::Full) => {}
        Ok(SandboxEnforcement::WritesOnly) => {
            if let Some(open) = landlock::writable_hidden_place(spec) {
                eprintln!("[skein: the worker can reach {}; use another `--state`]", open.display());
            }
        }
        // A sandbox that was started and is incomplete is not one that this machine cannot enforce: another worker may
        // have moved a folder meanwhile.
        Err(failure) if spec.optional && failure.is_permanent() => {
            eprintln!("[skein: the worker runs without a sandbox: {}]", failure.0);
        }
        Err(failure) => return Err(failure),
    }
    Ok(())
}

/// Enters the working directory in the view of this process.
fn enter_directory(spec: &SandboxSpec) -> Result<(), LaunchFailure> {
    let Some(place) = &spec.directory else { return Ok(()) };
    let entered = place.open().and_then(|folder| Ok(fchdir(folder)?));
    entered.map_err(|error| LaunchFailure::temporary("cannot enter the working directory", error))
}

/// Closes the worker's streams in this process.
pub(super) fn release_stdio() {
    if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Reaps every process that ends, until the worker ends.
fn reap_until(worker: Pid) -> WorkerEnd {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == worker => {
                return WorkerEnd::from_status(ExitStatus::from_raw(status.as_raw()));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return WorkerEnd::Exited(i32::from(CANNOT_RUN)),
        }
    }
}

/// Waits for processes that the worker left running, then asks them to end. When this process ends, the kernel kills
/// the rest.
fn end_remaining() {
    if matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
        return;
    }
    let (sender, gone) = mpsc::channel();
    let reaper = std::thread::Builder::new().name("reap".into()).spawn(move || {
        while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
        let _ = sender.send(());
    });
    if reaper.is_err() || is_over(&gone, SETTLE) {
        return;
    }
    ask_all_to_end();
    is_over(&gone, LEFT_GRACE);
}

fn is_over(gone: &Receiver<()>, within: Duration) -> bool {
    !matches!(gone.recv_timeout(within), Err(RecvTimeoutError::Timeout))
}

/// Asks every other process of the namespace to end.
fn ask_all_to_end() {
    for name in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = name.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = number.filter(|number| *number > 1).and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

/// Passes the capabilities of this process to the program that it starts next. Otherwise only root would have them.
pub(super) fn keep_across_exec() -> io::Result<()> {
    let held = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: held.permitted, ..held })?;
    for capability in held.permitted.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Drops all capabilities, so that no started program has any, not even as root.
pub(super) fn drop_capabilities() -> io::Result<()> {
    if !capabilities(None)?.permitted.is_empty() {
        empty_bounding_set()?;
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    }
    Ok(set_no_new_privs(true)?)
}

fn empty_bounding_set() -> io::Result<()> {
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            // The kernel has no more capabilities.
            Err(Errno::INVAL) => break,
            // It may have been dropped before. A process without the right to drop it cannot use it either.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_worker_reads_as_it_is_written() {
        for end in [WorkerEnd::Exited(0), WorkerEnd::Exited(255), WorkerEnd::Signalled(9)] {
            assert_eq!(WorkerEnd::parse(&end.to_line()), Some(end));
        }
        for line in ["", "exited", "exited x", "stopped 3"] {
            assert_eq!(WorkerEnd::parse(line), None, "{line:?}");
        }
    }
}
