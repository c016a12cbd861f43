//! What an earlier life of the engine left running, and ending it.
//!
//! Owns finding it by mark and by note, and the care never to touch anything else. Refuses to know which attempts are
//! over: who asks says which marks are meant.

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
    Mark, Record, StateMark,
    ending::Ending,
    mark,
    record::Here,
    shown,
    tree::{Entry, Outside, Seen, Table},
};

/// A process that was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub pid: i32,
    /// When it started, in ticks since the machine did.
    pub start: u64,
    /// The name of its program, safe to show.
    pub name: String,
    /// What it worked for.
    pub mark: Mark,
}

/// What became of what was left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reaped {
    pub ended: Vec<Found>,
    /// These could not be ended: they hang in the system.
    pub left: Vec<Found>,
}

/// Processes that carry a mark of this state directory, or are the one of a note, and all they started, where the mark is
/// one of those meant. Never this process or one above it.
pub fn leftovers(state: &StateMark, records: &[Record], belongs: impl Fn(&Mark) -> bool) -> Vec<Found> {
    let found = look(&Table::now(), state, records, &belongs);
    found.into_iter().map(|(entry, mark)| Found::new(&entry, mark)).collect()
}

impl Found {
    fn new(entry: &Entry, mark: Mark) -> Found {
        Found { pid: entry.seen.pid, start: entry.seen.start, name: shown(&entry.name), mark }
    }
}

fn look(
    table: &Table,
    state: &StateMark,
    records: &[Record],
    belongs: &dyn Fn(&Mark) -> bool,
) -> Vec<(Entry, Mark)> {
    let ours = table.line(getpid().as_raw_nonzero().get());
    let meant = |mark: &Mark| mark.state == *state && belongs(mark);
    let mut found: BTreeMap<i32, Mark> = BTreeMap::new();
    for record in records.iter().filter(|record| meant(&record.mark)) {
        for pid in noted(table, record, &ours) {
            found.insert(pid, record.mark.clone());
        }
    }
    for entry in table.iter().filter(|entry| !ours.contains(&entry.seen.pid)) {
        if let Some(mark) = mark::carried(entry.seen.pid).into_iter().find(|mark| meant(mark)) {
            found.insert(entry.seen.pid, mark);
        }
    }
    let outside = Outside { pids: ours, ..Outside::default() };
    for (root, mark) in found.clone() {
        for entry in table.family([root], &outside) {
            found.entry(entry.seen.pid).or_insert_with(|| mark.clone());
        }
    }
    let live = found.into_iter().filter_map(|(pid, mark)| Some((table.get(pid)?.clone(), mark)));
    live.filter(|(entry, _)| entry.live).collect()
}

/// The process of a note, if it is the same one, with its group and what it started.
fn noted(table: &Table, record: &Record, ours: &BTreeSet<i32>) -> Vec<i32> {
    let Some(here) = Here::now() else { return Vec::new() };
    let Some(entry) = table.get(record.seen.pid).filter(|entry| record.is(here, entry)) else {
        return Vec::new();
    };
    let outside = Outside { pids: ours.clone(), session: Some(record.session) };
    table.family([entry.seen.pid], &outside).iter().map(|entry| entry.seen.pid).collect()
}

/// Ends what was left: asks, waits for the grace, kills, and returns when all of it is gone or nothing more can be done.
pub fn reap(state: &StateMark, records: &[Record], belongs: impl Fn(&Mark) -> bool, grace: Millis) -> Reaped {
    let mut seen: BTreeMap<Seen, (Entry, Mark)> = BTreeMap::new();
    let mut ending = Ending::new(None, Duration::from_millis(grace.0), Instant::now());
    let left = loop {
        let mut find = || {
            let known: Vec<(Seen, Mark)> =
                seen.iter().map(|(seen, (_, mark))| (*seen, mark.clone())).collect();
            let found = again(state, records, &belongs, &known);
            seen.extend(found.iter().map(|(entry, mark)| (entry.seen, (entry.clone(), mark.clone()))));
            found.into_iter().map(|(entry, _)| entry).collect()
        };
        if let Some(left) = ending.step(Instant::now(), &mut find) {
            break left;
        }
        wait(&mut ending);
    };
    let left: BTreeSet<Seen> = left.iter().map(|entry| entry.seen).collect();
    let mut reaped = Reaped::default();
    for (entry, mark) in seen.into_values() {
        let to = if left.contains(&entry.seen) { &mut reaped.left } else { &mut reaped.ended };
        to.push(Found::new(&entry, mark));
    }
    reaped
}

/// What is left now, with those that were found before though what led to them is gone.
fn again(
    state: &StateMark,
    records: &[Record],
    belongs: &dyn Fn(&Mark) -> bool,
    known: &[(Seen, Mark)],
) -> Vec<(Entry, Mark)> {
    let table = Table::now();
    let mut found = look(&table, state, records, belongs);
    for (seen, mark) in known {
        let Some(entry) = table.same(*seen).filter(|entry| entry.live) else { continue };
        if found.iter().all(|(other, _)| other.seen != entry.seen) {
            found.push((entry.clone(), mark.clone()));
        }
    }
    found
}

fn wait(ending: &mut Ending) {
    let now = Instant::now();
    let timeout = Timespec::try_from(ending.wake().saturating_duration_since(now)).ok();
    let mut polled: Vec<_> = ending.held().iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut polled, timeout.as_ref());
    let ended: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
    ending.gone(&ended, Instant::now());
}
