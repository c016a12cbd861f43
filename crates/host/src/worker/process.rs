//! Watching one process from its start until nothing of it is left.
//!
//! Owns the loop that waits for everything at once: output, room for input, the end of the process, its deadlines, and
//! someone who wants it stopped. Nothing in it can block on the worker, and it wakes only when there is something to do.
//!
//! ```text
//! Running --ended--> Settling --all gone--> Over
//!    |                  | some are left
//!    | stop, timeout    v
//!    +--------------> Ending --all gone, or cannot be--> Over
//! ```

use std::{
    io::Read,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{WaitId, WaitIdOptions, WaitIdStatus, waitid},
};
use skein_core::time::Millis;

use super::{
    Ended, How, Leaked, Refused,
    ending::{Ending, hold},
    find::Family,
    limit::{Limits, duration},
    memory,
    output::Output,
    record::Note,
    shown,
    spawn::{Spawned, spawn},
    start::{Bell, Wish},
    task::Task,
    tree::Entry,
};

/// How long what the process started may take to end after it.
const SETTLE: Duration = Duration::from_millis(500);
/// How long what it left behind is asked before it is killed.
const LEFT_GRACE: Duration = Duration::from_secs(2);
/// The size of a read, and how many of them are done before everything else is looked at. Together they are as much
/// as a pipe can hold.
const PIECE: usize = 16 * 1024;
const PIECES: usize = 64;

enum Stage {
    Running,
    /// It ended; what it started has until then. Some of that is held, to wait for its end.
    Settling(Instant, Vec<OwnedFd>),
    Ending(Box<Ending>),
    Over,
}

struct Supervisor<'a> {
    task: &'a Task,
    bell: &'a Bell,
    spawned: Spawned,
    output: Output,
    family: Family,
    stage: Stage,
    limits: Limits,
    /// What is to be written, and how much of it was.
    input: (Arc<[u8]>, usize),
    /// How it ended or why it is made to, whichever was known first.
    how: Option<How>,
    ended: bool,
    leaked: Vec<Leaked>,
    ooms: u64,
    buffer: Vec<u8>,
}

/// Which of the things waited for has happened.
#[derive(Default)]
struct Ready {
    bell: bool,
    ended: bool,
    stdin: bool,
    outputs: Vec<bool>,
    held: Vec<bool>,
}

pub fn supervise(mut task: Task, bell: &Bell, began: Instant) -> Ended {
    let ooms = memory::kills_lately();
    if bell.wish() > Wish::Nothing {
        return Ended::without_process(How::Stopped, began);
    }
    let mut output = Output::new(&mut task);
    let spawned = match spawn(&mut task) {
        Ok(spawned) => spawned,
        Err(how) => {
            output.push(super::output::Stream::Both, format!("[skein: {}]\n", how.message()).as_bytes());
            let (log, stdout, _) = output.finish();
            return Ended { log, stdout, ..Ended::without_process(how, began) };
        }
    };
    let seen = spawned.listed.seen;
    bell.started(seen.pid);
    let note = Note::leave(&task, seen);
    let family = Family::new(seen, task.mark.clone(), spawned.pipes.clone());
    let input = (Arc::clone(&task.stdin), 0);
    let mut supervisor = Supervisor {
        limits: Limits::new(&task, began),
        task: &task,
        bell,
        spawned,
        output,
        family,
        stage: Stage::Running,
        input,
        how: None,
        ended: false,
        leaked: Vec::new(),
        ooms,
        buffer: vec![0; PIECE],
    };
    supervisor.watch();
    let ended = supervisor.finish(began);
    drop(note);
    ended
}

impl Stage {
    /// Ends that are waited for beside that of the process itself.
    fn held(&self) -> &[OwnedFd] {
        match self {
            Stage::Settling(_, held) => held,
            Stage::Ending(ending) => ending.held(),
            Stage::Running | Stage::Over => &[],
        }
    }

    /// These of them have come.
    fn gone(&mut self, ended: &[bool], now: Instant) {
        match self {
            // It looks at each step, and holds anew what is still there.
            Stage::Settling(_, held) => held.clear(),
            Stage::Ending(ending) => ending.gone(ended, now),
            Stage::Running | Stage::Over => {}
        }
    }
}

fn add<'a>(polled: &mut Vec<PollFd<'a>>, fd: Option<&'a OwnedFd>, flags: PollFlags) -> Option<usize> {
    polled.push(PollFd::new(fd?, flags));
    Some(polled.len() - 1)
}

impl Supervisor<'_> {
    fn watch(&mut self) {
        loop {
            let now = Instant::now();
            self.output.tell(now);
            self.step(now);
            if matches!(self.stage, Stage::Over) {
                return;
            }
            let ready = self.wait(now);
            self.read(&ready);
            if ready.stdin {
                self.write();
            }
            let now = Instant::now();
            // Its own end comes before anything that is wanted of it.
            if ready.ended {
                self.has_ended(now);
            }
            if ready.bell {
                self.heard(now);
            }
            if ready.held.contains(&true) {
                self.stage.gone(&ready.held, now);
            }
        }
    }

    /// Waits until something happens or is due.
    fn wait(&self, now: Instant) -> Ready {
        let mut polled = Vec::with_capacity(8);
        let bell = add(&mut polled, self.bell.fd(), PollFlags::IN);
        // What has ended would wake us for ever.
        let child = (!self.ended).then_some(&self.spawned.pidfd);
        let ended = add(&mut polled, child, PollFlags::IN);
        let stdin = add(&mut polled, self.spawned.stdin.as_ref(), PollFlags::OUT);
        let held = polled.len();
        polled.extend(self.stage.held().iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let outputs = polled.len();
        polled.extend(self.spawned.outputs.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)));
        let timeout = self.due(now).map(|due| due.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let happened: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let at = |index: Option<usize>| index.is_some_and(|index| happened[index]);
        Ready {
            bell: at(bell),
            ended: at(ended),
            stdin: at(stdin),
            outputs: happened[outputs..].to_vec(),
            held: happened[held..outputs].to_vec(),
        }
    }

    fn due(&self, now: Instant) -> Option<Instant> {
        let stage = match &self.stage {
            Stage::Running => self.limits.next().map(|(at, _)| at),
            Stage::Settling(until, _) => Some(*until),
            Stage::Ending(ending) => Some(ending.wake()),
            Stage::Over => None,
        };
        [stage, self.output.due(now)].into_iter().flatten().min()
    }

    fn step(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Running => {
                if let Some((_, which)) = self.limits.next().filter(|(at, _)| *at <= now) {
                    self.give_up(How::TimedOut(which), now);
                }
            }
            Stage::Settling(until, _) => {
                let until = *until;
                self.settle(until, now);
            }
            Stage::Ending(ending) => {
                let over = ending.step(now, &mut || self.family.look());
                if let Some(left) = over {
                    self.survived(&left);
                    self.stage = Stage::Over;
                }
            }
            Stage::Over => {}
        }
    }

    /// Reads what there is, but not so long that nothing else gets its turn.
    fn read(&mut self, ready: &Ready) {
        let mut ready = ready.outputs.iter();
        let (buffer, output, limits) = (&mut self.buffer, &mut self.output, &mut self.limits);
        self.spawned.outputs.retain_mut(|(stream, pipe)| {
            if !ready.next().is_some_and(|ready| *ready) {
                return true;
            }
            for _ in 0..PIECES {
                match pipe.read(buffer) {
                    Ok(0) => return false,
                    Ok(n) => {
                        limits.heard(Instant::now());
                        output.push(*stream, &buffer[..n]);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
            true
        });
    }

    fn read_all(&mut self) {
        self.read(&Ready { outputs: vec![true; self.spawned.outputs.len()], ..Ready::default() });
    }

    /// Writes what there is room for. Who does not want more is not an error.
    fn write(&mut self) {
        let Some(stdin) = &self.spawned.stdin else { return };
        let (bytes, written) = (&self.input.0, &mut self.input.1);
        let open = loop {
            match rustix::io::write(stdin, &bytes[*written..]) {
                Ok(n) => *written += n,
                Err(Errno::AGAIN) => break true,
                Err(Errno::INTR) => {}
                Err(_) => break false,
            }
            if *written >= bytes.len() {
                break false;
            }
        };
        if !open {
            self.spawned.stdin = None;
        }
    }

    /// How the process ended, if it did. It stays where it is, so that its number and its group stay its own.
    fn peek(&self) -> Option<How> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(self.spawned.pidfd.as_fd()), options) {
            Ok(status) => Some(self.told(status?)),
            Err(Errno::INTR) => None,
            // Someone else has waited for it.
            Err(_) => Some(How::CannotStart(Refused::Unseen)),
        }
    }

    fn has_ended(&mut self, now: Instant) {
        let Some(how) = self.peek() else { return };
        self.spawned.stdin = None;
        self.ended = true;
        self.how.get_or_insert(how);
        if matches!(self.stage, Stage::Running) {
            self.stage = Stage::Settling(now + SETTLE, Vec::new());
            // Its last words may be in the pipe still.
            self.read_all();
        }
    }

    fn told(&self, status: WaitIdStatus) -> How {
        if let Some(signal) = status.terminating_signal() {
            let oom = signal == 9 && memory::kills() > self.ooms;
            return How::Signal { signal, core: status.dumped(), oom };
        }
        How::Exited(status.exit_status().unwrap_or(0))
    }

    fn heard(&mut self, now: Instant) {
        let wish = self.bell.heard();
        if wish == Wish::Nothing {
            return;
        }
        if matches!(self.stage, Stage::Running) {
            self.give_up(How::Stopped, now);
        }
        match &mut self.stage {
            Stage::Settling(until, _) => *until = now,
            Stage::Ending(ending) if wish == Wish::Kill => ending.hurry(now),
            _ => {}
        }
    }

    /// It is made to end, unless it has ended by itself.
    fn give_up(&mut self, why: How, now: Instant) {
        if self.peek().is_some() {
            return self.has_ended(now);
        }
        self.how = Some(why);
        self.end(duration(self.task.grace), now);
    }

    /// The process has ended. Is that all?
    fn settle(&mut self, until: Instant, now: Instant) {
        let quiet = self.spawned.outputs.is_empty();
        if quiet && !self.family.possible() {
            self.stage = Stage::Over;
            return;
        }
        if now < until && (!quiet || !self.stage.held().is_empty()) {
            return;
        }
        let left = self.family.look();
        if left.is_empty() {
            self.stage = Stage::Over;
        } else if now < until {
            self.stage = Stage::Settling(until, hold(&left));
        } else {
            self.leaked = left.iter().map(|entry| leaked(entry, false)).collect();
            self.end(duration(self.task.grace).min(LEFT_GRACE), now);
        }
    }

    /// Everything of it is to end.
    fn end(&mut self, grace: Duration, now: Instant) {
        let group = self.spawned.listed.seen.pid;
        self.stage = Stage::Ending(Box::new(Ending::new(Some(group), grace, now)));
        self.step(now);
    }

    /// These could not be ended.
    fn survived(&mut self, left: &[Entry]) {
        for entry in left {
            match self.leaked.iter_mut().find(|leaked| leaked.pid == entry.seen.pid) {
                Some(known) => known.alive = true,
                None => self.leaked.push(leaked(entry, true)),
            }
        }
    }

    fn finish(mut self, began: Instant) -> Ended {
        // The second time finds the end of a pipe that was full.
        self.read_all();
        self.read_all();
        let held = !self.spawned.outputs.is_empty();
        let wait = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(self.spawned.pidfd.as_fd()), wait);
        let (log, stdout, recent) = self.output.finish();
        let (tail, recent) = (recent.tail(), recent.recent());
        let took = Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let how = self.how.unwrap_or(How::Stopped);
        Ended { how, took, leaked: self.leaked, held, log, stdout, tail, recent }
    }
}

fn leaked(entry: &Entry, alive: bool) -> Leaked {
    Leaked { pid: entry.seen.pid, name: shown(&entry.name), alive }
}
