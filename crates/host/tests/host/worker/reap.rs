//! C3: the engine is killed while workers run, and the next engine finds and ends its leftovers.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use skein_core::time::Millis;
use skein_host::process::{
    ProcessMark, ProcessRecord, ReapReport, StateMark, find_leftovers, find_records, reap_leftovers,
};

use super::{MISBEHAVE, Place, gone, signed, until};

const GRACE: Millis = Millis::from_secs(30);

/// An engine with the given worker, below a process that adopts its orphans, as on every machine.
fn engine(place: &Place, worker: &[&str]) -> Child {
    let mut command = Command::new(MISBEHAVE);
    command.args(["init", "engine", &place.name(""), &place.name("log")]).args(worker);
    command.stdin(Stdio::null()).spawn().expect("an engine")
}

fn state(place: &Place) -> StateMark {
    StateMark::from_directory(place.dir.path()).expect("its mark")
}

fn notes(place: &Place) -> Vec<ProcessRecord> {
    find_records(place.dir.path()).into_iter().map(|(_, record)| record).collect()
}

/// Kills it as a crash would, when its worker runs.
fn crash(place: &Place) {
    until("there is a note", || !notes(place).is_empty());
    let engine = signed(&place.path("engine"));
    kill_process(Pid::from_raw(engine).expect("a number"), Signal::KILL).expect("it is there");
    until("it is gone", || gone(engine));
}

/// Waits for the adopting process, which has nothing left to wait for.
fn over(mut init: Child) {
    assert!(init.wait().expect("it ends").success());
}

fn run_of(mark: &ProcessMark) -> bool {
    mark.run.as_str() == "run"
}

fn ended(reaped: &ReapReport) -> Vec<i32> {
    assert_eq!(reaped.left, []);
    reaped.ended.iter().map(|found| found.pid).collect()
}

#[test]
fn a_worker_whose_engine_was_killed_is_found_and_ended_and_no_other() {
    let (place, other) = (Place::new(), Place::new());
    let first = engine(&place, &[MISBEHAVE, "wait", &place.name("signed")]);
    let second = engine(&other, &[MISBEHAVE, "wait", &other.name("signed")]);
    let (pid, innocent) = (signed(&place.path("signed")), signed(&other.path("signed")));
    crash(&place);
    crash(&other);
    let found = find_leftovers(&state(&place), &notes(&place), run_of);
    assert_eq!(found.iter().map(|found| found.pid).collect::<Vec<_>>(), [pid]);
    assert_eq!(found[0].name, "misbehave");
    assert_eq!(find_leftovers(&state(&place), &notes(&place), |_| false), []);
    assert_eq!(ended(&reap_leftovers(&state(&place), &notes(&place), run_of, GRACE)), [pid]);
    over(first);
    assert!(gone(pid) && !gone(innocent));
    assert_eq!(find_leftovers(&state(&place), &notes(&place), run_of), []);
    // By their marks alone.
    assert_eq!(ended(&reap_leftovers(&state(&other), &[], run_of, GRACE)), [innocent]);
    over(second);
}

#[test]
fn a_daemon_of_a_worker_whose_engine_was_killed_is_found() {
    let place = Place::new();
    let init = engine(&place, &[MISBEHAVE, "daemon", "keep", "stay", &place.name("signed")]);
    let daemon = signed(&place.path("signed"));
    crash(&place);
    let all = ended(&reap_leftovers(&state(&place), &notes(&place), run_of, GRACE));
    assert!(all.contains(&daemon) && all.len() >= 2, "{all:?}");
    over(init);
    assert!(all.into_iter().all(gone));
}

/// Without a mark it is found by its record, and only by a record that matches it.
#[test]
fn a_worker_that_wiped_its_environment_is_found_by_its_note_and_never_mistaken() {
    let place = Place::new();
    let init = engine(&place, &[MISBEHAVE, "wiped", &place.name("signed")]);
    let pid = signed(&place.path("signed"));
    crash(&place);
    let notes = notes(&place);
    assert_eq!(find_leftovers(&state(&place), &[], run_of), [], "it has no mark");
    let json = serde_json::to_value(&notes[0]).expect("a note");
    let changed = |path: &str, value: serde_json::Value| {
        let mut json = json.clone();
        *json.pointer_mut(path).expect("a field of a note") = value;
        serde_json::from_value::<ProcessRecord>(json).expect("a note")
    };
    let start = json.pointer("/seen/start").and_then(serde_json::Value::as_u64).expect("a start");
    let recycled = [
        changed("/seen/start", (start + 1).into()),
        changed("/here/boot", "another life of the machine".into()),
        changed("/here/namespace", "pid:[1]".into()),
        changed("/mark", "another/run/0.0.1.1.main.1".into()),
    ];
    assert_eq!(reap_leftovers(&state(&place), &recycled, run_of, GRACE), ReapReport::default());
    assert!(!gone(pid));
    assert_eq!(ended(&reap_leftovers(&state(&place), &notes, run_of, GRACE)), [pid]);
    over(init);
    assert!(gone(pid));
}

/// A process that ignores the request is killed after the grace period.
#[test]
fn a_deaf_worker_whose_engine_was_killed_is_killed() {
    let place = Place::new();
    let script = "trap '' TERM; exec \"$0\" wait \"$1\"";
    let init = engine(&place, &["/bin/sh", "-c", script, MISBEHAVE, &place.name("signed")]);
    let pid = signed(&place.path("signed"));
    crash(&place);
    assert_eq!(ended(&reap_leftovers(&state(&place), &notes(&place), run_of, Millis(100))), [pid]);
    over(init);
    assert!(gone(pid));
}

/// This process and its ancestors are never leftovers, whatever mark they carry.
#[test]
fn an_engine_never_ends_itself() {
    let place = Place::new();
    let us = std::process::id().cast_signed();
    let mut start = fs::read_to_string("/proc/self/stat").expect("we exist");
    start = start[start.rfind(')').expect("a bracket") + 1..].split_whitespace().nth(19).expect("a start").to_owned();
    let started = super::begin(place.misbehave(&["wait", &place.name("signed")]));
    signed(&place.path("signed"));
    until("there is a note", || !notes(&place).is_empty());
    let mut json = serde_json::to_value(&notes(&place)[0]).expect("a note");
    json["seen"] = serde_json::json!({"pid": us, "start": start.parse::<u64>().expect("a number")});
    let ours: ProcessRecord = serde_json::from_value(json).expect("a note");
    assert_eq!(find_leftovers(&state(&place), &[ours], |_| true).len(), 1, "only the worker, by its mark");
    started.handle.stop();
    started.end();
    // One that carries a mark itself.
    assert_eq!(super::run(place.misbehave(&["itself", &place.name("")])).tail, "0");
}

/// Some of them can only be found as descendants.
#[test]
fn everything_below_a_process_is_ended_marked_or_not() {
    let place = Place::new();
    let mut command = Command::new(MISBEHAVE);
    let status = command.args(["below", &place.name("stays"), &place.name("left")]).status();
    assert!(status.expect("it starts").success());
    for name in ["stays", "left"] {
        assert!(gone(signed(&place.path(name))), "{name}");
    }
}
