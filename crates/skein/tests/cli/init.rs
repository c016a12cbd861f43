//! `skein init`: its files are valid and run unchanged, and existing files are not changed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::session::{Folder, Session, folder_for_programs, run, skein};

const KINDS: [&str; 4] = ["agentcore", "aip15", "ioa", "swdl"];

/// A folder that contains only bash, as the search path.
fn only_bash(folder: &Folder) -> PathBuf {
    let programs = folder.0.join("programs");
    let places = std::env::var("PATH").expect("there is a PATH");
    let bash = places.split(':').map(|place| Path::new(place).join("bash")).find(|bash| bash.is_file());
    fs::create_dir(&programs).expect("a folder can be made");
    symlink(bash.expect("bash is installed"), programs.join("bash")).expect("a link can be made");
    programs
}

#[test]
fn what_is_written_runs_as_it_is_with_nothing_but_bash() {
    let folder = Folder::new();
    let trusted = folder_for_programs();
    let programs = only_bash(&trusted);
    for kind in KINDS {
        let there = folder.0.join(kind);
        let done = run(skein(&folder.0).args(["init", kind, "--kind", kind]));
        assert_eq!(done.code, 0, "{}", done.err);
        let valid = run(skein(&there).args(["validate", "--strict", "."]));
        assert_eq!(valid.code, 0, "{kind}: {}{}", valid.out, valid.err);
        let ran = run(skein(&there).args(["run", "hello", "--format", "json"]).env("PATH", &programs));
        assert_eq!(ran.code, 0, "{kind}: {}{}", ran.out, ran.err);
        let result: Value = serde_json::from_str(&ran.out).expect("it is JSON");
        assert_eq!(
            (result["status"].as_str(), result["workflow"]["dialect"].as_str()),
            (Some("succeeded"), Some(kind))
        );
        assert!(result["steps"].as_array().is_some_and(|steps| steps.len() >= 2), "{kind}: {result}");
        let planned = run(skein(&there).args(["plan", "hello"]));
        assert_eq!((planned.code, planned.err.as_str()), (0, ""), "{kind}");
    }
}

#[test]
fn what_was_written_and_what_comes_next_is_told() {
    let folder = Folder::new();
    let mut session = Session::within(&folder.0);
    session.skein("init", 0).skein("list", 0).skein("plan hello", 0);
    for kind in KINDS {
        session.skein(&format!("init a-{kind} --kind {kind}"), 0);
    }
    session.skein("init other --format json", 0).skein("init --kind nonsense", 2);
    session.is("init");
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let folder = Folder::new();
    folder.write("mine/skein.toml", "max_workers = 1\n").write("full/workflows/hello.yaml", "mine\n");
    folder.write("full/skein.toml", "").write("file", "");
    fs::create_dir_all(folder.0.join("link/workflows")).expect("a folder can be made");
    symlink("/nowhere/at/all", folder.0.join("link/workflows/hello.yaml")).expect("a link can be made");
    let mut session = Session::within(&folder.0);
    session.skein("init mine", 5).skein("init full", 5).skein("init link", 5).skein("init file", 5);
    session.skein("init mine --format json", 5);
    session.is("init-there");
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).expect("it is there");
    assert_eq!(
        (read("mine/skein.toml").as_str(), read("full/workflows/hello.yaml").as_str()),
        ("max_workers = 1\n", "mine\n")
    );
    assert!(!folder.0.join("mine/workflows").exists(), "all of it is written, or nothing");
    assert!(!folder.0.join("link/skein.toml").exists(), "all of it is written, or nothing");
}
