//! A worker that does everything a worker should not, and a small engine to be killed.
//!
//! `misbehave MODE ARGUMENTS…`. It starts copies of itself where another program would fork.

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio, exit},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::process::{
    Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, setrlimit, setsid,
    wait as wait_any,
};
use skein_core::time::Millis;
use skein_host::process::{
    ProcessHandle, ProcessMark, ProcessOutcome, ProcessReport, ProcessSpec, StateMark, become_subreaper,
    find_leftovers, kill_descendants, start_process,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["wait", file] => wait(file),
        ["crash", signal] => crash(signal),
        ["environment"] => environment(),
        ["descriptors"] => descriptors(),
        ["flood", bytes, line] => flood(number(bytes), number(line)),
        ["garbage"] => print(GARBAGE),
        ["drip", count] => drip(number(count)),
        ["copy"] => copy(),
        ["thirst"] => thirst(),
        ["daemon", keep, then, file] => daemon(keep, then, file),
        ["leave", keep, file] => leave(keep, file),
        ["wiped", file] => become_wiped(file),
        ["hop", left, file] => hop(number(left), file),
        ["bomb", depth] => bomb(number(depth)),
        ["below", stays, left] => below(stays, left),
        ["init", ref program @ ..] => init(program),
        ["engine", state, log, ref program @ ..] => engine(state, log, program),
        ["attempt", directory, idle, ref program @ ..] => attempt(Path::new(directory), idle, program),
        ["two", directory] => two(Path::new(directory)),
        ["crowd", directory] => crowd(Path::new(directory)),
        ["itself", state] => itself(Path::new(state)),
        ["measure", directory] => measure(Path::new(directory)),
        ["full", directory] => full(Path::new(directory)),
        ["poor", directory] => poor(Path::new(directory)),
        _ => exit(99),
    }
}

/// Every kind of byte that a terminal or a text reader must handle.
const GARBAGE: &[u8] = b"\xff\xfe\0\x1b]52;c;aGk=\x07\x1b[2J\xe2\x80\xae\xc3";

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn print(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

fn ourselves() -> Command {
    Command::new(std::env::current_exe().expect("this program"))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Ends all descendants: a child that stays, and a process that another one left, in its own session and without a
/// mark.
fn below(stays: &str, left: &str) {
    become_subreaper();
    let mut child = quiet(ourselves().args(["wait", stays])).spawn().expect("a child");
    quiet(ourselves().args(["daemon", "wipe", "end", left])).status().expect("another one");
    while !Path::new(stays).exists() || !Path::new(left).exists() {
        thread::yield_now();
    }
    kill_descendants();
    // It was waited for already.
    let _ = child.wait();
}

/// Writes our process id, atomically.
fn sign(file: &str) {
    let draft = format!("{file}.{}", getpid());
    fs::write(&draft, getpid().to_string()).and_then(|()| fs::rename(&draft, file)).expect("a file");
}

fn for_ever() -> ! {
    loop {
        thread::park();
    }
}

fn wait(file: &str) {
    sign(file);
    print(b"ready\n");
    for_ever();
}

fn crash(signal: &str) {
    let signal = match signal {
        "kill" => Signal::KILL,
        "abort" => Signal::ABORT,
        _ => Signal::TERM,
    };
    kill_process(getpid(), signal).expect("a signal to ourselves");
    for_ever();
}

fn environment() {
    for (name, value) in std::env::vars() {
        print(format!("{name}={value}\n").as_bytes());
    }
}

fn descriptors() {
    let open = fs::read_dir("/proc/self/fd").expect("our descriptors").flatten();
    let mut numbers: Vec<String> = open
        // The one that is being read from is ours.
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| !to.starts_with("/proc")))
        .map(|fd| fd.file_name().to_string_lossy().into_owned())
        .collect();
    numbers.sort();
    print(numbers.join(" ").as_bytes());
}

fn flood(bytes: usize, line: usize) {
    let mut piece = vec![b'x'; 64 * 1024];
    if line > 0 {
        piece.chunks_mut(line).for_each(|line| line[line.len() - 1] = b'\n');
    }
    let mut left = bytes;
    let mut out = std::io::stdout().lock();
    while left > 0 {
        let now = left.min(piece.len());
        if out.write_all(&piece[..now]).is_err() {
            return;
        }
        left -= now;
    }
    let _ = out.flush();
}

fn drip(count: usize) {
    for _ in 0..count {
        print(b".");
        thread::sleep(Duration::from_millis(50));
    }
}

fn copy() {
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::stdout().lock());
}

/// Reads forever, also after the end.
fn thirst() {
    let mut buffer = [0; 4096];
    loop {
        if std::io::stdin().read(&mut buffer).is_ok_and(|n| n == 0) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Leaves a standard daemon behind: a child that leaves the session and starts another one before it ends.
fn daemon(keep: &str, then: &str, file: &str) {
    let left = quiet(ourselves().args(["leave", keep, file])).status();
    assert!(left.is_ok_and(|status| status.success()));
    while !Path::new(file).exists() {
        thread::sleep(Duration::from_millis(5));
    }
    print(b"done\n");
    if then == "stay" {
        for_ever();
    }
}

#[expect(clippy::zombie_processes, reason = "to be left is what the daemon is for")]
fn leave(keep: &str, file: &str) {
    setsid().expect("a session of our own");
    let mut last = ourselves();
    quiet(last.args(["wait", file]));
    if keep == "wipe" {
        last.env_clear();
    }
    last.spawn().expect("a daemon");
}

/// Replaces itself by another program with an empty environment.
fn become_wiped(file: &str) {
    let error = ourselves().args(["wait", file]).env_clear().exec();
    panic!("{error}");
}

/// Hops from process to process, each in its own session and with an empty environment.
#[expect(clippy::zombie_processes, reason = "nobody is to wait for the next one")]
fn hop(left: usize, file: &str) {
    let _ = setsid();
    if left == 0 {
        sign(file);
        return;
    }
    let next = (left - 1).to_string();
    quiet(ourselves().args(["hop", &next, file])).env_clear().spawn().expect("the next one");
}

/// Two children, each with two children, and so on; none of them ends.
fn bomb(depth: usize) {
    if depth > 0 {
        let next = (depth - 1).to_string();
        for _ in 0..2 {
            if depth.is_multiple_of(2) {
                let _ = setsid();
            }
            let _ = quiet(ourselves().args(["bomb", &next])).spawn();
        }
    }
    print(b"ready\n");
    for_ever();
}

/// A mark that no other attempt here has.
fn mark(state: &Path) -> ProcessMark {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let state = StateMark::from_directory(state).expect("a state directory");
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{state}/run/0.0.1.1.main.{n}").parse().expect("a mark")
}

/// Adopts orphans and waits for them, as the first process of a machine does.
fn init(program: &[&str]) {
    set_child_subreaper(Some(getpid())).expect("to inherit");
    let engine = ourselves().args(program).spawn().expect("an engine");
    drop(engine);
    while wait_any(WaitOptions::empty()).is_ok() {}
}

/// Starts a worker and waits to be killed.
fn engine(state: &str, log: &str, program: &[&str]) {
    sign(&format!("{state}/engine"));
    let [program, arguments @ ..] = program else { exit(98) };
    let mut task = ProcessSpec::new(program, "/", log, mark(Path::new(state)));
    task.arguments = arguments.iter().map(Into::into).collect();
    let handle = start_process(task, |_| ());
    let _keep = handle;
    for_ever();
}

fn run(task: ProcessSpec) -> ProcessReport {
    let (send, receive) = mpsc::channel();
    start_process(task, move |ended| {
        let _ = send.send(ended);
    });
    receive.recv().expect("it ends")
}

fn our_task(directory: &Path, arguments: &[&str]) -> ProcessSpec {
    let program = std::env::current_exe().expect("this program");
    let mut task = ProcessSpec::new(program, "/", directory.join("log"), mark(directory));
    task.arguments = arguments.iter().map(Into::into).collect();
    task
}

/// An attempt in an engine that has no other.
fn attempt(directory: &Path, idle: &str, program: &[&str]) {
    let [program, arguments @ ..] = program else { exit(98) };
    let mut task = our_task(directory, arguments);
    task.program = program.into();
    task.idle = (number(idle) > 0).then(|| Millis(number(idle) as u64));
    task.grace = Millis(500);
    let ended = run(task);
    let leaked = ended.leaked.iter().map(|leaked| format!(" {}{}", leaked.name, if leaked.alive { "!" } else { "" }));
    print(format!("{:?}{}", ended.how, leaked.collect::<String>()).as_bytes());
}

fn begin(mut task: ProcessSpec, log: PathBuf) -> (ProcessHandle, mpsc::Receiver<ProcessReport>) {
    task.log = log;
    let (send, receive) = mpsc::channel();
    let handle = start_process(task, move |ended| send.send(ended).expect("someone waits"));
    (handle, receive)
}

fn there(file: &Path) -> String {
    while !file.exists() {
        thread::sleep(Duration::from_millis(2));
    }
    fs::read_to_string(file).expect("a number")
}

/// Two attempts at once, and a daemon that hides which of them it comes from. It lives until both have ended.
fn two(directory: &Path) {
    let (first, hidden) = (directory.join("first"), directory.join("hidden"));
    let name = |file: &Path| file.to_str().expect("a plain path").to_owned();
    let other = begin(our_task(directory, &["wait", &name(&first)]), directory.join("log1"));
    there(&first);
    let its = begin(our_task(directory, &["daemon", "wipe", "stay", &name(&hidden)]), directory.join("log2"));
    let daemon = there(&hidden);
    let lives = || Path::new("/proc").join(&daemon).exists();
    other.0.stop();
    let ended = other.1.recv().expect("it ends");
    assert!(lives() && ended.leaked.is_empty(), "{ended:?}");
    its.0.stop();
    let ended = its.1.recv().expect("it ends");
    assert!(!lives(), "{ended:?}");
}

/// Attempts that leave processes behind, beside others that are just being started.
fn crowd(directory: &Path) {
    let leaving = thread::scope(|scope| {
        let leaving = scope.spawn(|| {
            for n in 0..10 {
                let file = directory.join(format!("daemon{n}"));
                let task = our_task(directory, &["daemon", "keep", "end", file.to_str().expect("a plain path")]);
                let ended = begin(task, directory.join("leaving")).1.recv().expect("it ends");
                assert_eq!(ended.leaked.len(), 1, "{ended:?}");
            }
        });
        let mut count = 0;
        while !leaving.is_finished() {
            let ended = run(our_task(directory, &["environment"]));
            assert_eq!((ended.how, ended.leaked), (ProcessOutcome::Exited(0), vec![]), "after {count}");
            count += 1;
        }
        leaving.join()
    });
    assert!(leaving.is_ok());
}

/// Searches for leftovers of an earlier engine, as one of them.
fn itself(state: &Path) {
    let state = StateMark::from_directory(state).expect("a state directory");
    let found = find_leftovers(&state, &[], |_| true);
    print(format!("{}", found.len()).as_bytes());
}

/// Returns a memory figure of this process, in kibibytes.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("our status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let figure = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    figure.expect("a figure")
}

/// Measures the memory that is needed to read a gigabyte of output.
fn measure(directory: &Path) {
    run(our_task(directory, &["flood", "100000", "100"]));
    let before = memory("VmRSS");
    let ended = run(our_task(directory, &["flood", "1000000000", "100"]));
    assert_eq!(ended.log.bytes, 1_000_000_000, "{ended:?}");
    print(format!("{}", memory("VmHWM").saturating_sub(before)).as_bytes());
}

/// A worker whose log does not fit on the disk.
fn full(directory: &Path) {
    let ended = run(our_task(directory, &["flood", "4000000", "100"]));
    print(format!("{:?} {} {}", ended.how, ended.log.bytes, ended.log.cut).as_bytes());
}

/// An engine with few descriptors, which it runs out of and gets back.
fn poor(directory: &Path) {
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum: hard }).expect("a limit");
    let mut hoard: Vec<fs::File> = Vec::new();
    let before = run(our_task(directory, &["environment"]));
    let mut words = vec![format!("{:?}", before.how)];
    for most in [50, 100] {
        while hoard.len() < most {
            let Ok(file) = fs::File::open("/dev/null") else { break };
            hoard.push(file);
        }
        words.push(format!("{:?}", run(our_task(directory, &["environment"])).how));
    }
    hoard.clear();
    words.push(format!("{:?}", run(our_task(directory, &["environment"])).how));
    print(words.join(" ").as_bytes());
}
