//! Checks of the journal: its version, its integrity, and its interrupted or quarantined runs.

use std::{collections::BTreeSet, path::Path, time::Duration};

use skein_core::{ids::RunId, time::Timestamp};
use skein_host::{
    process::{self, StateMark},
    store::{DatabaseCheck, RunOwner, RunRow, RunSelection, SqliteStore, Store, StoreError, is_shortened},
};

use super::{DoctorFinding, format_bytes, state::StateLocation};

/// Time limit of a check of a database.
const TIME: Duration = Duration::from_secs(10);
/// Maximum number of runs that are searched for quarantined ones.
const LOOKED_AT: u32 = 10_000;
/// Maximum number of unfinished runs whose journals are read completely.
const READ: usize = 100;
/// Maximum number of runs that are named.
const NAMED: usize = 3;

/// Returns the findings, and the time when the newest run was started.
pub fn check_journal(home: &StateLocation) -> (Vec<DoctorFinding>, Option<Timestamp>) {
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
    match store.check_database(TIME) {
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
    rows.iter().take(READ).filter_map(read).map(to_finding).collect()
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
