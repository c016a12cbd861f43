//! `kill -9` before and after every append of every reference run (A1), and at any moment (A2).
//!
//! The host is another process of this test binary, with its failpoint in the environment. To run many more kills at
//! random moments, with a seed of one's own to reproduce them:
//!
//! ```text
//! SKEIN_SEED=7 cargo test -p skein-host --test host -- --ignored --nocapture many_kills
//! ```

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Signal, getpid, kill_process};
use skein_core::{engine::Event, ir::ErrorClass};
use skein_host::store::{SqliteStore, Store};
use skein_testkit::store::{AppendHook, FailingStore};

use super::{
    life::{Place, live, nothing_is_left},
    reference,
    sound::{self, Outcome, outcome},
    stage::{events, id},
};
use crate::dice::Dice;

const DIR: &str = "SKEIN_TEST_LIFE";
const RUNS: &str = "SKEIN_TEST_RUNS";
/// `before 3`: the append at which the host kills itself.
const KILL: &str = "SKEIN_TEST_KILL";

/// Not a test, but the entry point of another host.
#[test]
fn child() {
    let Some(dir) = env::var_os(DIR).map(PathBuf::from) else { return };
    let (runs, kill) = (env::var(RUNS).unwrap(), env::var(KILL).unwrap_or_default());
    let names: Vec<&str> = runs.split(' ').collect();
    let place = Place::of(&dir);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&place.state).unwrap());
    let hook = |when: &str| -> AppendHook {
        let at: Option<u64> = kill.strip_prefix(when).map(|at| at.trim().parse().unwrap());
        Arc::new(move |n| {
            if Some(n) == at {
                kill_process(getpid(), Signal::KILL).unwrap();
                // The signal is on its way, and nothing more may be done.
                loop {
                    thread::park();
                }
            }
        })
    };
    let store: Arc<dyn Store> =
        Arc::new(FailingStore::new(store).with_before_hook(hook("before")).with_after_hook(hook("after")));
    live(&place, &store, Box::new(place.crew()), &names, None);
    println!("\n@over");
}

fn host(dir: &Path, runs: &[&str], kill: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "durable::kill::child", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir).env(RUNS, runs.join(" ")).env(KILL, kill);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    command
}

/// Runs one host process until all runs have ended. Returns `None` if it was killed.
pub(crate) fn life(dir: &Path, runs: &[&str], kill: &str) -> Option<()> {
    let output = host(dir, runs, kill).output().unwrap();
    if output.status.signal() == Some(9) {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let told = || format!("{runs:?}, {kill}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("@over"), "{}", told());
    Some(())
}

/// Returns the outcomes of the runs, when all of them have ended.
fn outcomes(dir: &Path, runs: &[&str]) -> BTreeMap<String, Outcome> {
    let place = Place::of(dir);
    nothing_is_left(&place);
    let store = SqliteStore::open(&place.state).unwrap();
    let outcome = |name: &&str| {
        sound::check(&store, &place, &id(name));
        ((*name).to_owned(), outcome(&store, &id(name)))
    };
    runs.iter().map(outcome).collect()
}

/// Kills a reference run once, before or after each of its appends in turn, and compares it with an undisturbed one.
/// Returns the number of kills.
fn killed_at_each_append(name: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    life(dir.path(), &[name], "").expect("nobody killed it");
    let expected = outcomes(dir.path(), &[name]);
    assert_eq!(expected[name].status, reference::get(name).ends, "{name}");
    let killed = |when: &str, k: &usize| {
        let dir = tempfile::tempdir().unwrap();
        let kill = format!("{when} {k}");
        let killed = life(dir.path(), &[name], &kill).is_none();
        if killed {
            life(dir.path(), &[name], "").expect("nobody killed it");
        }
        assert_eq!(outcomes(dir.path(), &[name]), expected, "{name}, killed {kill}");
        killed
    };
    // Until no kill fires.
    let count = |when| (1..).take_while(|k| killed(when, k)).count();
    count("before") + count("after")
}

#[test]
fn a_kill_at_any_append_changes_nothing_in_what_comes_of_a_run() {
    let kills = reference::with_each(killed_at_each_append);
    println!("{kills} kills");
    assert!(kills >= 200, "{kills}");
}

/// Runs all reference runs in one host, which is killed at random moments until the number of kills is reached.
fn killed_at_random(kills: usize) {
    let seed = env::var("SKEIN_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = seed.unwrap_or(now.as_nanos() as u64 | 1);
    println!("SKEIN_SEED={seed}");
    let mut dice = Dice(seed);
    let names: Vec<&str> = reference::all().iter().map(|it| it.name).collect();
    let undisturbed = tempfile::tempdir().unwrap();
    life(undisturbed.path(), &names, "").expect("nobody killed it");
    let expected = outcomes(undisturbed.path(), &names);
    let mut left = kills;
    while left > 0 {
        let dir = tempfile::tempdir().unwrap();
        loop {
            let time = (left > 0).then(|| Duration::from_millis(dice.roll(400)));
            if lived(dir.path(), &names, time) {
                break;
            }
            left -= 1;
        }
        // Once more, for an undo that is no longer retried after so many interruptions.
        life(dir.path(), &names, "").expect("nobody killed it");
        for (name, outcome) in outcomes(dir.path(), &names) {
            // A run whose undo failed is not retried as a whole.
            if name == "again-as-a-whole" && gave_up(dir.path(), &name) {
                continue;
            }
            assert_eq!(outcome, expected[&name], "{name}, SKEIN_SEED={seed}");
        }
    }
}

/// Returns true if an undo was interrupted so often that it was not retried automatically.
fn gave_up(dir: &Path, name: &str) -> bool {
    let store = SqliteStore::open(Place::of(dir).state).unwrap();
    let interrupted =
        |event: &Event| matches!(event, Event::UndoFailed { error, .. } if error.class == ErrorClass::Interrupted);
    events(&store, name).iter().any(interrupted)
}

/// Runs a host process that ends by itself or is killed after a time. Returns true if it ended by itself.
fn lived(dir: &Path, runs: &[&str], kill_after: Option<Duration>) -> bool {
    let Some(after) = kill_after else { return life(dir, runs, "").is_some() };
    let mut child = host(dir, runs, "").spawn().unwrap();
    // Its output is read, so that it never waits for a reader.
    let said = BufReader::new(child.stdout.take().unwrap());
    let complaint = BufReader::new(child.stderr.take().unwrap());
    let reader = thread::spawn(move || said.lines().map_while(Result::ok).collect::<Vec<_>>());
    let other = thread::spawn(move || complaint.lines().map_while(Result::ok).collect::<Vec<_>>());
    thread::sleep(after);
    let _ = child.kill();
    let status = child.wait().unwrap();
    // A worker that outlives its host does not hold these pipes.
    let told = (reader.join().unwrap(), other.join().unwrap());
    assert!(status.signal() == Some(9) || status.success(), "{told:?}");
    status.success()
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    killed_at_random(15);
}

#[test]
#[ignore = "takes minutes: many kills"]
fn many_kills_at_random_moments_lose_and_double_nothing() {
    killed_at_random(200);
}
