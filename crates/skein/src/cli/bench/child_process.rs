//! Measurements of this program in processes of its own: the time and memory from the start of `skein run` to its first
//! step, and the time to resume runs whose process was killed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, mkfifoat},
};
use serde_json::Value;
use skein_app::state::admit_folder;
use skein_host::bench::{self, BenchError};

use super::{
    BenchResult, BenchScale,
    measurement::{BenchGoal, BenchMeasurement, BenchUnit},
    unused_path, with_state_folder,
};
use crate::exit::Exit;

/// A workflow with a step that reports its start, and waits.
const SOURCE: &str = "name: start\nversion: \"1\"\ntimeout: 10m\nsteps:\n  first:\n    worker: CUSTOM\n    \
                      capabilities: [READ, EDIT]\n    instructions: 'echo > begun; read -r go < go || true'\n";
/// Longer than any machine takes.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

pub(super) fn measure_startup(folder: &Path, rounds: usize, spawn: f64) -> BenchResult<[BenchMeasurement; 2]> {
    let (mut time, mut memory) = (f64::INFINITY, 0.0_f64);
    for _ in 0..rounds {
        let project = unused_path(folder, "project")?;
        fs::create_dir(&project)?;
        let (took, bytes) = measure_first_step(&project)?;
        (time, memory) = (time.min(took), memory.max(bytes));
    }
    let limit = Some(("one start of `true`", spawn));
    let name = "from `skein run` to its first step".to_owned();
    Ok([
        BenchMeasurement::new("start", name, time, BenchUnit::Time, limit, BenchGoal::Figure(0.015)),
        BenchMeasurement::new(
            "memory",
            "peak memory until then".to_owned(),
            memory,
            BenchUnit::Bytes,
            None,
            BenchGoal::Figure(20e6),
        ),
    ])
}

/// Returns seconds and bytes.
fn measure_first_step(project: &Path) -> BenchResult<(f64, f64)> {
    fs::write(project.join("start.yaml"), SOURCE)?;
    fs::write(project.join("skein.toml"), "")?;
    let (begun, mut go) = (create_pipe(&project.join("begun"))?, create_pipe(&project.join("go"))?);
    let mut command = skein_command()?;
    command.args(["run", "start.yaml", "--format", "json", "--state", "state"]).current_dir(project);
    let began = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let measured = wait_for_step(&mut child, &begun).map(|()| began.elapsed().as_secs_f64());
    let measured = measured.and_then(|took| Ok((took, read_peak_memory(child.id())?)));
    // Releases the step; if it has not started, the command ends by itself.
    go.write_all(b"\n")?;
    if measured.is_err() {
        child.kill()?;
    }
    let mut printed = String::new();
    child.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut printed))?;
    match (measured, child.wait()?.success()) {
        (Ok(measured), true) => Ok(measured),
        (Ok(_), false) => Err(BenchError::Failed(format!("a run of one step failed: {printed}"))),
        (Err(error), _) => Err(error),
    }
}

/// Waits until the step has started.
fn wait_for_step(child: &mut Child, begun: &File) -> BenchResult<()> {
    let Some(out) = &child.stdout else { return Ok(()) };
    let mut polled = [PollFd::new(begun, PollFlags::IN), PollFd::new(out, PollFlags::IN)];
    poll(&mut polled, Some(&PATIENCE)).map_err(io::Error::from)?;
    match polled[0].revents().is_empty() {
        false => Ok(()),
        true => Err(BenchError::Failed("the step of a run did not start".to_owned())),
    }
}

/// Returns the peak memory of a process, in bytes.
fn read_peak_memory(pid: u32) -> BenchResult<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0)
        .ok_or_else(|| BenchError::Failed("the system does not report the peak memory of a process".to_owned()))
}

/// Creates a named pipe that is open at both ends, so that opening it waits for nobody.
fn create_pipe(path: &Path) -> io::Result<File> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// The kind of work that is left unfinished in each run.
const GATE: &str = "gate";
const STEP: &str = "step";
/// The line that the process prints before it is killed.
const READY: &str = "ready";
/// The number of rounds.
const ROUNDS: usize = 3;

pub(super) fn measure_resume(folder: &Path, sizes: &BenchScale, commit: f64) -> BenchResult<[BenchMeasurement; 2]> {
    let [mut waiting, mut steps] = [f64::INFINITY; 2];
    for _ in 0..sizes.rounds.min(ROUNDS) {
        waiting = waiting.min(with_state_folder(folder, |state| resume_waiting(state, sizes.runs))?);
        steps = steps.min(with_state_folder(folder, |state| finish_steps(state, sizes.runs))?);
    }
    let (limit, goal) = (Some(("one commit", commit)), BenchGoal::Figure(2.0));
    let name = format!("`resume --all` of {} runs at a gate", sizes.runs);
    let other = format!("resuming {} runs of one step", sizes.runs);
    Ok([
        BenchMeasurement::new("resume_gates", name, waiting, BenchUnit::Time, limit, goal),
        BenchMeasurement::new("resume_steps", other, steps, BenchUnit::Time, limit, goal),
    ])
}

/// Returns a command that starts this program.
fn skein_command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.stdin(Stdio::null()).env_remove("SKEIN_STATE");
    Ok(command)
}

/// Returns the same for a state folder that is registered beside it, and not among those of the user.
fn skein_command_for(state: &Path) -> io::Result<Command> {
    let mut command = skein_command()?;
    if let Some(beside) = state.parent() {
        command.env("XDG_STATE_HOME", std::path::absolute(beside)?);
    }
    Ok(command)
}

/// Starts runs and waits to be killed, or for the end of the parent process.
pub(super) fn leave_runs(state: &Path, what: &str, runs: usize) -> BenchResult<()> {
    admit_folder(Some(state), state).map_err(|error| BenchError::Failed(error.to_string()))?;
    let left = match what {
        STEP => bench::leave_unfinished(state, &bench::chain_plan(1), runs, true)?,
        _ => bench::leave_unfinished(state, &bench::gated_plan(), runs, false)?,
    };
    let mut out = io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(left);
    Ok(())
}

/// Creates runs in a state folder whose owner was killed.
fn orphan_runs(state: &Path, what: &str, runs: usize) -> BenchResult<()> {
    let mut command = skein_command_for(state)?;
    command.arg("bench").args(["--leave", what, "--runs", &runs.to_string(), "--state"]).arg(state);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let ready = read_first_line(&mut child);
    child.kill()?;
    child.wait()?;
    match ready?.trim() {
        READY => Ok(()),
        other => Err(BenchError::Failed(format!("runs could not be left unfinished: {other}"))),
    }
}

fn read_first_line(child: &mut Child) -> io::Result<String> {
    let mut line = String::new();
    child.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line))?;
    Ok(line)
}

/// Measures the whole command, which finds all runs at a gate, claims them, and releases them again.
fn resume_waiting(state: &Path, runs: usize) -> BenchResult<f64> {
    orphan_runs(state, GATE, runs)?;
    let mut command = skein_command_for(state)?;
    command.args(["resume", "--all", "--no-wait", "--format", "json", "--state"]).arg(state);
    let began = Instant::now();
    let done = command.output()?;
    let took = began.elapsed().as_secs_f64();
    let printed: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    let resumed = printed["runs"].as_array().map_or(0, Vec::len);
    if resumed != runs || done.status.code() != Some(Exit::Waiting as i32) {
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(BenchError::Failed(format!("{resumed} of {runs} runs were resumed: {stderr}")));
    }
    Ok(took)
}

/// Measures in this process, with an executor that does nothing: opens the store, claims all runs, and completes the
/// step of each.
fn finish_steps(state: &Path, runs: usize) -> BenchResult<f64> {
    orphan_runs(state, STEP, runs)?;
    let (finished, took) = bench::time_resume(state)?;
    match finished == runs {
        true => Ok(took.as_secs_f64()),
        false => Err(BenchError::Failed(format!("{finished} of {runs} runs were resumed"))),
    }
}
