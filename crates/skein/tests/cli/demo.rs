//! `skein demo`: from start to end, with and without a terminal, and stopped in between.

use std::{fs, io::Write, path::Path};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    kept::{Going, at_a_terminal},
    session::{Folder, run, skein},
};

/// The processes whose working directory is below a folder.
fn at_work_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it is there").filter_map(Result::ok);
    let works = |path: &Path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    entries.map(|entry| entry.path()).filter(|path| works(path)).map(|path| path.display().to_string()).collect()
}

#[test]
fn nobody_is_needed() {
    let folder = Folder::new();
    let mut command = skein(&folder.0);
    // The demo ignores an existing state folder of the user.
    let done = run(command.arg("demo").env("TMPDIR", &folder.0).env("SKEIN_STATE", folder.0.join("state")));
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{}", done.out);
    let order = [
        "1 of 4",
        "$ skein graph demo.yaml\n● draft\n",
        "2 of 4",
        "$ skein run demo.yaml\n",
        "retry",
        "polish: iteration 1 of 5\n",
        "$ kill -9 ",
        "$ skein runs\n",
        "interrupted",
        "3 of 4",
        " --no-wait\n",
        "rerun             polish (iteration 2, attempt 2)",
        "polish (iteration 3)",
        "before the kill  draft, tests, lint, lint (attempt 2), polish round 1, polish round 2\n",
        "after it         polish round 2 (attempt 2), polish round 3\n",
        "4 of 4",
        "$ skein approve ",
        "approved `ask/agree`",
        "$ skein resume ",
        "SUCCEEDED [",
        "`publish` ran once.",
        "skein demo --keep",
    ];
    let mut rest = done.out.as_str();
    for part in order {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in its place:\n{}", done.out));
        rest = &rest[at + part.len()..];
    }
    let left: Vec<_> = fs::read_dir(&folder.0).expect("it is there").map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".git"], "what it made is gone");
}

#[test]
fn what_it_claims_can_be_checked_afterwards() {
    let folder = Folder::new();
    let done = run(skein(&folder.0).args(["demo", "--in", "here/below", "--format", "json"]));
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{}", done.out);
    let result: Value = serde_json::from_str(&done.out).expect("it is JSON");
    let here = folder.0.join("here/below");
    assert_eq!((result["ok"].as_bool(), result["folder"].as_str()), (Some(true), here.to_str()));
    assert_eq!(result["decision"], "approve");
    let read = |name: &str| fs::read_to_string(here.join(name)).expect("it is there");
    let log = ["draft 1 1", "polish 1 1", "polish 2 1", "polish 2 2", "polish 3 1", "publish 1 1"];
    assert_eq!(read("work.log").lines().collect::<Vec<_>>(), log);
    assert_eq!(
        (read("tests/work.log").as_str(), read("lint/work.log").as_str()),
        ("tests 1 1\n", "lint 1 1\nlint 1 2\n")
    );
    let run_id = result["run_id"].as_str().expect("it is text");
    let events = run(skein(&here).args(["events", run_id, "--format", "json"]));
    let events: Value = serde_json::from_str(&events.out).expect("it is JSON");
    let cut = |event: &&Value| event["event"]["attempt_ended"]["end"] == "interrupted";
    assert_eq!(events["events"].as_array().expect("it is a list").iter().filter(cut).count(), 1);
    assert_eq!(at_work_in(&folder.0), [] as [String; 0]);
    let again = run(skein(&folder.0).args(["demo", "--in", "here/below"]));
    assert!(again.code == 5 && again.err.contains("is not empty"), "{}", again.err);
}

#[test]
fn who_is_at_the_terminal_decides() {
    for (answer, said) in [("y", "`publish` ran once."), ("n not today", "`publish` did not run.")] {
        let folder = Folder::new();
        let (going, mut stdin) = at_a_terminal(&folder, "demo --in here");
        going.until("The person is you");
        going.until("Publish it?");
        writeln!(stdin, "{answer}").unwrap();
        going.until(said);
        let (code, rest, _) = going.end();
        assert_eq!(code, Some(0), "{rest}");
        assert_eq!(folder.0.join("here/published.txt").exists(), answer == "y");
        assert_eq!(at_work_in(&folder.0), [] as [String; 0]);
    }
}

#[test]
fn at_a_terminal_it_can_be_left_to_itself() {
    let folder = Folder::new();
    let (going, _stdin) = at_a_terminal(&folder, "demo --in here --yes");
    going.until("skein approve");
    going.until("ran once");
    assert_eq!(going.end().0, Some(0));
}

/// All processes that it has started by then, engines and workers, are ended with it.
#[test]
fn nothing_is_left_when_it_is_stopped() {
    let cases = [("draft", Signal::TERM), ("kill -9", Signal::INT), ("rerun", Signal::HUP)];
    for (part, signal) in cases {
        let folder = Folder::new();
        let mut command = skein(&folder.0);
        command.args(["demo", "--in", "here"]).stdout(std::process::Stdio::piped());
        let going = Going::new(command.stderr(std::process::Stdio::piped()).spawn().expect("it starts"));
        going.until("$ skein run");
        going.until(part);
        going.signal(signal);
        let (code, _, errors) = going.end();
        assert_eq!(code, Some(130), "{errors}");
        assert!(errors.contains("nothing of it is left running"), "{errors}");
        assert_eq!(at_work_in(&folder.0), [] as [String; 0], "stopped at `{part}`");
    }
}

#[test]
fn a_place_that_cannot_be_had_is_told() {
    let folder = Folder::new();
    folder.write("file", "");
    let done = run(skein(&folder.0).args(["demo", "--in", "file", "--format", "json"]));
    let error: Value = serde_json::from_str(&done.out).expect("it is JSON");
    assert_eq!(done.code, 5);
    assert!(
        error["error"]["message"].as_str().is_some_and(|message| message.contains("`file` cannot be created")),
        "{error}"
    );
}
