//! The processes of the demonstration: ourselves, as other commands, started, heard and ended.
//!
//! Owns that nothing of them outlives it, whatever happens, workers included. Opens no store: who shares a state folder
//! with a process above it is taken for a worker, and may neither ask nor decide.

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
use skein_host::worker::{self, Found, StateMark};

use super::Trouble;
use crate::{changes::Changes, state};

/// Longer than anything but a person may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happens while others are at work.
#[derive(Debug)]
pub enum Heard {
    /// What a process printed as JSON.
    Value(u32, Value),
    /// A process has ended. It is not yet waited for.
    Ended(u32),
    /// Something was written in the folder.
    Written,
    /// Someone wants it to stop.
    Stop,
}

#[derive(Debug)]
pub struct Troupe {
    folder: PathBuf,
    program: PathBuf,
    /// Whether what the commands print is not to be seen.
    quiet: bool,
    tell: Sender<Heard>,
    heard: Receiver<Heard>,
    alive: BTreeMap<u32, Child>,
}

impl Troupe {
    /// From now on whoever wants it to stop is heard, and whatever is orphaned below is ours.
    pub fn new(quiet: bool) -> io::Result<Troupe> {
        worker::adopt();
        let (tell, heard) = channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let stop = tell.clone();
        thread("signals", move || {
            signals.forever().take_while(|_| stop.send(Heard::Stop).is_ok()).for_each(drop);
        })?;
        let program = std::env::current_exe()?;
        Ok(Troupe { folder: PathBuf::new(), program, quiet, tell, heard, alive: BTreeMap::new() })
    }

    /// The folder that all of them work in.
    pub fn enter(&mut self, folder: &Path) {
        self.folder = folder.to_owned();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.folder).env_remove("SKEIN_STATE").stdin(Stdio::null());
        command
    }

    /// Starts a command that is seen, as it would be at a terminal.
    pub fn start(&mut self, words: &[&str], asks: bool) -> Result<u32, Trouble> {
        let mut command = self.command(words);
        if asks {
            command.stdin(Stdio::inherit());
        }
        if self.quiet {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        self.spawn(command).map(|(pid, _)| pid)
    }

    /// Starts a command that prints JSON; each value is heard.
    pub fn listen(&mut self, words: &[&str], format: &str) -> Result<u32, Trouble> {
        let mut command = self.command(words);
        command.args(["--format", format]).stdout(Stdio::piped()).stderr(Stdio::null());
        let (pid, printed) = self.spawn(command)?;
        let tell = self.tell.clone();
        let each = move || {
            let values = printed
                .into_iter()
                .flat_map(|from| Deserializer::from_reader(BufReader::new(from)).into_iter());
            for value in values.map_while(Result::ok) {
                if tell.send(Heard::Value(pid, value)).is_err() {
                    return;
                }
            }
        };
        thread("values", each).map_err(|error| Trouble::system(&error))?;
        Ok(pid)
    }

    fn spawn(&mut self, mut command: Command) -> Result<(u32, Option<ChildStdout>), Trouble> {
        let mut child = command.spawn().map_err(|error| Trouble::system(&error))?;
        let (pid, printed) = (child.id(), child.stdout.take());
        let held = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        self.alive.insert(pid, child);
        let held: OwnedFd = held.map_err(|error| Trouble::system(&error.into()))?;
        let tell = self.tell.clone();
        let until_end = move || {
            while poll(&mut [PollFd::new(&held, PollFlags::IN)], None).is_err() {}
            let _ = tell.send(Heard::Ended(pid));
        };
        thread("end", until_end).map_err(|error| Trouble::system(&error))?;
        Ok((pid, printed))
    }

    /// What a command that ends at once prints as JSON.
    pub fn ask(&mut self, words: &[&str]) -> Result<Value, Trouble> {
        let (pid, until) = (self.listen(words, "json")?, patience());
        loop {
            match self.hear(until)? {
                Heard::Value(from, value) if from == pid => {
                    self.end(pid, false)?;
                    return Ok(value);
                }
                _ => {}
            }
        }
    }

    /// Tells of whatever is written in a folder from now on.
    pub fn watch(&self) -> Result<(), Trouble> {
        let changes = Changes::new().map_err(|error| Trouble::system(&error))?;
        changes.watch(&self.folder);
        let tell = self.tell.clone();
        let each = move || {
            while tell.send(Heard::Written).is_ok() {
                changes.wait();
            }
        };
        thread("written", each).map_err(|error| Trouble::system(&error))
    }

    /// The next that happens until then. Someone who wants it to stop is obeyed.
    pub fn hear(&self, until: Instant) -> Result<Heard, Trouble> {
        match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Heard::Stop) => Err(Trouble::Stopped),
            Ok(heard) => Ok(heard),
            Err(RecvTimeoutError::Timeout) => {
                Err(Trouble::broken("what should happen did not, within a minute"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Trouble::broken("nothing can be heard")),
        }
    }

    /// Until a command ends. A person may take their time.
    pub fn end(&mut self, pid: u32, asks: bool) -> Result<ExitStatus, Trouble> {
        let until = patience();
        loop {
            let heard = if asks { self.heard.recv().unwrap_or(Heard::Stop) } else { self.hear(until)? };
            match heard {
                Heard::Ended(other) if other == pid => return self.wait(pid),
                Heard::Stop => return Err(Trouble::Stopped),
                _ => {}
            }
        }
    }

    /// Kills a process of ours, and says how it ended.
    pub fn kill(&mut self, pid: u32) -> Result<ExitStatus, Trouble> {
        if let Some(child) = self.alive.get_mut(&pid) {
            child.kill().map_err(|error| Trouble::system(&error))?;
        }
        self.wait(pid)
    }

    fn wait(&mut self, pid: u32) -> Result<ExitStatus, Trouble> {
        let child = self.alive.remove(&pid);
        let mut child = child.ok_or_else(|| Trouble::broken(format!("process {pid} is nobody's")))?;
        child.wait().map_err(|error| Trouble::system(&error))
    }

    /// Workers of runs in the folder that live.
    pub fn workers(&self) -> Vec<Found> {
        let mark = StateMark::of(&self.folder.join(state::NAME)).ok();
        mark.map(|mark| worker::leftovers(&mark, &[], |_| true)).unwrap_or_default()
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        for child in self.alive.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        worker::end_all();
    }
}

/// Until when something must have happened that happens now.
pub fn patience() -> Instant {
    Instant::now() + PATIENCE
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}
