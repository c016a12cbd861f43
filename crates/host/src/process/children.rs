//! The children that this process started for attempts, as distinct from those that it inherited.
//!
//! Owns the list of them and their start. It makes this process the subreaper of its workers and decides the question
//! that everything else depends on: is this child an orphan, or does a supervisor wait for it? A child is on the list
//! before it can be taken for an orphan, and is waited for before it is removed.

use std::{
    collections::BTreeMap,
    fs, io,
    process::{Child, Command},
    sync::{
        Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};

use super::{
    ProcessMark,
    process_table::{self, ProcessEntry, ProcessIdentity},
};
use crate::sandbox::MARK_VARIABLE;

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

/// Returns the candidates that are orphans.
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
