//! `kill -9` before and after every append of every reference run (A1), and at any moment (A2).
//!
//! The host is this test binary once more, with its failpoint in the environment. All of it, in place of a sample:
//!
//! ```text
//! cargo test --release -p skein-host --test host -- --ignored --nocapture durable::kill
//! ```

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Signal, getpid, kill_process};
use skein_host::store::{Failing, Hook, Sqlite, Store};

use super::{
    life::{Place, live, nothing_is_left},
    reference,
    sound::{self, Outcome, outcome},
    stage::id,
};

const DIR: &str = "SKEIN_TEST_LIFE";
const RUNS: &str = "SKEIN_TEST_RUNS";
/// `before 3`: at which append the host kills itself.
const KILL: &str = "SKEIN_TEST_KILL";

/// Not a test, but where another host begins.
#[test]
fn child() {
    let Some(dir) = env::var_os(DIR).map(PathBuf::from) else { return };
    let (runs, kill) = (env::var(RUNS).unwrap(), env::var(KILL).unwrap_or_default());
    let names: Vec<&str> = runs.split(' ').collect();
    let place = Place::of(&dir);
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&place.state).unwrap());
    let hook = |when: &str| -> Hook {
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
    let store = Arc::new(Failing::new(store).before(hook("before")).after(hook("after")));
    live(&place, Arc::clone(&store) as Arc<dyn Store>, &names);
    println!("\n@{}", store.count());
}

fn host(dir: &Path, runs: &[&str], kill: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "durable::kill::child", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir).env(RUNS, runs.join(" ")).env(KILL, kill);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    command
}

/// One life. How many appends it made, or none if it was killed.
fn life(dir: &Path, runs: &[&str], kill: &str) -> Option<u64> {
    let output = host(dir, runs, kill).output().unwrap();
    if output.status.signal() == Some(9) {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let count = said.lines().find_map(|line| line.strip_prefix('@'));
    let told = || format!("{runs:?}, {kill}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", told());
    Some(count.unwrap_or_else(|| panic!("{}", told())).parse().unwrap())
}

/// What the runs came to, when all of them are over.
fn outcomes(dir: &Path, runs: &[&str]) -> BTreeMap<String, Outcome> {
    let place = Place::of(dir);
    nothing_is_left(&place);
    let store = Sqlite::open(&place.state).unwrap();
    let outcome = |name: &&str| {
        sound::check(&store, &place, &id(name));
        ((*name).to_owned(), outcome(&store, &id(name)))
    };
    runs.iter().map(outcome).collect()
}

/// A reference run that is killed at these appends, once each, against one that is not.
fn killed_at(name: &str, sample: impl Fn(u64) -> Vec<u64>) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let appends = life(dir.path(), &[name], "").expect("nobody killed it");
    let expected = outcomes(dir.path(), &[name]);
    assert_eq!(expected[name].status, reference::get(name).ends, "{name}");
    let mut kills = 0;
    for when in ["before", "after"] {
        for k in sample(appends) {
            let dir = tempfile::tempdir().unwrap();
            let kill = format!("{when} {k}");
            if life(dir.path(), &[name], &kill).is_none() {
                kills += 1;
                life(dir.path(), &[name], "").expect("nobody killed it");
            }
            assert_eq!(outcomes(dir.path(), &[name]), expected, "{name}, killed {kill}");
        }
    }
    kills
}

/// All of it, side by side.
fn each_reference(what: impl Fn(&str) -> usize + Sync) -> usize {
    let names: Vec<&str> = reference::all().iter().map(|it| it.name).collect();
    let (next, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failed = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(2, |n| n.get() + 1);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(name))) {
                        Ok(count) => drop(total.fetch_add(count, Ordering::Relaxed)),
                        Err(_) => failed.lock().unwrap().push(*name),
                    }
                }
            });
        }
    });
    assert_eq!(*failed.lock().unwrap(), [""; 0], "these differ; what of them is told above");
    total.into_inner()
}

#[test]
fn a_kill_at_an_append_changes_nothing_in_what_comes_of_a_run() {
    // The first, the last, and one in between that differs from run to run.
    let turn = AtomicUsize::new(0);
    let kills = each_reference(|name| {
        let nth = turn.fetch_add(1, Ordering::Relaxed) as u64;
        killed_at(name, |appends| vec![1 + nth % appends.max(1), appends])
    });
    assert!(kills >= 60, "{kills}");
}

#[test]
#[ignore = "takes minutes: every append of every run"]
fn a_kill_at_any_append_changes_nothing_in_what_comes_of_a_run() {
    // A life that was cut short may make more appends than one that was not; one more shows that none is left.
    let kills = each_reference(|name| killed_at(name, |appends| (1..=appends + 1).collect()));
    println!("{kills} kills");
    assert!(kills >= 200, "{kills}");
}

/// Small numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// All reference runs in one host, which is killed at random moments until it has been killed so often.
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
        assert_eq!(outcomes(dir.path(), &names), expected, "SKEIN_SEED={seed}");
    }
}

/// A life that ends of itself or when its time is up. Whether it ended of itself.
fn lived(dir: &Path, runs: &[&str], kill_after: Option<Duration>) -> bool {
    let Some(after) = kill_after else { return life(dir, runs, "").is_some() };
    let mut child = host(dir, runs, "").spawn().unwrap();
    // Whatever it says is read, so that it never waits for a reader.
    let said = BufReader::new(child.stdout.take().unwrap());
    let complaint = BufReader::new(child.stderr.take().unwrap());
    let reader = thread::spawn(move || said.lines().map_while(Result::ok).collect::<Vec<_>>());
    let other = thread::spawn(move || complaint.lines().map_while(Result::ok).collect::<Vec<_>>());
    thread::sleep(after);
    let _ = child.kill();
    let status = child.wait().unwrap();
    // A worker that outlives its host has no hold on these.
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
