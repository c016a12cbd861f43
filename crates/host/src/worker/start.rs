//! Starting an attempt's process under a supervisor of its own, and a handle to stop it by.
//!
//! Owns the thread and how it is woken. What the thread does is in `process`.

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

use super::{Ended, How, Refused, Task, process};

/// What is wanted of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    Nothing = 0,
    Stop = 1,
    Kill = 2,
}

/// How a supervisor is told, and tells what it started.
#[derive(Debug)]
pub struct Bell {
    wish: AtomicU8,
    pid: AtomicI32,
    fd: Option<OwnedFd>,
}

impl Bell {
    fn new() -> Bell {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Bell { wish: AtomicU8::new(0), pid: AtomicI32::new(0), fd }
    }

    fn ring(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Ordering::SeqCst);
        if let Some(fd) = &self.fd {
            // Full only when it rings already.
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }

    pub fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// What is wanted now. The bell is quiet until someone wants more.
    pub fn heard(&self) -> Wish {
        if let Some(fd) = &self.fd {
            let _ = rustix::io::read(fd, &mut [0_u8; 8]);
        }
        self.wish()
    }

    pub fn wish(&self) -> Wish {
        match self.wish.load(Ordering::SeqCst) {
            0 => Wish::Nothing,
            1 => Wish::Stop,
            _ => Wish::Kill,
        }
    }

    pub fn started(&self, pid: i32) {
        self.pid.store(pid, Ordering::SeqCst);
    }
}

/// A process that was started. Dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct Handle {
    bell: Arc<Bell>,
}

impl Handle {
    /// Asks the process and all it started to end, and ends what is still there after its grace. What has ended before
    /// it heard of this is not stopped but ended.
    pub fn stop(&self) {
        self.bell.ring(Wish::Stop);
    }

    /// Ends it without asking.
    pub fn kill(&self) {
        self.bell.ring(Wish::Kill);
    }

    /// The number of the process, once there is one. For people: it may have ended.
    pub fn pid(&self) -> Option<i32> {
        Some(self.bell.pid.load(Ordering::SeqCst)).filter(|pid| *pid > 0)
    }
}

/// Called once with how it ended.
type Done = Box<dyn FnOnce(Ended) + Send>;

/// The one who is to be told, wherever it has to be told from.
#[derive(Clone)]
struct Once(Arc<Mutex<Option<Done>>>);

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl Once {
    fn call(&self, ended: Ended) {
        let done = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done {
            done(ended);
        }
    }
}

/// Starts a program and watches it until nothing of it is left. `handle` is given what it can be stopped by, before
/// there is a process.
pub fn run(task: Task, handle: impl FnOnce(Handle)) -> Ended {
    let (began, bell) = (Instant::now(), Arc::new(Bell::new()));
    handle(Handle { bell: Arc::clone(&bell) });
    supervise(task, &bell, began)
}

/// The same on a thread of its own, from which `done` is called with how it ended. It is called on this one, before
/// this returns, only when not even a thread can be had.
pub fn start(task: Task, done: impl FnOnce(Ended) + Send + 'static) -> Handle {
    let (began, bell) = (Instant::now(), Arc::new(Bell::new()));
    let once = Once(Arc::new(Mutex::new(Some(Box::new(done)))));
    let (theirs, last) = (Arc::clone(&bell), once.clone());
    let body = move || last.call(supervise(task, &theirs, began));
    let thread = thread::Builder::new().name("worker".to_owned()).spawn(body);
    if thread.is_err() {
        once.call(Ended::without_process(How::CannotStart(Refused::Processes), began));
    }
    Handle { bell }
}

fn supervise(task: Task, bell: &Bell, began: Instant) -> Ended {
    match bell.fd {
        Some(_) => process::supervise(task, bell, began),
        None => Ended::without_process(How::CannotStart(Refused::Files), began),
    }
}
