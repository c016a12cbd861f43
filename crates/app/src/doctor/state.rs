//! Checks of the state folder: its place, its file system, its free space and permissions, the time of a sync to its disk,
//! and the version, integrity and interrupted runs of its journal.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use skein_core::{ids::RunId, time::Timestamp};
use skein_host::{
    process::{self, StateMark},
    store::{
        DatabaseCheck, FileSystem, RunOwner, RunRow, RunSelection, SqliteStore, StateRegistry, Store, StoreError,
        inspect_file_system, is_shortened,
    },
};

use crate::{
    doctor::{DoctorFinding, TrialFile, format_bytes},
    state::{DATABASE, NAME, StateAdmissionError, acceptance_hint, check_link, quote_path},
};

/// The limits of free space for a problem and for a warning.
const LEAST_SPACE: u64 = 64 << 20;
const LITTLE_SPACE: u64 = 1 << 30;

/// The place of the state folder.
pub(crate) struct StateLocation {
    pub path: PathBuf,
    why: &'static str,
    /// The folder itself, or the nearest existing folder above it.
    pub there: PathBuf,
    /// The path as given by the user, if any.
    given: Option<PathBuf>,
}

impl StateLocation {
    pub(crate) fn locate(given: Option<&Path>, root: &Path) -> StateLocation {
        let (path, why) = match given {
            Some(given) if std::env::var_os("SKEIN_STATE").is_some_and(|variable| variable == given.as_os_str()) => {
                (given.to_owned(), "set by SKEIN_STATE")
            }
            Some(given) => (given.to_owned(), "set by `--state`"),
            None => (root.join(NAME), "in the project (change it with `--state` or SKEIN_STATE)"),
        };
        let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let there = whole.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned();
        StateLocation { path, why, there, given: given.map(Path::to_owned) }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.path.is_dir()
    }

    /// Checks that this user created it on this machine or accepted it. Err: the reason why it is refused.
    pub(crate) fn check_trust(&self) -> Result<(), StateAdmissionError> {
        check_link(self.given.as_deref(), &self.path)?;
        Ok(StateRegistry::from_environment().check(&self.path)?)
    }

    pub(crate) fn acceptance_hint(&self) -> String {
        acceptance_hint(self.given.as_deref())
    }

    /// Returns true if it was ever used.
    pub(crate) fn has_journal(&self) -> bool {
        self.path.join(DATABASE).exists()
    }
}

pub(crate) fn check_state_folder(home: &StateLocation) -> Vec<DoctorFinding> {
    let none = if home.is_present() { "" } else { "; it does not exist yet, the first run creates it" };
    let mut findings = vec![DoctorFinding::ok("place", format!("{}, {}{none}", home.path.display(), home.why))];
    if home.path.exists() && !home.is_present() {
        let message = format!("`{}` is not a folder", home.path.display());
        return vec![DoctorFinding::problem("place", message, "remove it, or choose a folder with `--state DIR`")];
    }
    match inspect_file_system(&home.there) {
        Ok(found) => {
            findings.extend([file_system_finding(&found), check_free_space(&found), check_writable(home, &found)])
        }
        Err(error) => {
            let message = format!("`{}` cannot be inspected: {error}", home.there.display());
            findings.push(DoctorFinding::problem("file system", message, ELSEWHERE));
        }
    }
    if home.is_present() {
        findings.extend(check_permissions(home));
    }
    findings
}

const ELSEWHERE: &str = "choose a folder on a local disk with `--state DIR` or SKEIN_STATE";

fn file_system_finding(found: &FileSystem) -> DoctorFinding {
    let kind = &found.kind;
    if found.network {
        let message = format!("{kind}, where locks and syncs are not reliable: it is refused");
        return DoctorFinding::problem("file system", message, ELSEWHERE);
    }
    if found.memory {
        let message = format!("{kind}, which is in memory: it survives `kill -9`, but not a restart of the machine");
        return DoctorFinding::warning("file system", message, ELSEWHERE);
    }
    DoctorFinding::ok("file system", kind)
}

fn check_free_space(found: &FileSystem) -> DoctorFinding {
    let message = format!("{} free", format_bytes(found.free));
    match found.free {
        ..LEAST_SPACE => {
            DoctorFinding::problem("space", message, "free some space: a run that cannot write its journal is paused")
        }
        LEAST_SPACE..LITTLE_SPACE => DoctorFinding::warning("space", message, "free some space before long runs"),
        LITTLE_SPACE.. => DoctorFinding::ok("space", message),
    }
}

/// Tests it by creating a file, which is removed again.
fn check_writable(home: &StateLocation, found: &FileSystem) -> DoctorFinding {
    if found.read_only {
        let message = format!("no, `{}` is mounted read-only", home.there.display());
        return DoctorFinding::problem(
            "writable",
            message,
            "mount it for writing, or choose another with `--state DIR`",
        );
    }
    let trial = TrialFile::new(&home.there);
    match fs::OpenOptions::new().write(true).create_new(true).open(&trial.0) {
        Ok(_) => DoctorFinding::ok("writable", "yes"),
        Err(error) => {
            let message = format!("no, cannot create a file in `{}`: {error}", home.there.display());
            DoctorFinding::problem("writable", message, "choose a folder that you can write to with `--state DIR`")
        }
    }
}

/// Reports other users who can read or change it.
fn check_permissions(home: &StateLocation) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let me = rustix::process::geteuid().as_raw();
    for (path, what) in [(home.path.clone(), "the folder"), (home.path.join(DATABASE), "the database")] {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let mode = metadata.mode() & 0o777;
        let right = if metadata.is_dir() { "700" } else { "600" };
        let hint = format!("chmod {right} {}", quote_path(&path));
        if metadata.uid() != me {
            let message = format!("{what} belongs to user {}, and this is user {me}: it is refused", metadata.uid());
            findings.push(DoctorFinding::problem(
                "permissions",
                message,
                "work as that user, or choose another with `--state DIR`",
            ));
        } else if mode & 0o022 != 0 {
            let message = format!("others may write to {what} ({mode:03o}): it is refused");
            findings.push(DoctorFinding::problem("permissions", message, format!("inspect its contents, then {hint}")));
        } else if mode & 0o077 != 0 {
            let message = format!("others may read {what} ({mode:03o}), including the output of workers");
            findings.push(DoctorFinding::warning("permissions", message, hint));
        }
    }
    if findings.is_empty() {
        findings.push(DoctorFinding::ok("permissions", "only you can read it"));
    }
    findings
}

/// The number of syncs that are measured, and the time limit for all of them.
const SYNCS: usize = 24;
const SYNC_TIME: Duration = Duration::from_secs(2);
/// The approximate size of one event of a run.
const EVENT_SIZE: usize = 4096;
/// A slower sync is noticeable.
const SLOW_SYNC: Duration = Duration::from_millis(30);
/// No disk is this fast: a layer above the disk reports syncs too early.
const IMPOSSIBLE_SYNC: Duration = Duration::from_micros(10);

pub(crate) fn check_sync(home: &StateLocation) -> Option<DoctorFinding> {
    // A folder that is not writable is reported elsewhere.
    let mut taken = measure_syncs(home).ok().filter(|taken| !taken.is_empty())?;
    taken.sort();
    let (middle, slowest) = (taken[taken.len() / 2], taken[taken.len() - 1]);
    Some(sync_finding(middle, slowest))
}

fn measure_syncs(home: &StateLocation) -> io::Result<Vec<Duration>> {
    let trial = TrialFile::new(&home.there);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&trial.0)?;
    let (begun, mut taken) = (Instant::now(), Vec::with_capacity(SYNCS));
    while taken.len() < SYNCS && begun.elapsed() < SYNC_TIME {
        file.write_all(&[0; EVENT_SIZE])?;
        let from = Instant::now();
        file.sync_data()?;
        taken.push(from.elapsed());
    }
    Ok(taken)
}

fn sync_finding(middle: Duration, slowest: Duration) -> DoctorFinding {
    let steps = (1.0 / middle.as_secs_f64().max(1e-6)).round();
    let message = format!(
        "{} each, at worst {}: a run does about {steps:.0} consecutive steps per second, and runs share syncs",
        format_duration(middle),
        format_duration(slowest)
    );
    if middle > SLOW_SYNC {
        return DoctorFinding::warning("sync", message, "another disk would be faster: `--state DIR` or SKEIN_STATE");
    }
    if middle < IMPOSSIBLE_SYNC {
        let hint = "a sync is reported before the disk has the data; a power failure could lose acknowledged events";
        return DoctorFinding::warning("sync", message, hint);
    }
    DoctorFinding::ok("sync", message)
}

fn format_duration(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

/// Time limit of a check of a database.
const CHECK_TIME: Duration = Duration::from_secs(10);
/// Maximum number of runs that are searched for quarantined ones.
const LOOKED_AT: u32 = 10_000;
/// Maximum number of unfinished runs whose journals are read completely.
const READ_JOURNALS: usize = 100;
/// Maximum number of runs that are named.
const NAMED: usize = 3;

/// Returns the findings, and the time when the newest run was started.
pub(super) fn check_journal(home: &StateLocation) -> (Vec<DoctorFinding>, Option<Timestamp>) {
    if !home.has_journal() {
        return (vec![DoctorFinding::ok("runs", "none yet")], None);
    }
    if let Err(why) = home.check_trust() {
        return (vec![DoctorFinding::problem("trust", why.to_string(), home.acceptance_hint())], None);
    }
    let store = match SqliteStore::open(&home.path) {
        Ok(store) => store,
        Err(error) => {
            let hint = "no command that needs it can work; the findings about the folder above may explain it";
            return (vec![DoctorFinding::problem("open", error.to_string(), hint)], None);
        }
    };
    let mut findings = Vec::new();
    match store.check_database(CHECK_TIME) {
        Ok(checked) => findings.push(integrity_finding(&checked)),
        Err(error) => findings.push(unreadable_finding(&error)),
    }
    let newest = match check_runs(&store, &home.path, &mut findings) {
        Ok(newest) => newest,
        Err(error) => {
            findings.push(unreadable_finding(&error));
            None
        }
    };
    (findings, newest)
}

fn unreadable_finding(error: &StoreError) -> DoctorFinding {
    DoctorFinding::problem("read", error.to_string(), BACKUP)
}

const BACKUP: &str = "back up the folder before doing anything else with it";

fn integrity_finding(checked: &DatabaseCheck) -> DoctorFinding {
    let database = format!("format {}, {}", checked.version, format_bytes(checked.bytes));
    match &checked.faults[..] {
        [] if checked.all => DoctorFinding::ok("database", format!("{database}, intact")),
        [] => DoctorFinding::ok("database", format!("{database}; there was no time to check all of it")),
        faults => DoctorFinding::problem("database", format!("{database}, damaged: {}", faults.join("; ")), BACKUP),
    }
}

fn check_runs(
    store: &SqliteStore,
    path: &Path,
    findings: &mut Vec<DoctorFinding>,
) -> Result<Option<Timestamp>, StoreError> {
    let all = store.select_runs(RunSelection::Newest(LOOKED_AT))?;
    let unfinished = store.select_runs(RunSelection::Unfinished)?;
    let left: Vec<&RunRow> =
        unfinished.iter().filter(|row| !matches!(row.owner, RunOwner::Other(_) | RunOwner::Here)).collect();
    let at_work = unfinished.len() - left.len();
    findings.push(DoctorFinding::ok("runs", format!("{} in total, {at_work} running", all.len())));
    if !left.is_empty() {
        let message = format!("{} interrupted: {}", left.len(), name_runs(&left));
        findings.push(DoctorFinding::warning("left", message, "`skein resume --all` resumes all of them"));
    }
    let is_aside = |row: &&RunRow| row.quarantined.as_ref().is_some_and(|why| !is_shortened(why));
    let aside: Vec<&RunRow> = all.iter().filter(is_aside).collect();
    if let [first, ..] = &aside[..] {
        let message = format!("{} set aside because they are damaged: {}", aside.len(), name_runs(&aside));
        findings.push(DoctorFinding::warning("set aside", message, format!("`skein runs {}` shows why", first.run)));
    }
    findings.extend(check_shortened(store)?);
    findings.extend(check_readable(store, &unfinished));
    findings.extend(check_leftover_processes(path, &left));
    Ok(all.iter().filter_map(|row| row.head.started_at).max())
}

fn name_runs(rows: &[&RunRow]) -> String {
    let mut named: Vec<&str> = rows.iter().take(NAMED).map(|row| row.run.as_str()).collect();
    if rows.len() > named.len() {
        named.push("…");
    }
    named.join(", ")
}

/// Reports runs that lost acknowledged rows.
fn check_shortened(store: &SqliteStore) -> Result<Option<DoctorFinding>, StoreError> {
    let all = store.list_shortened()?;
    let Some((first, _)) = all.first() else { return Ok(None) };
    let named: Vec<String> = all.iter().take(NAMED).map(|(run, why)| format!("run {run}: {why}")).collect();
    let more = if all.len() > NAMED { "; …" } else { "" };
    let hint = format!(
        "restore a complete copy of the folder, or repeat the lost steps with \
         `skein resume {first} --accept-shortened-journal`"
    );
    Ok(Some(DoctorFinding::problem("shortened", format!("{}{more}", named.join("; ")), hint)))
}

/// Reports journals that cannot be read to their end. Each row is verified against the one before it.
fn check_readable(store: &SqliteStore, rows: &[RunRow]) -> Vec<DoctorFinding> {
    let read =
        |row: &RunRow| store.read_journal(&row.run, 0, &mut |_| true).err().map(|error| (row.run.clone(), error));
    let to_finding =
        |(run, error): (RunId, StoreError)| DoctorFinding::problem("journal", format!("of run {run}: {error}"), BACKUP);
    rows.iter().take(READ_JOURNALS).filter_map(read).map(to_finding).collect()
}

/// Reports processes that interrupted runs left running.
fn check_leftover_processes(path: &Path, left: &[&RunRow]) -> Option<DoctorFinding> {
    let mark = StateMark::from_directory(path).ok()?;
    let runs: BTreeSet<&RunId> = left.iter().map(|row| &row.run).collect();
    let found = process::find_leftovers(&mark, &[], |mark| runs.contains(&mark.run));
    let named: Vec<String> = found.iter().take(NAMED).map(|found| format!("{} ({})", found.pid, found.name)).collect();
    let message = match found.len() {
        0 => return None,
        n if n > NAMED => format!("{n} that were left running: {}, …", named.join(", ")),
        n => format!("{n} that were left running: {}", named.join(", ")),
    };
    Some(DoctorFinding::warning("processes", message, "`skein resume --all` ends them, and resumes their runs"))
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use skein_core::{ir::RunStatus, plan::ContentHash};
    use skein_host::{
        host::new_run_id,
        store::{NewRun, RunHead},
    };

    use super::{super::DoctorLevel, *};

    #[test]
    fn what_syncs_take_is_told_and_judged() {
        let of = |micros: u64| sync_finding(Duration::from_micros(micros), Duration::from_millis(50));
        assert_eq!(
            (of(1).level, of(500).level, of(40_000).level),
            (DoctorLevel::Warning, DoctorLevel::Ok, DoctorLevel::Warning)
        );
        assert!(
            of(500).message.starts_with("0.50 ms each, at worst 50 ms: a run does about 2000 consecutive steps"),
            "{:?}",
            of(500)
        );
    }

    fn new_run(name: &str) -> NewRun {
        let head = RunHead {
            workflow: "w".to_owned(),
            version: None,
            dialect: "agentcore".to_owned(),
            status: RunStatus::Running,
            native_status: "RUNNING".to_owned(),
            started_at: Some(Timestamp(7)),
            finished_at: None,
            closed: false,
            forked_from: None,
            cost: Default::default(),
        };
        let frozen: Arc<[u8]> = Arc::from(&b"{}"[..]);
        let (run, definition) = (RunId::new(name).expect("it is a name"), ContentHash::hash_bytes(&frozen));
        NewRun {
            run,
            definition,
            frozen,
            about: serde_json::Value::Null,
            head,
            first: None,
            open: Vec::new(),
            audit: Vec::new(),
            settles: Vec::new(),
        }
    }

    #[test]
    fn runs_that_were_set_aside_are_named() {
        let folder = std::env::temp_dir().join(format!("skein-journal-{}", new_run_id()));
        let store = SqliteStore::open(&folder).expect("it can be made");
        store.create_runs(&[new_run("good"), new_run("bad")]).expect("they are new");
        store.quarantine(&RunId::new("bad").expect("it is a name"), "it is broken").expect("it is there");
        let mut findings = Vec::new();
        assert_eq!(check_runs(&store, &folder, &mut findings).expect("it can be read"), Some(Timestamp(7)));
        let levels: Vec<(&str, DoctorLevel)> = findings.iter().map(|one| (one.name.as_str(), one.level)).collect();
        assert_eq!(levels, [("runs", DoctorLevel::Ok), ("set aside", DoctorLevel::Warning)], "{findings:#?}");
        assert!(findings[1].message.ends_with(": bad"), "{findings:#?}");
        drop(store);
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn what_a_look_at_the_database_found_is_judged() {
        let of = |faults: &[&str], all| {
            let faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
            integrity_finding(&DatabaseCheck { version: 1, bytes: 2048, faults, all })
        };
        assert_eq!(of(&[], true), DoctorFinding::ok("database", "format 1, 2.0 KiB, intact"));
        assert!(of(&[], false).message.contains("no time"));
        let bad = of(&["row 3 missing from index"], true);
        assert!(bad.level == DoctorLevel::Problem && bad.message.contains("damaged: row 3"), "{bad:?}");
    }
}
