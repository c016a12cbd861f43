//! `skein bench`: everything can be measured, and nothing is left behind. The tests do not judge the speed.

use std::fs;

use serde_json::Value;

use crate::session::{Folder, run, skein};

fn names(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.is_finite() && number > 0.0)
}

#[test]
fn everything_is_measured_and_nothing_is_left() {
    let folder = Folder::new();
    let done = run(skein(&folder.0).args(["bench", "--quick", "--format", "json"]));
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{}", done.out);
    let report: Value = serde_json::from_str(&done.out).unwrap();

    for what in ["commits", "syncs", "spawns", "spawns_2", "spawns_16"] {
        assert!(is_positive(&report["machine"][what]), "{what}: {report}");
    }
    for what in ["make_2", "make_16"] {
        let make = &report["machine"][what];
        assert!(make.is_null() || is_positive(make), "{what}: {report}");
    }
    let lines = report["lines"].as_array().unwrap();
    let ids: Vec<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    let all = [
        "chain",
        "fan_out",
        "runs",
        "functions",
        "workers_2",
        "workers_16",
        "start",
        "memory",
        "resume_gates",
        "resume_steps",
    ];
    assert_eq!(ids, all);
    for line in lines {
        assert!(is_positive(&line["figure"]), "{line}");
        let beside = line["limit"].is_null() && line["ratio"].is_null();
        assert!(beside || (is_positive(&line["limit"]["figure"]) && is_positive(&line["ratio"])), "{line}");
        assert!(line["goal"]["at_most"].is_number() || line["goal"]["at_least"].is_number(), "{line}");
        assert!(line["met"].is_boolean() && line["name"].is_string(), "{line}");
    }
    let met = lines.iter().all(|line| line["met"] == true);
    assert_eq!(report["met"], met);
    assert_eq!(names(&folder), [".git"], "nothing is left behind");
}

#[test]
fn a_missed_goal_is_an_exit_status_only_if_that_was_asked_for() {
    let folder = Folder::new();
    let quick = |more: &[&str]| run(skein(&folder.0).args(["bench", "--quick", "--state", "here/state"]).args(more));
    let done = quick(&["--check", "--format", "json"]);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(done.code, if report["met"] == true { 0 } else { 4 }, "{}{}", done.out, done.err);
    let done = quick(&[]);
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{}", done.out);
    for text in ["This machine", "synced commits", "chain of 10 steps", "at most 15.0 ms"] {
        assert!(done.out.contains(text), "{text}: {}", done.out);
    }
    assert_eq!(names(&folder), [".git"], "nothing is left behind");
}

#[test]
fn what_a_killed_one_left_goes_and_what_is_in_use_stays() {
    let folder = Folder::new();
    let state = folder.0.join(".skein");
    let left = state.join("bench");
    fs::create_dir_all(left.join("state/owners")).unwrap();
    fs::write(left.join("lock"), "").unwrap();
    fs::write(left.join("Makefile"), "x").unwrap();
    let lock = fs::File::open(left.join("lock")).unwrap();
    lock.lock().unwrap();
    let refused = run(skein(&folder.0).args(["bench", "--quick", "--format", "json"]));
    assert_eq!(refused.code, 5, "{}{}", refused.out, refused.err);
    assert!(refused.out.contains("another benchmark is running here"), "{}", refused.out);
    assert!(left.join("Makefile").exists());
    drop(lock);
    let done = run(skein(&folder.0).args(["bench", "--quick"]));
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{}", done.out);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "only what it made itself is gone");
}
