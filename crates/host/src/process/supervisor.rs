//! Supervises one process from its start until no process of it is left.
//!
//! Owns the loop that waits for everything at once: output, room for input, the end of the process, its deadlines, and
//! stop requests. Nothing in it can block on the worker, and it wakes only when there is something to do.
//!
//! ```text
//! Running --ended--> Settling --all gone--> Over
//!    |                  | some are left
//!    | stop, timeout    v
//!    +--------------> Ending --all gone, or cannot be--> Over
//! ```

use std::{
    fs,
    io::Read,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{WaitId, WaitIdOptions, WaitIdStatus, waitid},
};
use skein_core::time::Millis;

use crate::{
    process::{
        ExceededLimit, LeakedProcess, ProcessOutcome, ProcessReport, ProcessSpec,
        children::ProcessFamily,
        output::ProcessOutput,
        process_table::{ProcessEntry, read_system_file},
        reap::ProcessRecordGuard,
        start::{SpawnedProcess, StopRequest, StopSignal, spawn_process},
        termination::{ProcessTermination, open_pidfds},
    },
    start_error::StartRefusal,
    terminal_escape::escape_for_terminal,
};

/// The time that processes started by the process have to exit after it.
const SETTLE: Duration = Duration::from_millis(500);
/// The grace period of processes that it left behind, between SIGTERM and SIGKILL.
const LEFT_GRACE: Duration = Duration::from_secs(2);
/// The size of a read, and the maximum number of reads before everything else is checked. Together they are as much as
/// a pipe can hold.
const PIECE: usize = 16 * 1024;
const PIECES: usize = 64;

enum SupervisionStage {
    Running,
    /// The process ended; its descendants have until this time. Some of them are held as pidfds, to wait for their end.
    Settling(Instant, Vec<OwnedFd>),
    Ending(Box<ProcessTermination>),
    Over,
}

struct ProcessSupervisor<'a> {
    task: &'a ProcessSpec,
    bell: &'a StopSignal,
    spawned: SpawnedProcess,
    output: ProcessOutput,
    family: ProcessFamily,
    stage: SupervisionStage,
    limits: ProcessDeadlines,
    /// The input, and the number of bytes already written.
    input: (Arc<[u8]>, usize),
    /// The outcome of the process or the reason for stopping it, whichever was known first.
    how: Option<ProcessOutcome>,
    ended: bool,
    leaked: Vec<LeakedProcess>,
    ooms: u64,
    buffer: Vec<u8>,
}

/// The events that poll reported.
#[derive(Default)]
struct PollReadiness {
    bell: bool,
    ended: bool,
    stdin: bool,
    outputs: Vec<bool>,
    held: Vec<bool>,
}

pub(super) fn supervise(mut task: ProcessSpec, bell: &StopSignal, began: Instant) -> ProcessReport {
    let ooms = recent_oom_kills();
    if bell.current_request() > StopRequest::Nothing {
        return ProcessReport::without_process(ProcessOutcome::Stopped, began);
    }
    let mut output = ProcessOutput::new(&mut task);
    let spawned = match spawn_process(&mut task) {
        Ok(spawned) => spawned,
        Err(how) => {
            output.push(super::output::OutputStream::Both, format!("[skein: {}]\n", how.message()).as_bytes());
            let (log, stdout, _) = output.finish();
            return ProcessReport { log, stdout, ..ProcessReport::without_process(how, began) };
        }
    };
    let seen = spawned.listed.seen;
    bell.set_pid(seen.pid);
    let note = ProcessRecordGuard::write_record(&task, seen);
    let family = ProcessFamily::new(seen, task.mark.clone(), spawned.pipes.clone());
    let input = (Arc::clone(&task.stdin), 0);
    let mut supervisor = ProcessSupervisor {
        limits: ProcessDeadlines::new(&task, began),
        task: &task,
        bell,
        spawned,
        output,
        family,
        stage: SupervisionStage::Running,
        input,
        how: None,
        ended: false,
        leaked: Vec::new(),
        ooms,
        buffer: vec![0; PIECE],
    };
    supervisor.watch_until_over();
    let ended = supervisor.finish(began);
    drop(note);
    ended
}

impl SupervisionStage {
    /// The pidfds that are polled in addition to that of the process itself.
    fn held_pidfds(&self) -> &[OwnedFd] {
        match self {
            SupervisionStage::Settling(_, held) => held,
            SupervisionStage::Ending(ending) => ending.held_pidfds(),
            SupervisionStage::Running | SupervisionStage::Over => &[],
        }
    }

    /// Drops the pidfds whose processes have exited.
    fn drop_exited(&mut self, ended: &[bool], now: Instant) {
        match self {
            // Each step checks again, and holds the remaining processes anew.
            SupervisionStage::Settling(_, held) => held.clear(),
            SupervisionStage::Ending(ending) => ending.drop_exited(ended, now),
            SupervisionStage::Running | SupervisionStage::Over => {}
        }
    }
}

fn add_poll<'a>(polled: &mut Vec<PollFd<'a>>, fd: Option<&'a OwnedFd>, flags: PollFlags) -> Option<usize> {
    polled.push(PollFd::new(fd?, flags));
    Some(polled.len() - 1)
}

impl ProcessSupervisor<'_> {
    fn watch_until_over(&mut self) {
        loop {
            let now = Instant::now();
            self.output.report_progress(now);
            self.advance(now);
            if matches!(self.stage, SupervisionStage::Over) {
                return;
            }
            let ready = self.wait_for_events(now);
            self.read_outputs(&ready);
            if ready.stdin {
                self.write_stdin();
            }
            let now = Instant::now();
            // The exit of the process is handled before any stop request.
            if ready.ended {
                self.handle_exit(now);
            }
            if ready.bell {
                self.handle_stop_signal(now);
            }
            if ready.held.contains(&true) {
                self.stage.drop_exited(&ready.held, now);
            }
        }
    }

    /// Waits until an event occurs or a deadline is due.
    fn wait_for_events(&self, now: Instant) -> PollReadiness {
        let mut polled = Vec::with_capacity(8);
        let bell = add_poll(&mut polled, self.bell.fd(), PollFlags::IN);
        // An exited process would wake the loop forever.
        let child = (!self.ended).then_some(&self.spawned.pidfd);
        let ended = add_poll(&mut polled, child, PollFlags::IN);
        let stdin = add_poll(&mut polled, self.spawned.stdin.as_ref(), PollFlags::OUT);
        let held = polled.len();
        polled.extend(self.stage.held_pidfds().iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let outputs = polled.len();
        polled.extend(self.spawned.outputs.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)));
        let timeout = self.next_due(now).map(|due| due.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut polled, timeout.as_ref()).is_err() {
            return PollReadiness::default();
        }
        let happened: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let at = |index: Option<usize>| index.is_some_and(|index| happened[index]);
        PollReadiness {
            bell: at(bell),
            ended: at(ended),
            stdin: at(stdin),
            outputs: happened[outputs..].to_vec(),
            held: happened[held..outputs].to_vec(),
        }
    }

    fn next_due(&self, now: Instant) -> Option<Instant> {
        let stage = match &self.stage {
            SupervisionStage::Running => self.limits.next_deadline().map(|(at, _)| at),
            SupervisionStage::Settling(until, _) => Some(*until),
            SupervisionStage::Ending(ending) => Some(ending.wake_at()),
            SupervisionStage::Over => None,
        };
        [stage, self.output.progress_due(now)].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant) {
        match &mut self.stage {
            SupervisionStage::Running => {
                if let Some((_, which)) = self.limits.next_deadline().filter(|(at, _)| *at <= now) {
                    self.begin_stop(ProcessOutcome::TimedOut(which), now);
                }
            }
            SupervisionStage::Settling(until, _) => {
                let until = *until;
                self.settle_leftovers(until, now);
            }
            SupervisionStage::Ending(ending) => {
                let over = ending.advance(now, &mut || self.family.find_members());
                if let Some(left) = over {
                    self.record_survivors(&left);
                    self.stage = SupervisionStage::Over;
                }
            }
            SupervisionStage::Over => {}
        }
    }

    /// Reads the available output, but not so long that nothing else gets its turn.
    fn read_outputs(&mut self, ready: &PollReadiness) {
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
                        limits.note_output(Instant::now());
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

    fn read_all_outputs(&mut self) {
        self.read_outputs(&PollReadiness {
            outputs: vec![true; self.spawned.outputs.len()],
            ..PollReadiness::default()
        });
    }

    /// Writes as much input as fits. A process that closes its input is not an error.
    fn write_stdin(&mut self) {
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

    /// Returns the outcome if the process has exited. It remains a zombie, so that its pid and group id are not reused.
    fn peek_exit(&self) -> Option<ProcessOutcome> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(self.spawned.pidfd.as_fd()), options) {
            Ok(status) => Some(self.classify_exit(status?)),
            Err(Errno::INTR) => None,
            // Another thread has waited for it.
            Err(_) => Some(StartRefusal::Unseen.into()),
        }
    }

    fn handle_exit(&mut self, now: Instant) {
        let Some(how) = self.peek_exit() else { return };
        self.spawned.stdin = None;
        self.ended = true;
        self.how.get_or_insert(how);
        if matches!(self.stage, SupervisionStage::Running) {
            self.stage = SupervisionStage::Settling(now + SETTLE, Vec::new());
            // Its last output may still be in the pipe.
            self.read_all_outputs();
        }
    }

    fn classify_exit(&self, status: WaitIdStatus) -> ProcessOutcome {
        if let Some(signal) = status.terminating_signal() {
            let oom = signal == 9 && count_oom_kills() > self.ooms;
            return ProcessOutcome::Signal { signal, core: status.dumped(), oom };
        }
        ProcessOutcome::Exited(status.exit_status().unwrap_or(0))
    }

    fn handle_stop_signal(&mut self, now: Instant) {
        let wish = self.bell.take_request();
        if wish == StopRequest::Nothing {
            return;
        }
        if matches!(self.stage, SupervisionStage::Running) {
            self.begin_stop(ProcessOutcome::Stopped, now);
        }
        match &mut self.stage {
            SupervisionStage::Settling(until, _) => *until = now,
            SupervisionStage::Ending(ending) if wish == StopRequest::Kill => ending.skip_grace(now),
            _ => {}
        }
    }

    /// Starts to stop the process, unless it has already exited.
    fn begin_stop(&mut self, why: ProcessOutcome, now: Instant) {
        if self.peek_exit().is_some() {
            return self.handle_exit(now);
        }
        self.how = Some(why);
        self.begin_termination(to_duration(self.task.grace), now);
    }

    /// Called after the process has exited: checks for remaining descendants.
    fn settle_leftovers(&mut self, until: Instant, now: Instant) {
        let quiet = self.spawned.outputs.is_empty();
        if quiet && !self.family.may_have_members() {
            self.stage = SupervisionStage::Over;
            return;
        }
        if now < until && (!quiet || !self.stage.held_pidfds().is_empty()) {
            return;
        }
        let left = self.family.find_members();
        if left.is_empty() {
            self.stage = SupervisionStage::Over;
        } else if now < until {
            self.stage = SupervisionStage::Settling(until, open_pidfds(&left));
        } else {
            self.leaked = left.iter().map(|entry| describe_leaked(entry, false)).collect();
            self.begin_termination(to_duration(self.task.grace).min(LEFT_GRACE), now);
        }
    }

    /// Starts to terminate the process and all its descendants.
    fn begin_termination(&mut self, grace: Duration, now: Instant) {
        let group = self.spawned.listed.seen.pid;
        self.stage = SupervisionStage::Ending(Box::new(ProcessTermination::new(Some(group), grace, now)));
        self.advance(now);
    }

    /// Records the processes that could not be terminated.
    fn record_survivors(&mut self, left: &[ProcessEntry]) {
        for entry in left {
            match self.leaked.iter_mut().find(|leaked| leaked.pid == entry.seen.pid) {
                Some(known) => known.alive = true,
                None => self.leaked.push(describe_leaked(entry, true)),
            }
        }
    }

    fn finish(mut self, began: Instant) -> ProcessReport {
        // The second read finds the end of a pipe that was full.
        self.read_all_outputs();
        self.read_all_outputs();
        let held = !self.spawned.outputs.is_empty();
        let wait = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(self.spawned.pidfd.as_fd()), wait);
        let (log, stdout, recent) = self.output.finish();
        let (tail, recent) = (recent.tail_lines(), recent.recent_lines());
        let took = Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let how = self.how.unwrap_or(ProcessOutcome::Stopped);
        ProcessReport { how, took, leaked: self.leaked, held, log, stdout, tail, recent }
    }
}

fn describe_leaked(entry: &ProcessEntry, alive: bool) -> LeakedProcess {
    LeakedProcess { pid: entry.seen.pid, name: escape_for_terminal(&entry.name), alive }
}

#[derive(Debug)]
pub(super) struct ProcessDeadlines {
    total: Option<(Instant, Millis)>,
    start: Option<(Instant, Millis)>,
    idle: Option<Millis>,
    /// The start of the present silence.
    since: Instant,
    command: CommandDeadline,
}

/// The deadline of the command that a worker is running, if any. Set by the code that parses the worker's output.
#[derive(Debug, Clone, Default)]
pub struct CommandDeadline(Arc<Mutex<Option<(Instant, Millis)>>>);

impl CommandDeadline {
    pub fn set(&self, due: Option<(Instant, Millis)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = due;
    }

    pub fn get(&self) -> Option<(Instant, Millis)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn to_duration(length: Millis) -> Duration {
    Duration::from_millis(length.0)
}

impl ProcessDeadlines {
    pub(super) fn new(task: &ProcessSpec, began: Instant) -> ProcessDeadlines {
        // A limit beyond the clock's range is no limit.
        let at = |limit: Millis| Some((began.checked_add(to_duration(limit))?, limit));
        ProcessDeadlines {
            total: task.limit.and_then(at),
            start: task.start.and_then(at),
            idle: task.idle,
            since: began,
            command: task.command.clone(),
        }
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<(Instant, ExceededLimit)> {
        let total = self.total.map(|(at, limit)| (at, ExceededLimit::Total(limit)));
        let start = self.start.map(|(at, limit)| (at, ExceededLimit::Start(limit)));
        let silence =
            |limit: Millis| Some((self.since.checked_add(to_duration(limit))?, ExceededLimit::Silence(limit)));
        // Starting up does not count as silence if it has a limit of its own.
        let silence = self.idle.filter(|_| start.is_none()).and_then(silence);
        let command = self.command.get().map(|(at, limit)| (at, ExceededLimit::Command(limit)));
        [total, start, silence, command].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Records that the process printed something.
    pub(super) fn note_output(&mut self, now: Instant) {
        self.start = None;
        self.since = now;
    }
}

const LATELY: Duration = Duration::from_secs(1);

/// The counter of the engine's own cgroup, if there is one.
fn find_own_counter() -> Option<&'static PathBuf> {
    static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let place = groups.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let file = PathBuf::from("/sys/fs/cgroup").join(place).join("memory.events");
        file.exists().then_some(file)
    };
    OWN.get_or_init(find).as_ref()
}

fn parse_kill_count(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The number of processes that were killed for memory so far.
pub(super) fn count_oom_kills() -> u64 {
    let own = find_own_counter().and_then(|file| parse_kill_count(&read_system_file(file, 1024)?));
    own.or_else(|| parse_kill_count(&read_system_file("/proc/vmstat", 16 * 1024)?)).unwrap_or(0)
}

/// The same number, at most a second old. Reading the counter takes longer than starting a process.
pub(super) fn recent_oom_kills() -> u64 {
    static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, count)) if at.elapsed() < LATELY => count,
        _ => last.insert((Instant::now(), count_oom_kills())).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_read_from_both_kinds_of_file() {
        assert_eq!(parse_kill_count(b"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(parse_kill_count(b"nr_free_pages 12\noom_kill 41\n"), Some(41));
        assert_eq!(parse_kill_count(b"oom_kill x\n"), None);
        assert_eq!(parse_kill_count(b""), None);
    }
}
