//! Damaged stored data: the affected run is quarantined and named, the others continue (A7, A8).

use std::{fs, path::Path};

use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::Signal,
};

use crate::kept::{Project, lives};

/// The positions of a text in a file: in the journal, and perhaps in an older copy of a page.
fn places(bytes: &[u8], text: &str) -> Vec<usize> {
    let all = bytes.windows(text.len()).enumerate().filter(|(_, it)| *it == text.as_bytes());
    all.map(|(at, _)| at).collect()
}

/// Removes the log files, so that all data is in one file. No process has the database open, so its log is already in
/// it.
fn settle(project: &Project) {
    for name in ["skein.db-wal", "skein.db-shm"] {
        fs::remove_file(project.path(".skein").join(name)).expect("it is there");
    }
}

/// Flips a bit in each occurrence of this text in the journal.
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
    assert!(told.contains(&format!("run {bad} was set aside: the journal of run `{bad}` is damaged")), "{told}");
    assert!(told.contains(&format!("{good}  run completed")), "{told}");
    let list = project.ends("runs", 0);
    assert!(list.contains("set aside") && list.contains("is damaged"), "{list}");
    assert_eq!(project.json(&format!("runs {good}"), 0)["status"], "succeeded");
    // From then on the run refuses all commands, and nothing starts in it.
    for line in [format!("resume {bad}"), format!("approve {bad}"), format!("cancel {bad}")] {
        let no = project.ends(&line, 5);
        assert!(no.contains("set aside") || no.contains("nothing in run"), "{line}: {no}");
    }
    assert!(project.ends("resume --all", 0).contains("no runs to resume"));
    assert_eq!(project.read("done.txt"), "draft\ndraft\npublish\n");
}

#[test]
fn a_damaged_run_is_named_wherever_it_is_looked_at() {
    let (project, bad, _) = damaged();
    for line in [format!("runs {bad}"), format!("events {bad}"), format!("logs {bad}"), format!("resume {bad}")] {
        let told = project.ends(&line, 8);
        assert!(told.contains(&format!("the journal of run `{bad}` is damaged")), "{line}: {told}");
    }
    let error = project.json(&format!("runs {bad}"), 8);
    assert!(error["error"]["message"].as_str().unwrap().contains("is damaged"), "{error}");
    assert!(project.ends("runs", 0).contains("set aside"), "by `resume`");
}

/// Processes that a damaged run left running are ended all the same.
#[test]
fn what_a_damaged_run_left_running_is_ended() {
    for line in ["resume", "resume --all"] {
        let project = Project::new();
        let going = project.begin("run held.yaml --format jsonl");
        let run = going.run();
        let worker = project.begun();
        going.signal(Signal::KILL);
        going.end();
        // The next reader moves the log of the killed process into the database.
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

/// Any page of the database may be damaged: the damage is reported, nothing panics and nothing hangs.
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
            assert!([0, 5, 6, 8].contains(&done.code), "page {page}, `{line}`: {} {}{}", done.code, done.out, done.err);
            assert!(!done.err.contains("panicked"), "page {page}, `{line}`: {}", done.err);
            told += usize::from(done.code == 8 && done.err.contains("damaged") || done.err.contains("malformed"));
        }
        for name in ["skein.db-wal", "skein.db-shm"] {
            let _ = fs::remove_file(project.path(".skein").join(name));
        }
    }
    assert!(told >= 4, "{told}");
}

/// A run that was killed during its second step, and its worker.
fn killed() -> (Project, String) {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    (project, run)
}

fn log(project: &Project) -> Vec<u8> {
    fs::read(project.path(".skein/skein.db-wal")).expect("it is there")
}

/// An incomplete write was never acknowledged: all acknowledged rows are safe, and the run resumes from there.
#[test]
fn a_log_that_ends_in_the_middle_of_a_write_loses_nothing() {
    for more in [1, 24, 2000, 4200] {
        let (project, run) = killed();
        let mut bytes = log(&project);
        bytes.resize(bytes.len() + more, 0x5a);
        fs::write(project.path(".skein/skein.db-wal"), bytes).unwrap();
        let resumed = project.begin(&format!("resume {run} --format jsonl"));
        project.begun();
        project.go();
        let (code, lines, errors) = resumed.end();
        assert_eq!(code, Some(0), "{more} more: {lines}{errors}");
        project.ended_once(&run);
        assert_eq!(project.read("done.txt"), "first\nslow\n", "{more} more");
    }
}

/// Asserts that every command refuses a run whose acknowledged rows are lost.
fn is_refused(project: &Project, run: &str) {
    let done = project.read("done.txt");
    for line in [format!("resume {run}"), format!("runs {run}"), "runs".to_owned(), "resume --all --no-wait".to_owned()]
    {
        let told = project.ends(&line, 8);
        assert!(told.contains(run) && told.contains("its journal is shortened"), "{line}: {told}");
        assert!(told.contains("--accept-shortened-journal"), "{line}: {told}");
    }
    for line in [format!("cancel {run}"), format!("approve {run} slow")] {
        let told = project.ends(&line, 8);
        assert!(told.contains("its journal is shortened"), "{line}: {told}");
    }
    let doctor = project.skein("doctor");
    assert!(doctor.code == 1 && doctor.out.contains(run), "{}{}", doctor.out, doctor.err);
    assert!(doctor.out.contains("its journal is shortened"), "{}", doctor.out);
    assert_eq!(project.read("done.txt"), done, "nothing is done again");
}

/// SQLite drops all of its log from the first damaged frame on. The loss of acknowledged rows is detected, and no step
/// is repeated without the consent of a person.
#[test]
fn a_flipped_bit_in_the_log_is_noticed() {
    for part in [0, 2, 3] {
        let (project, run) = killed();
        let mut bytes = log(&project);
        let frames = (bytes.len() - 32) / 4120;
        let frame = frames * part / 4 + if part == 3 { frames / 8 } else { 0 };
        bytes[32 + frame * 4120 + 24 + 100] ^= 1;
        fs::write(project.path(".skein/skein.db-wal"), bytes).unwrap();
        is_refused(&project, &run);
        // Other runs are not affected.
        let other = project.left("asks.md");
        project.ends(&format!("cancel {other}"), 0);
        is_refused(&project, &run);
    }
}

#[test]
fn a_log_that_was_cut_or_removed_is_noticed() {
    for cut in [Some(1), Some(24), Some(4200), None] {
        let (project, run) = killed();
        let log = project.path(".skein/skein.db-wal");
        match cut {
            Some(cut) => {
                let length = fs::metadata(&log).unwrap().len();
                fs::File::options().write(true).open(&log).unwrap().set_len(length - cut).unwrap();
            }
            None => fs::remove_file(&log).unwrap(),
        }
        let _ = fs::remove_file(project.path(".skein/skein.db-shm"));
        is_refused(&project, &run);
    }
}

/// With the consent of a person the run continues from the remaining rows, and the steps of the lost rows run again.
#[test]
fn a_person_can_go_on_with_a_shortened_journal() {
    let (project, run) = killed();
    let path = project.path(".skein/skein.db-wal");
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    let no = project.ends("resume --accept-shortened-journal", 2);
    assert!(no.contains("RUN"), "{no}");
    is_refused(&project, &run);
    let resumed = project.begin(&format!("resume {run} --accept-shortened-journal --format jsonl"));
    project.begun();
    project.go();
    let (code, lines, errors) = resumed.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    project.ended_once(&run);
    assert_eq!(project.status(&run), "succeeded");
    assert!(project.ends("runs", 0).contains("SUCCEEDED"));
    let whole = project.ends(&format!("resume {run} --accept-shortened-journal"), 5);
    assert!(whole.contains("is not shortened"), "{whole}");
}

/// A run that had ended is not treated as unfinished when an older copy of the database is restored.
#[test]
fn an_older_copy_of_the_database_is_noticed() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    let (state, copy) = (project.path(".skein"), project.path("copy"));
    let files = ["skein.db", "skein.db-wal", "skein.db-shm"];
    fs::create_dir(&copy).unwrap();
    files.iter().for_each(|name| assert!(fs::copy(state.join(name), copy.join(name)).is_ok()));
    project.ends(&format!("approve {run}"), 0);
    project.json(&format!("resume {run}"), 0);
    let later = project.left("asks.md");
    assert_eq!(project.read("done.txt"), "draft\npublish\n");
    files.iter().for_each(|name| assert!(fs::copy(copy.join(name), state.join(name)).is_ok()));
    is_refused(&project, &run);
    is_refused(&project, &later);
    let gone = project.ends(&format!("resume {later} --accept-shortened-journal"), 5);
    assert!(gone.contains("has no events left to resume from"), "{gone}");
    assert!(!project.ends("runs", 8).contains(&later));
    project.json(&format!("resume {run} --accept-shortened-journal --no-wait"), 6);
    project.ends("runs", 0);
}

/// The same for an emptied database: the runs that were in it are named.
#[test]
fn a_database_that_was_emptied_is_noticed() {
    let project = Project::new();
    let run = project.left("gated.yaml");
    for name in ["skein.db", "skein.db-wal", "skein.db-shm"] {
        fs::remove_file(project.path(".skein").join(name)).unwrap();
    }
    assert_eq!(project.skein("run asks.md --no-wait").code, 6, "a new run can be begun");
    is_refused(&project, &run);
}

/// The log is removed during a run: all later writes would be lost with it.
#[test]
fn a_log_that_is_removed_under_a_run_ends_it() {
    let project = Project::new();
    let going = project.begin("run held.yaml --format jsonl");
    going.run();
    project.begun();
    fs::remove_file(project.path(".skein/skein.db-wal")).unwrap();
    project.go();
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(8), "{lines}{errors}");
    assert!(!lines.contains("run_decided"), "nothing is told that is not kept: {lines}");
    assert!(errors.contains("was moved or removed while in use"), "{errors}");
}

/// Pipes, links, folders and sockets in place of the files of the state folder are refused at once.
#[test]
fn what_is_no_plain_file_is_refused_in_the_state_folder() {
    let files = ["skein.db", "skein.db-wal", "skein.db-shm", "next.lock", "now.lock", "reserve", "acknowledged"];
    let ways: [&dyn Fn(&Path); 4] = [
        &|path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap(),
        &|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        &|path| fs::create_dir(path).unwrap(),
        &|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
    ];
    let project = Project::new();
    project.left("asks.md");
    for name in files {
        for (n, make) in ways.iter().enumerate() {
            let (path, kept) = (project.path(".skein").join(name), project.path("kept"));
            fs::rename(&path, &kept).unwrap();
            make(&path);
            for line in ["runs", "run asks.md", "resume --all"] {
                let told = project.ends(line, 8);
                assert!(told.contains(name), "{name}, way {n}, `{line}`: {told}");
            }
            if path.is_dir() {
                fs::remove_dir(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
            fs::rename(&kept, &path).unwrap();
        }
    }
    project.ends("runs", 0);
    for name in ["owners", "blobs"] {
        let (path, kept) = (project.path(".skein").join(name), project.path("kept"));
        fs::rename(&path, &kept).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(project.ends("runs", 8).contains(name));
        fs::remove_file(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
    }
    // A pipe in place of an owner's lock is not an owner.
    let pipe = project.path(".skein/owners/0000-1-0000.lock");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    project.ends("runs", 0);
}

/// A8: data of a newer version is refused, and not a byte of it changes.
#[test]
fn a_newer_journal_is_refused_and_left_as_it_is() {
    let project = Project::new();
    project.left("gated.yaml");
    settle(&project);
    let path = project.path(".skein/skein.db");
    let mut bytes = fs::read(&path).unwrap();
    // The version of the tables, by the file format of SQLite.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    for line in ["runs", "run asks.md", "resume --all", "events x", "approve x"] {
        let told = project.ends(line, 8);
        assert!(told.contains("newer Skein (format 99") && told.contains("nothing was changed"), "{line}: {told}");
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
