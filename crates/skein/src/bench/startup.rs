//! Benchmark of startup: the time from the start of `skein run` to the start of the first step, and the peak memory
//! until then.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Child, Stdio},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, mkfifoat},
};
use skein_host::bench::BenchError;

use super::{
    BenchResult,
    measurement::{BenchGoal, BenchMeasurement, BenchUnit},
};

/// A workflow with a step that reports its start, and waits.
const SOURCE: &str = "name: start\nversion: \"1\"\ntimeout: 10m\nsteps:\n  first:\n    worker: CUSTOM\n    \
                      capabilities: [READ, EDIT]\n    instructions: 'echo > begun; read -r go < go || true'\n";
/// Longer than any machine takes.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

pub(super) fn measure_startup(folder: &Path, rounds: usize, spawn: f64) -> BenchResult<[BenchMeasurement; 2]> {
    let (mut time, mut memory) = (f64::INFINITY, 0.0_f64);
    for _ in 0..rounds {
        let project = super::unused_path(folder, "project")?;
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
    let mut command = super::resume::skein_command()?;
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
