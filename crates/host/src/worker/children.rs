//! The children this process started for attempts, told apart from those it inherited.
//!
//! Owns the list of them and the moment of starting one. It makes this process the one that inherits the orphans of its
//! workers, and answers the question that everything else hangs on: is this child of ours an orphan, or does a
//! supervisor wait for it? A child is on the list before anyone can take it for an orphan, and is waited for before it
//! is taken off.

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
    Mark,
    mark::VARIABLE,
    tree::{self, Entry, Seen},
};

/// Held for reading while a child is started, for writing while it is decided who is an orphan.
static STARTING: RwLock<()> = RwLock::new(());
static KNOWN: Mutex<BTreeMap<i32, Known>> = Mutex::new(BTreeMap::new());

/// A child that a supervisor waits for.
#[derive(Debug, Clone)]
pub struct Known {
    pub start: u64,
    pub mark: Mark,
    /// Tells it apart from a later child with the same number.
    serial: u64,
}

/// A place on the list, until it is dropped. To be dropped after the child was waited for.
#[derive(Debug)]
pub struct Listed {
    pub seen: Seen,
    serial: u64,
}

fn list() -> MutexGuard<'static, BTreeMap<i32, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, orphans of our descendants become our children. Where the system cannot do that, they are still found by
/// their marks as long as their parents live.
pub fn adopt() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = set_child_subreaper(Some(getpid()));
    });
}

/// Whether whoever started this process had the ends of children ignored. Then nobody would be told of them, and their
/// numbers would be given to others while we still mean them.
pub fn unseen() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    const SIGCHLD: u64 = 1 << (17 - 1);
    let read = || {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        Some(u64::from_str_radix(mask.trim(), 16).ok()? & SIGCHLD != 0)
    };
    *IGNORED.get_or_init(|| read().unwrap_or(false))
}

/// The marks this process carries as the worker of another engine.
fn ours() -> Vec<Mark> {
    std::env::var_os(VARIABLE).map(|value| super::mark::marks(value.as_encoded_bytes())).unwrap_or_default()
}

/// Starts a child and lists it.
pub fn spawn(command: &mut Command, mark: &Mark) -> io::Result<(Child, Listed)> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    adopt();
    command.env(VARIABLE, mark.value(&ours()));
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    let pid = child.id().cast_signed();
    // It has not been waited for, so it is there, ended or not.
    let start = tree::read(pid).map_or(0, |entry| entry.seen.start);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    list().insert(pid, Known { start, mark: mark.clone(), serial });
    Ok((child, Listed { seen: Seen { pid, start }, serial }))
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut list = list();
        if list.get(&self.seen.pid).is_some_and(|known| known.serial == self.serial) {
            list.remove(&self.seen.pid);
        }
    }
}

/// All that supervisors wait for now.
pub fn known() -> BTreeMap<i32, Known> {
    list().clone()
}

/// Whether there are children of ours that nobody waits for. Quick; says yes when it cannot tell.
pub fn orphans_possible(us: i32) -> bool {
    match tree::adopted(us) {
        Some(adopted) if adopted.is_empty() => false,
        Some(adopted) => {
            let list = list();
            adopted.iter().any(|pid| !list.contains_key(pid))
        }
        None => true,
    }
}

/// Whether this is an orphan now, and not a child that someone is starting or waiting for.
fn orphan(entry: &Entry, us: i32) -> bool {
    let now = tree::read(entry.seen.pid).filter(|now| now.seen == entry.seen && now.parent == us);
    now.is_some() && !list().contains_key(&entry.seen.pid)
}

/// Those of the candidates that are orphans.
pub fn orphans(candidates: Vec<&Entry>, us: i32) -> Vec<&Entry> {
    if candidates.is_empty() {
        return candidates;
    }
    let _none_starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    candidates.into_iter().filter(|entry| orphan(entry, us)).collect()
}

/// Takes an orphan that has ended out of the list of processes. Nobody else would.
pub fn bury(entry: &Entry, us: i32) {
    let _none_starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    if let (true, Some(pid)) = (orphan(entry, us), Pid::from_raw(entry.seen.pid)) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}
