//! The children of this process: those that it started for attempts, and the orphans that it inherited.
//!
//! Owns the list of started children and the question that everything else depends on: is this child an orphan, or does
//! a supervisor wait for it? A child is on the list before it can be taken for an orphan, and is waited for before it
//! is removed. Owns the rule that assigns orphans to attempts, also those that left their group, their session and
//! their parents, and the end of all remaining descendants before this process exits: an orphan becomes a child of this
//! process, and a child cannot hide.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{
        Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, set_child_subreaper, waitid,
    },
};

use crate::{
    process::{
        ProcessMark, mark,
        process_table::{self, FamilyBoundary, ProcessEntry, ProcessIdentity, ProcessTable},
    },
    sandbox::MARK_VARIABLE,
};

/// Locked for reading while a child is started, and for writing while orphans are identified.
static STARTING: RwLock<()> = RwLock::new(());
static KNOWN: Mutex<BTreeMap<i32, SupervisedChild>> = Mutex::new(BTreeMap::new());

/// A child that a supervisor waits for.
#[derive(Debug, Clone)]
pub(super) struct SupervisedChild {
    pub start: u64,
    pub mark: ProcessMark,
    /// Distinguishes it from a later child with the same pid.
    serial: u64,
}

/// An entry on the list, removed on drop. Drop it after the child was waited for.
#[derive(Debug)]
pub(super) struct ChildRegistration {
    pub seen: ProcessIdentity,
    serial: u64,
}

fn lock_children() -> MutexGuard<'static, BTreeMap<i32, SupervisedChild>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes orphaned descendants become children of this process. If the system does not support that, they are still
/// found by their marks as long as their parents live.
pub fn become_subreaper() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = set_child_subreaper(Some(getpid()));
    });
}

/// True if the parent of this process had SIGCHLD ignored. Then exits of children are not reported, and their pids
/// could be reused while the engine still refers to them.
pub(super) fn ignores_child_exits() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    const SIGCHLD: u64 = 1 << (17 - 1);
    let read = || {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        Some(u64::from_str_radix(mask.trim(), 16).ok()? & SIGCHLD != 0)
    };
    *IGNORED.get_or_init(|| read().unwrap_or(false))
}

/// The marks that this process carries as the worker of another engine.
fn read_own_marks() -> Vec<ProcessMark> {
    std::env::var_os(MARK_VARIABLE).map(|value| super::mark::parse_marks(value.as_encoded_bytes())).unwrap_or_default()
}

/// Starts a child and lists it.
pub(super) fn spawn_child(command: &mut Command, mark: &ProcessMark) -> io::Result<(Child, ChildRegistration)> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    become_subreaper();
    command.env(MARK_VARIABLE, mark.variable_value(&read_own_marks()));
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    let pid = child.id().cast_signed();
    // It has not been waited for, so it still has an entry, even if it has ended.
    let start = process_table::read_process(pid).map_or(0, |entry| entry.seen.start);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    lock_children().insert(pid, SupervisedChild { start, mark: mark.clone(), serial });
    Ok((child, ChildRegistration { seen: ProcessIdentity { pid, start }, serial }))
}

impl Drop for ChildRegistration {
    fn drop(&mut self) {
        let mut list = lock_children();
        if list.get(&self.seen.pid).is_some_and(|known| known.serial == self.serial) {
            list.remove(&self.seen.pid);
        }
    }
}

/// The children that supervisors wait for now.
pub(super) fn supervised_children() -> BTreeMap<i32, SupervisedChild> {
    lock_children().clone()
}

/// True if this process may have children that no supervisor waits for. Quick; returns true in doubt.
pub(super) fn may_have_orphans(us: i32) -> bool {
    match process_table::read_adopted_children(us) {
        Some(adopted) if adopted.is_empty() => false,
        Some(adopted) => {
            let list = lock_children();
            adopted.iter().any(|pid| !list.contains_key(pid))
        }
        None => true,
    }
}

/// True if this is an orphan now, and not a child that is being started or waited for.
fn is_orphan(entry: &ProcessEntry, us: i32) -> bool {
    let now = process_table::read_process(entry.seen.pid).filter(|now| now.seen == entry.seen && now.parent == us);
    now.is_some() && !lock_children().contains_key(&entry.seen.pid)
}
pub(super) fn filter_orphans(candidates: Vec<&ProcessEntry>, us: i32) -> Vec<&ProcessEntry> {
    if candidates.is_empty() {
        return candidates;
    }
    let _none_starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    candidates.into_iter().filter(|entry| is_orphan(entry, us)).collect()
}

/// Waits for an orphan that has ended, to remove its entry. No other code would.
pub(super) fn reap_orphan(entry: &ProcessEntry, us: i32) {
    let _none_starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    if let (true, Some(pid)) = (is_orphan(entry, us), Pid::from_raw(entry.seen.pid)) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// A process that hangs in the kernel for longer is left to it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills every child of this process, and those that become its children by that, until there are none. Only for a
/// process that called [`become_subreaper`] before it started anything.
pub fn kill_descendants() {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let known = supervised_children();
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
        may_have_orphans(self.us)
    }

    /// Returns all living members. Orphans that have ended are reaped on the way.
    pub(super) fn find_members(&mut self) -> Vec<ProcessEntry> {
        let table = ProcessTable::read().with_adopted(self.us);
        let Some(home) = table.get(self.us) else { return Vec::new() };
        let known = supervised_children();
        let adopted = table.iter().filter(|entry| entry.parent == self.us && !known.contains_key(&entry.seen.pid));
        let adopted = filter_orphans(adopted.collect(), self.us);
        let mine: Vec<i32> = adopted
            .iter()
            .filter(|entry| entry.live && self.is_member(entry, home, &known))
            .map(|entry| entry.seen.pid)
            .collect();
        for entry in adopted.iter().filter(|entry| !entry.live && self.may_reap(entry, home)) {
            reap_orphan(entry, self.us);
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
