//! Processes that hide from the end of their step, and processes that kill others.

use std::process::Command;

use rustix::process::Signal;

use super::{Person, Range};
use crate::{
    kept::{Project, lives, until},
    session::run,
};

/// Leaves processes behind in every possible way. Each has a unique part in its arguments.
fn hide(mark: &str) -> String {
    let python = "import ctypes, os, signal, sys\n\
        libc = ctypes.CDLL(None)\n\
        for number in (1, 2, 3, 13, 15): signal.signal(number, signal.SIG_IGN)\n\
        libc.prctl(36, 1); libc.prctl(1, 0)\n\
        for i in range(3):\n\
        \x20 if os.fork() == 0:\n\
        \x20   if i == 0: os.setpgid(0, 0)\n\
        \x20   if i == 1: os.setsid()\n\
        \x20   os.closerange(0, 3)\n\
        \x20   if os.fork() == 0: os.execvp('sleep', ['sleep', sys.argv[1] + '.9%d' % i])\n\
        \x20   os.pause() if hasattr(os, 'pause') else signal.pause()\n\
        if os.fork() == 0: signal.pause()\n";
    let ways = [
        "(sleep MARK.1 &)",
        "setsid sleep MARK.2 &",
        "nohup sleep MARK.3 > /dev/null 2>&1 &",
        "env -i setsid sleep MARK.4 < /dev/null > /dev/null 2>&1 &",
        "(trap '' TERM HUP INT; exec setsid sleep MARK.5) &",
        "setsid bash -c \"exec <&- >&- 2>&-; trap '' TERM; sleep MARK.6; true\" &",
        "sleep MARK.7 & kill -STOP $!",
        "unshare -Urpf sleep MARK.8 &",
        "exec -a $(printf skein) sleep MARK.10 &",
        "for i in $(seq 50); do (setsid sleep MARK.2$i > /dev/null 2>&1 &); done",
        "/usr/bin/python3 hide.py MARK > /dev/null 2>&1 &",
    ];
    let wait = "until [ $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^MARK.') -ge 60 ]; do sleep 0.02; done";
    let script = format!("cat > hide.py <<'END'\n{python}END\n{}\n{wait}", ways.join("\n"));
    script.replace("MARK", mark)
}

fn mark(test: u32) -> String {
    format!("12345{test}{}", std::process::id())
}

/// The processes whose arguments contain the mark.
fn marked(mark: &str) -> Vec<String> {
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().into_string().ok());
    numbers
        .filter(|pid| pid.parse::<u32>().is_ok_and(|pid| pid != std::process::id()))
        .filter(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.iter().any(|word| word.starts_with(mark.as_bytes())) && lives(pid)
        })
        .collect()
}

fn project(mark: &str, then: &str) -> Project {
    let project = Project::new();
    let script = format!("{}\n{then}", hide(mark));
    let lines: String = script.lines().map(|line| format!("      {line}\n")).collect();
    project.folder.write(
        "flow.yaml",
        format!(
            "name: f\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n    \
             instructions: |\n{lines}"
        ),
    );
    project
}

#[test]
fn nothing_that_a_worker_leaves_outlives_its_step() {
    let mark = mark(1);
    let project = project(&mark, "echo hidden");
    project.ends("run flow.yaml", 0);
    assert_eq!(marked(&mark), Vec::<String>::new());
}

#[test]
fn nothing_that_a_worker_leaves_outlives_a_cancelled_run() {
    let mark = mark(2);
    let project = project(&mark, "echo $$ > begun; cat go");
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    project.begun();
    assert!(marked(&mark).len() >= 60, "they live as long as their step");
    project.ends(&format!("cancel {run}"), 0);
    going.end();
    assert_eq!(marked(&mark), Vec::<String>::new());
}

#[test]
fn nothing_that_a_worker_leaves_outlives_a_killed_engine() {
    let mark = mark(3);
    let project = project(&mark, "echo $$ > begun; cat go");
    let going = project.begin("run flow.yaml --format jsonl");
    project.begun();
    assert!(marked(&mark).len() >= 60, "they live as long as their step");
    going.signal(Signal::KILL);
    going.end();
    until("processes of a worker outlive the engine", || marked(&mark).is_empty());
}

/// A worker may kill every process that it sees, which is only itself. Skipped if a failure would kill the programs of
/// the user who runs the tests.
#[test]
fn a_worker_that_ends_everything_ends_itself_alone() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let range = Range::new(Person::Ordinary).unwrap();
    let mut beside = range.command("sleep").arg("1000").spawn().unwrap();
    let seen = "test $(ls -d /proc/[0-9]* | wc -l) -lt 10 || exit 1";
    for (name, script) in [
        ("all", "kill -9 -1; kill -TERM -1; true"),
        ("first", "kill -9 1; kill -TERM 1; kill -STOP 1; true"),
        ("parent", "kill -9 $PPID; kill -9 0"),
        ("by number", "for p in $(seq 2 40000); do [ $p = $$ ] || kill -9 $p; done 2>/dev/null; true"),
    ] {
        let lines = format!("      {seen}\n      {script}\n");
        range.write(
            "project/flow.yaml",
            &format!(
                "name: f\nversion: \"1\"\ntimeout: 1m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
                 instructions: |\n{lines}  after:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    instructions: 'true'\n"
            ),
        );
        let done = run(&mut range.skein("run flow.yaml --format json"));
        let told: serde_json::Value =
            serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{}{}", done.out, done.err));
        let after = told["steps"].as_array().unwrap().iter().find(|step| step["id"] == "after").cloned().unwrap();
        assert!(matches!(done.code, 0 | 4), "{name}: the engine goes on: {told}");
        assert!(after["status"] == "succeeded" || done.code == 4, "{name}: {told}");
        assert!(beside.try_wait().unwrap().is_none(), "{name}: a program beside the run lives");
    }
    beside.kill().unwrap();
    beside.wait().unwrap();
    assert!(Command::new("true").status().unwrap().success());
}
