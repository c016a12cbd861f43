//! Records of processes for a later engine process, stored beside the log or in the folder that the spec names.
//!
//! Owns the file and the decision that protects against reused pids: is the process with this pid the recorded one? Not
//! synced: after a crash of the machine there is no process to find.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    ProcessMark, ProcessSpec,
    log::{append_suffix, private_file_options},
    process_table::{self, ProcessEntry, ProcessIdentity},
};

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

/// The content of a record.
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
