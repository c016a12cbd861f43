//! Termination of processes: SIGTERM first, then SIGKILL.
//!
//! Owns the order of signals and ensures that each reaches the intended process. Does not know which processes they are
//! or how they are found; a finder supplies them at each step. It never sleeps: it returns the time of the next step
//! and the pidfds to poll.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::process_table::{self, ProcessEntry, ProcessIdentity};

/// The time that killed processes have to disappear.
const GIVE_UP: Duration = Duration::from_secs(10);
/// The delay before the next check after killing: something may have been started meanwhile.
const AGAIN: Duration = Duration::from_millis(50);
/// The maximum number of searches for new processes while the known ones are being stopped.
const ROUNDS: usize = 20;
/// The maximum number of pidfds held at once. Descriptors are needed for workers.
const HELD: usize = 16;

#[derive(Debug)]
pub(super) struct ProcessTermination {
    /// The group of a child that has not been waited for, whose id therefore cannot be reused.
    group: Option<i32>,
    /// The end of the grace period.
    patience: Instant,
    /// The end of killing, once it has begun.
    give_up: Option<Instant>,
    asked: BTreeSet<ProcessIdentity>,
    held: Vec<OwnedFd>,
    wake: Instant,
}

/// Finds the living processes to terminate.
pub(super) type ProcessFinder<'a> = &'a mut dyn FnMut() -> Vec<ProcessEntry>;

/// Opens a pidfd, if the process with this pid is still the one that was seen.
fn open_pidfd(seen: ProcessIdentity) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(seen.pid)?, PidfdFlags::empty()).ok()?;
    let now = process_table::read_process(seen.pid)?;
    (now.seen == seen).then_some(pidfd)
}

fn send_signals(seen: ProcessIdentity, signals: &[Signal]) {
    if let Some(pidfd) = open_pidfd(seen) {
        for signal in signals {
            let _ = pidfd_send_signal(&pidfd, *signal);
        }
    }
}

/// Opens pidfds for some of these processes, to wait for their ends.
pub(super) fn open_pidfds(found: &[ProcessEntry]) -> Vec<OwnedFd> {
    found.iter().filter_map(|entry| open_pidfd(entry.seen)).take(HELD).collect()
}

impl ProcessTermination {
    pub(super) fn new(group: Option<i32>, grace: Duration, now: Instant) -> ProcessTermination {
        let patience = now.checked_add(grace).unwrap_or(now);
        ProcessTermination { group, patience, give_up: None, asked: BTreeSet::new(), held: Vec::new(), wake: now }
    }

    /// Ends the grace period.
    pub(super) fn skip_grace(&mut self, now: Instant) {
        self.patience = self.patience.min(now);
        self.wake = now;
    }

    pub(super) fn wake_at(&self) -> Instant {
        self.wake
    }

    /// The pidfds that are worth waking up for.
    pub(super) fn held_pidfds(&self) -> &[OwnedFd] {
        &self.held
    }

    /// Drops the held pidfds whose processes have exited.
    pub(super) fn drop_exited(&mut self, ended: &[bool], now: Instant) {
        let mut ended = ended.iter();
        self.held.retain(|_| !ended.next().is_some_and(|ended| *ended));
        if self.held.is_empty() {
            self.wake = now;
        }
    }

    /// Takes the next step if it is due. Returns the remaining processes when nothing more can be done.
    pub(super) fn advance(&mut self, now: Instant, find: ProcessFinder<'_>) -> Option<Vec<ProcessEntry>> {
        if now < self.wake {
            return None;
        }
        let found = find();
        if found.is_empty() || self.give_up.is_some_and(|give_up| now >= give_up) {
            return Some(found);
        }
        let found = if now < self.patience {
            self.ask_to_exit(&found);
            self.wake = self.patience;
            found
        } else {
            self.give_up.get_or_insert(now + GIVE_UP);
            self.wake = now + AGAIN;
            self.kill_all(found, find)
        };
        self.hold_pidfds(&found, now);
        None
    }

    fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Sends SIGTERM to each process once: many programs take a second one for impatience.
    fn ask_to_exit(&mut self, found: &[ProcessEntry]) {
        let first = self.asked.is_empty();
        for entry in found {
            if self.asked.insert(entry.seen) && !(first && self.group == Some(entry.group)) {
                // A suspended process handles no signal before it is continued.
                send_signals(entry.seen, &[Signal::TERM, Signal::CONT]);
            }
        }
        if first {
            self.signal_group(Signal::TERM);
            self.signal_group(Signal::CONT);
        }
    }

    /// Stops all processes before it kills any. A stopped process starts nothing, and while it exists its children can
    /// be recognised as its own.
    fn kill_all(&self, mut found: Vec<ProcessEntry>, find: ProcessFinder<'_>) -> Vec<ProcessEntry> {
        self.signal_group(Signal::KILL);
        let mut stopped = BTreeSet::new();
        for _ in 0..ROUNDS {
            let fresh: Vec<ProcessIdentity> =
                found.iter().map(|entry| entry.seen).filter(|seen| stopped.insert(*seen)).collect();
            if fresh.is_empty() {
                break;
            }
            fresh.into_iter().for_each(|seen| send_signals(seen, &[Signal::STOP]));
            found = find();
        }
        stopped.into_iter().for_each(|seen| send_signals(seen, &[Signal::KILL]));
        found
    }

    fn hold_pidfds(&mut self, found: &[ProcessEntry], now: Instant) {
        self.held = open_pidfds(found);
        if self.held.is_empty() {
            // All are gone already, or there is no free descriptor to wait with.
            self.wake = self.wake.min(now + AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// C3, with a real process: the pid is right, the start time is not.
    #[test]
    fn a_number_that_belongs_to_another_now_is_not_signalled() {
        let mut innocent = Command::new("sleep").arg("1000").spawn().expect("a process");
        let mut entry = process_table::read_process(innocent.id().cast_signed()).expect("it is there");
        entry.seen.start += 1;
        let mut looks = 0;
        let mut find = || {
            looks += 1;
            if looks < 4 { vec![entry.clone()] } else { Vec::new() }
        };
        let mut ending = ProcessTermination::new(None, Duration::ZERO, Instant::now());
        while ending.advance(ending.wake_at(), &mut find).is_none() {}
        assert!(looks >= 4);
        let state = std::fs::read_to_string(format!("/proc/{}/stat", innocent.id())).expect("it is there");
        assert!(!state.contains(") T "), "it was not even stopped");
        assert!(innocent.try_wait().expect("it is ours").is_none());
        innocent.kill().expect("it is there");
        innocent.wait().expect("it ended");
    }

    #[test]
    fn what_never_ends_is_given_up_and_named() {
        let ghost = process_table::parse_stat(b"1 (ghost) D 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 99999999999 0")
            .expect("a line");
        let began = Instant::now();
        let mut ending = ProcessTermination::new(None, Duration::from_secs(5), began);
        let mut find = || vec![ghost.clone()];
        let mut now = began;
        let left = loop {
            if let Some(left) = ending.advance(now, &mut find) {
                break left;
            }
            assert!(ending.wake_at() > now, "it does not spin");
            now = ending.wake_at();
        };
        assert_eq!(left, std::slice::from_ref(&ghost));
        assert!(now - began >= Duration::from_secs(5) + GIVE_UP);
        assert!(now - began <= Duration::from_secs(6) + GIVE_UP);
    }
}
