//! What is stored is not what was written: one run is set aside and named, the others go on (A7, A8).

use std::fs;

use rustix::process::Signal;

use crate::kept::{Project, lives};

/// Where a text is in a file: in the journal, and perhaps where a page was written before.
fn places(bytes: &[u8], text: &str) -> Vec<usize> {
    let all = bytes.windows(text.len()).enumerate().filter(|(_, it)| *it == text.as_bytes());
    all.map(|(at, _)| at).collect()
}

/// All that is stored in one file: nobody has the database, so its log was moved into it.
fn settle(project: &Project) {
    for name in ["skein.db-wal", "skein.db-shm"] {
        fs::remove_file(project.path(".skein").join(name)).expect("it is there");
    }
}

/// Flips a bit where the journal has this text.
fn flip(project: &Project, text: &str) {
    settle(project);
    let path = project.path(".skein/skein.db");
    let mut bytes = fs::read(&path).unwrap();
    let places = places(&bytes, text);
    assert!(!places.is_empty(), "`{text}` is there");
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&path, bytes).unwrap();
}

/// Two runs at their gates, one of which has a damaged event.
fn damaged() -> (Project, String, String) {
    let project = Project::new();
    let (bad, good) = (project.left("gated.yaml"), project.left("gated.yaml"));
    project.ends(&format!("approve {bad} --reason zebra-was-here"), 0);
    project.ends(&format!("approve {good}"), 0);
    flip(&project, "zebra-was-here");
    (project, bad, good)
}

#[test]
fn a_damaged_run_is_set_aside_and_the_others_go_on() {
    let (project, bad, good) = damaged();
    let told = project.ends("resume --all", 8);
    assert!(
        told.contains(&format!("run {bad} was set aside: the journal of run `{bad}` is damaged")),
        "{told}"
    );
    assert!(told.contains(&format!("{good}  run succeeded")), "{told}");
    let list = project.ends("runs", 0);
    assert!(list.contains("set aside") && list.contains("is damaged"), "{list}");
    assert_eq!(project.json(&format!("runs {good}"), 0)["status"], "succeeded");
    // From then on it is refused, and nothing is begun in it.
    for line in [format!("resume {bad}"), format!("approve {bad}"), format!("cancel {bad}")] {
        let no = project.ends(&line, 5);
        assert!(no.contains("set aside") || no.contains("nothing in run"), "{line}: {no}");
    }
    assert!(project.ends("resume --all", 0).contains("nothing to go on with"));
    assert_eq!(project.read("done.txt"), "draft\ndraft\npublish\n");
}

#[test]
fn a_damaged_run_is_named_wherever_it_is_looked_at() {
    let (project, bad, _) = damaged();
    for line in
        [format!("runs {bad}"), format!("events {bad}"), format!("logs {bad}"), format!("resume {bad}")]
    {
        let told = project.ends(&line, 8);
        assert!(told.contains(&format!("the journal of run `{bad}` is damaged")), "{line}: {told}");
    }
    let error = project.json(&format!("runs {bad}"), 8);
    assert!(error["error"]["message"].as_str().unwrap().contains("is damaged"), "{error}");
    assert!(project.ends("runs", 0).contains("set aside"), "by `resume`");
}

/// What a damaged run left running is ended all the same.
#[test]
fn what_a_damaged_run_left_running_is_ended() {
    for line in ["resume", "resume --all"] {
        let project = Project::new();
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        let worker = project.begun();
        going.signal(Signal::KILL);
        going.end();
        // Whoever looks moves the log of the one that was killed into the database.
        project.ends("runs", 0);
        settle(&project);
        let path = project.path(".skein/skein.db");
        let (mut bytes, text) = (fs::read(&path).unwrap(), "attempt_started");
        let last = places(&bytes, text).pop().expect("it was started");
        bytes[last] ^= 2;
        fs::write(&path, bytes).unwrap();
        let told = project.ends(line, 8);
        assert!(told.contains(&run) && told.contains("was set aside"), "{told}");
        assert!(!lives(&worker), "{told}");
    }
}

/// Any page of the database may be damaged: it is said so, nothing panics and nothing hangs.
#[test]
fn a_damaged_page_is_told_and_breaks_nothing_else() {
    let project = Project::new();
    project.left("gated.yaml");
    settle(&project);
    let path = project.path(".skein/skein.db");
    let whole = fs::read(&path).unwrap();
    let mut told = 0;
    for page in 0..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096 + if page == 0 { 100 } else { 0 }] ^= 0x55;
        fs::write(&path, &bytes).unwrap();
        for line in ["runs", "resume --all --no-wait"] {
            let done = project.skein(line);
            assert!(
                [0, 5, 6, 8].contains(&done.code),
                "page {page}, `{line}`: {} {}{}",
                done.code,
                done.out,
                done.err
            );
            assert!(!done.err.contains("panicked"), "page {page}, `{line}`: {}", done.err);
            told +=
                usize::from(done.code == 8 && done.err.contains("damaged") || done.err.contains("malformed"));
        }
        for name in ["skein.db-wal", "skein.db-shm"] {
            let _ = fs::remove_file(project.path(".skein").join(name));
        }
    }
    assert!(told >= 4, "{told}");
}

/// A log that ends in the middle of a write: what was acknowledged before it stands, and the run goes on from there.
#[test]
fn a_torn_log_loses_only_its_end() {
    for cut in [1, 24, 2000, 4200] {
        let project = Project::new();
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        project.begun();
        going.signal(Signal::KILL);
        going.end();
        let log = project.path(".skein/skein.db-wal");
        let length = fs::metadata(&log).unwrap().len();
        fs::File::options().write(true).open(&log).unwrap().set_len(length - cut).unwrap();
        let resumed = project.begin(&format!("resume {run} --format jsonl"));
        project.begun();
        project.go();
        let (code, lines, errors) = resumed.end();
        assert_eq!(code, Some(0), "cut by {cut}: {lines}{errors}");
        project.ended_once(&run);
        assert!(project.read("done.txt").ends_with("slow\n"), "cut by {cut}");
    }
}

/// A8: what a newer version wrote is refused, and not a byte of it is touched.
#[test]
fn a_newer_journal_is_refused_and_left_as_it_is() {
    let project = Project::new();
    project.left("gated.yaml");
    settle(&project);
    let path = project.path(".skein/skein.db");
    let mut bytes = fs::read(&path).unwrap();
    // The version of the tables, as the file format of SQLite has it.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    for line in ["runs", "run asks.md", "resume --all", "events x", "approve x"] {
        let told = project.ends(line, 8);
        assert!(
            told.contains("newer Skein (format 99") && told.contains("nothing was changed"),
            "{line}: {told}"
        );
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
