//! Two hosts and one run: the hosts are further processes of this test binary.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use skein_core::{engine::Event, ir::RunStatus};
use skein_host::{
    host::{Host, HostEvent, WorkerCapacity},
    store::{SqliteStore, Store},
};

use super::{
    kit::{after, graph, plan, run},
    life::{Place, nothing_is_left},
    sound,
    stage::{LONG, begin, events, id, status},
};

const DIR: &str = "SKEIN_TEST_OWNER";

/// Not a test, but the entry point of another host: it executes one order per line, and prints what happens.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let place = Place::of(&dir);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&place.state).unwrap());
    let watcher = |told: HostEvent<'_>| match told {
        HostEvent::Row { batch, .. } => {
            for record in &batch.records {
                if let Event::AttemptStarted { attempt, .. } = &record.event {
                    say(&format!("started {attempt}"));
                }
            }
        }
        HostEvent::Closed { run } => say(&format!("closed {run}")),
        HostEvent::Lost { run } => say(&format!("lost {run}")),
        other => panic!("{other:?}"),
    };
    let host = Host::new(store, Box::new(place.crew()), WorkerCapacity { workers: 4 }, Box::new(watcher));
    say("ready");
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let (verb, name) = order.split_once(' ').unwrap();
        match verb {
            // Both steps wait for a file.
            "begin" => {
                let step = |step: &str| {
                    let wait = format!("until test -e go-{step}; do sleep 0.01; done");
                    run(step, &format!("echo \"$SKEIN_MARK\" >> \"ledger-$SKEIN_RUN_ID\"\n{wait}"))
                };
                let plan = plan(graph(vec![step("a"), after(step("b"), &["a"])]));
                host.launch_runs(vec![begin(name, &plan, place.settings())]).unwrap();
            }
            "resume" => match host.resume_runs(vec![id(name)]).remove(0) {
                Ok(_) => say("won"),
                Err(error) => say(&format!("no: {error}")),
            },
            other => panic!("{other}"),
        }
    }
}

fn say(line: &str) {
    // The test harness writes to the same stream, and does not always end its line.
    println!("\n@{line}");
}

/// Another process with a host.
struct Other {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Other {
    fn start(dir: &Path) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "durable::owners::child", "--nocapture", "--test-threads=1"])
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix('@') {
                    let _ = tell.send(line.to_owned());
                }
            }
        });
        let other = Other { process, lines };
        assert_eq!(other.hear(), "ready");
        other
    }

    fn hear(&self) -> String {
        self.lines.recv_timeout(LONG).expect("the other process says something")
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id().try_into().unwrap()).unwrap(), signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn go(place: &Place) {
    fs::write(place.work.join("go-a"), "").unwrap();
    fs::write(place.work.join("go-b"), "").unwrap();
}

#[test]
fn of_two_hosts_one_goes_on_with_the_run_of_a_third_that_died() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::of(dir.path());
    let mut dead = Other::start(dir.path());
    for round in 0..4 {
        dead.tell(&format!("begin r{round}"));
        assert_eq!(dead.hear(), "started 0.0.1.1.main.1");
    }
    drop(dead);
    let mut hosts = [Other::start(dir.path()), Other::start(dir.path())];
    let mut won = [0, 0];
    for round in 0..4 {
        hosts.iter_mut().for_each(|host| host.tell(&format!("resume r{round}")));
        let said = |host: &Other| loop {
            let line = host.hear();
            if line == "won" || line.starts_with("no: ") {
                return line;
            }
        };
        let said = hosts.each_ref().map(said);
        let winner = said.iter().position(|line| line == "won").expect("one of them has it");
        won[winner] += 1;
        let loser = &said[1 - winner];
        assert!(loser.starts_with("no: it is being run by process "), "{said:?}");
    }
    go(&place);
    for (host, won) in hosts.iter().zip(won) {
        let mut over = 0;
        while over < won {
            over += i32::from(host.hear().starts_with("closed "));
        }
    }
    let store = SqliteStore::open(&place.state).unwrap();
    for round in 0..4 {
        let run = id(&format!("r{round}"));
        sound::check(&store, &place, &run);
        assert_eq!(status(&store, run.as_str()), RunStatus::Succeeded);
    }
}

#[test]
fn a_host_that_was_asleep_while_its_run_was_taken_stops_its_workers_and_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::of(dir.path());
    let mut asleep = Other::start(dir.path());
    asleep.tell("begin r");
    assert_eq!(asleep.hear(), "started 0.0.1.1.main.1");
    asleep.signal(Signal::STOP);
    let mut other = Other::start(dir.path());
    other.tell("resume r");
    assert!(other.hear().starts_with("no: it is being run by process "));
    // As a store without locks would take it.
    let db = Connection::open(place.state.join("skein.db")).unwrap();
    db.execute("UPDATE fences SET owner = NULL", []).unwrap();
    other.tell("resume r");
    let mut said = [other.hear(), other.hear()];
    said.sort();
    assert_eq!(said, ["started 0.0.1.1.main.2", "won"]);
    asleep.signal(Signal::CONT);
    assert_eq!(asleep.hear(), "lost r");
    go(&place);
    assert_eq!(other.hear(), "started 0.1.1.1.main.1");
    assert_eq!(other.hear(), "closed r");
    nothing_is_left(&place);
    drop(other);
    let store = SqliteStore::open(&place.state).unwrap();
    sound::check(&store, &place, &id("r"));
    assert_eq!(status(&store, "r"), RunStatus::Succeeded);
    let starts = events(&store, "r").iter().filter(|it| matches!(it, Event::AttemptStarted { .. })).count();
    assert_eq!(starts, 3);
}
