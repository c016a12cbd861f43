//! Processes that refuse to end, and the processes they leave behind.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use skein_core::time::Millis;
use skein_host::process::{ExceededLimit, ProcessOutcome};

use super::{MISBEHAVE, Place, begin, carrying, gone, run, signed, until};

/// C1.
#[test]
fn one_that_does_not_listen_is_killed_after_its_grace() {
    let place = Place::new();
    let mut task = place.sh("trap '' TERM; echo ready; exec \"$0\" wait \"$1\"");
    task.arguments.extend([MISBEHAVE.into(), place.name("signed").into()]);
    task.grace = Millis(300);
    let started = begin(task);
    let pid = signed(&place.path("signed"));
    let asked = Instant::now();
    started.handle.stop();
    let ended = started.end();
    assert_eq!(ended.how, ProcessOutcome::Stopped);
    assert!(asked.elapsed() >= Duration::from_millis(300), "it had its grace");
    assert!(asked.elapsed() < Duration::from_secs(20), "and not much more");
    assert!(gone(pid));
    place.assert_clean();
}

/// Many programs treat a second request as impatience, and do not clean up.
#[test]
fn each_process_is_asked_once() {
    let place = Place::new();
    let mut task = place.sh("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done");
    task.grace = Millis(700);
    let started = begin(task);
    until("it is ready", || place.path("log").exists() && place.log().starts_with(b"ready"));
    started.handle.stop();
    assert_eq!(started.end().how, ProcessOutcome::Stopped);
    // The shell may also print what happened to the `sleep` it waited for.
    assert_eq!(String::from_utf8(place.log()).expect("text").matches("asked").count(), 1);
    place.assert_clean();
}

#[test]
fn killing_does_not_wait_for_the_grace() {
    let place = Place::new();
    let mut task = place.sh("trap '' TERM; exec \"$0\" wait \"$1\"");
    task.arguments.extend([MISBEHAVE.into(), place.name("signed").into()]);
    task.grace = Millis::from_hours(1);
    let started = begin(task);
    signed(&place.path("signed"));
    started.handle.stop();
    started.handle.kill();
    assert_eq!(started.end().how, ProcessOutcome::Stopped);
    place.assert_clean();
}

#[test]
fn a_suspended_worker_can_be_stopped() {
    let place = Place::new();
    let started = begin(place.sh("echo ready; kill -STOP $$"));
    until("it is suspended", || {
        let Some(pid) = started.handle.pid() else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") T ")
    });
    started.handle.stop();
    assert_eq!(started.end().how, ProcessOutcome::Stopped);
    place.assert_clean();
}

/// C2: a standard daemon, found by its mark.
#[test]
fn a_daemon_does_not_outlive_its_attempt() {
    let place = Place::new();
    let ended = run(place.misbehave(&["daemon", "keep", "end", &place.name("signed")]));
    let pid = signed(&place.path("signed"));
    assert_eq!(ended.how, ProcessOutcome::Exited(0));
    let leaked: Vec<_> = ended.leaked.iter().map(|leaked| (leaked.pid, leaked.name.as_str())).collect();
    assert_eq!(leaked, [(pid, "misbehave")]);
    assert!(!ended.leaked[0].alive && gone(pid));
    place.assert_clean();
}

/// C2, when the attempt is stopped or times out.
#[test]
fn a_daemon_is_ended_with_its_attempt() {
    for idle in [None, Some(Millis::from_secs(2))] {
        let place = Place::new();
        let mut task = place.misbehave(&["daemon", "keep", "stay", &place.name("signed")]);
        task.idle = idle;
        let started = begin(task);
        let pid = signed(&place.path("signed"));
        if idle.is_none() {
            started.handle.stop();
        }
        let ended = started.end();
        let wanted =
            idle.map_or(ProcessOutcome::Stopped, |idle| ProcessOutcome::TimedOut(ExceededLimit::Silence(idle)));
        assert_eq!((ended.how, ended.leaked), (wanted, vec![]));
        assert!(gone(pid));
        place.assert_clean();
    }
}

/// Runs in an engine of its own: a process that hides its origin is attributed to the last attempt that can have
/// started it, and here that must be the only one.
fn alone(arguments: &[&str]) -> String {
    let output = Command::new(MISBEHAVE).args(arguments).output().expect("an engine");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}");
    String::from_utf8(output.stdout).expect("text")
}

/// C2, when the daemon cleared its environment, too.
#[test]
fn a_daemon_without_a_mark_does_not_outlive_its_attempt() {
    for (then, idle, wanted) in
        [("end", "0", "Exited(0) misbehave"), ("stay", "2000", "TimedOut(Silence(Millis(2000)))")]
    {
        let place = Place::new();
        let (directory, file) = (place.name(""), place.name("signed"));
        let told = alone(&["attempt", &directory, idle, MISBEHAVE, "daemon", "wipe", then, &file]);
        assert_eq!(told, wanted);
        assert!(gone(signed(&place.path("signed"))));
    }
}

/// One attempt's end is not the end of another's daemon.
#[test]
fn a_daemon_lives_while_its_attempt_does() {
    let (long, short) = (Place::new(), Place::new());
    let started = begin(long.misbehave(&["daemon", "keep", "stay", &long.name("signed")]));
    let daemon = signed(&long.path("signed"));
    for round in 0..5 {
        // One that leaves nothing, one that leaves a process of its own.
        assert_eq!(run(short.sh("exit 0")).how, ProcessOutcome::Exited(0));
        let file = format!("signed{round}");
        let ended = run(short.misbehave(&["daemon", "keep", "end", &short.name(&file)]));
        assert_eq!(ended.leaked.len(), 1, "{ended:?}");
        assert!(gone(signed(&short.path(&file))) && !gone(daemon));
    }
    started.handle.stop();
    assert_eq!(started.end().how, ProcessOutcome::Stopped);
    assert!(gone(daemon));
    long.assert_clean();
    short.assert_clean();
    // Also when its origin cannot be determined.
    let place = Place::new();
    alone(&["two", &place.name("")]);
}

/// An engine that is itself a worker is killed: its processes are found by the mark that it passed on.
#[test]
fn the_workers_of_a_worker_are_its_own() {
    let (outer, inner) = (Place::new(), Place::new());
    let engine = ["engine", &inner.name(""), &inner.name("log"), MISBEHAVE, "wait", &inner.name("signed")];
    let started = begin(outer.misbehave(&engine));
    let worker = signed(&inner.path("signed"));
    let engine = Pid::from_raw(signed(&inner.path("engine"))).expect("a number");
    kill_process(engine, Signal::KILL).expect("it is there");
    let ended = started.end();
    assert!(matches!(ended.how, ProcessOutcome::Signal { signal: 9, .. }), "{ended:?}");
    assert_eq!(ended.leaked.iter().map(|leaked| leaked.pid).collect::<Vec<_>>(), [worker]);
    assert!(gone(worker));
    outer.assert_clean();
}

/// A leftover process holds the pipe open: reading it to its end would take forever.
#[test]
fn what_is_left_in_the_background_is_ended_and_named() {
    let place = Place::new();
    let ended = run(place.sh("sleep 1000 & echo $! > background; echo hello"));
    assert_eq!((ended.how, ended.held, ended.tail.as_str()), (ProcessOutcome::Exited(0), false, "hello"));
    assert_eq!(ended.leaked.len(), 1, "{:?}", ended.leaked);
    assert_eq!((ended.leaked[0].name.as_str(), ended.leaked[0].alive), ("sleep", false));
    assert!(gone(ended.leaked[0].pid));
    place.assert_clean();
}

#[test]
fn what_ends_soon_after_is_not_left() {
    let place = Place::new();
    let ended = run(place.sh("(sleep 0.02; echo late) & echo soon"));
    assert_eq!((ended.how, ended.leaked), (ProcessOutcome::Exited(0), vec![]));
    assert_eq!(place.log(), b"soon\nlate\n");
    place.assert_clean();
}

/// A process of someone else has the pipe: it is not ours to end, and we do not wait for it.
#[test]
fn output_held_open_by_a_stranger_does_not_hang() {
    let place = Place::new();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, place.path("go"), fifo, 0o600.into(), 0).expect("a fifo");
    let started = begin(place.sh("echo $$ > number; read word < go; exit 4"));
    until("it says its number", || std::fs::read(place.path("number")).is_ok_and(|n| n.ends_with(b"\n")));
    let pid = std::fs::read_to_string(place.path("number")).expect("a number");
    let theirs =
        std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/1", pid.trim())).expect("its output");
    std::fs::write(place.path("go"), "go\n").expect("it reads");
    let ended = started.end();
    assert_eq!((ended.how, ended.leaked, ended.held), (ProcessOutcome::Exited(4), vec![], true));
    drop(theirs);
}

/// C8: it prints nothing more, but it still exists.
#[test]
fn one_that_closes_its_pipes_and_stays_is_silent() {
    let place = Place::new();
    let mut task = place.sh("echo bye; exec >&- 2>&- <&-; exec sleep 1000");
    task.idle = Some(Millis(200));
    let ended = run(task);
    assert_eq!(ended.how, ProcessOutcome::TimedOut(ExceededLimit::Silence(Millis(200))));
    assert_eq!(place.log(), b"bye\n");
    place.assert_clean();
}

/// C11: children of children, half of them in sessions of their own.
#[test]
fn a_fork_bomb_is_put_out() {
    let place = Place::new();
    let mut task = place.misbehave(&["bomb", "6"]);
    task.grace = Millis(0);
    let started = begin(task);
    until("it has begun", || carrying(&place.mark).len() > 20);
    started.handle.stop();
    let ended = started.end();
    assert_eq!((ended.how, ended.leaked), (ProcessOutcome::Stopped, vec![]));
    place.assert_clean();
}

/// C11: one that has already become another process whenever it is examined.
#[test]
fn one_that_runs_from_process_to_process_is_caught() {
    let place = Place::new();
    let file = place.name("escaped");
    let told = alone(&["attempt", &place.name(""), "0", MISBEHAVE, "hop", "20000", &file]);
    assert!(told.starts_with("Exited(0) misbehave") && !told.contains('!'), "{told}");
    assert!(!place.path("escaped").exists(), "it was caught before it ended by itself");
    let hopping = || {
        let names = std::fs::read_dir("/proc").expect("/proc").flatten();
        let mut lines = names.filter_map(|name| std::fs::read(name.path().join("cmdline")).ok());
        lines.any(|line| String::from_utf8_lossy(&line).contains(&place.name("escaped")))
    };
    assert!(!hopping());
}

/// Children that other parts of this process started are theirs: they are not ended, and not waited for.
#[test]
fn a_child_that_someone_else_started_is_left_alone() {
    let place = Place::new();
    let mut theirs = Command::new("sleep").arg("1000").spawn().expect("a child");
    let mut ended_already = Command::new("sh").args(["-c", "exit 9"]).spawn().expect("a child");
    let ended = run(place.misbehave(&["daemon", "keep", "end", &place.name("signed")]));
    assert_eq!(ended.leaked.len(), 1);
    assert!(theirs.try_wait().expect("it is ours to wait for").is_none());
    theirs.kill().expect("it is there");
    theirs.wait().expect("it ended");
    assert_eq!(ended_already.wait().expect("it ended").code(), Some(9));
}

/// The search for orphans takes a while, in which other children are started and end. None of them is taken for an
/// orphan.
#[test]
fn a_child_that_is_being_started_is_no_orphan() {
    let place = Place::new();
    alone(&["crowd", &place.name("")]);
}

/// Without leftovers no time passes: the settle time is not spent on every attempt.
#[test]
fn an_attempt_that_leaves_nothing_ends_at_once() {
    let place = Place::new();
    let began = Instant::now();
    for _ in 0..20 {
        run(place.task("true", &[]));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    thread::yield_now();
}
