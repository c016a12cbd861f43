//! The start and the end of processes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use skein_core::time::Millis;
use skein_host::{
    process::{ExceededLimit, ProcessOutcome},
    start_error::{StartError, StartRefusal},
};

use super::{LONG, Place, begin, run, signed, until};

#[test]
fn an_exit_status_is_told_as_it_is() {
    for status in [0, 1, 3, 127, 255] {
        let place = Place::new();
        let ended = run(place.sh(&format!("echo hello; exit {status}")));
        assert_eq!(ended.how, ProcessOutcome::Exited(status));
        assert_eq!((ended.tail.as_str(), ended.leaked.len(), ended.held), ("hello", 0, false));
        assert_eq!(place.log(), b"hello\n");
        place.assert_clean();
    }
}

/// C7.
#[test]
fn a_signal_is_no_exit() {
    let place = Place::new();
    for (word, number) in [("kill", 9), ("term", 15), ("abort", 6)] {
        let ended = run(place.misbehave(&["crash", word]));
        let ProcessOutcome::Signal { signal, oom, .. } = ended.how else { panic!("{ended:?}") };
        assert_eq!((signal, oom), (number, false));
    }
    place.assert_clean();
}

/// C7: a program that cannot be started is an end like any other, each with its own message, which is also in the log.
#[test]
fn what_cannot_be_started_says_why() {
    let place = Place::new();
    let make = |name: &str, text: &[u8], mode: u32| {
        fs::write(place.path(name), text).expect("a file");
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("its mode");
        place.name(name)
    };
    let how = |program: &str| {
        let ended = run(place.task(program, &[]));
        let log = String::from_utf8(place.log()).expect("text");
        assert!(log.contains(&ended.how.message()), "{log:?} {ended:?}");
        ended.how
    };
    assert!(
        matches!(how("/no/such/program"), ProcessOutcome::NotStarted(StartError::NotFound(why)) if why.contains("/no/such/program"))
    );
    assert!(
        matches!(how("no-such-program"), ProcessOutcome::NotStarted(StartError::NotFound(why)) if why.contains("/usr/bin"))
    );
    assert!(matches!(how("./log"), ProcessOutcome::NotStarted(StartError::NotFound(_))));
    assert!(matches!(how(&make("text", b"hello", 0o644)), ProcessOutcome::NotStarted(StartError::NotExecutable(_))));
    assert!(matches!(how(&place.name("")), ProcessOutcome::NotStarted(StartError::NotExecutable(_))));
    assert!(matches!(
        how(&make("junk", b"\x01\x02\x03", 0o755)),
        ProcessOutcome::NotStarted(StartError::WrongFormat { interpreter: None, .. })
    ));
    let other = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xff\x7f\x01\0\0\0".repeat(8);
    assert!(matches!(
        how(&make("other", &other, 0o755)),
        ProcessOutcome::NotStarted(StartError::WrongFormat { interpreter: None, .. })
    ));
    let script = make("script", b"#! /no/interpreter -x\n", 0o755);
    assert!(
        matches!(how(&script), ProcessOutcome::NotStarted(StartError::WrongFormat { interpreter: Some(which), .. }) if which == "/no/interpreter")
    );
    let mut nowhere = place.sh("true");
    nowhere.directory = place.path("nowhere");
    assert!(matches!(run(nowhere).how, ProcessOutcome::NotStarted(StartError::Refused(StartRefusal::Directory(_)))));
    let long = "x".repeat(4 << 20);
    assert_eq!(run(place.task("/bin/true", &[&long])).how, StartRefusal::Arguments.into());
    assert!(matches!(
        run(place.task("/bin/true", &["a\0b"])).how,
        ProcessOutcome::NotStarted(StartError::Refused(StartRefusal::Other(_)))
    ));
    place.assert_clean();
}

/// G10.
#[test]
fn a_program_in_the_workspace_is_not_taken_for_the_one_on_the_path() {
    let place = Place::new();
    fs::write(place.path("true"), "#!/bin/sh\nexit 7\n").expect("a file");
    fs::set_permissions(place.path("true"), fs::Permissions::from_mode(0o755)).expect("its mode");
    let mut task = place.task("true", &[]);
    task.environment = vec![("PATH".into(), format!("{}::/usr/bin:/bin", place.name("")).into())];
    assert_eq!(run(task).how, ProcessOutcome::Exited(0));
}

/// Returns the descriptors that this process was itself started with and that every child has: they are not ours to
/// close.
fn inherited() -> Vec<u32> {
    let open = fs::read_dir("/proc/self/fdinfo").expect("our descriptors").flatten();
    let shared = |number: &u32| {
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
        flags.and_then(|flags| u32::from_str_radix(flags, 8).ok()).is_some_and(|flags| flags & 0o2_000_000 == 0)
    };
    open.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).filter(|n| *n > 2).filter(shared).collect()
}

/// A12: nothing but input, output and error, whatever this process has opened.
#[test]
fn a_child_has_three_descriptors() {
    let place = Place::new();
    let mut wanted: Vec<String> = [0, 1, 2].into_iter().chain(inherited()).map(|n| n.to_string()).collect();
    wanted.sort();
    let wanted = wanted.join(" ");
    let _open: Vec<_> = (0..20).map(|_| fs::File::open("/dev/null").expect("a file")).collect();
    for (input, apart) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut task = place.misbehave(&["descriptors"]);
        task.stdin = if input { b"hello"[..].into() } else { [][..].into() };
        task.stdout = apart.then(|| place.path("stdout"));
        assert_eq!(run(task).how, ProcessOutcome::Exited(0));
        assert_eq!(String::from_utf8(place.log()).expect("text"), wanted);
    }
}

#[test]
fn a_child_has_the_environment_it_is_given_and_its_mark() {
    let place = Place::new();
    let mut task = place.misbehave(&["environment"]);
    task.environment = vec![("ONLY".into(), "this one".into())];
    run(task);
    let log = String::from_utf8(place.log()).expect("text");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{log}");
    assert_eq!(lines[0], "ONLY=this one");
    assert!(lines[1].starts_with(&format!("SKEIN_MARK={}", place.mark)), "{log}");
}

#[test]
fn each_limit_has_its_own_end() {
    let place = Place::new();
    let short = Millis(150);
    // Silent from the start.
    let mut task = place.task("sleep", &["1000"]);
    task.start = Some(short);
    task.limit = Some(Millis::from_hours(1));
    assert_eq!(run(task).how, ProcessOutcome::TimedOut(ExceededLimit::Start(short)));
    // Silent after its first output.
    let mut task = place.sh("echo hello; exec sleep 1000");
    (task.start, task.idle) = (Some(Millis::from_hours(1)), Some(short));
    assert_eq!(run(task).how, ProcessOutcome::TimedOut(ExceededLimit::Silence(short)));
    // Never silent.
    let mut task = place.sh("while :; do echo hello; done");
    (task.limit, task.idle) = (Some(Millis(400)), Some(Millis::from_hours(1)));
    assert_eq!(run(task).how, ProcessOutcome::TimedOut(ExceededLimit::Total(Millis(400))));
    // Longer than any clock.
    let mut task = place.task("true", &[]);
    (task.limit, task.idle, task.start) = (Some(Millis(u64::MAX)), Some(Millis(u64::MAX)), Some(Millis(u64::MAX)));
    assert_eq!(run(task).how, ProcessOutcome::Exited(0));
    place.assert_clean();
}

/// C4: one byte now and then is not silence.
#[test]
fn a_slow_worker_is_not_a_silent_one() {
    let place = Place::new();
    let mut task = place.misbehave(&["drip", "20"]);
    (task.start, task.idle) = (Some(Millis::from_secs(60)), Some(Millis::from_secs(60)));
    let ended = run(task);
    assert_eq!((ended.how, ended.log.bytes), (ProcessOutcome::Exited(0), 20));
}

#[test]
fn what_is_stopped_is_gone() {
    let place = Place::new();
    let started = begin(place.misbehave(&["wait", &place.name("signed")]));
    let pid = signed(&place.path("signed"));
    until("the handle knows it too", || started.handle.pid() == Some(pid));
    started.handle.stop();
    started.handle.stop();
    let ended = started.end();
    assert_eq!((ended.how, ended.leaked), (ProcessOutcome::Stopped, vec![]));
    assert!(super::gone(pid));
    place.assert_clean();
    started.handle.stop();
    assert!(started.ended.try_recv().is_err(), "it ends once");
}

/// C10: whichever comes first, there is one end, and no process is left.
#[test]
fn stopping_at_the_moment_of_the_end_gives_one_end() {
    let place = Place::new();
    let (mut by_itself, mut stopped) = (0, 0);
    for round in 0..200_u64 {
        let mut task = place.task("true", &[]);
        task.log = place.path(&format!("log{round}"));
        let started = begin(task);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(round * 20) {
            std::hint::spin_loop();
        }
        started.handle.stop();
        match started.end().how {
            ProcessOutcome::Exited(0) => by_itself += 1,
            ProcessOutcome::Stopped => stopped += 1,
            other => panic!("{other:?}"),
        }
        assert!(started.ended.recv().is_err(), "it ends once");
    }
    assert_eq!(by_itself + stopped, 200);
    assert!(stopped > 0, "some are stopped before they start");
    place.assert_clean();
}

/// Many at once do not take each other's ends.
#[test]
fn each_supervisor_gets_the_end_of_its_own_process() {
    let places: Vec<Place> = (0..64).map(|_| Place::new()).collect();
    for _ in 0..3 {
        let all: Vec<_> = (0..64).zip(&places).map(|(n, place)| begin(place.sh(&format!("exit {n}")))).collect();
        for (n, started) in (0..).zip(&all) {
            assert_eq!(started.end().how, ProcessOutcome::Exited(n));
        }
    }
    places.iter().for_each(Place::assert_clean);
}

/// C11: an engine without free descriptors fails attempts, and continues when it has some.
#[test]
fn running_out_of_descriptors_fails_the_attempt_only() {
    let place = Place::new();
    fs::create_dir(place.path("inner")).expect("a directory");
    let ended = run(place.misbehave(&["poor", &place.name("inner")]));
    assert_eq!(ended.how, ProcessOutcome::Exited(0), "{ended:?}");
    let log = String::from_utf8(place.log()).expect("text");
    assert_eq!(log, "Exited(0) NotStarted(Refused(Files)) NotStarted(Refused(Files)) Exited(0)");
    assert!(ended.took < Millis(u64::try_from(LONG.as_millis()).expect("a time")));
}

/// An engine that was started with SIGCHLD ignored could not see how its children end. It reports that, and starts
/// none.
#[test]
fn nothing_is_started_whose_end_could_not_be_seen() {
    let place = Place::new();
    let output = std::process::Command::new("env")
        .args(["--ignore-signal=CHLD", super::MISBEHAVE, "attempt", &place.name(""), "0", "/bin/true"])
        .output()
        .expect("env (of coreutils)");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "NotStarted(Refused(Unseen))", "{}", String::from_utf8_lossy(&output.stderr));
}
