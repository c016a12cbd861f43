//! Misbehaving workers, of which no process may be left. The codes are those of the list of faults that Skein must
//! survive.

mod ends;
mod family;
mod output;
mod reap;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use skein_core::time::Millis;
use skein_host::process::{ProcessHandle, ProcessMark, ProcessReport, ProcessSpec, StateMark, start_process};

/// Longer than anything here may take on a busy machine.
const LONG: Duration = Duration::from_secs(120);
const MISBEHAVE: &str = env!("CARGO_BIN_EXE_misbehave");

/// A directory and a mark that no other test has.
struct Place {
    dir: tempfile::TempDir,
    mark: ProcessMark,
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateMark::from_directory(dir.path()).expect("its mark");
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{state}/run/0.0.1.1.main.{n}").parse().expect("a mark");
        Place { dir, mark }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().expect("a plain path").to_owned()
    }

    fn task(&self, program: &str, arguments: &[&str]) -> ProcessSpec {
        let mut task = ProcessSpec::new(program, self.dir.path(), self.path("log"), self.mark.clone());
        task.arguments = arguments.iter().map(OsString::from).collect();
        task.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        task.grace = Millis::from_secs(30);
        task
    }

    fn misbehave(&self, arguments: &[&str]) -> ProcessSpec {
        self.task(MISBEHAVE, arguments)
    }

    fn sh(&self, script: &str) -> ProcessSpec {
        self.task("/bin/sh", &["-c", script])
    }

    fn log(&self) -> Vec<u8> {
        fs::read(self.path("log")).expect("a log")
    }

    /// Checks that no process with the mark runs, and that no record of one exists.
    fn assert_clean(&self) {
        assert_eq!(carrying(&self.mark), Vec::<i32>::new(), "processes are left");
        assert!(!self.path("log.pid").exists(), "a note is left");
    }
}

/// A process under a supervisor, and its future report.
struct Started {
    handle: ProcessHandle,
    ended: Receiver<ProcessReport>,
}

fn begin(task: ProcessSpec) -> Started {
    let (send, ended) = channel();
    let handle = start_process(task, move |how| {
        let _ = send.send(how);
    });
    Started { handle, ended }
}

impl Started {
    fn end(&self) -> ProcessReport {
        self.ended.recv_timeout(LONG).expect("it ends")
    }
}

fn run(task: ProcessSpec) -> ProcessReport {
    begin(task).end()
}

/// Returns the processes that carry a mark, found without the code under test.
fn carrying(mark: &ProcessMark) -> Vec<i32> {
    let wanted = format!("SKEIN_MARK={mark}");
    let carries = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|pair| pair.starts_with(wanted.as_bytes()))
    };
    let names = fs::read_dir("/proc").expect("/proc").flatten();
    names.filter_map(|name| name.file_name().to_str()?.parse().ok()).filter(|pid| carries(*pid)).collect()
}

/// Waits for a condition that will become true by itself.
fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the process id that a process wrote, once it has.
fn signed(file: &Path) -> i32 {
    until("a process signs", || file.exists());
    fs::read_to_string(file).expect("a number").parse().expect("a number")
}

/// Returns true if the process does not exist, not even as a zombie.
fn gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}
