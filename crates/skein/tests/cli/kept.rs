//! Runs from outside: a project with steps that tests can wait for, and `skein` in several processes at once.
//!
//! Nothing here waits for a fixed time: a step reports through a pipe that it has started, and continues after a
//! message through another; a run is followed by its events.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use crate::session::{Done, Folder, as_it_is, run, skein};

/// Longer than anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A step whose worker reports that it has started, and then waits for permission to continue.
pub(crate) const HELD: &str = r#"name: held
version: "1"
timeout: 10m
steps:
  first:
    worker: CUSTOM
    capabilities: [READ, EDIT]
    instructions: "echo first >> done.txt; printf 'a\\033[31mb\\n'"
  slow:
    worker: CUSTOM
    depends_on: [first]
    capabilities: [READ, EDIT]
    instructions: 'echo $$ > begun; cat go; echo slow >> done.txt'
"#;

/// A gate, then a wait for a signal, without workers.
pub(crate) const ASKS: &str = "---\nname: Asks\nid: asks\ndescription: Asks, then waits.\nversion: 1.0.0\n\
    inputs: { type: object }\noutputs: { type: object }\nstart: agree\nsuspendable: true\n\
    timeout_ms: 600000\nsteps:\n  - { id: agree, kind: approval, prompt: \"May it go on?\", \
    approvers: [{ role: owners }], timeout_ms: 300000, on_timeout: cancel, on_approve: { next: hear }, \
    on_reject: { next: $end } }\n  - { id: hear, kind: suspend, resume: { on: [go.now, go.later], \
    timeout_ms: 300000, on_timeout: cancel }, next: $end }\n---\n";

/// A step before a gate and one after it.
pub(crate) const GATED: &str = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: gated}\nspec:\n  \
    description: Writes, asks, publishes.\n  domainsInvolved: [editorial]\n  timeout: 1h\n  \
    failurePolicy: abort\n  steps:\n    - {name: draft, agent: writer, action: Write it., timeout: 10m}\n    \
    - {name: sign-off, agent: writer, action: \"GATE: May this go out?\", dependsOn: [draft], timeout: 30m}\n    \
    - {name: publish, agent: writer, action: Publish it., dependsOn: [sign-off], timeout: 10m}\n";

pub(crate) struct Project {
    pub folder: Folder,
}

impl Project {
    pub(crate) fn new() -> Project {
        let folder = Folder::new();
        folder.write("held.yaml", HELD).write("asks.md", ASKS).write("gated.yaml", GATED);
        folder.write(
            "skein.toml",
            "[roles]\nowners = [\"*\"]\n[agents.writer]\nworker = \"CUSTOM\"\n\
             command = [\"sh\", \"-c\", \"cat >/dev/null; echo $SKEIN_STEP >> done.txt\"]\n",
        );
        let project = Project { folder };
        ["begun", "go"].iter().for_each(|name| project.pipe(name));
        project
    }

    pub(crate) fn pipe(&self, name: &str) {
        mkfifoat(CWD, self.folder.0.join(name), Mode::RUSR | Mode::WUSR).expect("a pipe can be made");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a worker reports that it has started. Returns its process id, or whatever it wrote.
    pub(crate) fn begun(&self) -> String {
        let path = self.path("begun");
        let said = within("the worker does not begin", move || {
            let mut said = String::new();
            // A worker that has reported before may still have the pipe open, and writes nothing more.
            while said.is_empty() {
                let pipe = File::open(&path).expect("it is a pipe");
                BufReader::new(pipe).read_line(&mut said).expect("it is text");
            }
            said.trim().to_owned()
        });
        if said.parse::<u32>().is_ok() { self.outer_pid(&said) } else { said }
    }

    /// The process id of a worker's process outside its sandbox; the id of no process if it has ended.
    pub(crate) fn outer_pid(&self, inner: &str) -> String {
        let found = self.processes().into_iter().find(|(_, within)| within == inner);
        found.map_or_else(|| "0".to_owned(), |(outer, _)| outer)
    }

    /// The processes that work in the folder of the project: their ids here and in their sandbox.
    pub(crate) fn processes(&self) -> Vec<(String, String)> {
        let numbers = std::fs::read_dir("/proc").expect("there is /proc").flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().into_string().ok());
        numbers
            .filter(|pid| {
                let folder = std::fs::read_link(format!("/proc/{pid}/cwd"));
                folder.is_ok_and(|folder| folder.starts_with(&self.folder.0)) && lives(pid)
            })
            .filter_map(|pid| {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
                let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
                let inner = numbers.split_whitespace().last()?.to_owned();
                Some((pid, inner))
            })
            .collect()
    }

    /// Lets the worker continue.
    pub(crate) fn go(&self) {
        let path = self.path("go");
        within("the worker does not go on", move || {
            let mut to = OpenOptions::new().write(true).open(path).expect("it is a pipe");
            to.write_all(b"go\n").expect("it can be written");
        });
    }

    /// Runs one command to its end.
    pub(crate) fn skein(&self, line: &str) -> Done {
        run(self.command(line).stdin(Stdio::null()))
    }

    /// Runs one command, asserts its exit status, and returns its output.
    pub(crate) fn ends(&self, line: &str, code: i32) -> String {
        let done = self.skein(line);
        assert_eq!(done.code, code, "`skein {line}`:\n{}{}", done.out, done.err);
        format!("{}{}", done.out, done.err)
    }

    pub(crate) fn json(&self, line: &str, code: i32) -> Value {
        let done = self.skein(&format!("{line} --format json"));
        assert_eq!((done.code, done.err.as_str()), (code, ""), "`skein {line}`:\n{}", done.out);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}", done.out))
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = skein(&self.folder.0);
        command.args(line.split_whitespace());
        command
    }

    /// Starts a command that runs in parallel and is followed line by line.
    pub(crate) fn begin(&self, line: &str) -> Going {
        self.begin_as(&self.command(line))
    }

    pub(crate) fn begin_as(&self, command: &Command) -> Going {
        let mut command = as_it_is(command);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        Going::new(child)
    }

    /// The id of a run that was started by `run --no-wait` and left at its first question.
    pub(crate) fn left(&self, file: &str) -> String {
        let result = self.json(&format!("run {file} --no-wait"), 6);
        result["run_id"].as_str().expect("it has an id").to_owned()
    }

    /// The events of a run.
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        self.json(&format!("events {run}"), 0)["events"].as_array().expect("it is a list").clone()
    }

    pub(crate) fn status(&self, run: &str) -> String {
        self.json(&format!("runs {run}"), 0)["status"].as_str().expect("it is text").to_owned()
    }

    /// Asserts that each attempt and each step of a run ended once.
    pub(crate) fn ended_once(&self, run: &str) {
        let events = self.events(run);
        for (begun, over, key) in [("attempt_started", "attempt_ended", "attempt"), ("step_ready", "step_ended", "at")]
        {
            let of = |name: &str| -> Vec<String> {
                let all = events.iter().filter_map(|event| event["event"].get(name)?.get(key));
                all.map(ToString::to_string).collect()
            };
            let (mut started, mut ended) = (of(begun), of(over));
            started.sort();
            ended.sort();
            let count = ended.len();
            ended.dedup();
            assert_eq!(ended.len(), count, "no {key} ends twice: {ended:?}");
            if key == "attempt" {
                assert_eq!(started, ended, "each attempt that began has ended");
            }
        }
    }
}

/// Runs something that must finish soon, in a thread that can be abandoned.
fn within<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (to, from) = channel();
    std::thread::spawn(move || to.send(body()));
    from.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}"))
}

/// A running command.
pub(crate) struct Going {
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Going {
    pub(crate) fn new(mut child: Child) -> Going {
        let (out, err): (ChildStdout, _) =
            (child.stdout.take().expect("it is a pipe"), child.stderr.take().expect("it is a pipe"));
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                if to.send(line.expect("it is text")).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&errors);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(err).lines() {
                let line = line.expect("it is text") + "\n";
                told.lock().expect("it is read").push_str(&line);
            }
        });
        Going { child, lines, errors, reader: Some(reader) }
    }

    /// Reads lines until one contains this text, and returns it.
    pub(crate) fn until(&self, part: &str) -> String {
        let mut before = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                let errors = self.errors.lock().expect("it was read");
                panic!("there is no line with `{part}`, only:\n{before}\nand as errors:\n{errors}");
            };
            if line.contains(part) {
                return line;
            }
            before = before + &line + "\n";
        }
    }

    /// The id of the run whose events are followed.
    pub(crate) fn run(&self) -> String {
        let line: Value = serde_json::from_str(&self.until("run_started")).expect("it is JSON");
        line["event"]["run_started"]["start"]["run"].as_str().expect("it has an id").to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it can be signalled");
    }

    /// Waits for the end. Returns the exit status (`None` after a signal), the unread output, and the errors.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let rest: Vec<String> = {
            let mut rest = Vec::new();
            while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
                rest.push(line);
            }
            rest
        };
        let status = self.child.wait().expect("it ends");
        self.reader.take().expect("once").join().expect("it is text");
        let errors = self.errors.lock().expect("it was read").clone();
        (status.code(), rest.join("\n"), errors)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program at a terminal with `script`, which every Linux has.
pub(crate) fn at_a_terminal(folder: &Folder, line: &str) -> (Going, ChildStdin) {
    let line = format!("stty rows 30 cols 120; exec {} {line}", env!("CARGO_BIN_EXE_skein"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).envs(skein(&folder.0).get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.current_dir(&folder.0).env_remove("SKEIN_STATE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let stdin = child.stdin.take().expect("it is a pipe");
    (Going::new(child), stdin)
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// True if a process exists and is not a zombie.
pub(crate) fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}
