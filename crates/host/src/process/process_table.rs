//! The processes of this machine as `/proc` shows them, and the relations between them.
//!
//! Owns reading the entry of a process and following links between processes. Does not know attempts and marks, and
//! sends no signals. Its data are true only at the moment of reading: a pid identifies a process only together with its
//! start time ([`ProcessIdentity`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::Path,
};

use rustix::process::getpid;
use serde::{Deserialize, Serialize};

/// A process, distinguished from later ones with the same pid by its start time, in ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    pub start: u64,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEntry {
    pub seen: ProcessIdentity,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// True if it can still run. Otherwise it is a zombie that waits for its parent.
    pub live: bool,
    /// The name of its program, at most 15 bytes, chosen by the process itself.
    pub name: Vec<u8>,
}

/// Parses a line of `/proc/PID/stat`.
pub(super) fn parse_stat(line: &[u8]) -> Option<ProcessEntry> {
    // The name is in parentheses and may contain anything, also parentheses and spaces.
    let open = line.iter().position(|b| *b == b'(')?;
    let close = line.iter().rposition(|b| *b == b')')?;
    let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
    let name = line.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<i32>().ok();
    // A main thread that ended before the others looks dead, but the process is not.
    let ended = matches!(*fields.first()?, "Z" | "X" | "x") && number(17)? <= 1;
    Some(ProcessEntry {
        seen: ProcessIdentity { pid, start: fields.get(19)?.parse().ok()? },
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        live: !ended,
        name,
    })
}

/// Reads a system file, in as few calls as possible if it is no longer than expected.
pub(super) fn read_system_file(path: impl AsRef<Path>, expected: usize) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let mut bytes = Vec::with_capacity(expected);
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads the entry of a process, if it exists now.
pub(super) fn read_process(pid: i32) -> Option<ProcessEntry> {
    parse_stat(&read_system_file(format!("/proc/{pid}/stat"), 1024)?)
}

/// The entry of this process. Its group and session are 0 if their leaders are outside of its pid namespace.
pub(super) fn read_own_process() -> Option<ProcessEntry> {
    read_process(getpid().as_raw_nonzero().get())
}

/// The group of this process, unless its leader is outside of the pid namespace.
pub fn own_group() -> Option<i32> {
    read_own_process().map(|entry| entry.group).filter(|group| *group > 0)
}

/// Returns the environment of a process at the start of its program, if this process may read it.
pub(super) fn read_environment(pid: i32) -> Option<Vec<u8>> {
    read_system_file(format!("/proc/{pid}/environ"), 4096)
}

/// Returns one variable of such an environment.
pub(super) fn find_variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment.split(|b| *b == 0).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// True if a process has a pipe open.
pub(super) fn holds_pipe(pid: i32, pipe: u64) -> bool {
    let wanted = format!("pipe:[{pipe}]");
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
}

/// Returns the children that this process adopted because their parents ended, and those that its first thread started.
/// None if the system does not provide the list.
pub(super) fn read_adopted_children(us: i32) -> Option<Vec<i32>> {
    let list = read_system_file(format!("/proc/{us}/task/{us}/children"), 1024)?;
    let list = String::from_utf8(list).ok()?;
    Some(list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// The maximum number of reads of the adopted children. Anything faster than this is found at the next search.
const ADOPTED_ROUNDS: usize = 100;

/// All processes at the time of reading, by pid.
#[derive(Debug, Default)]
pub(super) struct ProcessTable(BTreeMap<i32, ProcessEntry>);

/// The limits of a family: processes that are not part of it, however they are linked to it.
#[derive(Debug, Default)]
pub(super) struct FamilyBoundary {
    /// Excluded processes; links through them are not followed either.
    pub pids: BTreeSet<i32>,
    /// The session in which the family began. A member created any other session that a member is in. If none, sessions
    /// are not followed.
    pub session: Option<i32>,
}

impl ProcessTable {
    pub(super) fn read() -> ProcessTable {
        let Ok(names) = fs::read_dir("/proc") else { return ProcessTable::default() };
        let pids = names.flatten().filter_map(|name| name.file_name().to_str()?.parse::<i32>().ok());
        ProcessTable::from_entries(pids.filter_map(read_process))
    }

    pub(super) fn from_entries(entries: impl IntoIterator<Item = ProcessEntry>) -> ProcessTable {
        ProcessTable(entries.into_iter().map(|entry| (entry.seen.pid, entry)).collect())
    }

    /// Adds the processes that this process adopted during the read, which takes a while, until there is nothing new.
    /// So nothing is missed because its parent ended at the wrong moment. Children are passed on before the end of
    /// their parent shows. So when all listed ones have been read, either a member of each lineage was seen alive or
    /// the lineage has ended.
    pub(super) fn with_adopted(mut self, us: i32) -> ProcessTable {
        for _ in 0..ADOPTED_ROUNDS {
            let mut fresh = read_adopted_children(us).unwrap_or_default();
            fresh.retain(|pid| self.get(*pid).is_none_or(|entry| entry.parent != us));
            if fresh.is_empty() {
                break;
            }
            self.0.extend(fresh.into_iter().filter_map(|pid| Some((pid, read_process(pid)?))));
        }
        self
    }

    pub(super) fn get(&self, pid: i32) -> Option<&ProcessEntry> {
        self.0.get(&pid)
    }

    /// Returns the entry if it is the same process, and not another one with its pid.
    pub(super) fn find_same(&self, seen: ProcessIdentity) -> Option<&ProcessEntry> {
        self.get(seen.pid).filter(|entry| entry.seen == seen)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ProcessEntry> {
        self.0.values()
    }

    /// Returns the pids of a process and all its ancestors.
    pub(super) fn ancestry(&self, pid: i32) -> BTreeSet<i32> {
        let mut line = BTreeSet::new();
        let mut at = pid;
        while at > 0 && line.insert(at) {
            at = self.get(at).map_or(0, |entry| entry.parent);
        }
        line
    }

    /// Returns the roots, their descendants, and members of groups that these lead and of sessions that they created.
    pub(super) fn find_family(
        &self,
        roots: impl IntoIterator<Item = i32>,
        outside: &FamilyBoundary,
    ) -> Vec<&ProcessEntry> {
        let links = ProcessLinks::from_table(self);
        let mut found = BTreeSet::new();
        let mut next: Vec<i32> = roots.into_iter().collect();
        while let Some(pid) = next.pop() {
            let Some(entry) = self.get(pid) else { continue };
            if outside.pids.contains(&pid) || !found.insert(pid) {
                continue;
            }
            next.extend(links.children.get(&pid).into_iter().flatten());
            next.extend(links.groups.get(&pid).into_iter().flatten());
            if outside.session.is_some_and(|home| home != entry.session) {
                next.extend(links.sessions.get(&entry.session).into_iter().flatten());
            }
        }
        found.iter().filter_map(|pid| self.get(*pid)).collect()
    }
}

/// The links of a table in the opposite direction.
#[derive(Debug, Default)]
struct ProcessLinks {
    children: BTreeMap<i32, Vec<i32>>,
    groups: BTreeMap<i32, Vec<i32>>,
    sessions: BTreeMap<i32, Vec<i32>>,
}

impl ProcessLinks {
    fn from_table(table: &ProcessTable) -> ProcessLinks {
        let mut links = ProcessLinks::default();
        for ProcessEntry { seen: ProcessIdentity { pid, .. }, parent, group, session, .. } in table.iter() {
            links.children.entry(*parent).or_default().push(*pid);
            // Kernel threads are all in group and session 0.
            if *group > 0 {
                links.groups.entry(*group).or_default().push(*pid);
            }
            if *session > 0 {
                links.sessions.entry(*session).or_default().push(*pid);
            }
        }
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32, group: i32, session: i32) -> ProcessEntry {
        ProcessEntry {
            seen: ProcessIdentity { pid, start: u64::from(pid.unsigned_abs()) },
            parent,
            group,
            session,
            live: true,
            name: Vec::new(),
        }
    }

    fn family(table: &ProcessTable, root: i32, outside: &FamilyBoundary) -> Vec<i32> {
        table.find_family([root], outside).iter().map(|entry| entry.seen.pid).collect()
    }

    #[test]
    fn a_name_with_brackets_and_spaces_is_read() {
        let line = b"42 (a) R (b c) S 7 42 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 777 1 2 3\n";
        let read = parse_stat(line).expect("it is a line");
        assert_eq!(
            (read.seen, read.parent, read.group, read.session),
            (ProcessIdentity { pid: 42, start: 777 }, 7, 42, 9)
        );
        assert_eq!(read.name, b"a) R (b c");
        assert!(read.live);
    }

    /// As in a container whose command was started from outside.
    #[test]
    fn a_session_may_be_led_from_outside() {
        let line = b"7 (skein) S 1 0 0 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 777 1 2 3\n";
        let read = parse_stat(line).expect("it is a line");
        assert_eq!((read.group, read.session), (0, 0));
    }

    #[test]
    fn a_zombie_is_live_while_other_threads_run() {
        let line = |state: &str, threads: i32| {
            format!("1 (x) {state} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0 0").into_bytes()
        };
        assert!(!parse_stat(&line("Z", 1)).expect("a line").live);
        assert!(parse_stat(&line("Z", 2)).expect("a line").live);
        assert!(parse_stat(&line("S", 1)).expect("a line").live);
    }

    #[test]
    fn nonsense_is_no_process() {
        for bad in ["", "x", "1 (a", "1 a)", "1 (a) S", "1 (a) S 1 2 3", ") 1 (", "99999999999 (a) S 1 1 1"] {
            assert_eq!(parse_stat(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn this_process_is_there() {
        let us = i32::try_from(std::process::id()).expect("a pid");
        let table = ProcessTable::read();
        let entry = table.get(us).expect("we exist");
        assert!(entry.live);
        assert_eq!(table.find_same(ProcessIdentity { pid: us, start: entry.seen.start + 1 }), None);
        assert!(table.ancestry(us).contains(&entry.parent));
    }

    #[test]
    fn a_family_follows_parents_groups_and_sessions_it_made() {
        // 10 is the engine in session 5, 20 its child; 21 left by creating a session, and 22 shares it although its
        // parent is 10.
        let table = ProcessTable::from_entries([
            entry(10, 5, 10, 5),
            entry(20, 10, 20, 5),
            entry(21, 20, 21, 21),
            entry(22, 10, 21, 21),
            entry(23, 10, 20, 5),
            entry(24, 10, 24, 21),
            entry(30, 10, 30, 5),
            entry(31, 30, 30, 5),
        ]);
        let outside = FamilyBoundary { pids: [10, 30].into(), session: Some(5) };
        assert_eq!(family(&table, 20, &outside), [20, 21, 22, 23, 24]);
        assert_eq!(family(&table, 20, &FamilyBoundary { session: None, ..outside }), [20, 21, 22, 23]);
    }

    #[test]
    fn a_family_never_reaches_through_what_is_outside() {
        let table = ProcessTable::from_entries([
            entry(10, 5, 10, 5),
            entry(20, 10, 20, 5),
            entry(40, 20, 20, 5),
            entry(41, 40, 41, 5),
        ]);
        let outside = FamilyBoundary { pids: [40].into(), session: Some(5) };
        assert_eq!(family(&table, 20, &outside), [20]);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"XSKEIN=1\0SKEIN=two=2\0SKEINX=3\0";
        assert_eq!(find_variable(environment, "SKEIN"), Some(&b"two=2"[..]));
        assert_eq!(find_variable(environment, "SKE"), None);
    }
}
