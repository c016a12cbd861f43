//! The outer process of a sandbox: it leaves the engine's namespaces, starts init, and ends as the worker ended.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    os::fd::AsRawFd,
    process::{Child, Command, ExitCode},
    sync::{Arc, atomic::AtomicBool},
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Resource, Rlimit, Signal, getgid, getppid, getuid, set_parent_process_death_signal, setrlimit},
    thread::{CapabilitySet, UnshareFlags, capabilities},
};

use super::{
    INIT_ARGUMENT,
    init::{self, LaunchFailure, WorkerEnd, release_stdio},
    launcher::{LaunchRequest, own_pid, receive_environment},
};

/// Signals that are meant for the worker. The monitor must survive them to report how the worker reacts.
const PASSED_OVER: [i32; 7] = [
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGQUIT,
    signal_hook::consts::SIGUSR1,
    signal_hook::consts::SIGUSR2,
    signal_hook::consts::SIGALRM,
];

/// The number of the user and the group `nobody` on most systems.
const NOBODY: u32 = 65_534;

/// Runs a program in a sandbox and ends as the program did.
pub(super) fn run_monitor(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // Three descriptors belong to the worker. All other inherited ones are closed on exec.
    close_fds::set_fds_cloexec(3, &[]);
    let _ = rustix::thread::set_name(c"skein-monitor");
    let Some(request) = LaunchRequest::receive() else {
        return LaunchFailure::permanent("the sandbox launcher received no launch request")
            .report(&receive_environment());
    };
    match launch_init(request, arguments) {
        Ok(end) => end,
        Err(failure) => failure.report(&receive_environment()),
    }
}

fn launch_init(
    mut request: LaunchRequest,
    arguments: impl Iterator<Item = OsString>,
) -> Result<ExitCode, LaunchFailure> {
    let engine = request.parent;
    request.no_namespaces = enter_namespaces(request.spec.no_network).err();
    end_with_parent(engine)?;
    catch_signals().map_err(|error| LaunchFailure::temporary("cannot install signal handlers", error))?;
    let (mut child, mut report) =
        start_init(request, arguments).map_err(|error| LaunchFailure::temporary("cannot start init", error))?;
    // The worker's pipes must close with the worker.
    release_stdio();
    let status = child.wait().map_err(|error| LaunchFailure::temporary("cannot wait for init", error))?;
    let mut line = String::new();
    let end = match report.read_to_string(&mut line) {
        Ok(_) => WorkerEnd::parse(&line),
        Err(_) => None,
    };
    // Without a report, init became the worker or could not start it.
    Ok(end_as(end.unwrap_or_else(|| WorkerEnd::from_status(status))))
}

/// Leaves the engine's namespaces. Must be called while the process has only one thread.
fn enter_namespaces(no_network: bool) -> Result<(), String> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    flags.set(UnshareFlags::NEWNET, no_network);
    let held = capabilities(None).map_err(|error| format!("reading capabilities: {error}"))?.effective;
    // Without this capability, the kernel does not allow root to be mapped into a user namespace.
    let own_users = !held.contains(CapabilitySet::SYS_ADMIN) || held.contains(CapabilitySet::SETFCAP);
    flags.set(UnshareFlags::NEWUSER, own_users);
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    #[expect(deprecated, reason = "only sharing of descriptors makes it unsafe, and these flags never ask for that")]
    rustix::thread::unshare(flags).map_err(|error| format!("creating namespaces: {error}"))?;
    if !own_users {
        return Ok(());
    }
    let write = |file: &str, text: String| fs::write(file, text).map_err(|error| format!("writing {file}: {error}"));
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{} {user} 1", inner_id(user)))?;
    write("/proc/self/gid_map", format!("{} {group} 1", inner_id(group)))?;
    init::keep_across_exec().map_err(|error| format!("keeping capabilities for init: {error}"))
}

/// Returns the number of a user or group inside of the sandbox. Root becomes `nobody` there: without capabilities it is
/// an ordinary user who owns root's files, and programs that run as root try operations that only root can do. An agent
/// could not build a sandbox of its own as a root without capabilities, either.
fn inner_id(id: u32) -> u32 {
    if id == 0 { NOBODY } else { id }
}

/// Makes the kernel end this process when its parent ends, and checks that the parent has not ended before.
fn end_with_parent(parent: i32) -> Result<(), LaunchFailure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| LaunchFailure::temporary("cannot set the parent death signal", error.into()))?;
    match getppid().map(|pid| pid.as_raw_nonzero().get()) {
        Some(now) if now == parent => Ok(()),
        _ => Err(LaunchFailure::permanent("the engine ended before its worker started")),
    }
}

/// Installs handlers instead of ignoring the signals: handlers are reset on exec, ignored signals stay ignored.
fn catch_signals() -> io::Result<()> {
    for signal in PASSED_OVER {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

fn start_init(
    mut request: LaunchRequest,
    arguments: impl Iterator<Item = OsString>,
) -> io::Result<(Child, io::PipeReader)> {
    let (reader, writer) = io::pipe()?;
    // No other thread exists that could start a program meanwhile and inherit the descriptor.
    fcntl_setfd(&writer, FdFlags::empty())?;
    request.report = Some(writer.as_raw_fd());
    request.parent = own_pid();
    let mut command = Command::new("/proc/self/exe");
    command.arg(INIT_ARGUMENT).args(arguments);
    request.write_to(&mut command).ok_or(io::ErrorKind::InvalidInput)?;
    let child = command.spawn()?;
    drop(writer);
    Ok((child, reader))
}

/// Ends this process as the worker ended, so that the engine sees the worker's exit status or signal.
fn end_as(end: WorkerEnd) -> ExitCode {
    let signal = match end {
        WorkerEnd::Exited(code) => return ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        WorkerEnd::Signalled(signal) => signal,
    };
    // The worker may have left a core file; one of this process would be useless.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    ExitCode::from(u8::try_from(128 + (signal & 0x7f)).unwrap_or(u8::MAX))
}
