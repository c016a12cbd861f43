//! Kills all descendants of this process before it exits, whoever started them.
//!
//! Owns that no descendant survives, also those that were orphaned, left their group or never carried a mark: an orphan
//! becomes a child of this process, and a child cannot hide. Leaves alone the processes that a supervisor waits for.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, waitid},
};

use super::{children, process_table::ProcessTable};

/// A process that hangs in the kernel for longer is left to it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills every child of this process, and those that become its children by that, until there are none. Only for a
/// process that called [`become_subreaper`](super::become_subreaper) before it started anything.
pub fn kill_descendants() {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let known = children::supervised_children();
        let us = getpid().as_raw_nonzero().get();
        let table = ProcessTable::read();
        let left = table.iter().filter(|entry| entry.parent == us && !known.contains_key(&entry.seen.pid));
        let left: Vec<Pid> = left.filter_map(|entry| Pid::from_raw(entry.seen.pid)).collect();
        if left.is_empty() {
            return;
        }
        left.into_iter().for_each(|pid| kill_child(pid, until));
    }
}

/// Kills a child. Its process id is not reused until it is waited for.
fn kill_child(pid: Pid, until: Instant) {
    let held = pidfd_open(pid, PidfdFlags::empty());
    let _ = kill_process(pid, Signal::KILL);
    if let Ok(held) = held {
        wait_for_exit(&held, until);
    }
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

fn wait_for_exit(held: &OwnedFd, until: Instant) {
    let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
    let _ = poll(&mut [PollFd::new(held, PollFlags::IN)], left.as_ref());
}
