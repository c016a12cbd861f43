//! Starts an attempt's process under a supervisor of its own, and returns a handle to stop it.
//!
//! Owns the thread and its wake-up. The work of the thread is in `supervisor`.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, AtomicU8, Ordering},
    },
    thread,
    time::Instant,
};

use rustix::event::{EventfdFlags, eventfd};

use super::{ProcessReport, ProcessSpec, supervisor};
use crate::start_error::StartRefusal;

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

impl fmt::Debug for OnceCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceCallback")
    }
}

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
pub fn run_process(task: ProcessSpec, handle: impl FnOnce(ProcessHandle)) -> ProcessReport {
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
