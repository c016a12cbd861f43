//! Starts an attempt's process under a supervisor of its own, and returns a handle to stop it.
//!
//! Owns the thread and its wake-up, and the start of a child exactly as its spec says; keeps the engine's ends of its
//! pipes. Runs no code of the engine between fork and exec. The work of the thread is in `supervisor`.

use std::{
    ffi::OsStr,
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, AtomicU8, Ordering},
    },
    thread,
    time::Instant,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::fstat,
    process::{Pid, PidfdFlags, Resource, Signal, getrlimit, kill_process_group, pidfd_open},
};

use crate::{
    process::{
        ProcessOutcome, ProcessReport, ProcessSpec, ProgramLookupError,
        children::{self, ChildRegistration},
        output::OutputStream,
        program, supervisor,
    },
    start_error::{StartError, StartRefusal, classify_start_error},
};

/// A request to a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopRequest {
    Nothing = 0,
    Stop = 1,
    Kill = 2,
}

/// The channel to a supervisor: stop requests in one direction, the pid of its process in the other.
#[derive(Debug)]
pub(super) struct StopSignal {
    wish: AtomicU8,
    pid: AtomicI32,
    fd: Option<OwnedFd>,
}

impl StopSignal {
    fn new() -> StopSignal {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        StopSignal { wish: AtomicU8::new(0), pid: AtomicI32::new(0), fd }
    }

    fn request(&self, wish: StopRequest) {
        self.wish.fetch_max(wish as u8, Ordering::SeqCst);
        if let Some(fd) = &self.fd {
            // The write fails only if the counter is full, and then the supervisor wakes anyway.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    pub(super) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Returns the present request and resets the wake-up until the next one.
    pub(super) fn take_request(&self) -> StopRequest {
        if let Some(fd) = &self.fd {
            let _ = rustix::io::read(fd, &mut [0_u8; 8]);
        }
        self.current_request()
    }

    pub(super) fn current_request(&self) -> StopRequest {
        match self.wish.load(Ordering::SeqCst) {
            0 => StopRequest::Nothing,
            1 => StopRequest::Stop,
            _ => StopRequest::Kill,
        }
    }

    pub(super) fn set_pid(&self, pid: i32) {
        self.pid.store(pid, Ordering::SeqCst);
    }
}

/// A handle to a started process. Dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct ProcessHandle {
    bell: Arc<StopSignal>,
}

impl ProcessHandle {
    /// Asks the process and all it started to exit, and kills what remains after the grace period. A process that exits
    /// before the request arrives counts as exited, not as stopped.
    pub fn stop(&self) {
        self.bell.request(StopRequest::Stop);
    }

    /// Kills the process without a grace period.
    pub fn kill(&self) {
        self.bell.request(StopRequest::Kill);
    }

    /// The pid of the process, once there is one. For display only: the process may have ended.
    pub fn pid(&self) -> Option<i32> {
        Some(self.bell.pid.load(Ordering::SeqCst)).filter(|pid| *pid > 0)
    }
}

/// Called once with the outcome.
type ExitCallback = Box<dyn FnOnce(ProcessReport) + Send>;

/// A callback that is called once, from whichever thread gets there.
#[derive(Clone)]
struct OnceCallback(Arc<Mutex<Option<ExitCallback>>>);

impl OnceCallback {
    fn call(&self, ended: ProcessReport) {
        let done = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done {
            done(ended);
        }
    }
}

/// Starts a program and supervises it until no process of it is left. `handle` receives the handle to stop it, before
/// the process exists.
pub(crate) fn run_process(task: ProcessSpec, handle: impl FnOnce(ProcessHandle)) -> ProcessReport {
    let (began, bell) = (Instant::now(), Arc::new(StopSignal::new()));
    handle(ProcessHandle { bell: Arc::clone(&bell) });
    supervise(task, &bell, began)
}

/// Does the same on a thread of its own, from which `done` is called with the outcome. If no thread can be created,
/// `done` is called on this one before this returns.
pub fn start_process(task: ProcessSpec, done: impl FnOnce(ProcessReport) + Send + 'static) -> ProcessHandle {
    let (began, bell) = (Instant::now(), Arc::new(StopSignal::new()));
    let once = OnceCallback(Arc::new(Mutex::new(Some(Box::new(done)))));
    let (theirs, last) = (Arc::clone(&bell), once.clone());
    let body = move || last.call(supervise(task, &theirs, began));
    let thread = thread::Builder::new().name("worker".to_owned()).spawn(body);
    if thread.is_err() {
        once.call(ProcessReport::without_process(StartRefusal::Processes.into(), began));
    }
    ProcessHandle { bell }
}

fn supervise(task: ProcessSpec, bell: &StopSignal, began: Instant) -> ProcessReport {
    match bell.fd {
        Some(_) => supervisor::supervise(task, bell, began),
        None => ProcessReport::without_process(StartRefusal::Files.into(), began),
    }
}

/// The number of file descriptors that workers leave for the journal and everything else.
const RESERVE: u64 = 64;

/// A child that runs or has already exited, and that only its supervisor waits for.
#[derive(Debug)]
pub(super) struct SpawnedProcess {
    pub listed: ChildRegistration,
    pub pidfd: OwnedFd,
    pub stdin: Option<OwnedFd>,
    pub outputs: Vec<(OutputStream, PipeReader)>,
    /// The inode numbers of its output pipes.
    pub pipes: Vec<u64>,
}

pub(super) fn spawn_process(task: &mut ProcessSpec) -> Result<SpawnedProcess, ProcessOutcome> {
    if children::ignores_child_exits() {
        return Err(StartRefusal::Unseen.into());
    }
    // The engine's copies must be closed with the child's, or the other side of the dialog would wait forever.
    let talk = task.talk.take();
    let task = &*task;
    let program = resolve_program(task)?;
    let refused = |error: io::Error| ProcessOutcome::from(classify_start_error(&error, &program, &task.directory));
    let (outputs, stdout, stderr) = open_pipes(task.stdout.is_some() && talk.is_none()).map_err(refused)?;
    let mut pipes: Vec<u64> = outputs.iter().filter_map(|(_, pipe)| Some(fstat(pipe).ok()?.st_ino)).collect();
    pipes.extend(talk.as_ref().and_then(|talk| Some(fstat(&talk.stdout).ok()?.st_ino)));
    let (stdin, stdout) = match talk {
        Some(talk) => (Stdio::from(talk.stdin), Stdio::from(talk.stdout)),
        None if task.stdin.is_empty() => (Stdio::null(), Stdio::from(stdout)),
        None => (Stdio::piped(), Stdio::from(stdout)),
    };
    let mut command = build_command(task, &program)?;
    command.current_dir(&task.directory).process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
    let (mut child, listed) = children::spawn_child(&mut command, &task.mark).map_err(refused)?;
    // The command holds the other ends of the pipes.
    drop(command);
    let stdin = child.stdin.take().map(OwnedFd::from);
    let ready = stdin.as_ref().map_or(Ok(()), set_nonblocking);
    let pid = Pid::from_child(&child);
    match ready.and_then(|()| Ok(pidfd_open(pid, PidfdFlags::empty())?)) {
        Ok(pidfd) => Ok(SpawnedProcess { listed, pidfd, stdin, outputs, pipes }),
        Err(error) => {
            // It could not be supervised, so it must not run.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
            Err(refused(error))
        }
    }
}

/// Builds the command that starts the program, in its sandbox if it has one.
fn build_command(task: &ProcessSpec, program: &Path) -> Result<Command, ProcessOutcome> {
    let Some(sandbox) = &task.sandbox else {
        let mut command = Command::new(program);
        let environment = task.environment.iter().map(|(name, value)| (name, value));
        command.args(&task.arguments).env_clear().envs(environment);
        return Ok(command);
    };
    sandbox
        .build_command(program, &task.arguments, &task.environment)
        .ok_or_else(|| StartRefusal::Other("a path of its sandbox is not valid UTF-8; rename it".into()).into())
}

fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

type OutputPipes = (Vec<(OutputStream, PipeReader)>, PipeWriter, PipeWriter);

/// Opens the output pipes. One pipe for both streams keeps their order; two keep them apart.
fn open_pipes(apart: bool) -> io::Result<OutputPipes> {
    let (both, stderr) = io::pipe()?;
    check_descriptor_limit([both.as_raw_fd(), stderr.as_raw_fd()])?;
    set_nonblocking(&both)?;
    if !apart {
        let stdout = stderr.try_clone()?;
        return Ok((vec![(OutputStream::Both, both)], stdout, stderr));
    }
    let (out, stdout) = io::pipe()?;
    set_nonblocking(&out)?;
    Ok((vec![(OutputStream::Out, out), (OutputStream::Both, both)], stdout, stderr))
}

/// Fails if too few file descriptors are left. A new descriptor gets the lowest free number, so about as many are left
/// as there are numbers above it. One may have taken the place of another that was closed just now; two rarely have.
fn check_descriptor_limit(new: [RawFd; 2]) -> io::Result<()> {
    let number = new.into_iter().max().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if number + RESERVE >= limit => Err(rustix::io::Errno::MFILE.into()),
        _ => Ok(()),
    }
}

fn resolve_program(task: &ProcessSpec) -> Result<PathBuf, ProcessOutcome> {
    let name = task.program.as_os_str();
    if Path::new(name).is_absolute() {
        return Ok(task.program.clone());
    }
    let path = task.environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(""), |(_, value)| value);
    program::find_program(name, path, std::slice::from_ref(&task.directory)).map_err(|error| match error {
        ProgramLookupError::NotExecutable(_) => StartError::NotExecutable(error.to_string()).into(),
        _ => StartError::NotFound(error.to_string()).into(),
    })
}
