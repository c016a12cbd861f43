//! Finding all processes of one attempt, also those that left its group, its session and its parents.
//!
//! Owns the rule for whose an orphan is. Signals nobody.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::getpid;

use super::{
    Mark,
    children::{self, Known},
    mark,
    tree::{self, Entry, Outside, Seen, Table},
};

/// How many processes of one attempt are remembered between looks.
const REMEMBERED: usize = 4096;

/// The processes of an attempt.
#[derive(Debug)]
pub struct Family {
    us: i32,
    /// The one that was started. Until it is waited for, its number and its group's are its own.
    child: Seen,
    mark: Mark,
    /// The pipes its output comes through.
    pipes: Vec<u64>,
    /// Those that were found to belong to it, so that they still do when their parents are gone.
    remembered: BTreeSet<Seen>,
}

/// What an orphan looks like from an attempt.
struct Suspect<'a> {
    entry: &'a Entry,
    marks: Vec<Mark>,
}

impl Family {
    pub fn new(child: Seen, mark: Mark, pipes: Vec<u64>) -> Family {
        let us = getpid().as_raw_nonzero().get();
        Family { us, child, mark, pipes, remembered: BTreeSet::new() }
    }

    /// Whether there can be anyone left once the child has ended: its children are ours then. Quick.
    pub fn possible(&self) -> bool {
        children::orphans_possible(self.us)
    }

    /// All of them that live now. Orphans that have ended are buried on the way.
    pub fn look(&mut self) -> Vec<Entry> {
        let table = Table::now().with_adopted(self.us);
        let Some(home) = table.get(self.us) else { return Vec::new() };
        let known = children::known();
        let adopted =
            table.iter().filter(|entry| entry.parent == self.us && !known.contains_key(&entry.seen.pid));
        let adopted = children::orphans(adopted.collect(), self.us);
        let mine: Vec<i32> = adopted
            .iter()
            .filter(|entry| entry.live && self.is_mine(entry, home, &known))
            .map(|entry| entry.seen.pid)
            .collect();
        for entry in adopted.iter().filter(|entry| !entry.live && self.may_bury(entry, home)) {
            children::bury(entry, self.us);
        }
        let found = self.gather(&table, home, &known, mine);
        self.remembered = found.iter().map(|entry| entry.seen).take(REMEMBERED).collect();
        found
    }

    fn gather(
        &self,
        table: &Table,
        home: &Entry,
        known: &BTreeMap<i32, Known>,
        mine: Vec<i32>,
    ) -> Vec<Entry> {
        let others = || known.keys().copied().filter(|pid| *pid != self.child.pid);
        let outside = Outside { pids: others().chain([self.us]).collect(), session: Some(home.session) };
        let before = self.remembered.iter().filter_map(|seen| table.same(*seen)).map(|entry| entry.seen.pid);
        let roots = mine.into_iter().chain([self.child.pid]).chain(before);
        table.family(roots, &outside).into_iter().filter(|entry| entry.live).cloned().collect()
    }

    /// A child of ours that is where we are may be someone else's, who waits for it.
    fn may_bury(&self, entry: &Entry, home: &Entry) -> bool {
        entry.group != home.group || entry.session != home.session || self.remembered.contains(&entry.seen)
    }

    fn is_mine(&self, entry: &Entry, home: &Entry, known: &BTreeMap<i32, Known>) -> bool {
        if self.remembered.contains(&entry.seen) || entry.group == self.child.pid {
            return true;
        }
        let suspect = Suspect { entry, marks: mark::carried(entry.seen.pid) };
        if suspect.marks.contains(&self.mark) {
            return true;
        }
        let elsewhere = entry.group != home.group || entry.session != home.session;
        elsewhere
            && !suspect.carries_another(&self.mark, known)
            && (self.pipes.iter().any(|pipe| tree::holds(entry.seen.pid, *pipe))
                || suspect.can_only_be_of(self.child, known))
    }
}

impl Suspect<'_> {
    fn carries_another(&self, mine: &Mark, known: &BTreeMap<i32, Known>) -> bool {
        known.values().any(|other| other.mark != *mine && self.marks.contains(&other.mark))
    }

    /// It hid where it comes from. Then it is of whichever attempt is the last that can have started it: so it is ended
    /// in the end, and never while the attempt that it may belong to goes on.
    fn can_only_be_of(&self, child: Seen, known: &BTreeMap<i32, Known>) -> bool {
        let started = self.entry.seen.start;
        let another = known.iter().any(|(pid, other)| *pid != child.pid && other.start <= started);
        child.start <= started && !another
    }
}
