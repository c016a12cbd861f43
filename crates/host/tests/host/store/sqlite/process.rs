//! Several processes, some of which are killed, stopped, or lose their disk.

use std::{fs, path::Path};

use rustix::process::Signal;
use skein_host::store::{AppendError, ClaimError, RunOwner, RunSelection, SqliteStore, Store};

use super::{
    super::{
        child::Child,
        support::{Log, id, take, texts},
    },
    raw,
};

fn numbers(upto: usize) -> Vec<String> {
    (0..upto).map(|n| n.to_string()).collect()
}

fn appending(wrapper: &[&str], dir: &Path, run: &str) -> Child {
    let mut child = Child::under(wrapper, "append", dir);
    child.say(run);
    child.expect("ready");
    child
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..25 {
        let child = appending(&[], dir.path(), "r");
        for _ in 0..(round * 7) % 23 {
            child.hear().unwrap();
            acknowledged += 1;
        }
        acknowledged += child.kill().len();
        let store = SqliteStore::open(dir.path()).unwrap();
        let read = texts(&store, "r");
        // One row more than acknowledged may have been written.
        assert!((acknowledged..=acknowledged + 1).contains(&read.len()), "{acknowledged} {}", read.len());
        assert_eq!(read, numbers(read.len()));
        acknowledged = read.len();
        let orphans = store.select_runs(RunSelection::Orphaned).unwrap();
        assert_eq!(orphans.iter().map(|row| row.run.as_str()).collect::<Vec<_>>(), ["r"]);
    }
}

#[test]
fn what_the_dead_left_is_swept_up() {
    let dir = tempfile::tempdir().unwrap();
    let files = || fs::read_dir(dir.path().join("owners")).unwrap().count();
    appending(&[], dir.path(), "r").kill();
    assert_eq!(files(), 2);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(files(), 2);
    assert!(matches!(store.find_run(&id("r")).unwrap().unwrap().owner, RunOwner::Dead(_)));
    take(&store, &id("r")).unwrap();
    drop(store);
    assert_eq!(files(), 0);
}

#[test]
fn a_sync_that_failed_is_never_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    SqliteStore::open(dir.path()).unwrap();
    // Only one call fails, so a retry would succeed.
    for call in ["fdatasync,fsync", "pwrite64"] {
        let inject = format!("inject={call}:error=EIO:when=30");
        let trace = format!("trace={call}");
        let wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let child = appending(&wrapper, dir.path(), call);
        let said: Vec<_> = std::iter::from_fn(|| child.hear()).collect();
        let (acknowledged, failed): (Vec<_>, Vec<_>) =
            said.iter().filter(|line| *line != "played").partition(|line| line.parse::<u64>().is_ok());
        assert!(!acknowledged.is_empty() && failed.len() == 2, "{said:?}");
        assert!(failed.iter().all(|line| line.contains("the journal cannot be written")), "{failed:?}");

        let store = SqliteStore::open(dir.path()).unwrap();
        let read = texts(&store, call);
        assert!((acknowledged.len()..=acknowledged.len() + 1).contains(&read.len()));
        assert_eq!(read, numbers(read.len()));
        let mut log = Log::claim(&store, call);
        log.append(&store, &["goes on"]).unwrap();
    }
}

#[test]
fn processes_that_write_all_the_time_get_equal_shares() {
    let dir = tempfile::tempdir().unwrap();
    SqliteStore::open(dir.path()).unwrap();
    let children = ["first", "second"].map(|name| {
        let mut child = Child::start("flood", dir.path());
        child.say(name);
        child
    });
    for child in &children {
        child.hear().unwrap();
    }
    let [first, second] = &children;
    second.said();
    for _ in 0..3_000 {
        first.hear().unwrap();
    }
    let others = second.said();
    assert!((1_000..9_000).contains(&others), "3000 appends of one process and {others} of another");
}

#[test]
fn of_two_processes_one_gets_the_run_of_a_third_that_died() {
    let dir = tempfile::tempdir().unwrap();
    let mut dead = Child::start("make", dir.path());
    for n in 0..20 {
        dead.say(&format!("r{n}"));
        dead.expect("made");
    }
    dead.kill();
    let mut claimants = [Child::start("claim", dir.path()), Child::start("claim", dir.path())];
    claimants.iter().for_each(|child| child.expect("ready"));
    for n in 0..20 {
        claimants.iter_mut().for_each(|child| child.say(&format!("r{n}")));
        let mut said = claimants.each_ref().map(|child| child.hear().unwrap());
        said.sort();
        assert_eq!(said, ["owned", "won"]);
    }
}

#[test]
fn a_lock_that_outlives_its_process_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    appending(&[], dir.path(), "r").kill();
    let files = fs::read_dir(dir.path().join("owners")).unwrap().map(|file| file.unwrap().path());
    let lock = files.into_iter().find(|path| path.extension().is_some_and(|it| it == "lock")).unwrap();
    // Held as by a worker that was being started when the process was killed.
    let mut heir = std::process::Command::new("flock")
        .arg(&lock)
        .args(["sh", "-c", "echo held; sleep 0.2"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("`flock` is needed for this test");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(heir.stdout.take().unwrap()), &mut line).unwrap();
    assert_eq!(line, "held\n");
    let store = SqliteStore::open(dir.path()).unwrap();
    take(&store, &id("r")).unwrap();
    heir.wait().unwrap();
}

#[test]
fn a_stopped_process_keeps_its_run_until_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let child = Child::start("own", dir.path());
    child.expect("ready");
    child.signal(Signal::STOP);
    let refused = take(&store, &id("r")).unwrap_err();
    assert_eq!(refused, ClaimError::Owned(format!("process {}", child.pid())));
    assert!(matches!(store.find_run(&id("r")).unwrap().unwrap().owner, RunOwner::Other(_)));
    child.kill();
    assert!(matches!(store.find_run(&id("r")).unwrap().unwrap().owner, RunOwner::Dead(_)));
    take(&store, &id("r")).unwrap();
}

#[test]
fn a_process_that_was_asleep_while_its_run_was_taken_finds_out_at_its_next_append() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let mut child = Child::start("own", dir.path());
    child.expect("ready");
    child.say("0");
    child.expect("written");
    child.signal(Signal::STOP);
    // As a store without locks would take it.
    raw(dir.path()).execute("UPDATE fences SET owner = NULL", []).unwrap();
    let mut log = Log::claim(&store, "r");
    log.append(&store, &["1"]).unwrap();
    child.signal(Signal::CONT);
    child.say("late");
    child.expect("lost");
    log.append(&store, &["2"]).unwrap();
    assert_eq!(texts(&store, "r"), ["0", "1", "2"]);
}

#[test]
fn an_older_epoch_is_lost_though_the_owner_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let mut log = Log::create(&store, "r");
    raw(dir.path()).execute("UPDATE fences SET epoch = epoch + 1", []).unwrap();
    assert_eq!(log.append(&store, &["0"]), Err(AppendError::Lost));
}

#[test]
fn a_child_inherits_nothing_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let mut log = Log::create(&store, "r");
    log.append(&store, &["0"]).unwrap();
    let mut cat = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let state = fs::canonicalize(dir.path()).unwrap();
    let open: Vec<_> = fs::read_dir(format!("/proc/{}/fd", cat.id()))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|path| path.starts_with(&state))
        .collect();
    drop(cat.stdin.take());
    cat.wait().unwrap();
    assert_eq!(open, [""; 0].map(std::path::PathBuf::from));
}
