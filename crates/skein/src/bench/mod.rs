//! Benchmarks of Skein on this machine, compared with the machine's own speed in the same minute.
//!
//! Owns the list of measurements, their number of rounds, and the goals. The work is done by `skein_host::bench`, or by
//! this program in a process of its own. Other load on the machine affects both sides, so the ratios mean more than the
//! times.

mod folder;
mod measurement;
mod resume;
mod startup;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use skein_core::plan::Plan;
use skein_host::bench::{self, BenchError};

pub(crate) use self::{
    folder::{BenchFolder, BenchFolderError},
    measurement::BenchReport,
    resume::leave_runs,
};

use self::measurement::{BenchGoal, BenchMeasurement, BenchUnit};

type BenchResult<T> = Result<T, BenchError>;

/// The sizes of the measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchScale {
    /// The number of rounds; the best counts.
    rounds: usize,
    chain: usize,
    width: usize,
    runs: usize,
    workers: usize,
}

impl BenchScale {
    /// The sizes that the goals refer to.
    pub(crate) const FULL: BenchScale = BenchScale { rounds: 5, chain: 100, width: 1_000, runs: 1_000, workers: 200 };
    /// Small sizes to check that everything can be measured.
    pub(crate) const QUICK: BenchScale = BenchScale { rounds: 1, chain: 10, width: 20, runs: 20, workers: 10 };
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
pub(crate) fn measure_all(folder: &Path, sizes: &BenchScale) -> BenchResult<BenchReport> {
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
    lines.extend(startup::measure_startup(folder, sizes.rounds, machine.spawn)?);
    lines.extend(resume::measure_resume(folder, sizes, machine.commit)?);
    Ok(BenchReport { machine: machine.baseline_rows(), lines })
}

/// Measures runs whose steps are built-in functions, compared with the same runs under an executor that does nothing.
fn measure_functions(folder: &Path, sizes: &BenchScale) -> BenchResult<BenchMeasurement> {
    let plan = bench::of_functions(SHORT);
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
