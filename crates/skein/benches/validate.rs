//! What `skein validate` costs a person who waits for it, beside what `ninja -n` costs for the same graph.
//!
//! Chains of steps in each format that has dependencies, as files, through the built program. The programs take turns,
//! so that a busy machine slows all of them alike, and the best of several rounds counts. Says PASS or FAIL for each
//! goal, and fails with the last. Needs `ninja`.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// 10,000 steps may cost this many times 1,000 steps.
const LINEAR: f64 = 12.0;
/// `skein validate` may cost this many times `ninja -n`.
const OF_NINJA: f64 = 1.0;
/// A small file may take this much longer than a program that does nothing.
const START: Duration = Duration::from_millis(10);
const SIZES: [usize; 2] = [1_000, 10_000];
const ROUNDS: usize = 15;

/// How a chain is written: what comes first, and each step.
type Written = (&'static str, &'static str, fn(&mut String, usize));

const FORMATS: [Written; 3] = [
    ("agentcore", "name: chain\nversion: \"1\"\ntimeout: 5h\nsteps:\n", agentcore),
    (
        "ioa",
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata:\n  name: chain\nspec:\n  description: A chain.\n  \
         domainsInvolved: [parts]\n  timeout: 5h\n  steps:\n",
        ioa,
    ),
    ("swdl", "workflow:\n  id: chain\n  name: A chain\nconfig:\n  timeout: 5h\nstages:\n", swdl),
];

const NINJA: Written = ("ninja", "rule run\n  command = true\n", ninja);

/// A workflow as small as people write.
const SMALL: &str = "\
name: small
version: \"1\"
timeout: 1h
steps:
  build:
    worker: CUSTOM
    instructions: make
    capabilities: [RUN_COMMANDS]
    timeout: 10m
  test:
    worker: CUSTOM
    depends_on: [build]
    instructions: make test
    capabilities: [RUN_TESTS]
    timeout: 10m
";

fn main() -> ExitCode {
    if Command::new("ninja").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("this compares with ninja, and there is none: install it (on Debian the package `ninja-build`)");
        return ExitCode::FAILURE;
    }
    let folder = Folder::new();
    let mut passed = true;
    let [thousand, ten_thousand] = SIZES.map(|size| best(&mut programs(&folder.0, size)));
    for (i, (name, ..)) in FORMATS.iter().chain([&NINJA]).enumerate() {
        let (small, large) = (thousand[i], ten_thousand[i]);
        println!("{name:<10} {:>8.2} ms for 1,000 {:>8.2} ms for 10,000", millis(small), millis(large));
    }
    let [.., ninja_small] = thousand[..] else { unreachable!("ninja is among the programs") };
    let [.., ninja_large] = ten_thousand[..] else { unreachable!("ninja is among the programs") };
    for (i, (name, ..)) in FORMATS.iter().enumerate() {
        let (small, large) = (thousand[i], ten_thousand[i]);
        passed &= ratio(&format!("{name}: 10,000 steps to 1,000"), large, small, LINEAR);
        passed &= ratio(&format!("{name}: to ninja, 1,000 steps"), small, ninja_small, OF_NINJA);
        passed &= ratio(&format!("{name}: to ninja, 10,000 steps"), large, ninja_large, OF_NINJA);
    }
    passed &= start(&folder.0);
    says(passed, "all goals");
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn says(passed: bool, what: &str) -> bool {
    println!("{} {what}", if passed { "PASS" } else { "FAIL" });
    passed
}

fn ratio(what: &str, one: Duration, other: Duration, goal: f64) -> bool {
    let ratio = one.as_secs_f64() / other.as_secs_f64();
    says(ratio <= goal, &format!("{what}: {ratio:.2}, goal {goal}"))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What a small file costs beyond starting a process at all.
fn start(folder: &Path) -> bool {
    let [nothing, small] = best(&mut [Command::new("true"), validate(folder, "small.yaml", SMALL)])[..] else {
        unreachable!("there are two programs")
    };
    let more = small.saturating_sub(nothing);
    let lines = SMALL.lines().count();
    println!("{:<10} {:>8.2} ms for {lines} lines {:>8.2} ms for `true`", "start", millis(small), millis(nothing));
    says(more < START, &format!("{lines} lines: {:.2} ms more than `true`, goal {}", millis(more), millis(START)))
}

/// The same chain in each format, and for ninja, which is the last.
fn programs(folder: &Path, size: usize) -> Vec<Command> {
    let validated =
        FORMATS.map(|written| validate(folder, &format!("{}-{size}.yaml", written.0), &chain(written, size)));
    let built = folder.join(format!("ninja-{size}"));
    fs::create_dir_all(&built).expect("the folder can be written");
    fs::write(built.join("build.ninja"), chain(NINJA, size)).expect("the folder can be written");
    let mut ninja = Command::new("ninja");
    ninja.arg("-n").arg("-C").arg(built);
    validated.into_iter().chain([ninja]).collect()
}

fn validate(folder: &Path, name: &str, text: &str) -> Command {
    let path = folder.join(name);
    fs::write(&path, text).expect("the folder can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_skein"));
    command.arg("validate").arg(path);
    command
}

/// How long each program takes, at best.
fn best(programs: &mut [Command]) -> Vec<Duration> {
    let mut best = vec![Duration::MAX; programs.len()];
    for _ in 0..ROUNDS {
        for (program, best) in programs.iter_mut().zip(&mut best) {
            *best = taken(program).min(*best);
        }
    }
    best
}

fn taken(program: &mut Command) -> Duration {
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = program.status().expect("the program starts");
    let taken = begin.elapsed();
    assert!(status.success(), "{program:?} ended with {status}");
    taken
}

fn chain((_, head, step): Written, size: usize) -> String {
    let mut text = head.to_owned();
    (0..size).for_each(|i| step(&mut text, i));
    text
}

fn agentcore(text: &mut String, i: usize) {
    let _ = writeln!(text, "  s{i}:\n    worker: CUSTOM\n    instructions: make\n    capabilities: [READ]");
    after(text, i, "    depends_on");
}

fn ioa(text: &mut String, i: usize) {
    let _ = writeln!(text, "    - name: s{i}\n      agent: builder\n      action: Build it.");
    after(text, i, "      dependsOn");
}

fn swdl(text: &mut String, i: usize) {
    let _ = writeln!(text, "  - id: s{i}\n    name: Part {i}\n    roles: {{primary: \"agent:builder\"}}");
    after(text, i, "    depends_on");
}

fn after(text: &mut String, i: usize, field: &str) {
    if let Some(before) = i.checked_sub(1) {
        let _ = writeln!(text, "{field}: [s{before}]");
    }
}

fn ninja(text: &mut String, i: usize) {
    let before = i.checked_sub(1).map_or(String::new(), |before| format!(" out_{before}"));
    let _ = writeln!(text, "build out_{i}: run{before}");
}

/// A project of its own, so that nothing around it is looked at. Gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("validate-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be made");
        fs::write(path.join("skein.toml"), "").expect("the folder can be written");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
