//! `skein bench`: measures the speed of Skein on this machine, compared with the machine's own speed in the same minute.
//!
//! Owns the list of measurements, their number of rounds, the goals, and the folder for measurements. The work is done by
//! `skein_host::bench`, or by this program in a process of its own. Other load on the machine affects both sides, so the
//! ratios mean more than the times.

mod child_process;
mod measurement;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use rustix::fs::{FlockOperation, flock};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use skein_app::{app::App, app_error::AppError};
use skein_core::plan::Plan;
use skein_host::bench::{self, BenchError};

use self::measurement::{BenchGoal, BenchMeasurement, BenchReport, BenchUnit};
use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct BenchArguments {
    /// Measure less, to check that it works; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// Exit with status 4 if a goal is missed.
    #[arg(long)]
    check: bool,
    /// Internal: start runs and wait to be killed.
    #[arg(long, hide = true, requires = "runs")]
    leave: Option<String>,
    #[arg(long, hide = true)]
    runs: Option<usize>,
}

pub(super) fn run(arguments: &BenchArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let state = app.state_path();
    if let (Some(what), Some(runs)) = (&arguments.leave, arguments.runs) {
        let left = child_process::leave_runs(&state, what, runs);
        return left.map(|()| Exit::Done).map_err(|error| AppError::store(error.to_string()));
    }
    let folder = BenchFolder::new(&state)?;
    remove_when_stopped(folder.path.clone())
        .map_err(|error| AppError::bug(format!("cannot install signal handlers: {error}")))?;
    let sizes = if arguments.quick { BenchScale::QUICK } else { BenchScale::FULL };
    let report =
        measure_all(&folder.path, &sizes).map_err(|error| AppError::store(format!("the benchmark failed: {error}")))?;
    output.print_result(|| report.to_json(), || report.render_text(output.paint));
    Ok(if arguments.check && !report.is_met() { Exit::Failed } else { Exit::Done })
}

type BenchResult<T> = Result<T, BenchError>;

/// The sizes of the measurements.
#[derive(Debug, Clone, Copy)]
struct BenchScale {
    /// The number of rounds; the best counts.
    rounds: usize,
    chain: usize,
    width: usize,
    runs: usize,
    workers: usize,
}

impl BenchScale {
    /// The sizes that the goals refer to.
    const FULL: BenchScale = BenchScale { rounds: 5, chain: 100, width: 1_000, runs: 1_000, workers: 200 };
    /// Small sizes to check that everything can be measured.
    const QUICK: BenchScale = BenchScale { rounds: 1, chain: 10, width: 20, runs: 20, workers: 10 };
}

/// Numbers of concurrent workers.
const AT_ONCE: [u32; 2] = [2, 16];
/// The number of steps of each of many runs.
const SHORT: usize = 10;

/// The speed of the machine without Skein: seconds per operation.
#[derive(Debug)]
struct MachineBaseline {
    commit: f64,
    sync: f64,
    spawn: f64,
    /// For each of [`AT_ONCE`], by `make` and by threads that do nothing else.
    make: [Option<f64>; 2],
    spawns: [f64; 2],
}

/// Makes all measurements in a folder that is emptied now and then.
fn measure_all(folder: &Path, sizes: &BenchScale) -> BenchResult<BenchReport> {
    let mut lines = Vec::new();
    let mut machine = MachineBaseline::measure(folder, sizes)?;
    let (chain, fan_out, short) =
        (bench::chain_plan(sizes.chain), bench::fan_out_plan(sizes.width), bench::chain_plan(SHORT));
    let [mut step, mut fan, mut all] = [f64::INFINITY; 3];
    // Alternates, so that other load on the machine affects both alike.
    for _ in 0..sizes.rounds {
        machine.measure_commits(folder, sizes)?;
        step =
            step.min(seconds_each(with_state_folder(folder, |state| bench::time_runs(state, &chain, 1))?, sizes.chain));
        fan = fan.min(seconds_each(with_state_folder(folder, |state| bench::time_runs(state, &fan_out, 1))?, 1));
        let runs = with_state_folder(folder, |state| bench::time_runs(state, &short, sizes.runs))?;
        all = all.min(seconds_each(runs, sizes.runs * SHORT));
    }
    let commit = Some(("one commit", machine.commit));
    let name = format!("chain of {} steps, each", sizes.chain);
    lines.push(BenchMeasurement::new("chain", name, step, BenchUnit::Time, commit, BenchGoal::Ratio(1.6)));
    let name = format!("fan-out of {} and a join", sizes.width);
    lines.push(BenchMeasurement::new("fan_out", name, fan, BenchUnit::Time, commit, BenchGoal::Figure(0.050)));
    let name = format!("{} runs of {SHORT} steps", sizes.runs);
    lines.push(BenchMeasurement::new("runs", name, all, BenchUnit::Rate, commit, BenchGoal::Figure(1.0 / 50_000.0)));
    lines.push(measure_functions(folder, sizes)?);
    for (at, at_once) in AT_ONCE.into_iter().enumerate() {
        lines.push(measure_workers(folder, sizes, &mut machine, at, at_once)?);
    }
    lines.extend(child_process::measure_startup(folder, sizes.rounds, machine.spawn)?);
    lines.extend(child_process::measure_resume(folder, sizes, machine.commit)?);
    Ok(BenchReport { machine: machine.baseline_rows(), lines })
}

/// Measures runs whose steps are built-in functions, compared with the same runs under an executor that does nothing.
fn measure_functions(folder: &Path, sizes: &BenchScale) -> BenchResult<BenchMeasurement> {
    let plan = bench::function_plan(SHORT);
    let [mut done, mut nobody] = [f64::INFINITY; 2];
    for _ in 0..sizes.rounds {
        let each = |by: bool| {
            let took = with_state_folder(folder, |state| bench::time_functions(state, &plan, sizes.runs, by));
            took.map(|took| seconds_each(took, sizes.runs * SHORT))
        };
        nobody = nobody.min(each(false)?);
        done = done.min(each(true)?);
    }
    let name = format!("{} runs of {SHORT} steps that are functions", sizes.runs);
    let limit = Some(("the same without execution,", nobody));
    Ok(BenchMeasurement::new("functions", name, done, BenchUnit::Rate, limit, BenchGoal::Ratio(0.8)))
}

/// Measures one run whose steps each start a process that does nothing.
fn measure_workers(
    folder: &Path,
    sizes: &BenchScale,
    machine: &mut MachineBaseline,
    at: usize,
    at_once: u32,
) -> BenchResult<BenchMeasurement> {
    let plan: Plan = bench::parallel_plan(sizes.workers, at_once);
    let mut each = f64::INFINITY;
    for _ in 0..sizes.rounds {
        machine.measure_spawns(folder, sizes, at, at_once as usize)?;
        each = each.min(seconds_each(
            with_state_folder(folder, |state| bench::time_programs(state, &plan, at_once))?,
            sizes.workers,
        ));
    }
    let limit = match machine.make[at] {
        Some(make) => (["make -j2", "make -j16"][at], make),
        None => ("as many threads", machine.spawns[at]),
    };
    let id = ["workers_2", "workers_16"][at];
    let name = format!("{} steps that start `true`, {at_once} at once", sizes.workers);
    Ok(BenchMeasurement::new(id, name, each, BenchUnit::Rate, Some(limit), BenchGoal::Ratio(1.0)))
}

impl MachineBaseline {
    fn measure(folder: &Path, sizes: &BenchScale) -> BenchResult<MachineBaseline> {
        let [commit, sync, spawn] = [f64::INFINITY; 3];
        let mut machine = MachineBaseline { commit, sync, spawn, make: [None; 2], spawns: [f64::INFINITY; 2] };
        for _ in 0..sizes.rounds {
            machine.sync = machine.sync.min(seconds_each(bench::time_syncs(folder, sizes.chain)?, sizes.chain));
            machine.spawn = machine.spawn.min(seconds_each(bench::time_spawns(sizes.workers, 1)?, sizes.workers));
        }
        Ok(machine)
    }

    fn measure_commits(&mut self, folder: &Path, sizes: &BenchScale) -> BenchResult<()> {
        self.commit = self.commit.min(seconds_each(bench::time_commits(folder, sizes.chain)?, sizes.chain));
        Ok(())
    }

    fn measure_spawns(&mut self, folder: &Path, sizes: &BenchScale, at: usize, at_once: usize) -> BenchResult<()> {
        let make = bench::time_make(folder, sizes.workers, at_once)?.map(|took| seconds_each(took, sizes.workers));
        self.make[at] = make.map(|make| self.make[at].unwrap_or(make).min(make));
        self.spawns[at] = self.spawns[at].min(seconds_each(bench::time_spawns(sizes.workers, at_once)?, sizes.workers));
        Ok(())
    }

    /// Returns the id and name of each baseline, and its seconds per operation; none: not available.
    fn baseline_rows(&self) -> Vec<(&'static str, &'static str, Option<f64>)> {
        vec![
            ("commits", "synced commits", Some(self.commit)),
            ("syncs", "bare syncs", Some(self.sync)),
            ("spawns", "starts of `true`", Some(self.spawn)),
            ("spawns_2", "starts of `true`, 2 at once", Some(self.spawns[0])),
            ("spawns_16", "starts of `true`, 16 at once", Some(self.spawns[1])),
            ("make_2", "targets of `make -j2`", self.make[0]),
            ("make_16", "targets of `make -j16`", self.make[1]),
        ]
    }
}

/// Calls a function with a new state folder. The folder is removed after all measurements: file systems are slow to
/// create files where many have just been removed.
fn with_state_folder<T>(folder: &Path, what: impl FnOnce(&Path) -> BenchResult<T>) -> BenchResult<T> {
    what(&unused_path(folder, "state")?)
}

/// Returns a path that does not exist yet.
fn unused_path(folder: &Path, name: &str) -> BenchResult<PathBuf> {
    let number = fs::read_dir(folder)?.count();
    Ok(folder.join(format!("{name}-{number}")))
}

/// Returns the seconds per operation.
fn seconds_each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() / count as f64
}

/// The folder for measurements, on the disk where runs are kept, because that disk is measured. It is removed when this
/// value is dropped. Its owner holds a lock, which distinguishes it from a folder
/// that a killed process left.
#[derive(Debug)]
struct BenchFolder {
    path: PathBuf,
    _lock: File,
}

impl BenchFolder {
    /// Creates the folder in the state folder, or next to the path where that would be.
    fn new(state: &Path) -> Result<BenchFolder, AppError> {
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        let path = match state.is_dir() {
            true => state.join("bench"),
            false => {
                let there = state.ancestors().skip(1).find(|path| path.is_dir());
                there.unwrap_or(Path::new("/")).join(".skein-bench")
            }
        };
        let lock = lock_empty_folder(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                AppError::refused("another benchmark is running here, and two at once would disturb each other")
                    .with_hint("try again when it has ended")
            }
            _ => AppError::store(format!("`{}` cannot be used: {error}", path.display()))
                .with_hint("choose another place with `--state DIR` or `SKEIN_STATE`"),
        })?;
        Ok(BenchFolder { path, _lock: lock })
    }
}

/// Creates or empties the folder, and locks it.
fn lock_empty_folder(path: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let name = path.join("lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&name)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    for entry in fs::read_dir(path)? {
        let left = entry?.path();
        match left.is_dir() {
            true => fs::remove_dir_all(left)?,
            false if left != name => fs::remove_file(left)?,
            false => {}
        }
    }
    Ok(lock)
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        // Files that cannot be removed now are removed when the next folder is created.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folder also when the command is stopped by a signal.
fn remove_when_stopped(folder: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let body = move || {
        if signals.forever().next().is_some() {
            // Other threads write to it until the process has ended, so removal is tried twice.
            let _ = fs::remove_dir_all(&folder).or_else(|_| fs::remove_dir_all(&folder));
            std::process::exit(i32::from(Exit::Stopped as u8));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(body).map(drop)
}
