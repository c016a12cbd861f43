//! Finds and ends the processes that an earlier engine process left running.
//!
//! Owns finding them by mark and by process record, and never touching anything else. Does not know which attempts are
//! over: the caller says which marks are meant.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::getpid,
};
use skein_core::time::Millis;

use super::{
    ProcessMark, ProcessRecord, StateMark, mark,
    process_record::PidNamespace,
    process_table::{FamilyBoundary, ProcessEntry, ProcessIdentity, ProcessTable},
    termination::ProcessTermination,
};
use crate::terminal_escape::escape_for_terminal;

/// A process that was left running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftoverProcess {
    pub pid: i32,
    /// Its start time, in ticks since boot.
    pub start: u64,
    /// The name of its program, safe to show.
    pub name: String,
    /// The run and work that it belongs to.
    pub mark: ProcessMark,
}

/// The result of reaping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReapReport {
    pub ended: Vec<LeftoverProcess>,
    /// Processes that could not be ended: they hang in the kernel.
    pub left: Vec<LeftoverProcess>,
}

/// Finds processes that carry a mark of this state directory or match a process record, and all they started, if
/// `belongs` accepts the mark. Never this process or one of its ancestors.
pub fn find_leftovers(
    state: &StateMark,
    records: &[ProcessRecord],
    belongs: impl Fn(&ProcessMark) -> bool,
) -> Vec<LeftoverProcess> {
    let found = find_marked(&ProcessTable::read(), state, records, &belongs);
    found.into_iter().map(|(entry, mark)| LeftoverProcess::new(&entry, mark)).collect()
}

impl LeftoverProcess {
    fn new(entry: &ProcessEntry, mark: ProcessMark) -> LeftoverProcess {
        LeftoverProcess { pid: entry.seen.pid, start: entry.seen.start, name: escape_for_terminal(&entry.name), mark }
    }
}

fn find_marked(
    table: &ProcessTable,
    state: &StateMark,
    records: &[ProcessRecord],
    belongs: &dyn Fn(&ProcessMark) -> bool,
) -> Vec<(ProcessEntry, ProcessMark)> {
    let ours = table.ancestry(getpid().as_raw_nonzero().get());
    let meant = |mark: &ProcessMark| mark.state == *state && belongs(mark);
    let mut found: BTreeMap<i32, ProcessMark> = BTreeMap::new();
    for record in records.iter().filter(|record| meant(&record.mark)) {
        for pid in find_recorded(table, record, &ours) {
            found.insert(pid, record.mark.clone());
        }
    }
    for entry in table.iter().filter(|entry| !ours.contains(&entry.seen.pid)) {
        if let Some(mark) = mark::read_marks(entry.seen.pid).into_iter().find(|mark| meant(mark)) {
            found.insert(entry.seen.pid, mark);
        }
    }
    let outside = FamilyBoundary { pids: ours, ..FamilyBoundary::default() };
    for (root, mark) in found.clone() {
        for entry in table.find_family([root], &outside) {
            found.entry(entry.seen.pid).or_insert_with(|| mark.clone());
        }
    }
    let live = found.into_iter().filter_map(|(pid, mark)| Some((table.get(pid)?.clone(), mark)));
    live.filter(|(entry, _)| entry.live).collect()
}

/// Returns the process of a record, if it is still the same one, with its group and descendants.
fn find_recorded(table: &ProcessTable, record: &ProcessRecord, ours: &BTreeSet<i32>) -> Vec<i32> {
    let Some(here) = PidNamespace::current() else { return Vec::new() };
    let Some(entry) = table.get(record.seen.pid).filter(|entry| record.matches(here, entry)) else {
        return Vec::new();
    };
    let outside = FamilyBoundary { pids: ours.clone(), session: Some(record.session) };
    table.find_family([entry.seen.pid], &outside).iter().map(|entry| entry.seen.pid).collect()
}

/// Ends leftovers: sends SIGTERM, waits for the grace period, kills, and returns when nothing more can be done.
pub fn reap_leftovers(
    state: &StateMark,
    records: &[ProcessRecord],
    belongs: impl Fn(&ProcessMark) -> bool,
    grace: Millis,
) -> ReapReport {
    let mut seen: BTreeMap<ProcessIdentity, (ProcessEntry, ProcessMark)> = BTreeMap::new();
    let mut ending = ProcessTermination::new(None, Duration::from_millis(grace.0), Instant::now());
    let left = loop {
        let mut find = || {
            let known: Vec<(ProcessIdentity, ProcessMark)> =
                seen.iter().map(|(seen, (_, mark))| (*seen, mark.clone())).collect();
            let found = find_remaining(state, records, &belongs, &known);
            seen.extend(found.iter().map(|(entry, mark)| (entry.seen, (entry.clone(), mark.clone()))));
            found.into_iter().map(|(entry, _)| entry).collect()
        };
        if let Some(left) = ending.advance(Instant::now(), &mut find) {
            break left;
        }
        wait_for_exits(&mut ending);
    };
    let left: BTreeSet<ProcessIdentity> = left.iter().map(|entry| entry.seen).collect();
    let mut reaped = ReapReport::default();
    for (entry, mark) in seen.into_values() {
        let to = if left.contains(&entry.seen) { &mut reaped.left } else { &mut reaped.ended };
        to.push(LeftoverProcess::new(&entry, mark));
    }
    reaped
}

/// Returns the remaining processes, including earlier finds whose mark or record can no longer be read.
fn find_remaining(
    state: &StateMark,
    records: &[ProcessRecord],
    belongs: &dyn Fn(&ProcessMark) -> bool,
    known: &[(ProcessIdentity, ProcessMark)],
) -> Vec<(ProcessEntry, ProcessMark)> {
    let table = ProcessTable::read();
    let mut found = find_marked(&table, state, records, belongs);
    for (seen, mark) in known {
        let Some(entry) = table.find_same(*seen).filter(|entry| entry.live) else { continue };
        if found.iter().all(|(other, _)| other.seen != entry.seen) {
            found.push((entry.clone(), mark.clone()));
        }
    }
    found
}

fn wait_for_exits(ending: &mut ProcessTermination) {
    let now = Instant::now();
    let timeout = Timespec::try_from(ending.wake_at().saturating_duration_since(now)).ok();
    let mut polled: Vec<_> = ending.held_pidfds().iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut polled, timeout.as_ref());
    let ended: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
    ending.drop_exited(&ended, Instant::now());
}
