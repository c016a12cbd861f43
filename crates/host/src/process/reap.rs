//! Finds and ends the processes that an earlier engine process left running.
//!
//! Owns finding them by mark and by process record, and never touching anything else. Owns the records, stored beside
//! the log or in the folder that the spec names, and the decision that protects against reused pids: is the process
//! with this pid the recorded one? They are not synced: after a crash of the machine there is no process to find. Does
//! not know which attempts are over: the caller says which marks are meant.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::getpid,
};
use serde::{Deserialize, Serialize};
use skein_core::time::Millis;

use crate::{
    process::{
        ProcessMark, ProcessSpec, StateMark, mark,
        output::{append_suffix, private_file_options},
        process_table::{self, FamilyBoundary, ProcessEntry, ProcessIdentity, ProcessTable},
        termination::ProcessTermination,
    },
    terminal_escape::escape_for_terminal,
};

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

const ENDING: &str = ".pid";
/// The maximum size of a record.
const BYTES: u64 = 16 * 1024;
/// The maximum depth below the directory of the runs at which records are searched.
const DEPTH: usize = 8;

/// The boot of the machine and the pid namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidNamespace {
    pub boot: String,
    pub namespace: String,
}
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    pub mark: ProcessMark,
    pub seen: ProcessIdentity,
    pub here: PidNamespace,
    /// The session of the engine that started it, or 0.
    pub session: i32,
}

impl PidNamespace {
    /// The namespace of this process. None if the system does not provide it, and then no record can be trusted.
    pub fn current() -> Option<&'static PidNamespace> {
        static HERE: OnceLock<Option<PidNamespace>> = OnceLock::new();
        let read = || {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
            let namespace = fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned();
            (!boot.is_empty()).then_some(PidNamespace { boot, namespace })
        };
        HERE.get_or_init(read).as_ref()
    }
}

impl ProcessRecord {
    pub fn new(seen: ProcessIdentity, mark: ProcessMark) -> Option<ProcessRecord> {
        // A process that works for runs never starts a new session, so the session is read once.
        static SESSION: OnceLock<Option<i32>> = OnceLock::new();
        let here = PidNamespace::current()?.clone();
        let session = SESSION.get_or_init(|| Some(process_table::read_own_process()?.session));
        Some(ProcessRecord { mark, seen, here, session: (*session)? })
    }

    fn write_file(&self, path: &Path) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        overwrite_start(path, &line)
    }

    fn read_file(path: &Path) -> Option<ProcessRecord> {
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(BYTES).read_to_end(&mut bytes).ok()?;
        // Bytes after the first line are left over from a longer record.
        serde_json::from_slice(bytes.split(|byte| *byte == b'\n').next()?).ok()
    }

    /// True if this is the recorded process, and not a later one with the same pid.
    pub fn matches(&self, here: &PidNamespace, entry: &ProcessEntry) -> bool {
        self.here == *here && self.seen == entry.seen
    }
}

/// Overwrites the beginning of a record. Some file systems would flush a file that is truncated and refilled.
fn overwrite_start(path: &Path, bytes: &[u8]) -> io::Result<()> {
    private_file_options(false).open(path)?.write_all(bytes)
}

/// A record that is valid until this is dropped.
#[derive(Debug)]
pub(super) struct ProcessRecordGuard {
    path: PathBuf,
    slot: Option<RecordSlot>,
}

impl ProcessRecordGuard {
    /// Writes the record of a process. Without one the process is still found by its mark.
    pub(super) fn write_record(task: &ProcessSpec, seen: ProcessIdentity) -> Option<ProcessRecordGuard> {
        let record = ProcessRecord::new(seen, task.mark.clone())?;
        let Some(folder) = &task.notes else {
            let path = append_suffix(&task.log, ENDING);
            record.write_file(&path).ok()?;
            return Some(ProcessRecordGuard { path, slot: None });
        };
        let slot = RecordSlot::take_free();
        let path = folder.join(format!("{}{ENDING}", slot.0));
        let written = record.write_file(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                fs::create_dir(folder)?;
                record.write_file(&path)
            }
            _ => Err(error),
        });
        written.ok()?;
        Some(ProcessRecordGuard { path, slot: Some(slot) })
    }
}

impl Drop for ProcessRecordGuard {
    fn drop(&mut self) {
        // A record that cannot be cleared names a process that is gone.
        let _ = match self.slot {
            // Creating and deleting a file for each process costs more than the process.
            Some(_) => overwrite_start(&self.path, b"\n"),
            None => fs::remove_file(&self.path),
        };
    }
}

/// A number that no other process of this engine uses while it exists.
#[derive(Debug)]
struct RecordSlot(u32);

static SLOTS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

impl RecordSlot {
    fn take_free() -> RecordSlot {
        let mut taken = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..).zip(taken.iter()).find(|(number, taken)| number != *taken);
        let number = free.map_or(u32::try_from(taken.len()).unwrap_or(u32::MAX), |(number, _)| number);
        taken.insert(number);
        RecordSlot(number)
    }
}

impl Drop for RecordSlot {
    fn drop(&mut self) {
        SLOTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Returns the valid records below a directory, each with its path.
pub fn find_records(directory: &Path) -> Vec<(PathBuf, ProcessRecord)> {
    let mut found = Vec::new();
    let mut next = vec![(directory.to_owned(), 0)];
    while let Some((place, depth)) = next.pop() {
        for name in fs::read_dir(&place).into_iter().flatten().flatten() {
            let (path, Ok(kind)) = (name.path(), name.file_type()) else { continue };
            if kind.is_dir() && depth < DEPTH {
                next.push((path, depth + 1));
            } else if kind.is_file() && path.as_os_str().as_encoded_bytes().ends_with(ENDING.as_bytes()) {
                found.extend(ProcessRecord::read_file(&path).map(|record| (path, record)));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> ProcessMark {
        "s/r/0.0.1.1.main.1".parse().expect("a mark")
    }

    #[test]
    fn a_note_is_found_again_and_what_is_none_is_passed_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("r/steps/a b");
        fs::create_dir_all(&deep).expect("a directory");
        let record = ProcessRecord::new(ProcessIdentity { pid: 7, start: u64::MAX }, mark()).expect("there is /proc");
        record.write_file(&deep.join("log.pid")).expect("a note");
        fs::write(deep.join("torn.pid"), "{\"mark\":").expect("a file");
        fs::write(deep.join("huge.pid"), vec![b' '; 1 << 20]).expect("a file");
        rustix::fs::mknodat(rustix::fs::CWD, deep.join("fifo.pid"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a fifo");
        assert_eq!(find_records(dir.path()), [(deep.join("log.pid"), record)]);
    }

    #[test]
    fn a_note_says_nothing_any_more_when_its_process_is_gone_and_its_place_is_used_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let notes = dir.path().join("notes");
        let mut task = ProcessSpec::new("true", "/", dir.path().join("log"), mark());
        task.notes = Some(notes.clone());
        let leave = |pid| ProcessRecordGuard::write_record(&task, ProcessIdentity { pid, start: 1 }).expect("a note");
        let found = || -> Vec<i32> { find_records(&notes).iter().map(|(_, record)| record.seen.pid).collect() };
        let (one, two) = (leave(7), leave(8));
        assert_eq!(found().len(), 2);
        drop(one);
        assert_eq!(found(), [8]);
        let three = leave(9);
        assert_eq!(found().len(), 2);
        assert_eq!(fs::read_dir(&notes).expect("a directory").count(), 2);
        drop((two, three));
        assert!(found().is_empty());
    }

    /// C3: over random cases, a process matches a record only if pid, start time, boot and namespace are all the same.
    #[test]
    fn a_recycled_number_is_never_taken_for_the_process() {
        let mut seed: u64 = 11;
        let mut any = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let mut hits = 0;
        for _ in 0..20_000 {
            let record = ProcessRecord {
                mark: mark(),
                seen: ProcessIdentity { pid: any(3) as i32 + 1, start: any(3) },
                here: PidNamespace { boot: any(3).to_string(), namespace: any(3).to_string() },
                session: 1,
            };
            let here = PidNamespace { boot: any(3).to_string(), namespace: any(3).to_string() };
            let seen = ProcessIdentity { pid: any(3) as i32 + 1, start: any(3) };
            let entry = ProcessEntry { seen, parent: 1, group: 1, session: 1, live: true, name: Vec::new() };
            let same = (record.seen.pid, record.seen.start, &record.here.boot, &record.here.namespace)
                == (seen.pid, seen.start, &here.boot, &here.namespace);
            assert_eq!(record.matches(&here, &entry), same);
            hits += u32::from(same);
        }
        assert!(hits > 50, "the cases must meet now and then: {hits}");
    }
}
