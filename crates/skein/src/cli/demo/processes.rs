//! The processes of the demonstration: this program with other commands, started, observed and ended.
//!
//! Owns the guarantee that no process outlives it, including workers. Opens no store: a process that shares a state
//! folder with a parent process is taken for a worker, and may neither prompt nor decide.

use std::{
    collections::BTreeMap,
    io::{self, BufReader},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde_json::{Deserializer, Value};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use skein_app::{runs::follow::FileChangeWatcher, state};
use skein_host::process::{self, LeftoverProcess, StateMark};

use super::DemoError;

/// Time limit of everything except people.
const PATIENCE: Duration = Duration::from_secs(60);

/// An event of the demonstration.
#[derive(Debug)]
pub(super) enum DemoEvent {
    /// A JSON value that a process printed.
    Value(u32, Value),
    /// A process has ended. It is not reaped yet.
    Ended(u32),
    /// A file was written in the folder.
    Written,
    /// A signal asks to stop.
    Stop,
}

#[derive(Debug)]
pub(super) struct DemoProcesses {
    folder: PathBuf,
    program: PathBuf,
    /// True if the output of the commands is hidden.
    quiet: bool,
    sender: Sender<DemoEvent>,
    events: Receiver<DemoEvent>,
    alive: BTreeMap<u32, Child>,
}

impl DemoProcesses {
    /// Starts to handle signals, and becomes the parent of orphaned descendants.
    pub(super) fn new(quiet: bool) -> io::Result<DemoProcesses> {
        process::become_subreaper();
        let (sender, events) = channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let stop = sender.clone();
        spawn_thread("signals", move || {
            signals.forever().take_while(|_| stop.send(DemoEvent::Stop).is_ok()).for_each(drop);
        })?;
        let program = std::env::current_exe()?;
        Ok(DemoProcesses { folder: PathBuf::new(), program, quiet, sender, events, alive: BTreeMap::new() })
    }

    /// Sets the working directory of the processes.
    pub(super) fn set_folder(&mut self, folder: &Path) {
        self.folder = folder.to_owned();
    }

    fn build_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.folder).env_remove("SKEIN_STATE").stdin(Stdio::null());
        command
    }

    /// Starts a command whose output is shown, as at a terminal.
    pub(super) fn start_command(&mut self, words: &[&str], asks: bool) -> Result<u32, DemoError> {
        let mut command = self.build_command(words);
        if asks {
            command.stdin(Stdio::inherit());
        }
        if self.quiet {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        self.spawn_process(command).map(|(pid, _)| pid)
    }

    /// Starts a command that prints JSON; each value becomes an event.
    pub(super) fn start_listener(&mut self, words: &[&str], format: &str) -> Result<u32, DemoError> {
        let mut command = self.build_command(words);
        command.args(["--format", format]).stdout(Stdio::piped()).stderr(Stdio::null());
        let (pid, printed) = self.spawn_process(command)?;
        let sender = self.sender.clone();
        let each = move || {
            let values =
                printed.into_iter().flat_map(|from| Deserializer::from_reader(BufReader::new(from)).into_iter());
            for value in values.map_while(Result::ok) {
                if sender.send(DemoEvent::Value(pid, value)).is_err() {
                    return;
                }
            }
        };
        spawn_thread("values", each)?;
        Ok(pid)
    }

    fn spawn_process(&mut self, mut command: Command) -> Result<(u32, Option<ChildStdout>), DemoError> {
        let mut child = command.spawn()?;
        let (pid, printed) = (child.id(), child.stdout.take());
        let held = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        self.alive.insert(pid, child);
        let held: OwnedFd = held.map_err(io::Error::from)?;
        let sender = self.sender.clone();
        let until_end = move || {
            while poll(&mut [PollFd::new(&held, PollFlags::IN)], None).is_err() {}
            let _ = sender.send(DemoEvent::Ended(pid));
        };
        spawn_thread("end", until_end)?;
        Ok((pid, printed))
    }

    /// Returns the JSON value that a short command prints.
    pub(super) fn query_json(&mut self, words: &[&str]) -> Result<Value, DemoError> {
        let (pid, until) = (self.start_listener(words, "json")?, patience_deadline());
        let mut ended = false;
        loop {
            match self.next_event(until)? {
                // The end of the process and its output come from two threads, in either order.
                DemoEvent::Ended(other) if other == pid => ended = true,
                DemoEvent::Value(from, value) if from == pid => {
                    if ended {
                        self.wait_process(pid)?
                    } else {
                        self.wait_for_end(pid, false)?
                    };
                    return Ok(value);
                }
                _ => {}
            }
        }
    }

    /// Sends an event for each write in the folder from now on.
    pub(super) fn watch_folder(&self) -> Result<(), DemoError> {
        let changes = FileChangeWatcher::new()?;
        changes.add_folder(&self.folder);
        let sender = self.sender.clone();
        let each = move || {
            while sender.send(DemoEvent::Written).is_ok() {
                changes.wait_for_change();
            }
        };
        Ok(spawn_thread("written", each)?)
    }

    /// Returns the next event until the deadline. A signal to stop is returned as an error.
    pub(super) fn next_event(&self, until: Instant) -> Result<DemoEvent, DemoError> {
        match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(DemoEvent::Stop) => Err(DemoError::Stopped),
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => {
                Err(DemoError::broken("an expected event did not happen within a minute"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(DemoError::broken("the channel of events is closed")),
        }
    }

    /// Waits until a command ends. There is no time limit for people.
    pub(super) fn wait_for_end(&mut self, pid: u32, asks: bool) -> Result<ExitStatus, DemoError> {
        let until = patience_deadline();
        loop {
            let event = if asks { self.events.recv().unwrap_or(DemoEvent::Stop) } else { self.next_event(until)? };
            match event {
                DemoEvent::Ended(other) if other == pid => return self.wait_process(pid),
                DemoEvent::Stop => return Err(DemoError::Stopped),
                _ => {}
            }
        }
    }

    /// Kills a process, and returns its exit status.
    pub(super) fn kill_process(&mut self, pid: u32) -> Result<ExitStatus, DemoError> {
        if let Some(child) = self.alive.get_mut(&pid) {
            child.kill()?;
        }
        self.wait_process(pid)
    }

    fn wait_process(&mut self, pid: u32) -> Result<ExitStatus, DemoError> {
        let child = self.alive.remove(&pid);
        let mut child = child.ok_or_else(|| DemoError::broken(format!("process {pid} is not known")))?;
        Ok(child.wait()?)
    }

    /// Finds living workers of runs in the folder.
    pub(super) fn find_workers(&self) -> Vec<LeftoverProcess> {
        let mark = StateMark::from_directory(&self.folder.join(state::NAME)).ok();
        mark.map(|mark| process::find_leftovers(&mark, &[], |_| true)).unwrap_or_default()
    }
}

impl Drop for DemoProcesses {
    fn drop(&mut self) {
        for child in self.alive.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        process::kill_descendants();
    }
}

/// Returns the deadline for an event that is expected now.
pub(super) fn patience_deadline() -> Instant {
    Instant::now() + PATIENCE
}

fn spawn_thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}
