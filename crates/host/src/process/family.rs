//! Finds all processes of one attempt, also those that left its group, its session and its parents.
//!
//! Owns the rule that assigns orphans to attempts. Sends no signals.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::getpid;

use super::{
    ProcessMark,
    children::{self, SupervisedChild},
    mark,
    process_table::{self, FamilyBoundary, ProcessEntry, ProcessIdentity, ProcessTable},
};

/// The maximum number of processes of one attempt that are remembered between searches.
const REMEMBERED: usize = 4096;

/// The processes of an attempt.
#[derive(Debug)]
pub(super) struct ProcessFamily {
    us: i32,
    /// The process that was started. Until it is waited for, its pid and group id are not reused.
    child: ProcessIdentity,
    mark: ProcessMark,
    /// The inode numbers of its output pipes.
    pipes: Vec<u64>,
    /// The processes that were found to belong to it, so that they still do when their parents are gone.
    remembered: BTreeSet<ProcessIdentity>,
}

/// An orphan with the marks that it carries.
struct OrphanSuspect<'a> {
    entry: &'a ProcessEntry,
    marks: Vec<ProcessMark>,
}

impl ProcessFamily {
    pub(super) fn new(child: ProcessIdentity, mark: ProcessMark, pipes: Vec<u64>) -> ProcessFamily {
        let us = getpid().as_raw_nonzero().get();
        ProcessFamily { us, child, mark, pipes, remembered: BTreeSet::new() }
    }

    /// True if there can be members left after the child has ended: they are then children of the engine. Quick.
    pub(super) fn may_have_members(&self) -> bool {
        children::may_have_orphans(self.us)
    }

    /// Returns all living members. Orphans that have ended are reaped on the way.
    pub(super) fn find_members(&mut self) -> Vec<ProcessEntry> {
        let table = ProcessTable::read().with_adopted(self.us);
        let Some(home) = table.get(self.us) else { return Vec::new() };
        let known = children::supervised_children();
        let adopted = table.iter().filter(|entry| entry.parent == self.us && !known.contains_key(&entry.seen.pid));
        let adopted = children::filter_orphans(adopted.collect(), self.us);
        let mine: Vec<i32> = adopted
            .iter()
            .filter(|entry| entry.live && self.is_member(entry, home, &known))
            .map(|entry| entry.seen.pid)
            .collect();
        for entry in adopted.iter().filter(|entry| !entry.live && self.may_reap(entry, home)) {
            children::reap_orphan(entry, self.us);
        }
        let found = self.collect_members(&table, home, &known, mine);
        self.remembered = found.iter().map(|entry| entry.seen).take(REMEMBERED).collect();
        found
    }

    fn collect_members(
        &self,
        table: &ProcessTable,
        home: &ProcessEntry,
        known: &BTreeMap<i32, SupervisedChild>,
        mine: Vec<i32>,
    ) -> Vec<ProcessEntry> {
        let others = || known.keys().copied().filter(|pid| *pid != self.child.pid);
        let outside = FamilyBoundary { pids: others().chain([self.us]).collect(), session: Some(home.session) };
        let before = self.remembered.iter().filter_map(|seen| table.find_same(*seen)).map(|entry| entry.seen.pid);
        let roots = mine.into_iter().chain([self.child.pid]).chain(before);
        table.find_family(roots, &outside).into_iter().filter(|entry| entry.live).cloned().collect()
    }

    /// True unless another part of the engine may wait for it: a child in the engine's own group and session.
    fn may_reap(&self, entry: &ProcessEntry, home: &ProcessEntry) -> bool {
        entry.group != home.group || entry.session != home.session || self.remembered.contains(&entry.seen)
    }

    fn is_member(&self, entry: &ProcessEntry, home: &ProcessEntry, known: &BTreeMap<i32, SupervisedChild>) -> bool {
        if self.remembered.contains(&entry.seen) || entry.group == self.child.pid {
            return true;
        }
        let suspect = OrphanSuspect { entry, marks: mark::read_marks(entry.seen.pid) };
        if suspect.marks.contains(&self.mark) {
            return true;
        }
        let elsewhere = entry.group != home.group || entry.session != home.session;
        elsewhere
            && !suspect.has_other_mark(&self.mark, known)
            && (self.pipes.iter().any(|pipe| process_table::holds_pipe(entry.seen.pid, *pipe))
                || suspect.can_only_belong_to(self.child, known))
    }
}

impl OrphanSuspect<'_> {
    fn has_other_mark(&self, mine: &ProcessMark, known: &BTreeMap<i32, SupervisedChild>) -> bool {
        known.values().any(|other| other.mark != *mine && self.marks.contains(&other.mark))
    }

    /// True if it hid its origin and only the attempt of `child` can have started it. Thus it is killed in the end, and
    /// never while another attempt that it may belong to is running.
    fn can_only_belong_to(&self, child: ProcessIdentity, known: &BTreeMap<i32, SupervisedChild>) -> bool {
        let started = self.entry.seen.start;
        let another = known.iter().any(|(pid, other)| *pid != child.pid && other.start <= started);
        child.start <= started && !another
    }
}
