//! Other processes: this test binary, with a role to play.
//!
//! A child reports in lines that start with `@`, and gets its orders on its standard input.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use skein_host::store::{AppendError, ClaimError, SqliteStore, Store};

use super::{
    sqlite::space,
    support::{LONG, Log, id, new_run, take},
};
use crate::power;

const ROLE: &str = "SKEIN_TEST_ROLE";
const DIR: &str = "SKEIN_TEST_DIR";

/// Another process, which ends with its test.
pub(crate) struct Child {
    process: process::Child,
    lines: mpsc::Receiver<String>,
}

impl Child {
    pub(crate) fn start(role: &str, dir: &Path) -> Child {
        Child::under(&[], role, dir)
    }

    /// Starts the child through a wrapper program, which gets it as its last arguments.
    pub(crate) fn under(wrapper: &[&str], role: &str, dir: &Path) -> Child {
        let mut process = command(wrapper, role, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{:?} is needed for this test: {error}", wrapper.first()));
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (told, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix('@') {
                    let _ = told.send(line.to_owned());
                }
            }
        });
        Child { process, lines }
    }

    /// Returns the next line; `None` when it has ended.
    pub(crate) fn hear(&self) -> Option<String> {
        match self.lines.recv_timeout(LONG) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the other process says nothing"),
        }
    }

    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.hear().as_deref(), Some(line));
    }

    /// Returns the number of lines that were not read yet, without waiting.
    pub(crate) fn said(&self) -> usize {
        self.lines.try_iter().count()
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends it with `kill -9`, and returns its remaining lines.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // The pipe ends with the process.
        std::iter::from_fn(|| self.hear()).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(wrapper: &[&str], role: &str, dir: &Path) -> Command {
    let me = env::current_exe().unwrap();
    let mut command = match wrapper {
        [] => Command::new(&me),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(&me);
            command
        }
    };
    command.args(["--exact", "store::child::child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(DIR, dir);
    command
}

/// Plays a role after shell commands that set up mounts which nobody else sees.
pub(crate) fn in_namespace(setup: &str, role: &str, dir: &Path) {
    let script = format!("set -e; {setup}; exec \"$0\" \"$@\"");
    let root = rustix::process::geteuid().is_root();
    let unshare = if root { "--mount" } else { "--map-root-user" };
    let wrapper = ["unshare", unshare, "--mount", "sh", "-c", &script];
    let output = command(&wrapper, role, dir).output().expect("`unshare` is needed for this test");
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.contains("@played"),
        "this test needs a mount namespace (`unshare --mount`) with a tmpfs in it, and {role} to go well:\n{told}"
    );
}

/// Not a test, but the entry point of the other processes.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let dir = PathBuf::from(env::var_os(DIR).unwrap());
    match role.as_str() {
        "append" => append(&dir),
        "flood" => flood(&dir),
        "own" => own(&dir),
        "claim" => claim(&dir),
        "answer" => answer(&dir),
        "make" => make(&dir),
        "full-disk" => space::full_disk(&dir),
        "read-only" => space::read_only(&dir),
        "power-journal" => power::journal(&dir),
        "power-artifact" => power::artifact(&dir),
        "power-artifact-left" => power::artifact_left_before(&dir),
        other => panic!("{other}"),
    }
    say("played");
}

pub(crate) fn say(line: &str) {
    // The test harness writes to the same stream, and does not always end its line.
    println!("\n@{line}");
}

fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

/// Appends to its own run for as long as it can, and reports what was acknowledged.
fn append(dir: &Path) {
    let store = SqliteStore::open(dir).unwrap();
    let run = orders().next().unwrap();
    let mut log = match store.find_run(&id(&run)).unwrap() {
        Some(_) => Log::claim(&store, &run),
        None => Log::create(&store, &run),
    };
    say("ready");
    for n in log.seq.. {
        match log.append(&store, &[&n.to_string()]) {
            Ok(()) => say(&n.to_string()),
            Err(error) => {
                say(&format!("failed: {error}"));
                say(&format!("failed: {}", log.append(&store, &[&n.to_string()]).unwrap_err()));
                return;
            }
        }
    }
}

/// Appends to several runs at once, so that there is always something to be written.
fn flood(dir: &Path) {
    let store = SqliteStore::open(dir).unwrap();
    let name = orders().next().unwrap();
    thread::scope(|scope| {
        for n in 0..8 {
            let mut log = Log::create(&store, &format!("{name}-{n}"));
            let store = &store;
            scope.spawn(move || {
                loop {
                    log.append(store, &["0"]).unwrap();
                    say("written");
                }
            });
        }
    });
}

/// Owns a run, and appends to it on each order.
fn own(dir: &Path) {
    let store = SqliteStore::open(dir).unwrap();
    let mut log = Log::create(&store, "r");
    say("ready");
    for order in orders() {
        match log.append(&store, &[&order]) {
            Ok(()) => say("written"),
            Err(AppendError::Lost) => say("lost"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Claims the runs that it is told.
fn claim(dir: &Path) {
    let store = SqliteStore::open(dir).unwrap();
    say("ready");
    for run in orders() {
        match take(&store, &id(&run)) {
            Ok(_) => say("won"),
            Err(ClaimError::Owned(_)) => say("owned"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Owns a run, and answers every request to it with its own body, in the same transaction as a row.
fn answer(dir: &Path) {
    let store = Arc::new(SqliteStore::open(dir).unwrap());
    let mut log = Log::create(&*store, "r");
    let (told, notices) = mpsc::channel();
    store.watch(Arc::new(move |notice| drop(told.send(notice))));
    say("ready");
    while notices.recv().is_ok() {
        for letter in store.pending_requests().unwrap() {
            let mut row = log.row(&["answered"]);
            row.answers = vec![(letter.id, letter.body)];
            log.wrote(&row.batch.clone());
            super::support::append(&*store, row).unwrap();
        }
    }
}

/// Creates the runs that it is told.
fn make(dir: &Path) {
    let store = SqliteStore::open(dir).unwrap();
    for run in orders() {
        store.create_runs(&[new_run(&run)]).unwrap();
        say("made");
    }
}
